# SPDX-License-Identifier: BSD-2-Clause
import gc
import random

import pytest
from gossamer.rtl.uart import Uart, baud_divisor
from gossamer.sim.streams import idle, random_pauses, receive, send, watch
from rtl_models import simulate


def levels(values, period, stop=1, gap=0):
    """Line levels cycle by cycle for 8N1 bytes, `period` cycles (a float) per bit."""
    bits = []
    for value in values:
        bits += [0, *((value >> i) & 1 for i in range(8)), stop, *([1] * gap)]
    return [bits[int(cycle / period)] for cycle in range(int(len(bits) * period))]


async def drive(ctx, dut, line):
    for level in line:
        ctx.set(dut.rx, level)
        await ctx.tick()
    ctx.set(dut.rx, 1)


def counter(dut, pulses):
    async def count(ctx):
        while True:
            _, _, errors = await ctx.tick().sample(dut.errors)
            pulses[0] += errors & 1
            pulses[1] += errors >> 1

    return count


def receive_levels(divisor, line, count, sink=0.0):
    dut = Uart(divisor=divisor)
    got, pulses = [], [0, 0]

    async def feed(ctx):
        await drive(ctx, dut, line)

    async def collect(ctx):
        got.extend(await receive(ctx, dut.o, count, random_pauses(1, sink), limit=900))
        await idle(ctx, 12 * divisor)
        assert not ctx.get(dut.o.valid), "more bytes than expected"

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, feed, collect, background=[counter(dut, pulses), check])
    return got, tuple(pulses)


@pytest.mark.parametrize("divisor", [4, 5, 12, 30])
@pytest.mark.parametrize("off", [-0.02, 0.0, 0.02])
def test_receives_bytes_without_gaps_at_both_ends_of_the_tolerance(divisor, off):
    values = [0x00, 0xFF, 0x55, 0xAA, 0x7E, *random.Random(divisor).randbytes(8)]
    line = levels(values, divisor * (1 + off))
    if divisor < 12 and off:  # the sample point itself is coarse here: gaps let it recover
        line = levels(values, divisor * (1 + off), gap=2)
    got, pulses = receive_levels(divisor, line, len(values))
    assert got == values
    assert pulses == (0, 0)


def test_slow_reader_within_one_byte_loses_nothing():
    values = list(random.Random(1).randbytes(30))
    got, pulses = receive_levels(16, levels(values, 16), len(values), sink=0.9)
    assert got == values
    assert pulses == (0, 0)


def test_framing_error_drops_the_byte_and_the_next_one_is_right():
    line = levels([0x12], 8) + levels([0x34], 8, stop=0) + [0] * 200 + [1] * 20 + levels([0x56], 8)
    got, pulses = receive_levels(8, line, 2)
    assert got == [0x12, 0x56]
    assert pulses == (1, 0)


def test_glitch_is_no_start_bit():
    line = [0] * 3 + [1] * 30 + levels([0xA5], 16)
    got, pulses = receive_levels(16, line, 1)
    assert got == [0xA5]
    assert pulses == (0, 0)


def test_overrun_is_reported_and_keeps_the_older_byte():
    dut = Uart(divisor=8)
    pulses, got = [0, 0], []

    async def bench(ctx):
        await drive(ctx, dut, levels([1, 2, 3], 8))
        await idle(ctx, 20)
        got.extend(await receive(ctx, dut.o, 1))
        await drive(ctx, dut, levels([4], 8))
        got.extend(await receive(ctx, dut.o, 1))

    simulate(dut, bench, background=[counter(dut, pulses)])
    assert got == [1, 4]
    assert pulses == [0, 2]


@pytest.mark.parametrize("divisor", [4, 7, 13])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_transmits_exact_bits(divisor, share):
    dut = Uart(divisor=divisor)
    values = [0x00, 0xFF, *random.Random(2).randbytes(10)]
    line, got = [], []

    async def feed(ctx):
        await send(ctx, dut.i, values, random_pauses(3, share, longest=15 * divisor))
        await idle(ctx, 12 * divisor)

    async def record(ctx):
        while True:
            _, _, tx = await ctx.tick().sample(dut.tx)
            line.append(tx)

    simulate(dut, feed, background=[record])
    assert line[0] == 1
    at = 0
    while 0 in line[at:]:
        at = line.index(0, at)
        frame = line[at : at + 10 * divisor]
        bits = [frame[k * divisor : (k + 1) * divisor] for k in range(10)]
        assert all(len(set(bit)) == 1 for bit in bits), f"bit of the wrong length at cycle {at}"
        assert (bits[0][0], bits[9][0]) == (0, 1)
        got.append(sum(bit[0] << k for k, bit in enumerate(bits[1:9])))
        at += 10 * divisor
    assert got == values
    if not share:
        assert at == 1 + len(values) * 10 * divisor  # no gaps


def test_loopback():
    dut = Uart(divisor=6)
    values = list(random.Random(4).randbytes(40))
    got = []

    async def wire(ctx):
        while True:
            _, _, tx = await ctx.tick().sample(dut.tx)
            ctx.set(dut.rx, tx)

    async def feed(ctx):
        await send(ctx, dut.i, values)

    async def collect(ctx):
        got.extend(await receive(ctx, dut.o, len(values)))

    simulate(dut, feed, collect, background=[wire])
    assert got == values


def test_baud_divisor():
    assert baud_divisor(12_000_000, 115_200) == 104
    assert baud_divisor(24_000_000, 1_000_000) == 24
    with pytest.raises(ValueError, match="not 3000000; the nearest is 3125000 baud"):
        baud_divisor(25_000_000, 3_000_000)
    with pytest.raises(ValueError, match="not 4000000; the nearest is 3000000 baud"):
        baud_divisor(12_000_000, 4_000_000)
    with pytest.raises(ValueError, match="must be positive, not 12000000 and 0"):
        baud_divisor(12_000_000, 0)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_bad_parameters():
    with pytest.raises(ValueError, match=r"divisor must be in 4\.\.65535, not 3"):
        Uart(divisor=3)
    with pytest.raises(TypeError, match="float"):
        Uart(divisor=8.0)
    gc.collect()  # what was refused goes here, where its warning is ignored
