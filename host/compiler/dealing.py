# SPDX-License-Identifier: BSD-2-Clause
"""Which slot each row of a layer on the sparse array gets, so that the PEs' nonzeros balance.

A slot is ``local_row * n_pes + pe``. Where the tensor tile reads the layer's outputs, four
consecutive rows must stay together: they are one group of four of its inputs.
"""

import heapq
from math import gcd

import numpy as np
import numpy.typing as npt

__all__ = ["deal_groups", "deal_rows", "grouped_slots"]

Ints = npt.NDArray[np.int64]


def deal_rows(nonzeros: Ints, n_pes: int) -> Ints:
    """Deal rows to PEs so that their nonzeros balance.

    Most nonzeros first, each to the PE with the least work and a free place (Graham's rule of the
    longest processing time). Where rows do not divide evenly, the PEs that get one more are then
    too full, so rows change places until that evens nothing out any more.

    Parameters
    ----------
    nonzeros : (n_rows,) int64
        Entries of each row.
    n_pes : int

    Returns
    -------
    (n_rows,) int64
        Slot of each row.
    """
    places = -(-len(nonzeros) // n_pes)
    row_at = np.full((places, n_pes), -1)
    heap = [(0, 0, pe) for pe in range(n_pes)]  # work, rows, PE
    for row in np.argsort(-nonzeros, kind="stable"):
        work, rows, pe = heapq.heappop(heap)
        row_at[rows, pe] = row
        if rows + 1 < places:
            heapq.heappush(heap, (work + int(nonzeros[row]), rows + 1, pe))
    _even_out(row_at, nonzeros)
    taken = row_at.reshape(-1) >= 0
    slots = np.empty(len(nonzeros), dtype=np.int64)
    slots[row_at.reshape(-1)[taken]] = np.flatnonzero(taken)
    return slots


def _even_out(row_at: Ints, nonzeros: Ints) -> None:
    """Exchange rows of the fullest and the emptiest PE while that brings them closer together.

    `row_at` (places, PEs) holds rows, or -1 where there is none. Each step lowers the sum of the
    squares of the PEs' work, so it ends.
    """
    weights = np.where(row_at >= 0, nonzeros[row_at], 0)
    work = weights.sum(axis=0)
    while True:
        full, empty = int(np.argmax(work)), int(np.argmin(work))
        gap = int(work[full] - work[empty])
        change = weights[:, full, None] - weights[None, :, empty]
        left = np.abs(gap - 2 * change)
        if not (left < gap).any():
            return
        here, there = np.unravel_index(np.argmin(left), left.shape)
        for grid in (row_at, weights):
            grid[here, full], grid[there, empty] = grid[there, empty], grid[here, full]
        moved = int(change[here, there])
        work[full] -= moved
        work[empty] += moved


def grouped_slots(n_rows: int, n_pes: int) -> int:
    """Slots of a layer whose rows are dealt in groups of four: whole local rows of all PEs."""
    return -(-4 * -(-n_rows // 4) // n_pes) * n_pes


def deal_groups(nonzeros: Ints, n_pes: int) -> Ints:
    """Deal rows in groups of four: rows 4k..4k+3 get slots 4j..4j+3, in any order.

    Heaviest groups first, each to the four PEs with the least work, and in it the heaviest row to
    the PE with the least. Groups fill the first slots, so that the tile walks no more of them than
    in natural order.

    Parameters
    ----------
    nonzeros : (n_rows,) int64
        Entries of each row.
    n_pes : int

    Returns
    -------
    (n_rows,) int64
        Slot of each row.
    """
    n_groups = -(-len(nonzeros) // 4)
    weights = np.zeros(4 * n_groups, dtype=np.int64)
    weights[: len(nonzeros)] = nonzeros
    groups = weights.reshape(n_groups, 4)
    # Slots 4j..4j+3 lie on the same PEs as those of j plus any multiple of `kinds`.
    kinds = min(n_pes // gcd(n_pes, 4), n_groups)
    pes = np.arange(4 * kinds).reshape(kinds, 4) % n_pes
    free = np.array([len(range(kind, n_groups, kinds)) for kind in range(kinds)])
    taken = np.zeros(kinds, dtype=np.int64)
    work = np.zeros(n_pes, dtype=np.int64)
    slots = np.empty(4 * n_groups, dtype=np.int64)
    for group in np.argsort(-groups.sum(axis=1), kind="stable"):
        loads = work[pes].sum(axis=1)
        loads[taken == free] = np.iinfo(np.int64).max
        kind = int(np.argmin(loads))
        first = 4 * (kind + int(taken[kind]) * kinds)
        taken[kind] += 1
        places = list(range(4))
        for row in np.argsort(-groups[group], kind="stable"):
            place = min(places, key=lambda k, kind=kind: work[pes[kind, k]])
            places.remove(place)
            work[pes[kind, place]] += groups[group, row]
            slots[4 * group + row] = first + place
    return slots[: len(nonzeros)]
