# SPDX-License-Identifier: BSD-2-Clause
"""Networks in integers: what golden model, compiler and engine agree on, and how they are made.

The factor between a layer's input and output scales is absorbed by its codebook up to a power of
two, which becomes the shift; the origins of input and output are folded into the biases.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...rtl.arith import sum_bounds
from ..compression.compress import CompressedLayer, CompressedModel
from ..compression.nm import group_counts, is_nm, parse_nm
from ..compression.structure import STRUCTURES, Places
from ..quantizer import Ints, Quantizer

__all__ = [
    "CODEBOOK_BITS",
    "Ints",
    "QuantizedLayer",
    "QuantizedNetwork",
    "Quantizer",
    "quantize",
    "row_bounds",
]

CODEBOOK_BITS = 16
"""Bits of a signed codebook value."""

CODEBOOK_LIMIT = 1 << (CODEBOOK_BITS - 1)
FEWEST_CODEBOOK_BITS = 8


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """One layer in integers: ``clamp((W @ q + bias) >> shift, low, high)`` per row.

    Parameters
    ----------
    name : str
    n_rows, n_cols : int
    structure : str
        ``"dense"`` (every weight is an entry), ``"unstructured"`` or N:M such as ``"2:4"``
        (nonzeros are the entries, at most N in each group of M columns of a row).
    column_starts : (n_cols + 1,) int64
        First entry of each column, and the number of entries.
    row_indices, codes : (entries,) int64
        Row (rising within a column) and code of each entry, column by column.
    codebook : (k,) int64
        Signed 16-bit values, k <= 2**code_bits.
    code_bits : int
        1..8.
    zero_code : bool
        Code 0 stands for weights that are zero (dense layers store zeros too). Always so in N:M,
        where code 0 is kept for pairs without a weight and no entry has it.
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
        rules = {
            "structure must be dense, unstructured or N:M": self.structure in STRUCTURES
            or is_nm(self.structure),
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
                (self.codebook < -CODEBOOK_LIMIT) | (self.codebook >= CODEBOOK_LIMIT)
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
        if is_nm(self.structure):
            self._check_nm()

    def _check_nm(self) -> None:
        n, m = parse_nm(self.structure)
        places = Places(self.n_rows, self.n_cols, self.column_starts, self.row_indices)
        where = f"layer {self.name!r}: {self.structure}"
        if not self.zero_code or not self.codes.all():
            raise ValueError(f"{where} must have zero_code, and no entry may have code 0")
        if (group_counts(places, m) > n).any():
            raise ValueError(f"{where} must have at most {n} entries in each group of {m} columns")

    @property
    def codebook_bits(self) -> int:
        """Bits that the largest codebook value takes, sign included: 16 if none were lost."""
        largest = max(int(self.codebook.max()), -int(self.codebook.min()) - 1)
        return largest.bit_length() + 1

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
    """Layers in integers, in order of evaluation, and what the quantization cost.

    `final` is what the host does to the outputs as real numbers.
    """

    layers: tuple[QuantizedLayer, ...]
    warnings: tuple[str, ...] = ()
    final: str = "none"

    @property
    def input(self) -> Quantizer:
        """What the first layer's input integers stand for."""
        return self.layers[0].input

    @property
    def output(self) -> Quantizer:
        """What the last layer's output integers stand for."""
        return self.layers[-1].output


def quantize(model: CompressedModel, *, activation_bits: int, sum_bits: int) -> QuantizedNetwork:
    """Turn a compressed model into integers for an engine's widths.

    Parameters
    ----------
    model : CompressedModel
    activation_bits : int
        Width A of an activation.
    sum_bits : int
        Width P of a partial sum. No sum of any layer can leave it, whatever the input.
    """
    layers: list[QuantizedLayer] = []
    warnings = list(model.warnings)
    source = model.input.quantizer(activation_bits)
    for layer in model.layers:
        target = layer.output.quantizer(activation_bits)
        quantized = _fit_layer(layer, source, target, sum_bits)
        doublings = 0
        while quantized is None:
            doublings += 1
            wider = replace(target, scale=target.scale * 2**doublings)
            quantized = _fit_layer(layer, source, wider, sum_bits)
        layers.append(quantized)
        warnings += _complaints(layer, quantized, sum_bits, doublings)
        source = quantized.output
    return QuantizedNetwork(tuple(layers), tuple(warnings), model.final)


def row_bounds(layer: QuantizedLayer) -> list[tuple[int, int]]:
    """Smallest and largest partial sum of each row, whatever order and subset of its terms."""
    uses = _code_uses(layer.row_indices, layer.codes, layer.n_rows, len(layer.codebook))
    positive, negative = _row_sums(uses, layer.codebook)
    rows = zip(positive.tolist(), negative.tolist(), layer.bias.tolist(), strict=True)
    return [sum_bounds(p, n, b, layer.input.low, layer.input.high) for p, n, b in rows]


def _code_uses(rows: Ints, codes: Ints, n_rows: int, n_codes: int) -> Ints:
    """How often each row uses each code, (n_rows, n_codes)."""
    return np.bincount(rows * n_codes + codes, minlength=n_rows * n_codes).reshape(n_rows, n_codes)


def _row_sums(uses: Ints, book: Ints) -> tuple[Ints, Ints]:
    """S+ and S- of each row: sums of its positive and of its negated negative weights."""
    return uses @ np.maximum(book, 0), uses @ np.maximum(-book, 0)


def _fit_layer(
    layer: CompressedLayer, source: Quantizer, target: Quantizer, sum_bits: int
) -> QuantizedLayer | None:
    """The layer with the finest codebook whose sums fit; None if not even shift 0 does."""
    matrix = layer.matrix
    book = matrix.codebook.astype(np.float64)
    uses = _code_uses(matrix.places.row_indices, matrix.codes, layer.n_rows, len(book))
    exponents = matrix.row_exponents
    offset = layer.bias + source.origin * np.ldexp(uses @ book, -exponents) - target.origin
    low, high = _clamp(layer, target)
    for least_shift in range(sum_bits - 2 - int(exponents.max()), -1, -1):
        real = np.rint(book * (source.scale * 2.0**least_shift / target.scale))
        if (real < -CODEBOOK_LIMIT).any() or (real >= CODEBOOK_LIMIT).any():
            continue
        integers = real.astype(np.int64)
        positive, negative = _row_sums(uses, integers)
        shift = least_shift + exponents
        # a bias beyond where the row is saturated for every input says no more than that place
        lowest = ((low + 1) << shift) - 1 - (source.high * positive - source.low * negative)
        highest = (high << shift) + (source.high * negative - source.low * positive)
        exact = np.rint(np.ldexp(offset / target.scale, shift)) + ((1 << shift) >> 1)
        exact = np.clip(exact, lowest, highest)
        if (np.abs(exact) >= 1 << (sum_bits - 2)).any():
            continue
        bias = exact.astype(np.int64)
        fitted = _assemble(layer, integers, bias, shift, (low, high), source, target)
        limit = 1 << (sum_bits - 1)
        if all(-limit <= least and most < limit for least, most in row_bounds(fitted)):
            return fitted
    return None


def _clamp(layer: CompressedLayer, target: Quantizer) -> tuple[int, int]:
    """Limits of the output: the integers that stand for the real limits of the activation."""
    real = layer.limits or ((0.0, np.inf) if layer.activation == "relu" else (-np.inf, np.inf))
    steps = sorted((limit - target.origin) / target.scale for limit in real)
    low, high = (int(np.clip(np.rint(step), target.low, target.high)) for step in steps)
    return low, high


def _assemble(
    layer: CompressedLayer,
    codebook: Ints,
    bias: Ints,
    shift: Ints,
    clamp: tuple[int, int],
    source: Quantizer,
    target: Quantizer,
) -> QuantizedLayer:
    matrix = layer.matrix
    return QuantizedLayer(
        name=layer.name,
        n_rows=layer.n_rows,
        n_cols=layer.n_cols,
        structure=matrix.structure,
        column_starts=matrix.places.column_starts,
        row_indices=matrix.places.row_indices,
        codes=matrix.codes,
        codebook=codebook,
        code_bits=matrix.code_bits,
        zero_code=matrix.zero_code,
        bias=bias,
        shift=shift,
        low=clamp[0],
        high=clamp[1],
        signed_in=source.signed,
        signed_out=target.signed,
        input=source,
        output=target,
    )


def _complaints(
    layer: CompressedLayer, quantized: QuantizedLayer, sum_bits: int, doublings: int
) -> list[str]:
    found = []
    if doublings:
        found.append(
            f"layer {layer.name!r}: its weights are so large against the range of its outputs that "
            f"the outputs lose {doublings} bits; check the calibration data"
        )
    bits = quantized.codebook_bits
    if layer.matrix.nonzeros and bits < FEWEST_CODEBOOK_BITS:
        found.append(
            f"layer {layer.name!r}: sums of {sum_bits} bits leave its codebook {bits} of "
            f"{CODEBOOK_BITS} bits, which may cost accuracy; an engine with wider sums, or fewer "
            "weights per row, would help"
        )
    return found
