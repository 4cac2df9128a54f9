# SPDX-License-Identifier: BSD-2-Clause
"""Requantizer: bias, shift and clamp against the golden arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.arith import activation_limits
from gossamer.rtl.requantize import Requantizer
from gossamer.sim.streams import idle
from rtl_models import SMALL, layer_values, simulate

CONFIGS = [
    replace(SMALL, sum_bits=24),
    SMALL,
    replace(SMALL, activation_bits=16, sum_bits=36),
]


def run(config, sums, bias, shift, low, high, signed):
    """Values and `nonzero` of sums in neighbouring cycles, and the cycle of the first."""
    dut = Requantizer(config)
    seen = []

    async def feed(ctx):
        record = {"low": low, "high": high, "signed_out": int(signed)}
        ctx.set(dut.layer, layer_values(record, config))
        for row in zip(sums, bias, shift, strict=True):
            for port, value in zip((dut.sum, dut.bias, dut.shift), row, strict=True):
                ctx.set(port, int(value))
            await ctx.tick()
        await idle(ctx, Requantizer.LATENCY)

    async def collect(ctx):
        await idle(ctx, Requantizer.LATENCY)
        for _ in sums:
            _, _, value, nonzero = await ctx.tick().sample(dut.value, dut.nonzero)
            seen.append((value, nonzero))

    simulate(dut, feed, collect)
    return seen


def pairs(values, config):
    """What the ports show for activations (n,)."""
    mask = (1 << config.activation_bits) - 1
    return [(int(value) & mask, int(value != 0)) for value in values]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("config", CONFIGS, ids=["24 bits", "32 bits", "36 bits"])
def test_random_sums(config, signed):
    """One sum a cycle, each `LATENCY` cycles later, of every size."""
    rng = np.random.default_rng(config.sum_bits)
    half, n = 1 << (config.sum_bits - 2), 400
    sums = rng.integers(-half, half, n) >> rng.integers(0, config.sum_bits, n)
    bias = rng.integers(-half, half, n) >> rng.integers(0, config.sum_bits, n)
    shift = rng.integers(0, config.sum_bits, n)
    low, high = activation_limits(config.activation_bits, signed)
    for limits in ((low, high), (low // 2, high // 3)):
        want = Requantizer.model(sums, bias, shift, *limits)
        assert len(set(want.tolist())) > 25
        got = run(config, sums, bias, shift, *limits, signed)
        assert got == pairs(want, config), limits


@pytest.mark.parametrize(
    ("total", "bias", "shift", "low", "high", "signed", "want"),
    [
        (32768, 0, 0, -32768, 32767, True, 32767),
        (-32769, 0, 0, -32768, 32767, True, -32768),
        (65536, 0, 0, 0, 65535, False, 65535),
        (-1, 0, 0, 0, 65535, False, 0),
        (-3, 1, 1, -32768, 32767, True, -1),  # -1.5: ties go up
        ((1 << 35) - 1 - 1000, 1000, 20, -32768, 32767, True, 32767),  # the largest sum
        ((1 << 35) - 1 - 1000, 1000, 21, -32768, 32767, True, 16383),
        (-(1 << 35) + 1000, -1000, 20, -32768, 32767, True, -32768),  # the smallest
        (-1, 0, 63, -32768, 32767, True, -1),  # the shift's field holds more than 35
    ],
)
def test_corner_of_16_bit_activations(total, bias, shift, low, high, signed, want):
    config = CONFIGS[2]
    assert run(config, [total], [bias], [shift], low, high, signed) == pairs([want], config)
