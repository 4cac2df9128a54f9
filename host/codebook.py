# SPDX-License-Identifier: BSD-2-Clause
"""Axis 2 of a compressed matrix: weights share few values.

1-D k-means on the nonzeros, from two starts, of which the better is kept: even steps between the
extremes, best for few codes, and steps as dense as the cube root of the weights' density, which
halve the squared error of 255 codes. Clusters are runs of the sorted values, so a step costs k
searches and one pass. No cluster holds values of both signs, so no nonzero becomes zero. A code
that no weight uses is moved to where the error is largest. Everything is deterministic.

Ref: Han et al., Deep Compression, section 3; Panter and Dite, Quantization distortion in
pulse-count modulation, Proc. IRE 39, 1951.
"""

import numpy as np
import numpy.typing as npt

from .entropy import symbol_bits
from .network import Floats

__all__ = ["code_bits", "share_weights"]

MAX_STEPS = 200
DENSITY_BINS = 256

Doubles = npt.NDArray[np.float64]
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
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= k:
        return distinct, inverse.astype(np.int64)
    x, weights = distinct.astype(np.float64), counts.astype(np.float64)
    starts = (np.linspace(x[0], x[-1], k), _dense_start(x, weights, k))
    edges = min((_k_means(x, weights, s) for s in starts), key=lambda e: _error(x, weights, e))
    codebook, merged = np.unique(_means(x, weights, edges).astype(np.float32), return_inverse=True)
    return codebook, np.repeat(merged, np.diff(edges))[inverse].astype(np.int64)


def _dense_start(x: Doubles, weights: Doubles, k: int) -> Doubles:
    """Centroids (k,) from end to end whose density is the cube root of that of the values."""
    counts, places = np.histogram(x, DENSITY_BINS, weights=weights)
    total = np.concatenate(([0.0], np.cumsum(np.cbrt(counts))))
    centroids = np.interp((np.arange(k) + 0.5) / k * total[-1], total, places)
    centroids[0], centroids[-1] = x[0], x[-1]  # both signs, if there are both
    return centroids


def _k_means(x: Doubles, weights: Doubles, centroids: Doubles) -> Ints:
    """Edges (k + 1,) of k runs of the rising distinct values `x`, none of them empty."""
    k = len(centroids)
    sign_edge = int(np.searchsorted(x, 0.0))
    edges = np.zeros(0, dtype=np.int64)
    for _ in range(MAX_STEPS):
        inner = np.searchsorted(x, (centroids[1:] + centroids[:-1]) / 2)
        first_positive = int(np.searchsorted(centroids, 0.0))
        if 0 < first_positive < k:
            inner[first_positive - 1] = sign_edge
        before = edges
        edges = _fill_empty(np.concatenate(([0], inner, [len(x)])), x, weights)
        if np.array_equal(edges, before):
            break
        centroids = _means(x, weights, edges)
    return edges


def _means(x: Doubles, weights: Doubles, edges: Ints) -> Doubles:
    starts = edges[:-1]
    return np.add.reduceat(x * weights, starts) / np.add.reduceat(weights, starts)


def _error(x: Doubles, weights: Doubles, edges: Ints) -> float:
    """Squared error of runs that share their means."""
    off = x - np.repeat(_means(x, weights, edges), np.diff(edges))
    return float(weights @ np.square(off))


def _fill_empty(edges: Ints, x: Doubles, weights: Doubles) -> Ints:
    """Drop empty runs and split the runs of the largest squared error at their means instead."""
    k = len(edges) - 1
    edges = np.unique(edges)
    while len(edges) <= k:
        means = _means(x, weights, edges)
        lengths = np.diff(edges)
        off = np.square(x - np.repeat(means, lengths)) * weights
        error = np.where(lengths > 1, np.add.reduceat(off, edges[:-1]), -np.inf)
        run = int(np.argmax(error))
        split = int(np.searchsorted(x, means[run]))
        split = min(max(split, int(edges[run]) + 1), int(edges[run + 1]) - 1)
        edges = np.insert(edges, run + 1, split)
    return edges
