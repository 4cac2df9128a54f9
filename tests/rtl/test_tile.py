# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Tensor tile: whole layers against plain matrix products, to the cycle."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from gossamer.rtl.arith import activation_limits
from gossamer.rtl.tile import TensorTile
from gossamer.rtl.tile_walk import TileWalk
from rtl_models import (
    TILED,
    GridLayer,
    layer_values,
    place_tile,
    random_tile_layer,
    simulate,
    write_words,
)


def config_of(rows, columns, activation_bits=8, **options):
    """A tile of that shape with small memories."""
    sum_bits = 32 if activation_bits == 8 else 36
    return replace(
        TILED, tile_rows=rows, tile_columns=columns, activation_bits=activation_bits,
        sum_bits=sum_bits, **options,
    )  # fmt: skip


CONFIGS = [
    config_of(1, 1),
    config_of(2, 1, 16),
    config_of(2, 2, tile_code_bits=3),
    config_of(4, 2, 16),
    config_of(8, 4),
]
IDS = ["1x1", "2x1 A=16", "2x2", "4x2 A=16", "8x4"]


@dataclass
class Work:
    """One run of a layer: its number in the placement, and the inputs (images, cols)."""

    number: int
    layer: GridLayer
    inputs: np.ndarray
    garbage: int = 0  # seed of what stands in other images and slots; 0 for zeros


@dataclass
class Seen:
    """What one run of a layer showed."""

    rows: list = field(default_factory=list)  # (slot, images, values)
    activity: dict = field(default_factory=dict)
    cycles: int = 0  # from start to done
    reads: list = field(default_factory=list)  # groups


def vector(config, values, signed=False):
    """Activations of `A` bits as unsigned ints or as they count."""
    raw = np.asarray(values) & ((1 << config.activation_bits) - 1)
    half = 1 << (config.activation_bits - 1)
    return np.where(signed & (raw >= half), raw - 2 * half, raw)


def source_words(config, work):
    """Words of the source for each group: all images' inputs, image 0 lowest."""
    images, cols = work.inputs.shape
    groups = config.input_depth // 4
    rng = np.random.default_rng(work.garbage)
    full = rng.integers(0, 1 << config.activation_bits, (config.tile_columns, 4 * groups))
    if not work.garbage:
        full[:] = 0
    full[:images, :cols] = vector(config, work.inputs)
    words = []
    for group in range(groups):
        values = full[:, 4 * group : 4 * group + 4].reshape(-1).tolist()
        bits = (value << (k * config.activation_bits) for k, value in enumerate(values))
        words.append(sum(bits))
    return words


