# SPDX-License-Identifier: BSD-2-Clause
"""Readers of trained networks, one file a source; `load_network` picks one by the file's suffix."""

from pathlib import Path

from ..errors import InputError
from ..network import Network
from .arrays import load_arrays

__all__ = ["load_network"]

READERS = {".npz": load_arrays, ".safetensors": load_arrays}


def load_network(path: str | Path, *, masks: str | Path | None = None) -> Network:
    """Read a trained network.

    Parameters
    ----------
    path : str or Path
        ``.npz`` or ``.safetensors`` (`importers/arrays.py` says which names it should hold).
    masks : str or Path, optional
        A second such file with the pruning masks.

    Raises
    ------
    FormatError
        The file is of another kind, damaged, or pickled.
    InputError
        The file is missing, or holds no network that can be used.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: cannot read files that end in {path.suffix!r}, "
            f"expected {' or '.join(READERS)}"
        )
    return reader(path, None if masks is None else Path(masks))
