# SPDX-License-Identifier: BSD-2-Clause
"""One of several items a group, with the least total cost in limited room.

Dynamic programming over the room, cut into units: exact but for sizes that are rounded up to whole
units, so that what is chosen never needs more room than there is.

Ref: Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, chapter 11 (multiple choice).
"""

import numpy as np
import numpy.typing as npt

__all__ = ["choose"]

UNITS = 4096
"""Into how many units the room is cut."""

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def choose(sizes: list[Ints], costs: list[Doubles], room: int) -> tuple[int, ...]:
    """Items with the least sum of costs, of equal ones those of least size.

    Parameters
    ----------
    sizes : list of (items,) int64
        0 or more, one array a group.
    costs : list of (items,) float64
    room : int
        Largest sum of sizes; if not even the smallest items fit, those are chosen.

    Returns
    -------
    tuple of int
        An item of each group.
    """
    unit = max(1, -(-room // UNITS))
    units = max(0, room // unit)
    best = np.zeros(units + 1)
    picks: list[Ints] = []
    needs = [-(-one // unit) for one in sizes]
    for need, cost in zip(needs, costs, strict=True):
        totals = np.full((len(need), units + 1), np.inf)
        for k, (taken, own) in enumerate(zip(need.tolist(), cost.tolist(), strict=True)):
            if taken <= units:
                totals[k, taken:] = best[: units + 1 - taken] + own
        picks.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
    left = int(np.argmin(best))  # the least room of equal costs
    if not np.isfinite(best[left]):
        return tuple(int(one.argmin()) for one in sizes)
    chosen = []
    for pick, need in zip(reversed(picks), reversed(needs), strict=True):
        chosen.append(int(pick[left]))
        left -= int(need[chosen[-1]])
    return tuple(reversed(chosen))
