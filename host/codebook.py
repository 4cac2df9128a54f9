# SPDX-License-Identifier: BSD-2-Clause
"""Axis 2 of a compressed matrix: weights share few values. Cluster, encode, decode, bit cost.

1-D k-means on the nonzeros with linear initialization between the extremes, on sorted values and
their running sums, so that a step costs k searches whatever the number of weights. No cluster
holds values of both signs, so no nonzero becomes zero. A code that no weight uses is moved to
where the error is largest. Everything is deterministic.

Ref: Han et al., Deep Compression, section 3.
"""

import numpy as np
import numpy.typing as npt

from ..rtl.config import ceil_log2
from .bits import pack_bits, packed_bytes, unpack_bits
from .errors import FormatError
from .network import Floats

__all__ = ["code_bits", "cost_bits", "decode_codes", "encode_codes", "share_weights"]

MAX_STEPS = 200

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
    return max(1, ceil_log2(n_codes))


def cost_bits(entries: int, n_codes: int) -> int:
    """Bits of packed codes and of a codebook of float32 values."""
    return entries * code_bits(n_codes) + 32 * n_codes


def encode_codes(codes: Ints, n_codes: int) -> bytes:
    """Packed codes of `code_bits` bits each."""
    return pack_bits(codes, code_bits(n_codes))


def decode_codes(data: bytes, n_codes: int, entries: int, where: str) -> Ints:
    """Undo `encode_codes`.

    Raises
    ------
    FormatError
        `data` has the wrong length, or a code lies beyond the codebook; `where` starts the message.
    """
    expected = packed_bytes(entries, code_bits(n_codes))
    if len(data) != expected:
        raise FormatError(f"{where}: {len(data)} bytes of codes, expected {expected}")
    codes = unpack_bits(data, code_bits(n_codes), entries)
    if entries and codes.max() >= n_codes:
        raise FormatError(
            f"{where}: code {codes.max()} found, expected codes below {n_codes}; "
            "the file is damaged, write it again"
        )
    return codes


def _cluster(values: Floats, k: int) -> tuple[Floats, Ints]:
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= k:
        return distinct, inverse.astype(np.int64)
    edges = _k_means(distinct.astype(np.float64), counts, k)
    totals = np.concatenate(([0.0], np.cumsum(distinct * counts.astype(np.float64))))
    weights = np.concatenate(([0], np.cumsum(counts)))
    centroids = (np.diff(totals[edges]) / np.diff(weights[edges])).astype(np.float32)
    clusters = np.repeat(np.arange(k), np.diff(edges))
    codebook, merged = np.unique(centroids, return_inverse=True)
    return codebook, merged[clusters][inverse].astype(np.int64)


def _k_means(x: npt.NDArray[np.float64], counts: Ints, k: int) -> Ints:
    """Edges (k + 1,) of k runs of the rising distinct values `x`, none of them empty."""
    moments = [np.concatenate(([0.0], np.cumsum(x**p * counts))) for p in range(3)]
    sign_edge = int(np.searchsorted(x, 0.0))
    centroids = np.linspace(x[0], x[-1], k)
    edges = np.zeros(0, dtype=np.int64)
    for _ in range(MAX_STEPS):
        middles = (centroids[1:] + centroids[:-1]) / 2
        inner = np.searchsorted(x, middles)
        first_positive = int(np.searchsorted(centroids, 0.0))
        if 0 < first_positive < k:
            inner[first_positive - 1] = sign_edge
        new_edges = _fill_empty(np.concatenate(([0], inner, [len(x)])), moments)
        if np.array_equal(new_edges, edges):
            break
        edges = new_edges
        centroids = np.diff(moments[1][edges]) / np.diff(moments[0][edges])
    return edges


def _fill_empty(edges: Ints, moments: list[npt.NDArray[np.float64]]) -> Ints:
    """Drop empty runs and split the runs of the largest squared error at their means instead."""
    k = len(edges) - 1
    edges = np.unique(edges)
    while len(edges) <= k:
        n, s, q = (np.diff(m[edges]) for m in moments)
        error = np.where(np.diff(edges) > 1, q - s * s / n, -np.inf)
        run = int(np.argmax(error))
        first, last = int(edges[run]), int(edges[run + 1])
        mean = s[run] / n[run]
        values = np.diff(moments[1][first : last + 1]) / np.diff(moments[0][first : last + 1])
        split = first + min(max(int(np.searchsorted(values, mean)), 1), last - first - 1)
        edges = np.insert(edges, run + 1, split)
    return edges
