# SPDX-License-Identifier: BSD-2-Clause
"""Walk of the tensor tile: every word of random layers, to the cycle."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.tile_walk import TileWalk
from rtl_models import TILED, layer_values, simulate


def words(nonzero, passes, blocks, base):
    """(address, group, first, last, final) of all words of a layer."""
    groups = len(nonzero)
    listed = [g for g in range(groups) if nonzero[g] or g == groups - 1]
    found = []
    for block in range(blocks):
        steps = [(g, p) for g in (listed if block else range(groups)) for p in range(passes)]
        for k, (group, part) in enumerate(steps):
            address = base + (block * groups + group) * passes + part
            last = k == len(steps) - 1
            found.append((address, group, k == 0, last, last and block == blocks - 1))
    return found


async def walk(ctx, dut, record, nonzero, config, limit=3000):
    """Start a layer and answer for its groups; (cycle, word) of each, and cycles of waiting."""
    ctx.set(dut.layer, layer_values(record, config))
    ctx.set(dut.start, 1)
    answers = [1] * TileWalk.NONZERO_LATENCY
    found, waits = [], 0
    for cycle in range(limit):
        _, _, word = await ctx.tick().sample(dut.word)
        ctx.set(dut.start, 0)
        # An answer counts for its word only: in between it is 1.
        answers.append(int(nonzero[word.group]) if word.valid else 1)
        ctx.set(dut.nonzero, answers[-TileWalk.NONZERO_LATENCY])
        waits += word.waiting
        if word.valid:
            found.append((cycle, (word.address, word.group, word.first, word.last, word.final)))
            if word.final:
                return found, waits
    raise AssertionError(f"the walk was not over within {limit} cycles")


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_random_layers(rows):
    """Layers with few groups and many, one after the other."""
    rng = np.random.default_rng(rows)
    config = replace(TILED, tile_rows=rows, input_depth=64, tile_depth=4096)
    dut = TileWalk(config)
    checked = []

    async def bench(ctx):
        for number in range(24):
            groups = int(rng.choice([1, 2, 3, 5, 7, 8, 16]))
            passes, blocks = (int(rng.integers(1, n)) for n in (3, 6))
            base = int(rng.integers(1000))
            nonzero = rng.random(groups) < rng.choice([0, 0.2, 0.8, 1])
            record = {
                "last_input": 4 * groups - 1 - int(rng.integers(4)), "two_pass": passes - 1,
                "last_block": blocks - 1, "tile_base": base,
            }  # fmt: skip
            found, waits = await walk(ctx, dut, record, nonzero, config)
            case = f"layer {number}: {nonzero.tolist()}, {passes} passes, {blocks} blocks"
            assert [word for _, word in found] == words(nonzero, passes, blocks, base), case
            ends, model_waits = TileWalk.model(nonzero, passes, blocks, rows)
            assert found[0][0] == TileWalk.LATENCY, case
            assert [c - found[0][0] for c, word in found if word[3]] == ends, case
            assert waits == model_waits, case
            # The rows of a layer have left before the next one begins, long after its last answer.
            for _ in range(rows + TileWalk.NONZERO_LATENCY):
                await ctx.tick()
            checked.append(waits)

    simulate(dut, bench)
    assert len(checked) == 24
    assert (max(checked) > 0) == (rows > 1)


@pytest.mark.parametrize("passes", [1, 2])
def test_model_by_hand(passes):
    """Full rate; a block shorter than its rows; a list that is late."""
    full = np.ones(8, dtype=bool)
    assert TileWalk.model(full, passes, 3, 8) == ([8 * passes * k - 1 for k in (1, 2, 3)], 0)
    none = ~full
    ends, waits = TileWalk.model(none, 1, 4, 8)
    assert (ends, waits) == ([7, 15, 23, 31], (15 - 13) + 7 + 7)
    assert TileWalk.model(none, 2, 3, 1) == ([15, 14 + 6 + 1, 14 + 6 + 3], 0)
