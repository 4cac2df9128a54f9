# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compiler.dealing import deal_groups, deal_rows, grouped_slots


def test_rows_are_dealt_evenly():
    rng = np.random.default_rng(5)
    for rows, pes in ((300, 16), (7, 3), (5, 64), (64, 64), (1, 1)):
        nonzeros = rng.integers(0, 60, rows)
        slots = deal_rows(nonzeros, pes)
        assert len(set(slots.tolist())) == rows
        assert slots.max() < -(-rows // pes) * pes
        work = np.bincount(slots % pes, weights=nonzeros, minlength=pes)
        assert work.max() <= max(nonzeros.max(), nonzeros.sum() / pes) + nonzeros.max()
    work = np.bincount(deal_rows(np.arange(300), 16) % 16, weights=np.arange(300))
    assert work.max() - work.min() < 0.03 * work.mean()


@pytest.mark.parametrize("rows", [65, 100, 600, 1000, 2400])
def test_an_odd_row_more_is_made_up_for(rows):
    """Some PEs have a row more than others; they get lighter ones."""
    nonzeros = np.random.default_rng(rows).binomial(4096, 0.1, rows)
    work = np.bincount(deal_rows(nonzeros, 64) % 64, weights=nonzeros)
    # the best that choosing which rows are the odd ones can do, and a little
    places = -(-rows // 64)
    more = (rows - 64 * (places - 1)) * places if rows % 64 else rows
    light = np.sort(nonzeros)[:more].mean() * places
    assert work.max() <= max(1.01 * light, 1.01 * nonzeros.sum() / 64, nonzeros.max())


@pytest.mark.parametrize("pes", [1, 2, 3, 4, 5, 6, 7, 16, 63, 64])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 33, 129, 300])
def test_groups_stay_together_in_the_first_slots(pes, rows):
    slots = deal_groups(np.random.default_rng(rows).integers(0, 60, rows), pes)
    assert len(set(slots.tolist())) == rows
    assert sorted({slot // 4 for slot in slots.tolist()}) == list(range(-(-rows // 4)))
    for first in range(0, rows, 4):
        assert len(set((slots[first : first + 4] // 4).tolist())) == 1
    assert slots.max() < grouped_slots(rows, pes)
    assert grouped_slots(rows, pes) % pes == 0
    assert grouped_slots(rows, pes) < rows + 3 + pes


@pytest.mark.parametrize("pes", [1, 3, 5, 12, 16, 64])
def test_groups_are_dealt_evenly(pes):
    nonzeros = np.random.default_rng(6).binomial(512, 0.09, 1024)
    nonzeros[::4] *= 2
    work = np.bincount(deal_groups(nonzeros, pes) % pes, weights=nonzeros, minlength=pes)
    in_order = np.bincount(np.arange(1024) % pes, weights=nonzeros, minlength=pes)
    # a PE that has a row more than others has its work, too
    share = -(-1024 // pes) * nonzeros.mean()
    assert work.max() < 1.04 * share
    assert pes == 1 or work.max() < in_order.max()


def test_heavy_rows_of_a_group_go_apart():
    nonzeros = np.array([9, 0, 0, 0] * 8)
    work = np.bincount(deal_groups(nonzeros, 8) % 8, weights=nonzeros, minlength=8)
    assert work.tolist() == [9] * 8