async def run_work(ctx, dut, config, grid, work, limit=20_000):
    """Start a layer, serve its reads, collect what leaves; returns at `done`."""
    words = source_words(config, work)
    record = grid.records[work.number]
    seen = Seen(activity=dict.fromkeys(("busy", "filler", "imbalance", "drain"), 0))
    ctx.set(dut.layer, layer_values(record, config))
    ctx.set(dut.images, len(work.inputs))
    ctx.set(dut.start, 1)
    rng = np.random.default_rng(1)
    size = len(dut.data)
    for cycle in range(limit):
        _, _, busy, done, read, group, valid, row, activity = await ctx.tick().sample(
            dut.busy, dut.done, dut.read, dut.group, dut.o_valid, dut.o, dut.activity
        )
        ctx.set(dut.start, 0)
        assert busy == (cycle > 0)
        assert not (done and not valid)
        if read:
            seen.reads.append(group)
        noise = int.from_bytes(rng.bytes(size // 8), "little")
        ctx.set(dut.data, words[group] if read else noise)
        if valid:
            seen.rows.append(
                (row.slot, row.images, [row.values[k] for k in range(len(row.values))])
            )
        for name in seen.activity:
            seen.activity[name] += activity[name]
        if done:
            seen.cycles = cycle
            return seen
    raise AssertionError(f"layer {work.number} was not done within {limit} cycles")


def expected_cycles(config, record, work):
    """Cycles from start to done, and those in which a word waits."""
    groups = (record["last_input"] >> 2) + 1
    padded = np.zeros((len(work.inputs), 4 * groups), dtype=np.int64)
    padded[:, : work.inputs.shape[1]] = work.inputs
    nonzero = padded.reshape(len(padded), groups, 4).any(axis=(0, 2))
    return nonzero, record["two_pass"] + 1, record["last_block"] + 1, config.tile_rows


def check_work(config, grid, work, seen):
    """Outputs, cycles, reads and activity of one run."""
    record, layer = grid.records[work.number], work.layer
    parameters = expected_cycles(config, record, work)
    nonzero, passes, blocks, rows = parameters
    images = len(work.inputs)

    # Outputs: rows in order, filled up to whole blocks by zeros.
    want = TensorTile.model(
        layer.weights(), work.inputs, layer.bias, layer.shift, layer.low, layer.high
    )
    want = np.pad(want, ((0, 0), (0, blocks * rows - want.shape[1])))
    want[:, len(layer.bias) :] = np.clip(0, layer.low, layer.high)
    assert [slot for slot, _, _ in seen.rows] == list(range(blocks * rows))
    assert {mask for _, mask, _ in seen.rows} == {(1 << images) - 1}
    got = np.array([values[:images] for _, _, values in seen.rows]).T
    assert np.array_equal(got, vector(config, want)), f"number {work.number}: {got} {want}"

    # Groups: all of them once, then those listed.
    listed = np.flatnonzero(nonzero | (np.arange(len(nonzero)) == len(nonzero) - 1))
    order = [*range(len(nonzero)), *([*listed.tolist()] * (blocks - 1))]
    assert seen.reads == [group for group in order for _ in range(passes)]

    # Cycles and activity.
    _, waits = TileWalk.model(*parameters)
    assert seen.cycles == TensorTile.cycles(*parameters)
    stored = np.zeros((blocks * rows, 4 * len(nonzero)), dtype=np.int64)
    stored[: layer.codes.shape[0], : layer.codes.shape[1]] = np.maximum(layer.codes, 0)
    per_group = (stored != 0).reshape(blocks * rows, -1, 4).sum(axis=2)
    used = per_group[:rows].sum() + per_group[rows:, listed].sum()
    words = len(seen.reads) * rows
    used = used if layer.zero_code else 2 * words
    multipliers = 2 * rows * config.tile_columns
    assert seen.activity == {
        "busy": used * images,
        "filler": (2 * words - used) * images,
        "imbalance": 2 * words * (config.tile_columns - images),
        "drain": (waits + rows + 5) * multipliers,
    }
    assert sum(seen.activity.values()) <= multipliers * (seen.cycles + 1)


def check(config, layers, works):
    """Run layer after layer, each start in the cycle after the layer before; return what showed."""
    grid = place_tile(config, layers)
    dut = TensorTile(config)
    seen = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        for work in works:
            seen.append(await run_work(ctx, dut, config, grid, work))
        for _ in range(20):
            _, _, *idle_outputs = await ctx.tick().sample(
                dut.busy, dut.done, dut.read, dut.o_valid, dut.activity.as_value()
            )
            assert idle_outputs == [0] * 5

    simulate(dut, bench)
    for work, run in zip(works, seen, strict=True):
        check_work(config, grid, work, run)
    return seen


def random_inputs(rng, config, images, cols, signed, density=0.6):
    """Inputs (images, cols) int64, some of them the limits, some groups all zero."""
    low, high = activation_limits(config.activation_bits, signed)
    values = rng.integers(low, high + 1, (images, cols))
    extreme = np.where(rng.random(values.shape) < 0.5, low, high)
    values = np.where(rng.random(values.shape) < 0.2, extreme, values)
    zero_groups = np.repeat(rng.random(-(-cols // 4)) < 0.3, 4)[:cols]
    return np.where((rng.random(values.shape) < density) & ~zero_groups, values, 0)


def random_work(rng, config, number, layer, images=None):
    images = images or int(rng.integers(1, config.tile_columns + 1))
    cols = layer.codes.shape[1]
    inputs = random_inputs(rng, config, images, cols, layer.signed_in)
    return Work(number, layer, inputs, garbage=int(rng.integers(0, 3)))


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_layers(config):
    """Layers of other shapes one after the other, over and over, with short runs among them."""
    rng = np.random.default_rng(8)
    layers = [
        random_tile_layer(rng, config, 11, 21, code_bits=3),
        random_tile_layer(rng, config, 5, 9, two_pass=True, code_bits=2, zero_code=True),
        random_tile_layer(rng, config, 1, 32, share=0.3, code_bits=1, keep_zeros=True),
        random_tile_layer(rng, config, 17, 3, zero_code=True, signed_in=True),
    ]
    works = [
        random_work(rng, config, k % 4, layers[k % 4])
        for k in [0, 1, 2, 3, 3, 1, 0, 2]
    ]  # fmt: skip
    check(config, layers, works)
