# SPDX-License-Identifier: BSD-2-Clause
"""Drain: requantized rows in the output list."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.arith import activation_limits
from gossamer.rtl.drain import Drain
from gossamer.sim.streams import idle, receive, watch
from rtl_models import PAUSES, SMALL, drained, layer_values, pauses, simulate

CONFIGS = [
    replace(SMALL, sum_bits=24, rows_per_pe=2),
    SMALL,
    replace(SMALL, sum_bits=24, rows_per_pe=31, count_bits=4),
]


@dataclass
class Rows:
    """The rows of one layer of a PE."""

    sums: np.ndarray
    bias: np.ndarray
    shift: np.ndarray
    low: int = -128
    high: int = 127
    signed: bool = True
    keep_zeros: bool = False
    gaps: list[int] = field(default_factory=list)  # idle cycles in front of each row

    def parameters(self, config):
        record = {
            "low": self.low,
            "high": self.high,
            "signed_out": int(self.signed),
            "keep_zeros": int(self.keep_zeros),
        }
        return layer_values(record, config)

    def tokens(self):
        values = Drain.model(self.sums, self.bias, self.shift, self.low, self.high)
        return drained(values, self.keep_zeros)


def random_rows(rng, config, n, gap_share=0.0):
    """Sums of every size, whose biased value fits as the compiler guarantees."""
    limit = 1 << (config.sum_bits - 1)
    sums = rng.integers(-limit // 2, limit // 2, n) >> rng.integers(0, config.sum_bits, n)
    bias = rng.integers(-limit // 2, limit // 2, n) >> rng.integers(0, config.sum_bits, n)
    signed = bool(rng.integers(2))
    low, high = activation_limits(8, signed)
    return Rows(
        sums,
        bias,
        rng.integers(0, config.sum_bits, n),
        int(rng.integers(low, 1)),
        int(rng.integers(0, high + 1)),
        signed,
        bool(rng.integers(2)),
        [int(gap) for gap in np.where(rng.random(n) < gap_share, rng.integers(1, 5, n), 0)],
    )


async def hand_over(ctx, dut, rows):
    """Hand over rows in neighbouring cycles, or with the gaps they say."""
    last = len(rows.sums) - 1
    for row, gap in enumerate(rows.gaps or [0] * (last + 1)):
        if gap:
            ctx.set(dut.valid, 0)
            await idle(ctx, gap)
        ctx.set(dut.valid, 1)
        ctx.set(dut.sum, int(rows.sums[row]))
        ctx.set(dut.bias, int(rows.bias[row]))
        ctx.set(dut.shift, int(rows.shift[row]))
        ctx.set(dut.row, row)
        ctx.set(dut.last, row == last)
        await ctx.tick()
    ctx.set(dut.valid, 0)


def as_tuples(items):
    return [(item.row, item.value, item.last) for item in items]


def check(config, layers, share=0.0):
    """Drain layer after layer, each with its own parameters."""
    dut = Drain(config)
    got, want = [], [token for rows in layers for token in rows.tokens()]
    left = [0]

    async def feed(ctx):
        for k, rows in enumerate(layers):
            while left[0] < k:
                await ctx.tick()
            ctx.set(dut.layer, rows.parameters(config))
            await hand_over(ctx, dut, rows)

    async def collect(ctx):
        gaps = pauses(3, share)
        for rows in layers:
            got.extend(as_tuples(await receive(ctx, dut.o, len(rows.tokens()), gaps)))
            left[0] += 1
        await idle(ctx, Drain.LATENCY + 3)
        assert not ctx.get(dut.o.valid)

    async def check_stream(ctx):
        await watch(ctx, dut.o)

    simulate(dut, feed, collect, background=[check_stream])
    assert got == want


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=["2 rows", "16 rows", "31 rows"])
def test_random_layers(config, share):
    rng = np.random.default_rng(11)
    sizes = [int(rng.integers(1, config.rows_per_pe + 1)) for _ in range(12)]
    layers = [random_rows(rng, config, n, share) for n in [1, *sizes, config.rows_per_pe]]
    check(config, layers, share)


HALF = 1 << 22  # of the range of a sum of 24 bits


@pytest.mark.parametrize(
    ("total", "bias", "shift", "low", "high", "signed", "want"),
    [
        (127, 0, 0, -128, 127, True, 127),
        (128, 0, 0, -128, 127, True, 127),
        (-128, 0, 0, -128, 127, True, -128),
        (-129, 0, 0, -128, 127, True, -128),
        (255, 0, 0, 0, 255, False, 255),
        (256, 0, 0, 0, 255, False, 255),
        (-1, 0, 0, 0, 255, False, 0),
        (200, 0, 0, 0, 199, False, 199),
        (-100, 0, 0, -99, 5, True, -99),
        (-100, 0, 0, 0, 0, True, 0),
        (3, 1, 1, -128, 127, True, 2),  # 1.5: ties go up
        (-3, 1, 1, -128, 127, True, -1),  # -1.5
        (-5, 1, 1, -128, 127, True, -2),  # -2.5
        (-4, 1, 1, -128, 127, True, -2),
        (2 * HALF - 1 - 1000, 1000, 0, 0, 255, False, 255),  # the largest sum
        (-2 * HALF + 1000, -1000, 0, -128, 127, True, -128),  # the smallest
        (HALF, HALF - 1, 23, -128, 127, True, 0),
        (-HALF, -HALF, 23, -128, 127, True, -1),
        (-HALF, -HALF, 16, -128, 127, True, -128),
        (HALF, HALF - 1, 16, -128, 127, True, 127),
        (-1, 0, 31, -128, 127, True, -1),  # the shift's field holds more than 23
    ],
)
def test_corner(total, bias, shift, low, high, signed, want):
    rows = Rows(*(np.array([value]) for value in (total, bias, shift)), low, high, signed)
    assert rows.tokens() == [(0, want & 0xFF, 1)]
    check(replace(SMALL, sum_bits=24), [rows])


@pytest.mark.parametrize("keep_zeros", [False, True])
@pytest.mark.parametrize("values", [[0], [0, 0, 0], [5, 0, 7, 0], [0, 0, 0, 9]])
def test_zeros(values, keep_zeros):
    """The last row is listed even if zero."""
    nothing = np.zeros(len(values), dtype=int)
    check(SMALL, [Rows(np.array(values), nothing, nothing, keep_zeros=keep_zeros)] * 2)


def test_latency_and_rate():
    """A row a cycle from end to end; the first is out `LATENCY` + 2 cycles after `valid`."""
    n = SMALL.rows_per_pe
    rows = Rows(np.arange(1, n + 1), np.zeros(n, int), np.zeros(n, int))
    dut = Drain(SMALL)
    seen = []

    async def feed(ctx):
        ctx.set(dut.layer, rows.parameters(SMALL))
        await hand_over(ctx, dut, rows)

    async def collect(ctx):
        ctx.set(dut.o.ready, 1)
        for _ in range(n + Drain.LATENCY + 4):
            _, _, valid, value = await ctx.tick().sample(dut.o.valid, dut.o.p.value)
            seen.append(value if valid else 0)

    simulate(dut, feed, collect)
    assert seen == [0] * (Drain.LATENCY + 2) + list(range(1, n + 1)) + [0, 0]


def test_list_holds_all_rows():
    """Draining never waits: all rows go in while nothing comes out."""
    n = SMALL.rows_per_pe
    rows = Rows(np.arange(1, n + 1), np.zeros(n, int), np.zeros(n, int))
    dut = Drain(SMALL)
    got = []

    async def bench(ctx):
        ctx.set(dut.layer, rows.parameters(SMALL))
        await hand_over(ctx, dut, rows)
        await idle(ctx, 10)
        got.extend(as_tuples(await receive(ctx, dut.o, n)))

    simulate(dut, bench)
    assert got == rows.tokens()


def test_overflow_of_the_list_is_noticed():
    n = SMALL.rows_per_pe
    rows = Rows(np.ones(n, int), np.zeros(n, int), np.zeros(n, int))
    dut = Drain(SMALL)

    async def bench(ctx):
        ctx.set(dut.layer, rows.parameters(SMALL))
        await hand_over(ctx, dut, rows)
        await hand_over(ctx, dut, rows)
        await idle(ctx, Drain.LATENCY + 1)

    with pytest.raises(AssertionError, match="output list overflows"):
        simulate(dut, bench)


def test_layers_meet():
    """Rows of two layers in neighbouring cycles; parameters change when the last row is listed."""
    n = SMALL.rows_per_pe // 2
    first = Rows(np.arange(n) - 3, np.zeros(n, int), np.zeros(n, int), -2, 2, keep_zeros=True)
    second = Rows(np.arange(n) + 250, np.zeros(n, int), np.zeros(n, int), 0, 255, signed=False)
    dut = Drain(SMALL)
    got = []

    async def feed(ctx):
        ctx.set(dut.layer, first.parameters(SMALL))
        await hand_over(ctx, dut, first)
        await hand_over(ctx, dut, second)

    async def change(ctx):
        await idle(ctx, n - 1 + Drain.LATENCY)  # the last row came in cycle n - 1
        ctx.set(dut.layer, second.parameters(SMALL))

    async def collect(ctx):
        count = len(first.tokens() + second.tokens())
        got.extend(as_tuples(await receive(ctx, dut.o, count, pauses(1, 0.5))))

    simulate(dut, feed, change, collect)
    assert got == first.tokens() + second.tokens()


def test_reset_in_mid_stream():
    """Whatever the moment, nothing of a layer is left after a reset."""
    n = SMALL.rows_per_pe
    rows = Rows(np.arange(1, n + 1), np.zeros(n, int), np.zeros(n, int))
    after = Rows(np.array([7, 0]), np.zeros(2, int), np.zeros(2, int))
    dut = Drain(SMALL)
    reset = Signal()
    got = []

    async def bench(ctx):
        ctx.set(dut.layer, rows.parameters(SMALL))
        for length in range(1, n + 1):
            part = replace(rows, sums=rows.sums[:length])
            await hand_over(ctx, dut, part)
            await receive(ctx, dut.o, max(length - 6, 0))
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await hand_over(ctx, dut, after)
            got.append(as_tuples(await receive(ctx, dut.o, 2)))

    simulate(ResetInserter(reset)(dut), bench)
    assert got == [after.tokens()] * n
