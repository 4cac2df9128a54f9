# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Tensor tile: whole layers against plain matrix products, to the cycle."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.arith import activation_limits
from gossamer.rtl.formats import Section
from gossamer.rtl.tile import TensorTile
from gossamer.rtl.tile_walk import TileWalk
from gossamer.sim.streams import idle
from rtl_models import (
    TILED,
    GridLayer,
    layer_values,
    place_tile,
    random_tile_layer,
    simulate,
    tile_words,
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


def walk_parameters(config, record, work):
    """Parameters of `TileWalk.model`."""
    groups = (record["last_input"] >> 2) + 1
    padded = np.zeros((len(work.inputs), 4 * groups), dtype=np.int64)
    padded[:, : work.inputs.shape[1]] = work.inputs
    nonzero = padded.reshape(len(padded), groups, 4).any(axis=(0, 2))
    return nonzero, record["two_pass"] + 1, record["last_block"] + 1, config.tile_rows


def check_work(config, grid, work, seen):
    """Outputs, cycles, reads and activity of one run."""
    record, layer = grid.records[work.number], work.layer
    parameters = walk_parameters(config, record, work)
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
            run = await run_work(ctx, dut, config, grid, work)
            check_work(config, grid, work, run)
            seen.append(run)
        for _ in range(20):
            _, _, *idle_outputs = await ctx.tick().sample(
                dut.busy, dut.done, dut.read, dut.o_valid, dut.activity.as_value()
            )
            assert idle_outputs == [0] * 5

    simulate(dut, bench)
    assert len(seen) == len(works)
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
        random_tile_layer(rng, config, 10, 3, zero_code=True, signed_in=True),
    ]
    works = [
        random_work(rng, config, k % 4, layers[k % 4])
        for k in [0, 1, 2, 3, 0]
    ]  # fmt: skip
    check(config, layers, works)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_random_layers(seed):
    rng = np.random.default_rng(seed)
    config = [*CONFIGS, config_of(8, 1), config_of(1, 4, 16), config_of(4, 4)][seed]
    config = replace(config, tile_depth=4096, tile_bias_depth=256, codebook_depth=128)
    layers = [
        random_tile_layer(
            rng, config, int(rng.integers(1, 30)), int(rng.integers(1, 33)),
            two_pass=bool(rng.integers(2)), share=float(rng.random()), code_bits=2,
            keep_zeros=bool(rng.integers(2)), zero_code=bool(rng.integers(2)),
        )
        for _ in range(6)
    ]  # fmt: skip
    numbers = rng.integers(0, len(layers), 30).tolist()
    check(config, layers, [random_work(rng, config, k, layers[k]) for k in numbers])


def simple_layer(codes, codebook=(0, 3, -5, 7, -11), **options):
    """A layer with bias 0 and shift 0."""
    codes = np.array(codes)
    nothing = np.zeros(len(codes), dtype=np.int64)
    defaults = {"low": -128, "high": 127, "signed_in": True, "signed_out": True}
    return GridLayer(codes, np.array(codebook), nothing, nothing, **(defaults | options))


