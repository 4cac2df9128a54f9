# SPDX-License-Identifier: BSD-2-Clause
"""Axis 1 of a compressed matrix: where nonzeros may stand. Prune, encode, decode, bit cost.

``dense`` stores every weight and no index. ``unstructured`` stores the nonzeros column by column;
the zeros before each are a number in symbols of k bits: the all-ones symbol means "2**k - 1 zeros
and go on", so a long gap needs no filler entry, and no column pointer is stored because gaps run
across columns. k is chosen per layer,
together with the symbols' coding.

Ref: Han et al., Deep Compression, section 2 (relative indices), with escapes in place of fillers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import AGAIN, FormatError
from ..network import Floats
from .entropy import SymbolCounts, table_bytes

__all__ = [
    "MAX_CODED_GAP_BITS",
    "MAX_GAP_BITS",
    "STRUCTURES",
    "Places",
    "best_gaps",
    "decode_gaps",
    "gap_symbols",
    "prune",
]

STRUCTURES = ("dense", "unstructured")
MAX_GAP_BITS = 16
MAX_CODED_GAP_BITS = 12
"""Of gaps that are Huffman codes: the table grows with 2**k."""

SHORT_GAP = 1 << 16

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Places:
    """Places of a matrix that hold an entry, column by column.

    Parameters
    ----------
    n_rows, n_cols : int
    column_starts : (n_cols + 1,) int64
        First entry of each column, and the number of entries.
    row_indices : (entries,) int64
        Rising within a column.
    """

    n_rows: int
    n_cols: int
    column_starts: Ints
    row_indices: Ints

    @classmethod
    def of_mask(cls, mask: npt.NDArray[np.bool_]) -> "Places":
        """Places where `mask` (rows, cols) is true."""
        return cls.of_positions(np.flatnonzero(mask.T), *mask.shape)

    @classmethod
    def dense(cls, n_rows: int, n_cols: int) -> "Places":
        """Every place of a matrix."""
        return cls.of_positions(np.arange(n_rows * n_cols), n_rows, n_cols)

    @classmethod
    def of_positions(cls, positions: Ints, n_rows: int, n_cols: int) -> "Places":
        """Places from rising positions ``column * n_rows + row``."""
        starts = np.searchsorted(positions, np.arange(n_cols + 1) * n_rows)
        return cls(n_rows, n_cols, starts.astype(np.int64), positions % n_rows)

    @property
    def columns(self) -> Ints:
        """Column of each entry, (entries,) int64."""
        return np.repeat(np.arange(self.n_cols), np.diff(self.column_starts))

    @property
    def positions(self) -> Ints:
        """``column * n_rows + row`` of each entry, rising."""
        return self.columns * self.n_rows + self.row_indices


def prune(
    weight: Floats, *, density: float | None = None, threshold: float | None = None
) -> Floats:
    """Set the smallest weights to zero; a copy. Zeros stay zero, whatever is asked.

    Parameters
    ----------
    weight : (rows, cols) float32
    density : float, optional
        Share of weights to keep, of all places, rounded to a whole number. Of equal magnitudes the
        first in row-major order are kept.
    threshold : float, optional
        Weights whose magnitude is below it are pruned.

    Returns
    -------
    (rows, cols) float32
    """
    kept = weight.copy()
    if threshold is not None:
        kept[np.abs(weight) < threshold] = 0
    if density is not None:
        kept[~_largest(np.abs(weight), round(density * weight.size))] = 0
    return kept


def _largest(magnitudes: Floats, count: int) -> npt.NDArray[np.bool_]:
    """Where the `count` largest stand; of equal ones the first in row-major order."""
    if count == 0:
        return np.zeros(magnitudes.shape, dtype=bool)
    flat = magnitudes.reshape(-1)
    least = np.partition(flat, len(flat) - count)[len(flat) - count]
    chosen = flat > least
    missing = count - np.count_nonzero(chosen)
    chosen[np.flatnonzero(flat == least)[:missing]] = True
    return chosen.reshape(magnitudes.shape)


def best_gaps(places: Places, *, huffman: bool) -> tuple[int, SymbolCounts]:
    """Symbol width k with the fewest bytes, the smallest of equals, and its symbols' counts."""
    gaps, counts = _histogram(_gaps(places))
    best: tuple[int, int, SymbolCounts] | None = None
    for width in range(1, (MAX_CODED_GAP_BITS if huffman else MAX_GAP_BITS) + 1):
        if best and huffman and table_bytes(1 << width) >= best[0]:
            break
        symbols = _gap_counts(gaps, counts, width)
        size = symbols.bytes_as(huffman=huffman)
        if best is None or size < best[0]:
            best = size, width, symbols
    assert best
    return best[1:]


def gap_symbols(places: Places, width: int) -> Ints:
    """The gaps as symbols of `width` bits, (n,) int64."""
    gaps = _gaps(places)
    full = (1 << width) - 1
    ends = np.cumsum(gaps // full + 1) - 1
    symbols = np.full(int(ends[-1]) + 1 if len(ends) else 0, full, dtype=np.int64)
    symbols[ends] = gaps % full
    return symbols


def decode_gaps(symbols: Ints, width: int, n_rows: int, n_cols: int, where: str) -> Places:
    """Undo `gap_symbols`; nothing larger than the symbols is allocated.

    Raises
    ------
    FormatError
        The last symbol asks for another, or an entry lies outside the matrix; `where` starts the
        message.
    """
    full = (1 << width) - 1
    if len(symbols) and symbols[-1] == full:
        raise FormatError(f"{where}: the last gap has no end; {AGAIN}")
    ends = np.flatnonzero(symbols != full)
    positions = np.cumsum(symbols)[ends] + np.arange(len(ends))
    if len(ends) and positions[-1] >= n_rows * n_cols:
        raise FormatError(
            f"{where}: an entry stands at position {positions[-1]}, expected below "
            f"{n_rows * n_cols}; {AGAIN}"
        )
    return Places.of_positions(positions, n_rows, n_cols)


def _gaps(places: Places) -> Ints:
    return np.diff(places.positions, prepend=-1) - 1


def _histogram(gaps: Ints) -> tuple[Ints, Ints]:
    """Distinct gaps and their counts; most are short, so that few need sorting."""
    short = gaps < SHORT_GAP
    counts = np.bincount(gaps[short], minlength=1)
    found = np.flatnonzero(counts)
    long, long_counts = np.unique(gaps[~short], return_counts=True)
    return np.concatenate((found, long)), np.concatenate((counts[found], long_counts))


def _gap_counts(gaps: Ints, counts: Ints, width: int) -> SymbolCounts:
    """Counts of the symbols of `width` bits that distinct gaps take."""
    full = (1 << width) - 1
    symbols = np.zeros(full + 1, dtype=np.int64)
    np.add.at(symbols, gaps % full, counts)
    symbols[full] = int(counts @ (gaps // full))
    return SymbolCounts(symbols)
