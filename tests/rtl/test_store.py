# SPDX-License-Identifier: BSD-2-Clause
"""Activation store: slots written as words of four, read as nonzeros."""

import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.store import ActivationStore
from gossamer.sim.streams import receive, watch
from rtl_models import PAUSES, SMALL, TINY, pauses, simulate


def nonzeros(values, n):
    """(slot, value, last) of a vector of n activations; the last one whatever it is."""
    return [
        (slot, value, int(slot == n - 1))
        for slot, value in enumerate(values[:n])
        if value or slot == n - 1
    ]


async def write(ctx, dut, slot, values):
    ctx.set(dut.write, 1)
    ctx.set(dut.write_slot, slot)
    for group in range(len(values) // 4):
        ctx.set(dut.write_group, group)
        four = values[4 * group : 4 * group + 4]
        ctx.set(dut.write_data, int.from_bytes(bytes(four), "little"))
        await ctx.tick()
    ctx.set(dut.write, 0)


async def start(ctx, dut, slot, n):
    ctx.set(dut.start, 1)
    ctx.set(dut.slot, slot)
    ctx.set(dut.last_input, n - 1)
    await ctx.tick()
    ctx.set(dut.start, 0)


def as_tuples(items):
    return [(item.slot, item.value, item.last) for item in items]


def padded(values):
    """Whole groups, the last filled up with zeros."""
    return values + [0] * (-len(values) % 4)


def check(config, vectors, share=0.0):
    """Write each vector into the slots in turn and scan it."""
    dut = ActivationStore(config)
    got, want = [], [nonzeros(v, len(v)) for v in vectors]

    async def bench(ctx):
        gaps = pauses(5, share)
        for k, values in enumerate(vectors):
            await write(ctx, dut, k % 2, padded(values))
            await start(ctx, dut, k % 2, len(values))
            got.append(as_tuples(await receive(ctx, dut.o, len(want[k]), gaps)))
            assert not ctx.get(dut.o.valid)

    async def check_stream(ctx):
        await watch(ctx, dut.o)

    simulate(dut, bench, background=[check_stream])
    assert got == want


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", [SMALL, TINY, replace(SMALL, input_depth=4096)])
def test_random_vectors(config, share):
    rng = random.Random(4)
    vectors = []
    for density in (0.05, 0.3, 0.7, 1.0) * 3:
        n = rng.choice([1, 2, 3, 4, config.input_depth, rng.randint(1, config.input_depth)])
        n = min(n, 90)
        vectors.append([rng.randrange(256) if rng.random() < density else 0 for _ in range(n)])
    check(config, vectors, share)


@pytest.mark.parametrize(
    "values",
    [
        [0],
        [255],
        [0] * 4,
        [0] * 5,
        [0] * 31 + [9],
        [9] + [0] * 31,
        [0] * 32,
        [1] * 32,
        [0, 0, 0, 1, 0],
        [1, 0, 0, 0],
        [0, 0, 7],
    ],
)
def test_corner(values):
    check(SMALL, [values, [3] * 8, values])


def observe(vector):
    """Per cycle after `start` the value that is valid, or None, at full rate."""
    dut = ActivationStore(SMALL)
    seen = []

    async def bench(ctx):
        await write(ctx, dut, 1, padded(vector))
        await start(ctx, dut, 1, len(vector))
        ctx.set(dut.o.ready, 1)
        for _ in range(40):
            _, _, valid, value = await ctx.tick().sample(dut.o.valid, dut.o.p.value)
            seen.append(value if valid else None)

    simulate(dut, bench)
    return seen


def test_latency_and_rate():
    """First nonzero three cycles after `start`, then one a cycle; four zeros take a cycle."""
    dense = list(range(1, 33))
    assert observe(dense) == [None] * 2 + dense + [None] * 6
    assert observe([0] * 12 + [5, 6, 0, 0] + [7]) == [None] * 5 + [5, 6, 7] + [None] * 32
    sparse = [0, 0, 0, 1, 2, 0, 0, 0] * 4
    assert observe(sparse)[2:11] == [1, 2] * 4 + [0]


def test_slots_are_apart_and_kept():
    """One slot is written while the other is read; a slot can be scanned again."""
    dut = ActivationStore(SMALL)
    first, second = [1, 0, 2, 3] * 8, [0, 9, 0, 8] * 8
    got = []

    async def bench(ctx):
        await write(ctx, dut, 0, first)
        await start(ctx, dut, 0, 32)
        await write(ctx, dut, 1, second)
        for slot in (0, 1, 0):
            if got:
                await start(ctx, dut, slot, 32)
            vector = second if slot else first
            got.append(as_tuples(await receive(ctx, dut.o, len(nonzeros(vector, 32)))))

    simulate(dut, bench)
    assert got == [nonzeros(v, 32) for v in (first, second, first)]


def test_reset_in_mid_stream():
    """A scan that was cut off leaves nothing behind."""
    dut = ActivationStore(SMALL)
    reset = Signal()
    first, second = [1, 0, 2, 3] * 8, [0, 0, 0, 5, 6, 0]
    got = []

    async def bench(ctx):
        await write(ctx, dut, 0, first)
        await write(ctx, dut, 1, padded(second))
        for length in range(12):
            await start(ctx, dut, 0, 32)
            ctx.set(dut.o.ready, length % 3 > 0)
            for _ in range(length):
                await ctx.tick()
            ctx.set(dut.o.ready, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.o.valid)
            await start(ctx, dut, 1, 6)
            got.append(as_tuples(await receive(ctx, dut.o, 3)))
            assert not ctx.get(dut.o.valid)

    simulate(ResetInserter(reset)(dut), bench)
    assert got == [[(3, 5, 0), (4, 6, 0), (5, 0, 1)]] * 12
