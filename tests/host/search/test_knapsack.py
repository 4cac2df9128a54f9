# SPDX-License-Identifier: BSD-2-Clause
from itertools import product

import numpy as np
import pytest
from gossamer.host.search.knapsack import UNITS, choose


def total(values, choice):
    return sum(one[k] for one, k in zip(values, choice, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_choice_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(1, 6, rng.integers(1, 5))
    sizes = [rng.integers(0, 40, n) for n in groups]
    costs = [rng.integers(0, 9, n) / 4 for n in groups]
    room = int(rng.integers(0, 120))
    fitting = [c for c in product(*map(range, groups)) if total(sizes, c) <= room]
    choice = choose(sizes, costs, room)
    if not fitting:
        assert total(sizes, choice) == sum(one.min() for one in sizes)
        return
    assert total(sizes, choice) <= room
    best = min(total(costs, c) for c in fitting)
    assert total(costs, choice) == best
    assert total(sizes, choice) == min(total(sizes, c) for c in fitting if total(costs, c) == best)


def test_rounded_sizes_never_need_more_room():
    rng = np.random.default_rng(0)
    sizes = [rng.integers(1, 10**7, 50) for _ in range(8)]
    costs = [1e7 / one for one in sizes]
    for room in (3 * 10**6, 10**7, 4 * 10**7):
        taken = total(sizes, choose(sizes, costs, room))
        assert room * (1 - 0.02) - 8 * room / UNITS <= taken <= room


def test_without_room_the_smallest_are_taken():
    assert choose([np.array([3, 2]), np.array([5])], [np.zeros(2), np.zeros(1)], -4) == (1, 0)
