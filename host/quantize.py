# SPDX-License-Identifier: BSD-2-Clause
"""Networks in integers: what golden model, compiler and engine agree on."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.arith import sum_bounds
from .errors import InputError

__all__ = [
    "CODEBOOK_BITS",
    "Ints",
    "QuantizedLayer",
    "QuantizedNetwork",
    "Quantizer",
    "row_bounds",
]

Ints = npt.NDArray[np.int64]

CODEBOOK_BITS = 16
"""Bits of a signed codebook value."""


@dataclass(frozen=True)
class Quantizer:
    """Real numbers as integers: ``real = origin + scale * q``.

    Parameters
    ----------
    scale : float
        Real value of one step, above 0.
    origin : float
        The real value that becomes integer 0.
    low, high : int
        Smallest and largest integer, low <= 0 <= high; values beyond saturate.
    signed : bool
        Whether the integers are two's complement.
    """

    scale: float
    origin: float
    low: int
    high: int
    signed: bool

    def __post_init__(self) -> None:
        if not (self.scale > 0 and np.isfinite(self.scale) and np.isfinite(self.origin)):
            raise ValueError(f"scale must be positive and finite, not {self.scale!r}")
        if not self.low <= 0 <= self.high:
            raise ValueError(f"low and high must enclose 0, not {self.low!r} and {self.high!r}")

    def quantize(self, x: npt.ArrayLike) -> Ints:
        """Nearest integers (ties to even), saturating; shape kept.

        Raises
        ------
        InputError
            A value is NaN or infinite.
        """
        values = np.asarray(x, dtype=np.float64)
        bad = ~np.isfinite(values)
        if bad.any():
            place = [int(i) for i in np.argwhere(bad)[0]]
            raise InputError(
                f"input is {values[tuple(place)]} at index {place} ({int(bad.sum())} such "
                "values), expected finite numbers"
            )
        steps = np.rint((values - self.origin) / self.scale)
        return np.clip(steps, self.low, self.high).astype(np.int64)

    def dequantize(self, q: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Real values as float32; shape kept."""
        return (self.origin + self.scale * np.asarray(q, dtype=np.float64)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """One layer in integers: ``clamp((W @ q + bias) >> shift, low, high)`` per row.

    Parameters
    ----------
    name : str
    n_rows, n_cols : int
    structure : str
        ``"dense"`` (every weight is an entry) or ``"unstructured"``.
    column_starts : (n_cols + 1,) int64
        First entry of each column, and the number of entries.
    row_indices, codes : (entries,) int64
        Row (rising within a column) and code of each entry, column by column.
    codebook : (k,) int64
        Signed 16-bit values, k <= 2**code_bits.
    code_bits : int
        1..8.
    zero_code : bool
        Code 0 stands for weights that are zero (dense layers store zeros too).
    bias : (n_rows,) int64
        Rounding constant 2**(shift-1) included (0 at shift 0).
    shift : (n_rows,) int64
        Right shift in bits.
    low, high : int
        Clamp of the output; ReLU is a clamp at the integer that stands for real 0.
    signed_in, signed_out : bool
        Whether activations are two's complement.
    input, output : Quantizer
        What the integers stand for.

    Raises
    ------
    ValueError
        An array has the wrong length or a value is out of range.
    """

    name: str
    n_rows: int
    n_cols: int
    structure: str
    column_starts: Ints
    row_indices: Ints
    codes: Ints
    codebook: Ints
    code_bits: int
    zero_code: bool
    bias: Ints
    shift: Ints
    low: int
    high: int
    signed_in: bool
    signed_out: bool
    input: Quantizer
    output: Quantizer

    def __post_init__(self) -> None:
        entries = len(self.codes)
        limit = 1 << (CODEBOOK_BITS - 1)
        rules = {
            "structure must be dense or unstructured": self.structure in ("dense", "unstructured"),
            "column_starts must rise from 0 to the number of entries": len(self.column_starts)
            == self.n_cols + 1
            and self.column_starts[0] == 0
            and self.column_starts[-1] == entries
            and not (np.diff(self.column_starts) < 0).any(),
            "row_indices must lie in 0..n_rows-1, one per entry": len(self.row_indices) == entries
            and not ((self.row_indices < 0) | (self.row_indices >= self.n_rows)).any(),
            "code_bits must be in 1..8": 1 <= self.code_bits <= 8,
            "codebook must have 1..2**code_bits values": 1
            <= len(self.codebook)
            <= 1 << self.code_bits,
            "codebook values must fit 16 bits": not (
                (self.codebook < -limit) | (self.codebook >= limit)
            ).any(),
            "codes must lie in the codebook": not (
                (self.codes < 0) | (self.codes >= len(self.codebook))
            ).any(),
            "code 0 must be 0 with zero_code": not self.zero_code or self.codebook[0] == 0,
            "bias must have n_rows values": self.bias.shape == (self.n_rows,),
            "shift must have n_rows values, none negative": self.shift.shape == (self.n_rows,)
            and not (self.shift < 0).any(),
            "clamp must rise": self.low <= self.high,
            "signs must match the quantizers": (self.signed_in, self.signed_out)
            == (self.input.signed, self.output.signed),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(f"layer {self.name!r}: {rule}")

    def columns(self) -> Ints:
        """Column of each entry, (entries,) int64."""
        return np.repeat(np.arange(self.n_cols), np.diff(self.column_starts))

    def weights(self) -> Ints:
        """The whole matrix, (n_rows, n_cols) int64."""
        matrix = np.zeros((self.n_rows, self.n_cols), dtype=np.int64)
        matrix[self.row_indices, self.columns()] = self.codebook[self.codes]
        return matrix


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """Layers in integers, in order of evaluation."""

    layers: tuple[QuantizedLayer, ...]

    @property
    def input(self) -> Quantizer:
        """What the first layer's input integers stand for."""
        return self.layers[0].input

    @property
    def output(self) -> Quantizer:
        """What the last layer's output integers stand for."""
        return self.layers[-1].output


def row_bounds(layer: QuantizedLayer) -> list[tuple[int, int]]:
    """Smallest and largest partial sum of each row, whatever order and subset of its terms."""
    values = layer.codebook[layer.codes]
    positive = np.zeros(layer.n_rows, dtype=np.int64)
    negative = np.zeros(layer.n_rows, dtype=np.int64)
    np.add.at(positive, layer.row_indices, np.maximum(values, 0))
    np.add.at(negative, layer.row_indices, np.maximum(-values, 0))
    return [
        sum_bounds(int(p), int(n), int(b), layer.input.low, layer.input.high)
        for p, n, b in zip(positive, negative, layer.bias, strict=True)
    ]
