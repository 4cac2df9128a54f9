# SPDX-License-Identifier: BSD-2-Clause
"""One row of the tensor tile: random words against a plain sum of products."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.formats import Section, pack_tile_words
from gossamer.rtl.tile_lane import TileLane
from rtl_models import TILED, layer_values, simulate, write_words

N_WORDS = 60


@pytest.mark.parametrize("signed_in", [0, 1])
@pytest.mark.parametrize(("columns", "activation_bits"), [(1, 8), (2, 16), (4, 8)])
def test_random_words(columns, activation_bits, signed_in):
    """A word a cycle with holes; everything as many cycles later as the lane states."""
    rng = np.random.default_rng([columns, activation_bits, signed_in])
    sum_bits = 32 if activation_bits == 8 else 36
    config = replace(
        TILED, tile_columns=columns, activation_bits=activation_bits, sum_bits=sum_bits
    )
    base, size = 32, 1 << config.tile_code_bits
    codebook = rng.integers(-(2**15), 2**15, size)
    codebook[1:3] = -(2**15), 2**15 - 1
    positions, codes = rng.integers(0, 4, (N_WORDS, 2)), rng.integers(0, size, (N_WORDS, 2))
    codes[rng.random(codes.shape) < 0.3] = 0
    half = 1 << (activation_bits - 1)
    inputs = rng.integers(-half, half, (N_WORDS, columns, 4)) + (0 if signed_in else half)
    inputs[rng.random(inputs.shape) < 0.2] = -half if signed_in else 2 * half - 1
    valid = rng.random(N_WORDS) < 0.8
    first = rng.random(N_WORDS) < 0.1
    dut = TileLane(config)
    seen = []

    async def bench(ctx):
        words = [(Section.CODEBOOK, 1, base + k, int(v) & 0xFFFF) for k, v in enumerate(codebook)]
        packed = pack_tile_words(positions, codes, config).tolist()
        words += [(Section.TILE_WEIGHTS, 1, k, word) for k, word in enumerate(packed)]
        ctx.set(dut.selected, 1)
        await write_words(ctx, dut.write, words)
        ctx.set(dut.selected, 0)
        await write_words(ctx, dut.write, [(Section.TILE_WEIGHTS, 0, k, 0) for k in range(9)])
        record = {"codebook_base": base, "signed_in": signed_in}
        ctx.set(dut.layer, layer_values(record, config))

        def ago(cycle, latency, values):
            k = cycle - latency
            return values[k] if 0 <= k < N_WORDS else 0

        for cycle in range(N_WORDS + TileLane.ADD_LATENCY + 1):
            ctx.set(dut.read, bool(ago(cycle, 0, valid)))
            ctx.set(dut.address, cycle % N_WORDS)
            group = ago(cycle, TileLane.DATA_LATENCY, inputs & (2 * half - 1))
            garbage = rng.integers(0, 2 * half, (columns, 4))
            ctx.set(dut.data, (garbage if isinstance(group, int) else group).tolist())
            ctx.set(dut.add, bool(ago(cycle, TileLane.ADD_LATENCY, valid)))
            ctx.set(dut.first, bool(ago(cycle, TileLane.ADD_LATENCY, first)))
            _, _, zero_codes, sums = await ctx.tick().sample(dut.zero_codes, dut.sums)
            seen.append((zero_codes, [sums[k] for k in range(columns)]))

    simulate(dut, bench)
    total = np.zeros(columns, dtype=np.int64)
    for k in np.flatnonzero(valid):
        products = codebook[codes[k]] * inputs[k][:, positions[k]]
        total = products.sum(axis=1) + (0 if first[k] else total)
        assert seen[k + TileLane.WORD_LATENCY][0] == (codes[k] == 0).sum(), f"word {k}"
        assert seen[k + TileLane.ADD_LATENCY + 1][1] == total.tolist(), f"word {k}"
