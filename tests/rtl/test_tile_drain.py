# SPDX-License-Identifier: BSD-2-Clause
"""Drain of the tensor tile: rows of blocks that follow at full rate."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.formats import Section, pack_bias
from gossamer.rtl.requantize import Requantizer
from gossamer.rtl.tile_drain import TileDrain
from rtl_models import TILED, layer_values, simulate, write_words


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 4), (8, 2)])
def test_blocks(rows, columns, gap):
    """Two layers; a block every `rows` + `gap` cycles, its first row `LATENCY` cycles after it."""
    rng = np.random.default_rng([rows, gap])
    config = replace(TILED, tile_rows=rows, tile_columns=columns, tile_bias_depth=128)
    dut = TileDrain(config)
    blocks, base = 3, 37
    got, want = [], []

    async def bench(ctx):
        for layer in range(2):
            n = blocks * rows
            sums = rng.integers(-(2**20), 2**20, (blocks, rows, columns))
            bias, shift = rng.integers(-(2**19), 2**19, n), rng.integers(8, 16, n)
            images, low, high = int(rng.integers(1, columns + 1)), -90 * layer, 120
            words = [
                (Section.TILE_BIASES, 0, base + k, pack_bias(int(b), int(s), config))
                for k, (b, s) in enumerate(zip(bias, shift, strict=True))
            ]
            await write_words(ctx, dut.write, words)
            record = {"tile_bias_base": base, "low": low, "high": high, "signed_out": layer}
            ctx.set(dut.layer, layer_values(record, config))
            ctx.set(dut.images, images)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            values = Requantizer.model(
                sums.reshape(n, columns), bias[:, None], shift[:, None], low, high
            )
            period = rows + gap
            ends = (blocks - 1) * period + TileDrain.LATENCY + rows - 1
            for cycle in range(ends + 3):
                block, phase = divmod(cycle, period)
                ctx.set(dut.last, phase == 0 and block < blocks)
                ctx.set(dut.final, phase == 0 and block == blocks - 1)
                # The sums are there for a single cycle, the one after `last`.
                ready = phase == 1 % period and (cycle - 1) // period < blocks
                block = (cycle - 1) // period
                ctx.set(
                    dut.sums, sums[block].tolist() if cycle and ready else [[7] * columns] * rows
                )
                _, _, valid, row, nearly, done = await ctx.tick().sample(
                    dut.o_valid, dut.o, dut.nearly_done, dut.done
                )
                assert (nearly, done) == (cycle == ends - 1, cycle == ends)
                if valid:
                    values_now = [row["values"][k] for k in range(columns)]
                    got.append((layer, cycle, row.slot, row.images, values_now))
            for k in range(n):
                cycle = k // rows * period + TileDrain.LATENCY + k % rows
                row = [int(value) & 0xFF for value in values[k]]
                want.append((layer, cycle, k, (1 << images) - 1, row))

    simulate(dut, bench)
    assert got == want