@pytest.mark.parametrize("entries", [2, 4])
def test_all_masks_of_a_group(entries):
    """All masks with so few entries, in the first, the middle and the last group of a row."""
    masks = [mask for mask in range(16) if mask.bit_count() <= entries]
    group = np.array([[k + 1 if mask >> k & 1 else -1 for k in range(4)] for mask in masks])
    codes = np.concatenate([group, np.roll(group, 1, 0), np.roll(group, 2, 0)], axis=1)
    layer = simple_layer(codes, low=-(2**15), high=2**15 - 1)
    inputs = np.array([np.arange(1, 13), 1 << np.arange(12)])
    (seen,) = check(config_of(2, 2, 16), [layer], [Work(0, layer, inputs)])
    assert len({tuple(values) for _, _, values in seen.rows}) >= len(masks)
    assert len(seen.reads) == 3 * -(-len(masks) // 2) * (entries // 2)


SHAPES = [
    (3, 5), (6, 6), (1, 9), (9, 1), (1, 1), (3, 127), (2, 128), (1, 129), (127, 3), (128, 1),
    (129, 2),
]  # fmt: skip


@pytest.mark.parametrize("two_pass", [False, True])
def test_odd_shapes(two_pass):
    """What pads a matrix to whole groups and blocks adds nothing, whatever the source holds."""
    rng = np.random.default_rng(17)
    config = config_of(
        2, 2, input_depth=256, tile_depth=1024, tile_bias_depth=512, codebook_depth=256
    )
    layers = [
        random_tile_layer(rng, config, rows, cols, two_pass=two_pass, code_bits=2)
        for rows, cols in SHAPES
    ]
    works = [random_work(rng, config, k, layer) for k, layer in enumerate(layers)]
    check(config, layers, [replace(work, garbage=7) for work in works])


@pytest.mark.parametrize("weight", [-(2**15), 2**15 - 1])
@pytest.mark.parametrize("activation_bits", [8, 16])
def test_extreme_products(activation_bits, weight):
    """Sixteen of the largest products of both signs, at a shift that shows their upper bits."""
    config = config_of(1, 2, activation_bits)
    codes = np.tile([0, 0, -1, -1], 8)[None]
    works = []
    for signed_in in (False, True):
        for signed_out in (False, True):
            low, high = activation_limits(activation_bits, signed_out)
            layer = simple_layer(
                codes, (weight, 0), signed_in=signed_in, signed_out=signed_out, low=low, high=high
            )
            layer = replace(layer, shift=np.array([19 + signed_out]))
            limits = activation_limits(activation_bits, signed_in)
            works.append(Work(len(works), layer, np.repeat([limits], 32, axis=0).T))
    sums = np.concatenate([work.inputs @ work.layer.weights().T for work in works])
    half = 1 << (config.sum_bits - 1)
    assert -half <= sums.min()
    assert sums.max() < half
    if activation_bits == 16:
        assert np.abs(sums).max() > 0.9998 * half
    check(config, [work.layer for work in works], works)


@pytest.mark.parametrize("two_pass", [False, True])
def test_zero_groups(two_pass):
    """No nonzero at all, or in one group only, or in all but one."""
    rng = np.random.default_rng(6)
    config = config_of(2, 2, 16)
    plain = random_tile_layer(rng, config, 6, 20, two_pass=two_pass, share=1, code_bits=2)
    layer = simple_layer(plain.codes, low=-(2**15), high=2**15 - 1)
    full = rng.integers(1, 100, (2, 20))
    works = [Work(0, layer, np.zeros((2, 20), dtype=np.int64), garbage=3)]
    for group in range(5):
        only = np.arange(20) // 4 == group
        works += [Work(0, layer, full * only), Work(0, layer, full * ~only)]
        # In one image only, and in a single place of the group.
        works.append(Work(0, layer, full * (np.arange(20) == 4 * group + 3) * [[0], [1]]))
    passes = 1 + two_pass
    seen = check(config, [layer], works)
    assert len(seen[0].reads) == passes * (5 + 1 + 1)
    assert len(seen[1].reads) == passes * (5 + 2 + 2)
    assert len(seen[2].reads) == passes * (5 + 4 + 4)
    assert len(seen[14].reads) == passes * (5 + 5 + 5)  # the last group is zero, and yet walked


@pytest.mark.parametrize("images", [1, 2, 3, 4])
def test_short_batches(images):
    """Images that are not there neither come out nor keep a group on the list."""
    rng = np.random.default_rng(images)
    config = config_of(1, 4)
    layer = random_tile_layer(rng, config, 3, 24, zero_code=True)
    inputs = random_inputs(rng, config, images, 24, layer.signed_in)
    inputs[:, 4:12] = 0
    (seen,) = check(config, [layer], [Work(0, layer, inputs, garbage=5)])
    assert not {1, 2} & set(seen.reads[6:])


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_rate(rows):
    """A word a cycle, without a gap from block to block; a short block takes as long as its rows.

    Only a first block of less than `LIST_LATENCY` words is followed by a gap.
    """
    blocks = 3
    config = config_of(rows, 1, tile_bias_depth=128, codebook_depth=128)
    sizes = [1, 2, 3, 7, 8]
    layers = [simple_layer(np.tile([1, -1, 2, -1], (rows * blocks, n))) for n in sizes]
    inputs = [np.ones((1, 4 * n), dtype=np.int64) for n in sizes]
    works = [Work(k, layer, inputs[k]) for k, layer in enumerate(layers)]
    for groups, seen in zip(sizes, check(config, layers, works), strict=True):
        first_two = groups + max(groups + max(TileWalk.LIST_LATENCY - groups, 0), rows)
        words = first_two + (blocks - 2) * max(groups, rows)
        assert seen.cycles == words + rows + TensorTile.LATENCY
        if groups >= max(rows, TileWalk.LIST_LATENCY):
            assert words == blocks * groups


def test_rate_of_two_passes_with_few_groups_listed():
    """Later blocks take the cycles of the listed groups only."""
    config = config_of(2, 1)
    layer = simple_layer(np.tile([1, 2, 3, 4], (8, 8)))
    inputs = np.zeros((1, 32), dtype=np.int64)
    inputs[0, [5, 14]] = 1
    (seen,) = check(config, [layer], [Work(0, layer, inputs)])
    assert seen.reads[16:22] == [1, 1, 3, 3, 7, 7]
    assert seen.cycles == 16 + 3 * 6 + config.tile_rows + TensorTile.LATENCY


@pytest.mark.parametrize(
    "config",
    [
        config_of(2, 2, input_depth=4, tile_depth=3, tile_bias_depth=2, tile_code_bits=1),
        config_of(1, 4, 16, input_depth=8, tile_depth=37, tile_code_bits=8, codebook_depth=256),
    ],
    ids=["one group", "8-bit codes"],
)
def test_small_and_odd_memories(config):
    rng = np.random.default_rng(3)
    layer = random_tile_layer(
        rng, config, 2, config.input_depth, code_bits=config.tile_code_bits, two_pass=True, share=1
    )
    check(config, [layer], [random_work(rng, config, 0, layer, 1) for _ in range(3)])


def test_words_of_a_matrix():
    """Positions and codes by hand; row 1 is in the second lane, row 2 in the first."""
    config = config_of(2, 1, tile_code_bits=4)
    codes = np.array([[-1, 5, -1, 9, 3], [-1, -1, -1, 2, -1], [1, -1, 2, -1, -1]])
    first, second = (tile_words(codes, False, config)[lane].tolist() for lane in range(2))
    assert first == [0b1001_11_0101_01, 0b0000_00_0011_00, 0b0010_10_0001_00, 0]
    assert second == [0b0000_00_0010_11, 0, 0, 0]
    words = tile_words(codes[:1], True, config)[0].tolist()
    assert words == [0b1001_11_0101_01, 0, 0b0000_00_0011_00, 0]


def test_writes_for_others_change_nothing():
    """Words of other kinds and other rows of the tile are not taken."""
    rng = np.random.default_rng(4)
    config = CONFIGS[2]
    layer = random_tile_layer(rng, config, 4, 8, share=1)
    grid = place_tile(config, [layer])
    work = random_work(rng, config, 0, layer, 2)
    dut = TensorTile(config)
    seen = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        others = [Section.WEIGHTS, Section.COLUMNS, Section.PROGRAM, 0, 7]
        junk = [(kind, pe, k, 0x5A5) for kind in others for pe in range(2) for k in range(8)]
        junk += [(Section.TILE_WEIGHTS, pe, k, 0x5A5) for pe in (2, 3) for k in range(8)]
        await write_words(ctx, dut.write, junk)
        ctx.set(dut.write.kind, Section.TILE_WEIGHTS)  # and none without `en`
        await idle(ctx, 3)
        seen.append(await run_work(ctx, dut, config, grid, work))

    config_bus = len(dut.write.pe)
    assert config_bus == 2, "rows 2 and 3 must be different from 0 and 1 on the bus"
    simulate(dut, bench)
    check_work(config, grid, work, seen[0])


def test_reset_in_mid_layer():
    """Whatever the moment, the next layer is right and nothing of the old one comes out."""
    rng = np.random.default_rng(12)
    config = CONFIGS[2]
    layers = [
        random_tile_layer(rng, config, 5, 12, two_pass=True),
        random_tile_layer(rng, config, 3, 8),
    ]
    grid = place_tile(config, layers)
    works = [random_work(rng, config, k, layer, 2) for k, layer in enumerate(layers)]
    dut = TensorTile(config)
    reset = Signal()
    checked = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        whole = (await run_work(ctx, dut, config, grid, works[0])).cycles
        for moment in range(0, whole + 1, 3):
            with pytest.raises(AssertionError, match=f"not done within {moment} cycles"):
                await run_work(ctx, dut, config, grid, works[0], limit=moment)
            ctx.set(dut.start, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            work = works[moment // 3 % 2]
            check_work(config, grid, work, await run_work(ctx, dut, config, grid, work))
            checked.append(moment)

    simulate(ResetInserter(reset)(dut), bench)
    assert len(checked) > 10


def test_a_config_without_a_tile_is_refused():
    with pytest.raises(ValueError, match="tile_rows must be at least 1, not 0"):
        TensorTile(replace(TILED, tile_rows=0, tile_columns=1))
