# SPDX-License-Identifier: BSD-2-Clause
"""Exact products of an integer matrix on an engine whose outputs have only A bits.

A layer gives ``clamp((sum + bias) >> shift, low, high)``: A bits of a much wider sum. A row whose
product spans more than 2**A values is cut into limbs. With ``r = sum - least``, never negative, and
the steps ``1, 2**e1, 2**e2``, the first layer gives the highest limb ``u2 = r >> e2`` and hands the
input on; the second gives ``u1 = (r - u2 * 2**e2) >> e1`` and hands on input and u2; the last gives
``u0 = r - u2 * 2**e2 - u1 * 2**e1`` beside u1 and u2. The host adds the limbs up. Nothing is ever
clamped. A limb is subtracted with a 16-bit weight, so steps reach 2**15: three limbs span 2**23
values with A = 8, two span 2**31 with A = 16. Each row gets as many as it needs.

Cost of k limbs: k multiplications for each nonzero, k - 1 for each input that is used, one for each
limb in each later layer; all limbs are outputs. (Windows of 2**A - 1 values, the sum of which is
exact as well, need no second layer but a row each: 257 rows for what two limbs of 8 bits span.)
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.arith import activation_limits
from ..rtl.config import ceil_log2
from .compiler.quantize import (
    CODEBOOK_BITS,
    QuantizedLayer,
    QuantizedNetwork,
    Quantizer,
    row_bounds,
)
from .errors import CapacityError, InputError
from .triplets import Triplets

__all__ = ["LimbProduct", "limb_product"]

Ints = npt.NDArray[np.int64]

LARGEST_STEP = CODEBOOK_BITS - 1
"""Exponent of the largest step: -2**15 is a codebook value, -2**16 is none."""

MAX_CODES = 256


@dataclass(frozen=True, eq=False)
class LimbProduct:
    """A network that computes the limbs of ``matrix @ x``, and how they add up.

    Parameters
    ----------
    network : QuantizedNetwork
        Its outputs (n, limbs) are the limbs of all rows.
    rows, steps : (limbs,) int64
        Row and exponent of the step of each limb.
    constant : (n_rows,) int64
        Each row's product where all its limbs are as small as they get.
    """

    network: QuantizedNetwork
    rows: Ints
    steps: Ints
    constant: Ints

    def join(self, outputs: Ints) -> Ints:
        """Products (n, n_rows) int64 of outputs (n, limbs)."""
        limbs = (outputs - self.network.output.low) << self.steps
        products = np.repeat(self.constant[None], len(outputs), axis=0)
        np.add.at(products.T, self.rows, limbs.T)
        return products


def limb_product(
    matrix: Triplets, input_range: tuple[int, int], *, activation_bits: int, sum_bits: int
) -> LimbProduct:
    """Layers that multiply a matrix of integers by integers, exactly.

    Parameters
    ----------
    matrix : Triplets
        Integers in -32768..32767.
    input_range : (int, int)
        Smallest and largest input, at most 2**A - 1 apart.
    activation_bits, sum_bits : int
        Widths A and P of the engine.

    Raises
    ------
    InputError
        Inputs or products that span too much, or too many distinct values: at most 256, those that
        hand on and subtract limbs included.
    CapacityError
        A sum needs more than P bits.
    """
    source, origin = _input_quantizer(input_range, activation_bits)
    low, high = activation_limits(activation_bits, source.signed)
    target = Quantizer(1.0, 0.0, low, high, source.signed)
    least, most = _product_bounds(matrix, source)
    exponents = sorted({min(i * activation_bits, LARGEST_STEP) for i in range(3)})
    n_limbs = _count_limbs(least, most, exponents, activation_bits)

    used, places = np.unique(matrix.columns, return_inverse=True)
    x_at, limbs_at = used, np.zeros(0, np.int64)
    rows, steps = np.zeros((2, 0), np.int64)
    layers: list[QuantizedLayer] = []
    # x_at, limbs_at: where a layer finds the inputs that are used, and the limbs made so far
    for left in range(int(n_limbs.max()) - 1, -1, -1):
        passed = np.concatenate((x_at, limbs_at)) if left else limbs_at
        fresh = np.flatnonzero(n_limbs > left)
        out = np.full(matrix.shape[0], -1)
        out[fresh] = len(passed) + np.arange(len(fresh))
        taken = out[matrix.rows] >= 0  # a row with few limbs joins in the last layers only
        size = len(passed) + len(fresh)
        bias, shift = np.zeros((2, size), np.int64)
        bias[out[fresh]] = (low << exponents[left]) - least[fresh]
        np.add.at(bias, out[rows], low << steps)  # limbs are stored from `low` up
        shift[out[fresh]] = exponents[left]
        entries = (
            np.concatenate((np.arange(len(passed)), out[matrix.rows[taken]], out[rows])),
            np.concatenate((passed, x_at[places[taken]], limbs_at)),
            np.concatenate((np.ones_like(passed), matrix.values[taken], -(1 << steps))),
        )
        here = (source, matrix.shape[1]) if not layers else (target, layers[-1].n_rows)
        layers.append(_assemble(f"limb{left}", size, *here, entries, bias, shift, target))
        _check_sums(layers[-1], sum_bits)
        rows = np.concatenate((rows, fresh))
        steps = np.concatenate((steps, np.full(len(fresh), exponents[left])))
        x_at = np.arange(len(used))
        limbs_at = (len(used) if left else 0) + np.arange(len(rows))
    total = np.zeros(matrix.shape[0], np.int64)
    np.add.at(total, matrix.rows, matrix.values)
    return LimbProduct(QuantizedNetwork(tuple(layers)), rows, steps, least + origin * total)


def _input_quantizer(input_range: tuple[int, int], bits: int) -> tuple[Quantizer, int]:
    """Integers 0 or above, two's complement, or else counted from the smallest input (origin)."""
    low, high = input_range
    for signed in (False, True):
        least, most = activation_limits(bits, signed)
        if least <= low and high <= most:
            return Quantizer(1.0, 0.0, min(low, 0), max(high, 0), signed), 0
    if high - low >= 1 << bits:
        raise InputError(
            f"inputs span {low}..{high}, expected at most {(1 << bits) - 1} between the smallest "
            f"and the largest with activations of {bits} bits; split x into two parts and add the "
            "products"
        )
    return Quantizer(1.0, float(low), 0, high - low, signed=False), low


