# SPDX-License-Identifier: BSD-2-Clause
"""Axis 1 of a compressed matrix: where nonzeros may stand. Prune, encode, decode, bit cost.

``dense`` stores every weight and no index. ``unstructured`` stores the nonzeros column by column;
the zeros before each are a number in symbols of k bits: the all-ones symbol means "2**k - 1 zeros
and go on", so a long gap needs no filler entry, and no column pointer is stored because gaps run
across columns. k is chosen per layer.

Ref: Han et al., Deep Compression, section 2 (relative indices), with escapes in place of fillers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .bits import pack_bits, packed_bytes, unpack_bits
from .errors import FormatError
from .network import Floats

__all__ = [
    "MAX_GAP_BITS",
    "STRUCTURES",
    "Places",
    "decode_gaps",
    "encode_gaps",
    "gap_bits",
    "prune",
]

STRUCTURES = ("dense", "unstructured")
MAX_GAP_BITS = 16

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
        order = np.argsort(-np.abs(weight).reshape(-1), kind="stable")
        kept.reshape(-1)[order[round(density * weight.size) :]] = 0
    return kept


def gap_bits(places: Places) -> tuple[int, int]:
    """Best symbol width k in 1..16, and the bits all gaps take with it (0 bits if no entries)."""
    gaps = _gaps(places)
    costs = [int(k * (gaps // ((1 << k) - 1) + 1).sum()) for k in range(1, MAX_GAP_BITS + 1)]
    best = int(np.argmin(costs))
    return best + 1, costs[best]


def encode_gaps(places: Places) -> tuple[int, bytes]:
    """Symbol width k and the packed symbols."""
    width, _ = gap_bits(places)
    gaps = _gaps(places)
    full = (1 << width) - 1
    ends = np.cumsum(gaps // full + 1) - 1
    symbols = np.full(int(ends[-1]) + 1 if len(ends) else 0, full, dtype=np.int64)
    symbols[ends] = gaps % full
    return width, pack_bits(symbols, width)


def decode_gaps(
    data: bytes, width: int, entries: int, n_rows: int, n_cols: int, where: str
) -> Places:
    """Undo `encode_gaps`; nothing larger than `data` and `entries` call for is allocated.

    Raises
    ------
    FormatError
        `data` is too short or too long for the entries, or an entry lies outside the matrix;
        `where` starts the message.
    """
    symbols = unpack_bits(data, width, len(data) * 8 // width)
    full = (1 << width) - 1
    ends = np.flatnonzero(symbols != full)[:entries]
    used = int(ends[-1]) + 1 if len(ends) else 0
    if len(ends) < entries or packed_bytes(used, width) != len(data):
        raise FormatError(
            f"{where}: {len(data)} bytes of gaps hold {len(ends)} entries, expected exactly "
            f"{entries}; the file is damaged, write it again"
        )
    positions = np.cumsum(symbols[:used])[ends] + np.arange(entries)
    if entries and positions[-1] >= n_rows * n_cols:
        raise FormatError(
            f"{where}: an entry stands at position {positions[-1]}, expected below "
            f"{n_rows * n_cols}; the file is damaged, write it again"
        )
    return Places.of_positions(positions, n_rows, n_cols)


def _gaps(places: Places) -> Ints:
    return np.diff(places.positions, prepend=-1) - 1
