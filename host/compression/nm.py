# SPDX-License-Identifier: BSD-2-Clause
"""Structure N:M: at most N nonzeros in each group of M consecutive inputs of a row.

Groups start at column 0 and never span rows; the last one of a row may be shorter. Stored are N
pairs (position in the group, code) per group, row by row: the nonzeros by rising column, then
absent pairs, position 0 and code 0, so that each row takes the same number of pairs and the place
of a pair says its row and group. Code 0 is kept for absent pairs: no nonzero has it. The positions
of a group are one symbol of the index, because few of their combinations are possible: a full group
of 2:4 has 6, not 16.

Ref: Mishra et al., Accelerating Sparse Deep Neural Networks, section 3 (2:4, indices of 2 bits).
"""

import re

import numpy as np
import numpy.typing as npt

from ...rtl.config import ceil_log2
from ..errors import AGAIN, FormatError, InputError
from ..network import Floats
from .structure import Places

__all__ = [
    "MAX_GROUP",
    "check_nm",
    "decode_nm",
    "encode_nm",
    "group_counts",
    "group_pairs",
    "is_nm",
    "pair_count",
    "parse_nm",
    "position_bits",
    "position_symbols",
    "select_nm",
    "symbol_count",
]

MAX_GROUP = 32
"""Largest M."""

MAX_SYMBOL_BITS = 12
"""Bits of a symbol of several positions."""

Ints = npt.NDArray[np.int64]


def is_nm(structure: str) -> bool:
    """Whether `structure` is N:M, such as ``"2:4"``, with 1 <= N < M <= 32."""
    found = re.fullmatch("([1-9][0-9]?):([1-9][0-9]?)", structure)
    return found is not None and int(found[1]) < int(found[2]) <= MAX_GROUP


def parse_nm(structure: str) -> tuple[int, int]:
    """N and M of a structure such as ``"2:4"``.

    Raises
    ------
    ValueError
        It is not N:M; ask `is_nm` first where it may be another.
    """
    if not is_nm(structure):
        raise ValueError(f"structure must be N:M with 1 <= N < M <= {MAX_GROUP}, not {structure!r}")
    n, m = structure.split(":")
    return int(n), int(m)


def position_bits(m: int) -> int:
    """Bits of a position in a group of `m`."""
    return ceil_log2(m)


