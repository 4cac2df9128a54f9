# SPDX-License-Identifier: BSD-2-Clause
"""Reading .npy files from strangers, and writing files that are either whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from .errors import FormatError, InputError

__all__ = ["open_atomic", "read_npy"]


def read_npy(path: Path) -> npt.NDArray[np.generic]:
    """Array of a .npy file, copied into memory.

    The file is mapped first: a header that claims more than the file holds is refused before
    anything is allocated, and pickled objects are refused unread.

    Raises
    ------
    FormatError
        Not a .npy file, pickled, truncated, or a header that claims too much.
    InputError
        The file is missing, unreadable or holds no element.
    """
    try:
        with path.open("rb") as stream:
            found = _foreign(stream.read(6))
        array = None if found else np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected a .npy array") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        array = None
        found = "pickled objects" if "Python objects" in str(error) else str(error)
    if array is None:
        raise FormatError(
            f"{path}: found {found}, expected one whole array of numbers; write it with numpy.save"
        )
    if not array.size:
        raise InputError(f"{path}: array of shape {array.shape} is empty, expected samples")
    return np.array(array)


def _foreign(head: bytes) -> str:
    """What a file is that does not start like a .npy file; empty if it does."""
    if head == np.lib.format.MAGIC_PREFIX:
        return ""
    if not head:
        return "an empty file"
    if head.startswith(b"PK"):
        return "an .npz archive"
    return "a pickle" if head.startswith(b"\x80") else "no .npy header"


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` only when the block ends without an error.

    Raises
    ------
    InputError
        The folder is missing or cannot be written to.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
