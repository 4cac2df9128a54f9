# SPDX-License-Identifier: BSD-2-Clause
"""Tensors of PyTorch as numpy arrays, and the state dicts in `.pt` and `.pth` files.

Files are read with ``weights_only=True``: nothing in them is executed.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, InputError
from .extras import import_extra

__all__ = ["open_state_dict", "to_numpy"]


def to_numpy(where: str, tensor: Any) -> npt.NDArray[Any]:
    """A tensor as an array: sparse ones (COO, CSR, 2:4 and others) made dense, bfloat16 as float32.

    Raises
    ------
    InputError
        It cannot be converted; `where` starts the message.
    """
    torch = import_extra("torch", where)
    try:
        plain = tensor.detach()
        if plain.layout != torch.strided or type(plain) not in (torch.Tensor, torch.nn.Parameter):
            plain = plain.to_dense()
        if plain.dtype == torch.bfloat16:
            plain = plain.float()
        return np.array(plain.cpu().numpy())
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{where} of type {tensor.dtype} cannot be turned into numbers ({reason}); "
            "expected a tensor of floats, dense or sparse"
        ) from None


def open_state_dict(path: Path) -> dict[str, partial[npt.NDArray[Any]]]:
    """Readers of the tensors in a file by name, in the file's order.

    The file holds a state dict, or a checkpoint: a dict with one state dict among its values.

    Raises
    ------
    FormatError
        Damaged, or it holds other objects than tensors and plain containers.
    InputError
        No state dict in it, or several.
    ToolError
        PyTorch is not installed.
    """
    torch = import_extra("torch", f"{path}: reading PyTorch files")
    advice = "save a state dict, torch.save(module.state_dict(), path)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files it then refuses
            held = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise FormatError(
            f"{path}: holds pickled Python objects, such as a whole module, which are never "
            f"loaded, or is damaged; {advice}, or hand the module to from_torch"
        ) from None
    except Exception as error:  # damaged bytes lead to errors of a dozen kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise FormatError(f"{path}: not a whole file of torch.save ({reason}); {advice}") from None
    tensors = _find_tensors(path, held, torch.Tensor)
    return {name: partial(to_numpy, f"{path}: {name}", tensor) for name, tensor in tensors.items()}


def _find_tensors(path: Path, held: Any, kind: type) -> dict[str, Any]:
    """The state dict that a file holds, itself or as one value of a checkpoint."""

    def tensors(value: Any) -> dict[str, Any]:
        items = value.items() if isinstance(value, Mapping) else ()
        return {str(name): one for name, one in items if isinstance(one, kind)}

    found = {"": tensors(held)}
    if not found[""]:
        nested = held.items() if isinstance(held, Mapping) else ()
        found = {str(name): tensors(value) for name, value in nested if tensors(value)}
    if len(found) == 1:
        return next(iter(found.values()))
    what = (
        f"state dicts {', '.join(found)}" if found else f"a {type(held).__name__} without tensors"
    )
    raise InputError(
        f"{path}: found {what}, expected one state dict; save the one you want on its own"
    )