def _product_bounds(matrix: Triplets, source: Quantizer) -> tuple[Ints, Ints]:
    """Smallest and largest sum of each row."""
    sides = np.stack((matrix.values * source.low, matrix.values * source.high))
    least, most = np.zeros((2, matrix.shape[0]), np.int64)
    np.add.at(least, matrix.rows, sides.min(axis=0))
    np.add.at(most, matrix.rows, sides.max(axis=0))
    return least, most


def _count_limbs(least: Ints, most: Ints, exponents: list[int], bits: int) -> Ints:
    """Limbs that each row needs."""
    reaches = np.array([1 << (e + bits) for e in exponents])
    span = most - least + 1
    worst = int(np.argmax(span))
    if span[worst] > reaches[-1]:
        raise InputError(
            f"row {worst} of the product spans {span[worst]:,} values ({least[worst]:,} to "
            f"{most[worst]:,}), expected at most {reaches[-1]:,} with activations of {bits} bits; "
            "narrow input_range, or split the columns into matrices and add their products"
        )
    return np.searchsorted(reaches, span) + 1


def _assemble(
    name: str,
    n_rows: int,
    source: Quantizer,
    n_cols: int,
    entries: tuple[Ints, Ints, Ints],
    bias: Ints,
    shift: Ints,
    target: Quantizer,
) -> QuantizedLayer:
    """A layer from rows, columns and values of its entries, in any order."""
    rows, columns, values = entries
    order = np.lexsort((rows, columns))
    codebook, codes = np.unique(values[order], return_inverse=True)
    if len(codebook) > MAX_CODES:
        raise InputError(
            f"the matrix has too many distinct values: {len(codebook)} with those that hand on and "
            f"subtract limbs, expected at most {MAX_CODES}; split it into matrices of fewer "
            "values and add their products"
        )
    return QuantizedLayer(
        name=name,
        n_rows=n_rows,
        n_cols=n_cols,
        structure="unstructured",
        column_starts=np.searchsorted(columns[order], np.arange(n_cols + 1)),
        row_indices=rows[order],
        codes=codes,
        codebook=codebook if len(codebook) else np.zeros(1, np.int64),
        code_bits=max(1, ceil_log2(len(codebook))),
        zero_code=False,
        bias=bias,
        shift=shift,
        low=target.low,
        high=target.high,
        signed_in=source.signed,
        signed_out=target.signed,
        input=source,
        output=target,
    )


def _check_sums(layer: QuantizedLayer, sum_bits: int) -> None:
    limit = 1 << (sum_bits - 1)
    worst = max(max(most, -least - 1) for least, most in row_bounds(layer))
    if worst >= limit:
        raise CapacityError(
            f"a sum of the product can reach {worst:,}, expected less than {limit:,} on an engine "
            f"with sums of {sum_bits} bits; narrow input_range, or use an engine with wider sums"
        )
