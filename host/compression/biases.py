# SPDX-License-Identifier: BSD-2-Clause
"""Biases of a layer in a `.gossamer` file: fixed-point numbers where that says them exactly.

A float32 bias of a small layer costs as much as four to eight weights. `round_biases` brings them
to a grid of at most 2**-16 of the output's range, so that they move by no more than half a step of
16-bit activations, and by 1/512 of a step of 8-bit ones.
"""

from typing import Any

import numpy as np

from ..network import Floats
from .bits import pack_bits, packed_bytes, unpack_bits
from .calibrate import TensorRange
from .reader import Reader, check_limits

__all__ = ["decode_biases", "encode_biases", "round_biases"]

GRID_BITS = 16
"""Steps of the grid in the output's range, as a power of two."""

FLOAT_BITS = 32
MANTISSA_BITS = 24
POINTS = (-128, 149)
"""Lowest and highest place of the binary point: all of float32."""


def round_biases(bias: Floats, output: TensorRange) -> Floats:
    """Biases (n_rows,) on the grid of an output range; as they are if that saves nothing.

    They stay exact where the range is a stated one, or an exact grid itself.
    """
    if output.source == "declared" or output.levels:
        return bias
    point = GRID_BITS - int(np.floor(np.log2(output.high - output.low)))
    exact = bias.astype(np.float64)
    rounded = np.ldexp(np.rint(np.ldexp(exact, point)), -point).astype(np.float32)
    return rounded if len(encode_biases(rounded)[1]) < len(encode_biases(bias)[1]) else bias


def encode_biases(bias: Floats) -> tuple[list[int], bytes]:
    """Numbers of the description and bytes of biases (n_rows,).

    No number and no byte if all are 0; width w and place q of the binary point for signed fields of
    w bits that stand for ``field * 2**-q``; 32 alone for float32.
    """
    if not bias.any():
        return [], b""
    point = -_lowest_bit(bias)
    fields = np.ldexp(bias.astype(np.float64), point)
    width = 1 + int(np.maximum(fields, -fields - 1).max()).bit_length() if point < 150 else 0
    if not 0 < width < FLOAT_BITS:
        return [FLOAT_BITS], bias.astype("<f4").tobytes()
    return [width, point], pack_bits(fields.astype(np.int64) & ((1 << width) - 1), width)


def _lowest_bit(bias: Floats) -> int:
    """Exponent of the lowest bit that is set in any of the biases, not all of them 0."""
    mantissas, exponents = np.frexp(bias[bias != 0].astype(np.float64))
    whole = np.abs(np.ldexp(mantissas, MANTISSA_BITS)).astype(np.int64)
    _, zeros = np.frexp((whole & -whole).astype(np.float64))
    return int((exponents - MANTISSA_BITS + zeros - 1).min())


def decode_biases(numbers: list[Any], n_rows: int, reader: Reader) -> Floats:
    """Undo `encode_biases`: biases (n_rows,) float32; the reader stands behind them afterwards.

    Raises
    ------
    FormatError
        The numbers are out of their limits, or too few bytes are left; the reader's `where` starts
        the message.
    """
    if not numbers:
        return np.zeros(n_rows, dtype=np.float32)
    width, *point = numbers
    check_limits({"bias bits": (width, 1, FLOAT_BITS)}, reader.where)
    data = reader.take(packed_bytes(n_rows, width), "biases")
    if width == FLOAT_BITS:
        return np.frombuffer(data, "<f4").astype(np.float32)
    (point,) = point
    check_limits({"bias point": (point, *POINTS)}, reader.where)
    fields = unpack_bits(data, width, n_rows)
    fields -= (fields >> (width - 1)) << width
    with np.errstate(over="ignore"):
        return np.ldexp(fields.astype(np.float64), -point).astype(np.float32)
