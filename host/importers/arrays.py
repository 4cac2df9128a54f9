# SPDX-License-Identifier: BSD-2-Clause
"""Networks of fully connected layers from named arrays: `.npz`, `.safetensors`, PyTorch's files.

========================  ==========================================================================
``NAME.weight``           (outputs, inputs); each makes a layer
``NAME.bias``             (outputs,), optional; also ``NAME.bias_orig`` with ``NAME.bias_mask``
``NAME.mask``             0 where a weight is pruned, optional; also ``NAME.weight.mask`` and, as
                          `torch.nn.utils.prune` leaves them, ``NAME.weight_orig`` with
                          ``NAME.weight_mask``
``NAME.activation``       text, ``relu`` or ``none``, optional
``activations``           the same for all layers in order: texts, or one text with commas
``layers``                names in order of evaluation, likewise
``input_range``           lowest and highest input, likewise
========================  ==========================================================================

Texts may stand in the metadata of a `.safetensors` file. Unless told otherwise ReLU stands between
layers and nothing after the last. Layers come in the order of a `.npz` file, and in the natural
order of their names (fc2 before fc10) from `.safetensors`, which keeps no order. A state dict of
PyTorch (`.pt`, `.pth`) holds them in the order in which the module got them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..network import Layer, Network
from .containers import Container, open_container

__all__ = ["apply_mask", "load_arrays"]

WEIGHTS = (".weight", ".weight_orig")
MASKS = (".mask", ".weight.mask", ".weight_mask")
SAME = {"linear": "none", "identity": "none", "": "none"}

Array = npt.NDArray[Any]


class _Source:
    """A container whose names are ticked off as they are used."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.path = container.path
        self.used: set[str] = set()

    def array(self, *names: str) -> Array | None:
        """The first of the named arrays that is there."""
        for name in names:
            if name in self.container.arrays:
                self.used.add(name)
                return self.container.arrays[name]()
        return None

    def texts(self, name: str) -> list[str] | None:
        """Texts from an array or, separated by commas, from the metadata."""
        array = self.array(name)
        if array is None:
            text = self.container.metadata.get(name)
            return None if text is None else [part.strip() for part in text.split(",")]
        flat = array.reshape(-1).tolist()
        return [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in flat]

    def unused(self) -> list[str]:
        """Names nobody asked for."""
        return [name for name in self.container.arrays if name not in self.used]


def load_arrays(path: Path, masks: Path | None = None) -> Network:
    """Read a network; `masks` is a second file that holds only masks.

    Raises
    ------
    FormatError, InputError
        See `load_network`.
    """
    source = _Source(open_container(path))
    mask_source = source if masks is None else _Source(open_container(masks))
    names = _layer_names(source)
    activations = _activations(source, names)
    notes: list[str] = []
    layers = []
    for name, activation in zip(names, activations, strict=True):
        weight = source.array(*(name + suffix for suffix in WEIGHTS))
        assert weight is not None
        suffixes = MASKS if masks is None else (*MASKS, ".weight", "")
        mask = mask_source.array(*(name + suffix for suffix in suffixes))
        if mask is not None:
            weight, note = apply_mask(f"{mask_source.path}: layer {name!r}", weight, mask)
            notes.append(f"layer {name!r}: {note}")
        bias = source.array(f"{name}.bias", f"{name}.bias_orig")
        bias_mask = source.array(f"{name}.bias_mask")
        if bias is not None and bias_mask is not None:
            bias, _ = apply_mask(f"{path}: bias of layer {name!r}", bias, bias_mask)
        _check_plain(source, name, weight)
        with _naming(path):
            layers.append(Layer(name, weight, bias, activation))
    input_range = _input_range(source)
    notes += [
        f"{one.path.name}: ignored {', '.join(one.unused())}"
        for one in dict.fromkeys((source, mask_source))
        if one.unused()
    ]
    with _naming(path):
        return Network(tuple(layers), input_range, tuple(notes))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before what is wrong with its layers."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _check_plain(source: _Source, name: str, weight: Array) -> None:
    if weight.ndim == 1 and f"{name}.running_mean" in source.container.arrays:
        raise InputError(
            f"{source.path}: {name!r} is a batch normalization, expected fully connected layers "
            "only; the file does not say which layer it belongs to: hand the module to from_torch"
        )


def _layer_names(source: _Source) -> list[str]:
    found = list(
        dict.fromkeys(
            name.removesuffix(suffix)
            for name in source.container.arrays
            for suffix in WEIGHTS
            if name.endswith(suffix)
        )
    )
    if not found:
        held = ", ".join(source.container.arrays) or "nothing"
        raise InputError(
            f"{source.path}: found {held}, expected arrays named NAME.weight, one for each layer"
        )
    stated = source.texts("layers")
    if stated is not None:
        if sorted(stated) != sorted(found):
            raise InputError(
                f"{source.path}: `layers` names {', '.join(stated)}, "
                f"expected an order of {', '.join(found)}"
            )
        return stated
    return found if source.container.ordered else sorted(found, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _activations(source: _Source, names: list[str]) -> list[str]:
    texts = source.texts("activations")
    if texts is None:
        texts = ["relu"] * (len(names) - 1) + ["none"]
    if len(texts) != len(names):
        raise InputError(
            f"{source.path}: `activations` has {len(texts)} texts, expected one for each of the "
            f"{len(names)} layers {', '.join(names)}"
        )
    own = [source.texts(f"{name}.activation") for name in names]
    chosen = [text if one is None else one[0] for text, one in zip(texts, own, strict=True)]
    return [SAME.get(text.strip().lower(), text.strip().lower()) for text in chosen]


def apply_mask(where: str, weight: Array, mask: Array) -> tuple[Array, str]:
    """Weights times mask, and a note on what that did.

    Raises
    ------
    InputError
        The mask has another shape, or other values than 0 and 1; `where` starts the message.
    """
    if mask.shape != weight.shape:
        raise InputError(
            f"{where}: the mask has shape {mask.shape}, expected {weight.shape} like the weight"
        )
    if mask.dtype.kind not in "bfiu" or not np.isin(mask, (0, 1)).all():
        raise InputError(f"{where}: the mask has other values than 0 and 1")
    keep = mask != 0
    cut = int(np.count_nonzero(weight[~keep]))
    note = f"mask applied, {int(keep.sum()):,} of {keep.size:,} weights kept"
    return np.where(keep, weight, 0), note + (f"; it cut {cut:,} that were not zero" if cut else "")


def _input_range(source: _Source) -> tuple[float, float] | None:
    texts = source.texts("input_range")
    if texts is None:
        return None
    try:
        low, high = (float(text) for text in texts)
    except ValueError:
        raise InputError(
            f"{source.path}: input_range is {', '.join(texts)}, expected lowest and highest value"
        ) from None
    return low, high
