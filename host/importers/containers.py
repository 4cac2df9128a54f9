# SPDX-License-Identifier: BSD-2-Clause
"""Named arrays in `.npz`, `.safetensors` and PyTorch's files, read and never unpickled."""

import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from ..errors import FormatError, InputError
from .torch_tensors import open_state_dict

__all__ = ["Container", "open_container"]

Array = npt.NDArray[Any]

ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, OSError, RuntimeError,
    KeyError, SyntaxError, TypeError,
)  # fmt: skip
"""What zipfile and numpy's header parser raise on damaged bytes."""


@dataclass(frozen=True)
class Container:
    """What a file holds.

    Parameters
    ----------
    path : Path
    arrays : dict
        Reader of each array by name, in the file's order.
    metadata : dict
        Named texts.
    ordered : bool
        Whether the order of the arrays means anything.
    """

    path: Path
    arrays: dict[str, Callable[[], Array]]
    metadata: dict[str, str] = field(default_factory=dict)
    ordered: bool = True


def open_container(path: Path) -> Container:
    """List a file's arrays.

    Raises
    ------
    FormatError
        Not a file of the kind its suffix says, or truncated.
    InputError
        The file is missing or cannot be read.
    ToolError
        Reading it takes PyTorch, which is not installed.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected trained weights") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not head:
        raise FormatError(f"{path}: the file is empty, expected named arrays")
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth"):
        return Container(path, dict(open_state_dict(path)))
    return _open_npz(path, head) if suffix == ".npz" else _open_safetensors(path)


def _open_npz(path: Path, head: bytes) -> Container:
    if not head.startswith(b"PK"):
        found = {b"\x93": "a .npy array", b"\x80": "a pickle"}.get(head[:1], "no zip archive")
        raise FormatError(
            f"{path}: found {found}, expected a .npz archive; write it with numpy.savez"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except ZIP_ERRORS as error:
        raise FormatError(
            f"{path}: the .npz archive is damaged or truncated ({error}); write it again"
        ) from None
    arrays: dict[str, Callable[[], Array]] = {}
    for member in members:
        name = member.removesuffix(".npy")
        if name in arrays:
            raise FormatError(f"{path}: two arrays are named {name!r}, expected unique names")
        arrays[name] = partial(_read_member, path, member)
    return Container(path, arrays)


def _read_member(path: Path, member: str) -> Array:
    where = f"{path}: {member.removesuffix('.npy')}"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            info = archive.getinfo(member)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"compression method {info.compress_type}")
            size = info.file_size
            shape, fortran, dtype = _read_header(stream)
            if dtype.hasobject:
                raise FormatError(
                    f"{where} holds pickled Python objects, which are never loaded; "
                    "expected an array of numbers"
                )
            claimed = math.prod(shape) * dtype.itemsize
            if stream.tell() + claimed != size:
                raise FormatError(
                    f"{where} claims {claimed} bytes of data but holds {size - stream.tell()}; "
                    "the file is damaged, write it again"
                )
            flat = np.frombuffer(stream.read(), dtype=dtype)
    except ZIP_ERRORS as error:
        raise FormatError(f"{where} is damaged or truncated ({error}); write it again") from None
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _open_safetensors(path: Path) -> Container:
    try:
        with safe_open(path, framework="numpy") as file:
            names = sorted(file.keys())
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise FormatError(
            f"{path}: not a whole .safetensors file ({error}); write it again"
        ) from None
    arrays = {name: partial(_read_tensor, path, name) for name in names}
    return Container(path, arrays, metadata, ordered=False)


def _read_tensor(path: Path, name: str) -> Array:
    try:
        with safe_open(path, framework="numpy") as file:
            array = np.array(file.get_tensor(name))
        if array.dtype.isbuiltin != 1:  # with ml_dtypes installed numpy knows more
            raise TypeError(str(array.dtype))
        return array
    except (SafetensorError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise FormatError(
            f"{path}: {name} is of a type that cannot be read ({error}); "
            "expected float16, float32 or float64"
        ) from None
