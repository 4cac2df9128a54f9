# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Queues of streams."""

import pytest
from amaranth import ResetInserter, Signal
from amaranth.lib import data
from gossamer.rtl.streams import Queue
from gossamer.sim.streams import idle, receive, send, watch
from rtl_models import pauses, simulate

SHAPE = data.StructLayout({"a": 5, "b": 1})
KINDS = [(2, False), (3, False), (4, False), (2, True), (5, True), (16, True)]


@pytest.mark.parametrize(("sender", "sink"), [(0, 0), (0.6, 0), (0, 0.6), (0.5, 0.5)])
@pytest.mark.parametrize(("depth", "block"), KINDS)
def test_order_is_kept(depth, block, sender, sink):
    dut = Queue(SHAPE, depth=depth, block=block)
    items = [(k % 32, k % 3 == 0) for k in range(80)]
    got, cycles = [], []

    async def feed(ctx):
        values = [{"a": a, "b": b} for a, b in items]
        cycles.append(await send(ctx, dut.i, values, pauses(1, sender)))

    async def collect(ctx):
        got.extend((item.a, item.b) for item in await receive(ctx, dut.o, 80, pauses(2, sink)))
        await idle(ctx, 4)
        assert not ctx.get(dut.o.valid)

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, feed, collect, background=[check])
    assert got == items
    if not sender and not sink and (depth > 2 or not block):
        assert cycles == [80], "not one payload per cycle"


@pytest.mark.parametrize(("depth", "block"), KINDS)
def test_latency_and_depth(depth, block):
    """`o` shows the first payload one cycle late, two if `block`; exactly `depth` fit."""
    dut = Queue(8, depth=depth, block=block)
    seen, taken = [], []

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for k in range(depth + 6):
            ctx.set(dut.i.payload, 100 + k)
            _, _, valid, payload, ready = await ctx.tick().sample(
                dut.o.valid, dut.o.payload, dut.i.ready
            )
            seen.append(payload if valid else None)
            taken.append(ready)

    simulate(dut, bench)
    latency = 2 if block else 1
    assert seen[: latency + 1] == [None] * latency + [100]
    assert set(seen[latency:]) == {100}
    assert sum(taken) == depth


@pytest.mark.parametrize(("depth", "block"), [(4, False), (4, True)])
def test_reset_empties(depth, block):
    dut = Queue(8, depth=depth, block=block)
    reset = Signal()
    got = []

    async def bench(ctx):
        for n in range(1, depth + 1):
            await send(ctx, dut.i, range(n))
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.o.valid)
            await send(ctx, dut.i, range(50, 50 + depth))
            got.append(await receive(ctx, dut.o, depth))
            assert not ctx.get(dut.o.valid)

    simulate(ResetInserter(reset)(dut), bench)
    assert got == [list(range(50, 50 + depth))] * depth


@pytest.mark.parametrize("depth", [-1, 0, 1])
def test_bad_parameters(depth):
    with pytest.raises(ValueError, match=rf"depth must be at least 2, not {depth}"):
        Queue(8, depth=depth)
