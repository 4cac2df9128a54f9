# SPDX-License-Identifier: BSD-2-Clause
"""Codebook: one look-up a cycle, exactly `LATENCY` cycles late."""

import random
from dataclasses import replace

import pytest
from gossamer.rtl.codebook import Codebook
from rtl_models import SMALL, simulate


@pytest.mark.parametrize("depth", [4, 64, 1024])
def test_look_up(depth):
    rng = random.Random(depth)
    values = [rng.randint(-(2**15), 2**15 - 1) for _ in range(depth)]
    values[0], values[-1] = -(2**15), 2**15 - 1
    codes = [rng.choice([0, depth - 1, rng.randrange(depth)]) for _ in range(200)]
    dut = Codebook(replace(SMALL, codebook_depth=depth))
    got = []

    async def bench(ctx):
        ctx.set(dut.write, 1)
        for address, value in enumerate(values):
            ctx.set(dut.write_address, address)
            ctx.set(dut.write_data, value & 0xFFFF)
            await ctx.tick()
        ctx.set(dut.write, 0)
        ctx.set(dut.write_data, 0x5555)  # not taken
        for code in [*codes, *[0] * Codebook.LATENCY]:
            ctx.set(dut.code, code)
            _, _, weight = await ctx.tick().sample(dut.weight)
            got.append(weight)

    simulate(dut, bench)
    assert got[Codebook.LATENCY :] == [values[code] for code in codes]
