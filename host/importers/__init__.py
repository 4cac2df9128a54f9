# SPDX-License-Identifier: BSD-2-Clause
"""Readers of trained networks, one file a source; `load_network` picks one by the file's suffix.

What an importer needs beyond the runtime is imported when it is used.
"""

from importlib import import_module
from pathlib import Path

from ..errors import InputError
from ..network import Network
from .scipy import from_scipy
from .sklearn import from_sklearn
from .torch import from_torch

__all__ = ["from_scipy", "from_sklearn", "from_torch", "load_network"]

READERS = {
    ".npz": ("arrays", "load_arrays"),
    ".safetensors": ("arrays", "load_arrays"),
    ".pt": ("arrays", "load_arrays"),
    ".pth": ("arrays", "load_arrays"),
    ".onnx": ("onnx_model", "load_onnx"),
    ".mtx": ("scipy", "load_matrix_market"),
}
"""Module and function that read files of a suffix: ``function(path, masks) -> Network``."""


def load_network(path: str | Path, *, masks: str | Path | None = None) -> Network:
    """Read a trained network.

    Parameters
    ----------
    path : str or Path
        A file of a kind in `READERS`; the module named there says what it should hold.
    masks : str or Path, optional
        A second file with the pruning masks, for files of named arrays.

    Raises
    ------
    FormatError
        The file is of another kind, damaged, or pickled.
    InputError
        The file is missing, or holds no network that can be used.
    ToolError
        Files of this kind need a module that is not installed.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: cannot read files that end in {path.suffix!r}, "
            f"expected {' or '.join(READERS)}"
        )
    module, function = reader
    read = getattr(import_module(f".{module}", __name__), function)
    return read(path, None if masks is None else Path(masks))
