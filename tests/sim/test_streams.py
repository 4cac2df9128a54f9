# SPDX-License-Identifier: BSD-2-Clause
import pytest
from amaranth import Module
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator
from gossamer.sim.streams import StreamTimeout, idle, random_pauses, receive, send, watch


class Queue(wiring.Component):
    def __init__(self):
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = queue = fifo.SyncFIFOBuffered(width=8, depth=4)
        connect(m, flipped(self.i), queue.w_stream)
        connect(m, queue.r_stream, flipped(self.o))
        return m


class Fickle(wiring.Component):
    """Breaks the rules: its payload counts while stalled."""

    def __init__(self):
        super().__init__({"o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.valid.eq(1)
        m.d.sync += self.o.p.eq(self.o.p + 1)
        return m


def run(dut, *benches, background=()):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)
    for bench in background:
        sim.add_testbench(bench, background=True)
    sim.run()


@pytest.mark.parametrize("seeds", [None, (1, 2)])
def test_items_pass_in_order(seeds):
    dut = Queue()
    got = []
    slow = [random_pauses(seed) if seed else None for seed in seeds or (0, 0)]

    async def feed(ctx):
        await send(ctx, dut.i, range(100), slow[0])

    async def collect(ctx):
        got.extend(await receive(ctx, dut.o, 100, slow[1]))

    async def check(ctx):
        await watch(ctx, dut.o)

    run(dut, feed, collect, background=[check])
    assert got == list(range(100))


def test_full_rate_is_one_item_per_cycle():
    dut = Queue()
    cycles = []

    async def feed(ctx):
        cycles.append(await send(ctx, dut.i, range(100)))

    async def collect(ctx):
        await receive(ctx, dut.o, 100)

    run(dut, feed, collect)
    assert cycles == [100]


def test_waits_have_a_limit():
    dut = Queue()

    async def feed(ctx):
        await send(ctx, dut.i, range(9), limit=20)

    async def collect(ctx):
        await receive(ctx, dut.o, 1, limit=20)

    with pytest.raises(StreamTimeout, match="item 4 was not taken within 20 cycles"):
        run(dut, feed)
    with pytest.raises(StreamTimeout, match="item 0 of 1 did not come within 20 cycles"):
        run(dut, collect)


def test_watch_sees_a_payload_that_changes():
    dut = Fickle()

    async def wait(ctx):
        await idle(ctx, 9)

    async def check(ctx):
        await watch(ctx, dut.o)

    with pytest.raises(AssertionError, match="payload changed while stalled in cycle 1"):
        run(dut, wait, background=[check])
