# SPDX-License-Identifier: BSD-2-Clause
"""Rows of very different magnitude share one codebook: a power of two per row brings them together.

``weight = codebook value * 2**-exponent`` with an exponent per row, which costs the engine nothing:
its right shift is per row anyway. A factor that is no power of two stays in the weights that are
clustered. Exponents are used only where they at least halve the error, because an engine with
narrow sums may lose codebook bits to the larger shifts.
"""

import numpy as np
import numpy.typing as npt

from ..network import Floats
from .codebook import share_weights

__all__ = ["EXPONENT_BITS", "MAX_EXPONENT", "share_rows"]

EXPONENT_BITS = 3
"""Bits of an exponent in a file."""

MAX_EXPONENT = (1 << EXPONENT_BITS) - 1

GAIN = 2.0
"""How many times smaller the rows' squared relative error must become."""

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


def share_rows(
    values: Floats, rows: Ints, n_rows: int, max_codes: int, *, zero_code: bool
) -> tuple[Floats, Ints, Ints]:
    """Give the values at most `max_codes` distinct ones up to a power of two per row.

    Parameters
    ----------
    values : (n,) float32
    rows : (n,) int64
        Row of each value.
    n_rows, max_codes : int
    zero_code : bool
        See `codebook.share_weights`.

    Returns
    -------
    codebook : (k,) float32
    codes : (n,) int64
    exponents : (n_rows,) int64
        0 to `MAX_EXPONENT`; value i stands for ``codebook[codes[i]] * 2**-exponents[rows[i]]``.
        All 0 where values pass unchanged or exponents would not halve the error.
    """
    book, codes = share_weights(values, max_codes, zero_code=zero_code)
    none = np.zeros(n_rows, dtype=np.int64)
    exponents = _exponents(values, rows, n_rows)
    if not exponents.any():
        return book, codes, none
    error = _relative_error(values, book[codes], rows, n_rows)
    if not error:
        return book, codes, none
    scaled = np.ldexp(values, exponents[rows])
    other_book, other_codes = share_weights(scaled, max_codes, zero_code=zero_code)
    if _relative_error(scaled, other_book[other_codes], rows, n_rows) * GAIN > error:
        return book, codes, none
    return other_book, other_codes, exponents


def _exponents(values: Floats, rows: Ints, n_rows: int) -> Ints:
    """Powers of two by which each row's largest magnitude lies below the largest of all."""
    found = np.zeros(n_rows, dtype=np.float32)
    np.maximum.at(found, rows, np.abs(values))
    largest = found.astype(np.float64)
    ratio = np.divide(largest.max(), largest, out=np.ones(n_rows), where=largest > 0)
    return np.minimum(np.floor(np.log2(ratio)), MAX_EXPONENT).astype(np.int64)


def _relative_error(values: Floats, shared: Floats, rows: Ints, n_rows: int) -> float:
    """Squared error of each row over its squared values, summed over the rows."""
    exact = values.astype(np.float64)
    power = np.bincount(rows, np.square(exact), n_rows)
    noise = np.bincount(rows, np.square(shared - exact), n_rows)
    return float((noise[power > 0] / power[power > 0]).sum())
