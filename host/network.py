# SPDX-License-Identifier: BSD-2-Clause
"""Float layers and networks as imported, checked once so that nothing behind needs to.

A `Layer` owns read-only float32 copies: importers may hand over any float or integer array, strided
or transposed. Negative zero becomes zero, so that "is zero" means one thing everywhere.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .finals import FINALS, apply_final

__all__ = [
    "ACTIVATIONS",
    "MAX_WEIGHTS",
    "MAX_WIDTH",
    "Floats",
    "Layer",
    "Network",
    "activate",
    "as_samples",
]

Floats = npt.NDArray[np.float32]
Real = TypeVar("Real", np.float32, np.float64)

ACTIVATIONS = ("none", "relu", "clip")
"""What may follow a layer's weights and bias; ``clip`` has limits of its own."""

MAX_WIDTH = 1 << 16
"""Most inputs or outputs of a layer."""

MAX_WEIGHTS = 1 << 28
"""Most weights of a layer, zeros included."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One fully connected layer: ``activation(weight @ x + bias)``.

    Parameters
    ----------
    name : str
        Unique within the network.
    weight : (rows, cols) array of floats or integers
        Copied to float32.
    bias : (rows,) array, or None for zeros
        Copied to float32; a column or row of a matrix is flattened.
    activation : str
        One of `ACTIVATIONS`.
    limits : (float, float), optional
        Lowest and highest output of ``clip``, rising; an infinite one does not limit.
    output_range : (float, float), optional
        Smallest and largest output, if the model's file states it; values beyond saturate.
    output_levels : int
        Steps from smallest to largest output of the grid that the file states, or 0 for none.

    Raises
    ------
    InputError
        A value is NaN or infinite (also after rounding to float32), an array is empty or has the
        wrong shape, the activation is unknown, or limits or range do not rise.
    """

    name: str
    weight: Floats
    bias: Floats
    activation: str
    limits: tuple[float, float] | None
    output_range: tuple[float, float] | None
    output_levels: int

    def __init__(
        self,
        name: str,
        weight: npt.ArrayLike,
        bias: npt.ArrayLike | None = None,
        activation: str = "none",
        *,
        limits: tuple[float, float] | None = None,
        output_range: tuple[float, float] | None = None,
        output_levels: int = 0,
    ) -> None:
        matrix = _as_float32(f"layer {name!r}: weight", weight)
        if matrix.ndim != 2:
            raise InputError(
                f"layer {name!r}: weight has shape {matrix.shape}, expected (rows, cols)"
            )
        if matrix.size == 0:
            raise InputError(
                f"layer {name!r}: weight is empty (shape {matrix.shape}), "
                "expected at least one row and one column"
            )
        if max(matrix.shape) > MAX_WIDTH or matrix.size > MAX_WEIGHTS:
            raise InputError(
                f"layer {name!r}: weight has shape {matrix.shape}, "
                f"expected at most {MAX_WIDTH} rows and columns and {MAX_WEIGHTS} weights"
            )
        rows = matrix.shape[0]
        vector = _as_float32(f"layer {name!r}: bias", np.zeros(rows) if bias is None else bias)
        if vector.size != rows or vector.ndim > 2 or max(vector.shape, default=0) != rows:
            raise InputError(
                f"layer {name!r}: bias has shape {vector.shape}, expected ({rows},), one value "
                "per row of the weight; a weight stored as (inputs, outputs) must be transposed"
            )
        if activation not in ACTIVATIONS:
            raise InputError(
                f"layer {name!r}: activation is {activation!r}, expected one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        _check_limits(name, activation, limits)
        _check_range(f"layer {name!r}: output range", output_range, output_levels)
        vector = vector.reshape(rows)
        for array in (matrix, vector):
            array.flags.writeable = False
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "weight", matrix)
        object.__setattr__(self, "bias", vector)
        object.__setattr__(self, "activation", activation)
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "output_range", output_range)
        object.__setattr__(self, "output_levels", output_levels)

    @property
    def n_rows(self) -> int:
        """Outputs of the layer."""
        return self.weight.shape[0]

    @property
    def n_cols(self) -> int:
        """Inputs of the layer."""
        return self.weight.shape[1]

    def run(self, x: Floats) -> Floats:
        """Outputs (n, rows) float32 for inputs (n, cols) float32.

        Raises
        ------
        InputError
            An output overflows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            y = x @ self.weight.T + self.bias
        if not np.isfinite(y).all():
            raise InputError(
                f"layer {self.name!r}: an output is too large for float32; "
                "check the scale of weights and inputs"
            )
        return activate(y, self.activation, self.limits)


@dataclass(frozen=True, eq=False)
class Network:
    """Layers in order of evaluation.

    Parameters
    ----------
    layers : tuple of Layer
        At least one; each takes as many inputs as the one before has outputs.
    input_range : (float, float), optional
        Smallest and largest input value, if the model's file states it.
    notes : tuple of str
        What the importer did that a user may want to know.
    input_levels : int
        Steps from smallest to largest input of the grid that the file states, or 0 for none.
    final : str
        One of `finals.FINALS`: what the host does to the last layer's outputs.

    Raises
    ------
    InputError
        No layer, two layers of one name, layers that do not chain, a range that is not finite and
        rising, or an unknown final step.
    """

    layers: tuple[Layer, ...]
    input_range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    input_levels: int = 0
    final: str = "none"

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("network has no layers, expected at least one")
        names = [layer.name for layer in self.layers]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two layers are named {name!r}, expected unique names")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            if before.n_rows != after.n_cols:
                raise InputError(
                    f"layers do not chain: {before.name!r} has {before.n_rows} outputs, but "
                    f"{after.name!r} takes {after.n_cols} inputs; check the order of the layers "
                    "and that weights are (outputs, inputs)"
                )
        _check_range("input range", self.input_range, self.input_levels)
        if self.final not in FINALS:
            raise InputError(f"final step is {self.final!r}, expected one of {', '.join(FINALS)}")

    @property
    def n_inputs(self) -> int:
        """Inputs of the first layer."""
        return self.layers[0].n_cols

    @property
    def n_outputs(self) -> int:
        """Outputs of the last layer."""
        return self.layers[-1].n_rows

    def run_layers(self, x: npt.ArrayLike) -> list[Floats]:
        """Every layer's outputs, each (n, rows) float32, for inputs (n, n_inputs).

        Raises
        ------
        InputError
            Wrong shape, NaN or infinite, or an output overflows.
        """
        values = as_samples("input", x, self.n_inputs)
        outputs = []
        for layer in self.layers:
            values = layer.run(values)
            outputs.append(values)
        return outputs

    def run(self, x: npt.ArrayLike) -> Floats:
        """What the network answers, float32, for inputs (n, n_inputs).

        Outputs (n, n_outputs) of the last layer after the final step; (n, 1) after ``argmax``.
        """
        return apply_final(self.final, self.run_layers(x)[-1])


def activate(
    y: npt.NDArray[Real], activation: str, limits: tuple[float, float] | None
) -> npt.NDArray[Real]:
    """What a layer's activation makes of its sums; `limits` are those of ``clip``."""
    if activation == "none":
        return y
    low, high = limits or (0.0, np.inf)
    return np.minimum(np.maximum(y, y.dtype.type(low)), y.dtype.type(high))


