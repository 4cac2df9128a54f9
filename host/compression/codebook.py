# SPDX-License-Identifier: BSD-2-Clause
"""Axis 2 of a compressed matrix: weights share few values.

K-means on the nonzeros (see `clustering`), so that no nonzero becomes zero and every code is used.
Everything is deterministic.
"""

import numpy as np
import numpy.typing as npt

from ..network import Floats
from .clustering import SortedValues, cluster
from .entropy import symbol_bits

__all__ = ["code_bits", "share_weights"]

Ints = npt.NDArray[np.int64]


def share_weights(values: Floats, max_codes: int, *, zero_code: bool) -> tuple[Floats, Ints]:
    """Give the values at most `max_codes` distinct ones.

    Values that already have no more pass through unchanged, bit for bit.

    Parameters
    ----------
    values : (n,) float32
        Without zeros unless `zero_code`.
    max_codes : int
        2..256.
    zero_code : bool
        Code 0 is value 0 and stands for the zeros among the values.

    Returns
    -------
    codebook : (k,) float32
        Rising, after code 0 if that is reserved; each code is used. ``[0]`` for no values.
    codes : (n,) int64
    """
    if zero_code:
        stored = values != 0
        codes = np.zeros(len(values), dtype=np.int64)
        codebook, codes[stored] = _cluster(values[stored], max_codes - 1)
        codes[stored] += 1
        return np.concatenate((np.zeros(1, np.float32), codebook)), codes
    codebook, codes = _cluster(values, max_codes)
    return (codebook if len(codebook) else np.zeros(1, np.float32)), codes


def code_bits(n_codes: int) -> int:
    """Bits of one code, 1..8."""
    return symbol_bits(n_codes)


def _cluster(values: Floats, k: int) -> tuple[Floats, Ints]:
    rising = np.sort(values)
    changes = rising[1:] != rising[:-1]
    if np.count_nonzero(changes) < k:
        codebook = np.concatenate((rising[:1], rising[1:][changes]))
        return codebook, _assign(codebook, values)
    ordered = SortedValues(rising.astype(np.float64))
    edges = cluster(ordered, k).edges
    means = np.add.reduceat(ordered.x, edges[:-1]) / np.diff(edges)
    codebook, merged = np.unique(means.astype(np.float32), return_inverse=True)
    codes = _assign(rising[edges[:-1]], values)
    return codebook, codes if len(codebook) == k else merged[codes]


def _assign(firsts: Floats, values: Floats) -> Ints:
    """Cluster of each value, given the least value of each, rising.

    One comparison after the other in bytes is faster than a search per value.
    """
    codes = np.zeros(len(values), dtype=np.uint8)
    for first in firsts[1:]:
        codes += values >= first
    return codes.astype(np.int64)
