# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Weight memory: reads, writes, and the iCE40 cell behind the same ports."""

import random

import pytest
from amaranth.back import rtlil
from gossamer.rtl.memory import WeightMemory
from rtl_models import simulate


@pytest.mark.parametrize(
    ("width", "depth", "spram"), [(12, 16, False), (18, 1000, False), (16, 16384, True)]
)
def test_random_access(width, depth, spram):
    """`data` holds the word read last, from one cycle after `read` on; a write wins over a read."""
    rng = random.Random(width)
    dut = WeightMemory(width=width, depth=depth, spram=spram)
    got, want = [], []
    model, held = [0] * depth, 0
    places = [0, depth - 1, *(rng.randrange(depth) for _ in range(4))]

    async def bench(ctx):
        nonlocal held
        for _ in range(600):
            address = rng.choice(places)
            read, write = rng.random() < 0.6, rng.random() < 0.3
            word = rng.choice([0, (1 << width) - 1, rng.getrandbits(width)])
            for name, value in {
                "address": address, "read": read, "write": write, "write_data": word,
            }.items():  # fmt: skip
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            if write:
                model[address] = word
            elif read:
                held = model[address]
            got.append(ctx.get(dut.data))
            want.append(held)

    simulate(dut, bench)
    assert got == want
    assert len(set(want)) > 20


class Platform:
    def __init__(self, family):
        self.family = family


@pytest.mark.parametrize(
    ("spram", "family", "cells"), [(True, "iCE40", 1), (False, "iCE40", 0), (True, "ECP5", 0)]
)
def test_single_port_cell_only_where_it_exists(spram, family, cells):
    depth = 16384 if spram else 64
    dut = WeightMemory(width=16, depth=depth, spram=spram)
    text = rtlil.convert(dut, platform=Platform(family), emit_src=False)
    assert text.count("cell \\SB_SPRAM256KA") == cells
    assert text.count(f"memory width 16 size {depth}") == 1 - cells


@pytest.mark.parametrize(("width", "depth"), [(18, 16384), (16, 8192)])
def test_bad_parameters(width, depth):
    text = rf"spram must be 16 bits x 16384 words, not {width} x {depth}"
    with pytest.raises(ValueError, match=text):
        WeightMemory(width=width, depth=depth, spram=True)