def pair_count(n_rows: int, n_cols: int, n: int, m: int) -> int:
    """Stored pairs of a matrix, absent ones included."""
    return n_rows * -(-n_cols // m) * n


def group_counts(places: Places, m: int) -> Ints:
    """Entries in each group, (n_rows, groups) int64."""
    groups = -(-places.n_cols // m)
    of_entry = places.row_indices * groups + places.columns // m
    return np.bincount(of_entry, minlength=places.n_rows * groups).reshape(places.n_rows, groups)


def select_nm(weight: Floats, n: int, m: int) -> Floats:
    """Keep the `n` largest magnitudes of each group of `m`, the rest becomes zero; a copy.

    Of equal magnitudes those of the lowest columns are kept. Groups that are valid already stay as
    they are.

    Parameters
    ----------
    weight : (rows, cols) float32

    Returns
    -------
    (rows, cols) float32
    """
    rows, cols = weight.shape
    size = np.zeros((rows, -(-cols // m) * m), dtype=weight.dtype)
    size[:, :cols] = np.abs(weight)
    order = np.argsort(-size.reshape(rows, -1, m), axis=2, kind="stable")
    kept = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(kept, order[:, :, :n], True, axis=2)
    return np.where(kept.reshape(rows, -1)[:, :cols], weight, np.float32(0))


def check_nm(weight: Floats, n: int, m: int, name: str) -> None:
    """Refuse weights (rows, cols) of layer `name` that are not N:M. Negative zero is a zero.

    Raises
    ------
    InputError
        Names the first group, row by row, with more than `n` nonzeros.
    """
    counts = group_counts(Places.of_mask(weight != 0), m)
    rows, groups = np.nonzero(counts > n)
    if len(rows):
        row, group = int(rows[0]), int(groups[0])
        last = min((group + 1) * m, weight.shape[1]) - 1
        raise InputError(
            f"layer {name!r}: row {row}, columns {group * m} to {last} hold {counts[row, group]} "
            f"nonzeros, expected at most {n} (structure {n}:{m}; {len(rows)} of {counts.size} "
            "groups have too many); set `density` in the layer's recipe to have them pruned by "
            "magnitude (1.0 prunes no more than the structure asks), or take another structure"
        )


def group_pairs(places: Places, codes: Ints, n: int, m: int) -> tuple[Ints, Ints]:
    """Pairs of each group: the entries by rising column, then absent pairs.

    Parameters
    ----------
    places : Places
        At most `n` entries in each group.
    codes : (entries,) int64

    Returns
    -------
    positions, codes : (n_rows, groups, n) int64
        0 and 0 where a pair is absent.
    """
    shape = (places.n_rows, -(-places.n_cols // m), n)
    order = np.lexsort((places.columns, places.row_indices))
    columns = places.columns[order]
    group = places.row_indices[order] * shape[1] + columns // m
    rank = np.arange(len(group)) - np.searchsorted(group, group)
    pairs = np.zeros((2, shape[0] * shape[1], n), dtype=np.int64)
    pairs[0, group, rank] = columns % m
    pairs[1, group, rank] = codes[order]
    return pairs[0].reshape(shape), pairs[1].reshape(shape)


def position_symbols(n: int, m: int) -> int:
    """Number of symbols of the index: all positions of a group are one symbol if few enough."""
    return 1 << _joined(n, m) * position_bits(m)


def symbol_count(n_rows: int, n_cols: int, n: int, m: int) -> int:
    """Symbols of the index of a matrix."""
    return pair_count(n_rows, n_cols, n, m) // _joined(n, m)


def _joined(n: int, m: int) -> int:
    """Positions in a symbol."""
    return n if n * position_bits(m) <= MAX_SYMBOL_BITS else 1


def encode_nm(places: Places, codes: Ints, n: int, m: int) -> tuple[Ints, Ints]:
    """Symbols of the index, (symbols,) int64, and the code of each pair, (pairs,) int64.

    Both go row by row, group by group. The first position of a symbol is in its low bits.
    """
    positions, of_pairs = group_pairs(places, codes, n, m)
    return positions.reshape(-1, _joined(n, m)) @ _weights(n, m), of_pairs.reshape(-1)


def _weights(n: int, m: int) -> Ints:
    """What each position of a symbol counts."""
    return 1 << np.arange(_joined(n, m)) * position_bits(m)


def decode_nm(
    symbols: Ints, codes: Ints, n: int, m: int, n_rows: int, n_cols: int, where: str
) -> tuple[Places, Ints]:
    """Undo `encode_nm`; exactly what it writes is taken, so that equal models are equal files.

    Parameters
    ----------
    symbols : (symbols,) int64
        In 0..`position_symbols` - 1.
    codes : (pairs,) int64

    Returns
    -------
    places : Places
    codes : (entries,) int64
        Of the nonzeros, column by column.

    Raises
    ------
    FormatError
        A position does not rise or lies beyond its group or the last column, or an absent pair has
        a position or stands before a present one; `where` starts the message.
    """
    shape = (n_rows, -(-n_cols // m), n)
    positions = symbols[:, None] // _weights(n, m) % (1 << position_bits(m))
    positions = positions.reshape(shape)
    of_pairs = codes.reshape(shape)
    present = of_pairs != 0
    columns = positions + (np.arange(shape[1]) * m)[:, None]
    present_before, before = np.ones_like(present), np.full_like(positions, -1)
    present_before[..., 1:], before[..., 1:] = present[..., :-1], positions[..., :-1]
    rules = {
        f"positions below {m}": positions < m,
        f"columns below {n_cols}": ~present | (columns < n_cols),
        "position 0 where code is 0": present | (positions == 0),
        "code 0 only behind the others": ~present | present_before,
        "rising positions": ~present | (positions > before),
    }
    for rule, holds in rules.items():
        if not holds.all():
            row, group, _ = (int(k[0]) for k in np.nonzero(~holds))
            found = list(
                zip(positions[row, group].tolist(), of_pairs[row, group].tolist(), strict=True)
            )
            raise FormatError(
                f"{where}: row {row}, group {group} holds the pairs (position, code) {found}, "
                f"expected {rule}; {AGAIN}"
            )
    rows, groups, ranks = np.nonzero(present)
    at = columns[rows, groups, ranks] * n_rows + rows
    order = np.argsort(at, kind="stable")
    places = Places.of_positions(at[order], n_rows, n_cols)
    return places, of_pairs[rows, groups, ranks][order]
