# SPDX-License-Identifier: BSD-2-Clause
"""Reset of an engine: as long as the PLL has not locked, and some time after."""

from amaranth import ClockDomain, Module
from amaranth.sim import Simulator
from gossamer.boards.clock import LockReset


def simulate(testbench):
    m = Module()
    m.domains.start = ClockDomain(reset_less=True)
    m.submodules.dut = dut = LockReset()
    simulator = Simulator(m)
    simulator.add_clock(1e-6, domain="start")

    async def bench(ctx):
        await testbench(ctx, dut)

    simulator.add_testbench(bench)
    simulator.run()


def test_reset_ends_a_known_time_after_lock():
    seen = []

    async def testbench(ctx, dut):
        for _ in range(LockReset.CYCLES + 50):
            await ctx.tick("start")
            seen.append(ctx.get(dut.reset))
        ctx.set(dut.locked, 1)
        cycles = 0
        while ctx.get(dut.reset):
            await ctx.tick("start")
            cycles += 1
        seen.append(cycles)

    simulate(testbench)
    assert all(seen[:-1])
    assert seen[-1] == LockReset.CYCLES + 3


def test_a_lost_lock_resets_again():
    seen = []

    async def testbench(ctx, dut):
        ctx.set(dut.locked, 1)
        await ctx.tick("start").until(~dut.reset)
        ctx.set(dut.locked, 0)
        await ctx.tick("start").repeat(4)
        seen.append(ctx.get(dut.reset))
        ctx.set(dut.locked, 1)
        await ctx.tick("start").repeat(LockReset.CYCLES)
        seen.append(ctx.get(dut.reset))
        await ctx.tick("start").until(~dut.reset)
        seen.append(ctx.get(dut.reset))

    simulate(testbench)
    assert seen == [1, 1, 0]
