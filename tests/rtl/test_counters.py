# SPDX-License-Identifier: BSD-2-Clause
"""Counters: one class for every multiplier-cycle."""

import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.counters import Counters
from gossamer.rtl.formats import COUNTER_NAMES
from gossamer.rtl.layouts import tile_activity_layout
from gossamer.rtl.pe import Activity
from gossamer.sim.streams import idle
from rtl_models import SMALL, simulate


def classes_of(activities, blocked, broadcasting):
    """Increments of the seven classes in one cycle."""
    counts = dict.fromkeys(COUNTER_NAMES[1:], 0)
    counts["busy"] = activities.count(Activity.BUSY)
    counts["filler"] = activities.count(Activity.FILLER)
    counts["drain"] = activities.count(Activity.DRAIN)
    idle_pes = activities.count(Activity.IDLE)
    if blocked:
        counts["queue_full"] = idle_pes
    elif broadcasting:
        counts["broadcast"] = idle_pes
    elif idle_pes != len(activities):
        counts["imbalance"] = idle_pes
    else:
        counts["starved"] = idle_pes
    return counts


class Model:
    """Counters as a program: what is reported counts a cycle later."""

    def __init__(self, n_pes):
        self.now = dict.fromkeys(COUNTER_NAMES, 0)
        self.saved = dict(self.now)
        self.reported = dict.fromkeys(COUNTER_NAMES[1:], 0)  # none in the first cycle

    def tick(self, clear, running, save, activities, blocked, broadcasting):
        if save:
            self.saved = dict(self.now)
        if clear:
            self.now = dict.fromkeys(COUNTER_NAMES, 0)
        elif running:
            self.now["cycles"] += 1
            for name, value in self.reported.items():
                self.now[name] += value
        self.reported = classes_of(activities, blocked, broadcasting)


async def drive(ctx, dut, clear, running, save, activities, blocked, broadcasting):
    ctx.set(dut.clear, clear)
    ctx.set(dut.running, running)
    ctx.set(dut.save, save)
    for k, activity in enumerate(activities):
        ctx.set(dut.activities[k], activity)
    ctx.set(dut.blocked, blocked)
    ctx.set(dut.broadcasting, broadcasting)
    await ctx.tick()
    return dict(zip(COUNTER_NAMES, [ctx.get(dut.counts[k]) for k in range(8)], strict=True))


@pytest.mark.parametrize("n_pes", [1, 3, 8])
def test_random_activities(n_pes):
    rng = random.Random(n_pes)
    dut = Counters(replace(SMALL, n_pes=n_pes))
    model = Model(n_pes)
    got, want = [], []

    async def bench(ctx):
        running = False
        for _ in range(400):
            clear = rng.random() < 0.02
            running = (running and rng.random() > 0.02) or clear
            use = rng.choices(list(Activity), [rng.random() + 0.01 for _ in Activity], k=n_pes)
            inputs = clear, running, rng.random() < 0.1, use, rng.random() < 0.3, rng.random() < 0.3
            model.tick(*inputs)
            got.append(await drive(ctx, dut, *inputs))
            want.append(model.saved)

    simulate(dut, bench)
    assert got == want
    assert len({tuple(saved.values()) for saved in want}) > 20


def test_classes_add_up():
    """From the second cycle after a reset on; the next run may begin while counts are saved."""
    n_pes = 5
    rng = random.Random(9)
    dut = Counters(replace(SMALL, n_pes=n_pes))
    reset = Signal()
    found = []

    async def bench(ctx):
        for length in (1, 7, 40):
            ctx.set(reset, 1)
            await drive(ctx, dut, 0, 0, 0, [Activity.BUSY] * n_pes, 1, 1)
            ctx.set(reset, 0)
            await idle(ctx, 1)
            await drive(ctx, dut, 1, 0, 0, [Activity.IDLE] * n_pes, 0, 0)
            for _ in range(length):
                use = rng.choices(list(Activity), k=n_pes)
                await drive(ctx, dut, 0, 1, 0, use, rng.random() < 0.5, rng.random() < 0.5)
            saved = await drive(ctx, dut, 1, 0, 1, [Activity.IDLE] * n_pes, 0, 0)
            assert await drive(ctx, dut, 0, 0, 0, [Activity.BUSY] * n_pes, 0, 0) == saved
            found.append((saved["cycles"], sum(saved.values()) - saved["cycles"]))

    simulate(ResetInserter(reset)(dut), bench)
    assert found == [(length, n_pes * length) for length in (1, 7, 40)]


def test_cycles_alone():
    """Without counters only cycles are counted, the classes read 0."""
    dut = Counters(replace(SMALL, n_pes=2, counters=False))
    found = []

    async def bench(ctx):
        for _ in range(9):
            await drive(ctx, dut, 0, 1, 0, [Activity.BUSY] * 2, 1, 1)
        found.append(await drive(ctx, dut, 0, 0, 1, [Activity.BUSY] * 2, 1, 1))

    simulate(dut, bench)
    assert found == [dict.fromkeys(COUNTER_NAMES, 0) | {"cycles": 9}]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 4), (8, 4)])
def test_tile_multipliers_count_beside_the_pes(rows, columns):
    """What the tile reports counts a cycle later; what it does not mention is starved."""
    n_pes, multipliers = 3, 2 * rows * columns
    config = replace(SMALL, n_pes=n_pes, tile_rows=rows, tile_columns=columns)
    rng = random.Random(rows)
    dut = Counters(config)
    names = list(tile_activity_layout(config).members)
    model = Model(n_pes)
    model.reported["starved"] = multipliers
    got, want = [], []

    async def bench(ctx):
        for step in range(300):
            left = multipliers if step % 3 else 0
            tile = {}
            for name in rng.sample(names, len(names)):
                tile[name] = rng.choice((0, left, rng.randrange(left + 1)))
                left -= tile[name]
            for name, value in tile.items():
                ctx.set(dut.tile[name], value)
            use = rng.choices(list(Activity), k=n_pes)
            inputs = step == 0, step > 0, step % 50 == 49, use, rng.random() < 0.3, False
            model.tick(*inputs)
            for name, value in (tile | {"starved": left if step % 3 else multipliers}).items():
                model.reported[name] += value
            got.append(await drive(ctx, dut, *inputs))
            want.append(model.saved)

    simulate(dut, bench)
    assert got == want
    assert sum(got[-1].values()) == (config.multipliers + 1) * got[-1]["cycles"] > 0
    assert all(got[-1][name] for name in (*names, "starved"))


def test_tile_at_rest_is_starved():
    """From the second cycle after a reset on, as a PE without work."""
    config = replace(SMALL, n_pes=1, tile_rows=2, tile_columns=2)
    dut = Counters(config)
    found = []

    async def bench(ctx):
        for _ in range(9):
            await drive(ctx, dut, 0, 1, 0, [Activity.IDLE], 0, 0)
        found.append(await drive(ctx, dut, 0, 0, 1, [Activity.IDLE], 0, 0))

    simulate(dut, bench)
    want = {"cycles": 9, "starved": 8 * config.multipliers}
    assert found == [dict.fromkeys(COUNTER_NAMES, 0) | want]