def _check_limits(name: str, activation: str, limits: tuple[float, float] | None) -> None:
    if activation == "clip" and limits is not None and limits[0] < limits[1]:
        return
    if activation != "clip" and limits is None:
        return
    expected = "two numbers, rising" if activation == "clip" else f"none beside {activation!r}"
    raise InputError(f"layer {name!r}: limits of the output are {limits}, expected {expected}")


def _check_range(where: str, stated: tuple[float, float] | None, levels: int) -> None:
    if stated is not None and not -np.inf < stated[0] < stated[1] < np.inf:
        low, high = stated
        raise InputError(f"{where} is [{low}, {high}], expected two finite numbers, rising")
    if levels < 0 or (levels and stated is None):
        raise InputError(f"{where} has {levels} steps, expected 0, or a range with its steps")


def as_samples(where: str, x: npt.ArrayLike, width: int) -> Floats:
    """Real inputs as a finite (n, width) float32 array; one sample may be (width,).

    Raises
    ------
    InputError
        Wrong shape, no sample, NaN or infinite; `where` starts the message.
    """
    array = _as_float32(where, x)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != width or not len(array):
        raise InputError(f"{where} has shape {np.shape(x)}, expected (n, {width}) with n >= 1")
    return array


def _as_float32(where: str, values: npt.ArrayLike) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{where} is not a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where} has type {array.dtype}, expected floats or integers")
    with np.errstate(over="ignore"):
        single = np.array(array, dtype=np.float32, order="C") + np.float32(0)
    bad = ~np.isfinite(single)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{where} is {array[place]} at index {list(place)} ({int(bad.sum())} such values), "
            "expected finite float32 numbers"
        )
    return single
