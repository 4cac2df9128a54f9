# SPDX-License-Identifier: BSD-2-Clause
"""Scanner: a stored vector leaves as its nonzeros. The bench plays the store."""

import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.scan import Scanner
from gossamer.sim.streams import receive, watch
from rtl_models import PAUSES, SMALL, TINY, pauses, simulate

WIDE = replace(SMALL, activation_bits=16, sum_bits=36)


def nonzeros(values, n):
    """(slot, value, last) of a vector of n activations; the last one whatever it is."""
    return [
        (slot, value, int(slot == n - 1))
        for slot, value in enumerate(values[:n])
        if value or slot == n - 1
    ]


def store(dut, vector):
    """Background bench: groups of a vector, a cycle after they are read.

    `vector` is a list that may change while nothing is read; what it lacks of a last group is
    garbage.
    """
    bits = len(dut.data) // 4

    async def bench(ctx):
        while True:
            _, _, read, group = await ctx.tick().sample(dut.read, dut.group)
            if read:
                four = (vector + [(1 << bits) - 1] * 4)[4 * group : 4 * group + 4]
                ctx.set(dut.data, sum(value << (k * bits) for k, value in enumerate(four)))

    return bench


async def start(ctx, dut, n):
    ctx.set(dut.start, 1)
    ctx.set(dut.last_input, n - 1)
    await ctx.tick()
    ctx.set(dut.start, 0)


def as_tuples(items):
    return [(item.slot, item.value, item.last) for item in items]


def check(config, vectors, share=0.0):
    """Scan one vector after the other."""
    dut = Scanner(config)
    got, want = [], [nonzeros(v, len(v)) for v in vectors]
    stored = []

    async def bench(ctx):
        gaps = pauses(5, share)
        for values, items in zip(vectors, want, strict=True):
            stored[:] = values
            await start(ctx, dut, len(values))
            got.append(as_tuples(await receive(ctx, dut.o, len(items), gaps)))
            assert not ctx.get(dut.o.valid)

    async def check_stream(ctx):
        await watch(ctx, dut.o)

    simulate(dut, bench, background=[store(dut, stored), check_stream])
    assert got == want


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize(
    "config",
    [SMALL, TINY, replace(SMALL, input_depth=4096), WIDE],
    ids="small tiny deep 16".split(),
)
def test_random_vectors(config, share):
    rng = random.Random(4)
    vectors = []
    for density in (0.05, 0.3, 0.7, 1.0) * 3:
        n = rng.choice([1, 2, 3, 4, config.input_depth, rng.randint(1, config.input_depth)])
        n = min(n, 90)
        most = 1 << config.activation_bits
        vectors.append([rng.randrange(most) if rng.random() < density else 0 for _ in range(n)])
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
    """Also: what stands behind the vector in its last group is not handed out."""
    check(SMALL, [values, [3] * 8, values])


def observe(vector):
    """Per cycle after `start` the value that is valid, or None, at full rate."""
    dut = Scanner(SMALL)
    seen = []

    async def bench(ctx):
        await start(ctx, dut, len(vector))
        ctx.set(dut.o.ready, 1)
        for _ in range(40):
            _, _, valid, value = await ctx.tick().sample(dut.o.valid, dut.o.p.value)
            seen.append(value if valid else None)

    simulate(dut, bench, background=[store(dut, vector)])
    return seen


def test_latency_and_rate():
    """First nonzero three cycles after `start`, then one a cycle; four zeros take a cycle."""
    dense = list(range(1, 33))
    assert observe(dense) == [None] * 2 + dense + [None] * 6
    assert observe([0] * 12 + [5, 6, 0, 0] + [7]) == [None] * 5 + [5, 6, 7] + [None] * 32
    sparse = [0, 0, 0, 1, 2, 0, 0, 0] * 4
    assert observe(sparse)[2:11] == [1, 2] * 4 + [0]


def test_reset_in_mid_stream():
    """A scan that was cut off leaves nothing behind."""
    dut = Scanner(SMALL)
    reset = Signal()
    first, second = [1, 0, 2, 3] * 8, [0, 0, 0, 5, 6, 0]
    stored, got = [], []

    async def bench(ctx):
        for length in range(12):
            stored[:] = first
            await start(ctx, dut, 32)
            ctx.set(dut.o.ready, length % 3 > 0)
            for _ in range(length):
                await ctx.tick()
            ctx.set(dut.o.ready, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.o.valid)
            stored[:] = second
            await start(ctx, dut, 6)
            got.append(as_tuples(await receive(ctx, dut.o, 3)))
            assert not ctx.get(dut.o.valid)

    simulate(ResetInserter(reset)(dut), bench, background=[store(dut, stored)])
    assert got == [[(3, 5, 0), (4, 6, 0), (5, 0, 1)]] * 12
