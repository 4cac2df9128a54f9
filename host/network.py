# SPDX-License-Identifier: BSD-2-Clause
"""Float layers and networks as imported, checked once so that nothing behind needs to.

A `Layer` owns read-only float32 copies: importers may hand over any float or integer array, strided
or transposed. Negative zero becomes zero, so that "is zero" means one thing everywhere.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import InputError

__all__ = ["ACTIVATIONS", "MAX_WEIGHTS", "MAX_WIDTH", "Floats", "Layer", "Network", "as_samples"]

Floats = npt.NDArray[np.float32]

ACTIVATIONS = ("none", "relu")
"""What may follow a layer's weights and bias."""

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

    Raises
    ------
    InputError
        A value is NaN or infinite (also after rounding to float32), an array is empty or has the
        wrong shape, or the activation is unknown.
    """

    name: str
    weight: Floats
    bias: Floats
    activation: str

    def __init__(
        self,
        name: str,
        weight: npt.ArrayLike,
        bias: npt.ArrayLike | None = None,
        activation: str = "none",
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
        vector = vector.reshape(rows)
        for array in (matrix, vector):
            array.flags.writeable = False
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "weight", matrix)
        object.__setattr__(self, "bias", vector)
        object.__setattr__(self, "activation", activation)

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
        return np.maximum(y, np.float32(0)) if self.activation == "relu" else y


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

    Raises
    ------
    InputError
        No layer, two layers of one name, layers that do not chain, or a range that is not
        finite and rising.
    """

    layers: tuple[Layer, ...]
    input_range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

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
        if self.input_range is not None:
            low, high = self.input_range
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise InputError(
                    f"input range is [{low}, {high}], expected two finite numbers, rising"
                )

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
        """Outputs of the last layer, (n, n_outputs) float32, for inputs (n, n_inputs)."""
        return self.run_layers(x)[-1]


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
