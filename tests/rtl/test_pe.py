# SPDX-License-Identifier: BSD-2-Clause
"""One PE: whole layers against plain matrix products."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Section
from gossamer.rtl.pe import PE, Activity
from gossamer.sim.streams import idle, receive, send, watch
from rtl_models import (
    PAUSES,
    SMALL,
    GridLayer,
    bias_word,
    drain_work,
    drained,
    layer_values,
    pauses,
    place,
    random_layer,
    random_vector,
    simulate,
    slice_work,
    wait,
    write_words,
)

CONFIGS = [
    SMALL,
    replace(SMALL, sum_bits=24, entry_bits=12, queue_depth=2, weight_depth=1000),
    EngineConfig(
        n_pes=1, entry_bits=36, weight_depth=512, rows_per_pe=16, column_words=64,
        codebook_depth=256, input_depth=32, output_depth=32,
    ),
]  # fmt: skip
IDS = ["18 bits", "12 bits", "36 bits"]


@dataclass
class Work:
    """One layer with an input: its number in the placement, and the columns in their order."""

    number: int
    layer: GridLayer
    q: np.ndarray
    order: np.ndarray

    def slices(self, grid):
        counts, bases = grid.counts[self.number][0], grid.bases[self.number][0]
        return [
            slice_work(int(bases[k]), int(counts[k]), int(self.q[k]))
            for k in self.order
            if counts[k] and self.q[k]
        ]

    def rows(self, config):
        return drain_work(bias_word(self.layer, row, config) for row in range(len(self.layer.bias)))

    def tokens(self):
        return drained(self.layer.model(self.q), self.layer.keep_zeros)


def as_tuples(items):
    return [(item.row, item.value, item.last) for item in items]


async def load(ctx, dut, words):
    ctx.set(dut.selected, 1)
    await write_words(ctx, dut.write, words)


async def feed_layers(ctx, dut, config, grid, works, left, gaps=None):
    """Slices, then rows to drain: no earlier than a PE in an engine would get them.

    Parameters of a layer change once the layer before the last has left, the rows follow once the
    last layer has.
    """
    for k, work in enumerate(works):
        while left[0] < k - 1:
            await ctx.tick()
        values = layer_values(grid.records[work.number], config)
        ctx.set(dut.layers[k % 2], values)
        await send(ctx, dut.i, work.slices(grid), gaps)
        while left[0] < k:
            await ctx.tick()
        await send(ctx, dut.i, work.rows(config), gaps)


def check(config, layers, works, share=0.0):
    """Run layer after layer on one PE; return the activities seen."""
    grid = place(config, layers)
    dut = PE(config)
    got, want = [], [work.tokens() for work in works]
    left, activities = [0], []

    async def feed(ctx):
        await load(ctx, dut, grid.words)
        await feed_layers(ctx, dut, config, grid, works, left, pauses(1, share))

    async def collect(ctx):
        gaps = pauses(2, share)
        for tokens in want:
            got.append(as_tuples(await receive(ctx, dut.o, len(tokens), gaps, limit=5000)))
            left[0] += 1
        await idle(ctx, 12)
        assert not ctx.get(dut.o.valid)

    async def check_stream(ctx):
        await watch(ctx, dut.o)

    async def use(ctx):
        while True:
            _, _, activity = await ctx.tick().sample(dut.activity)
            activities.append(activity)

    simulate(dut, feed, collect, background=[check_stream, use])
    for k, work in enumerate(works):
        assert got[k] == want[k], f"layer {k} (number {work.number})"
    return activities


def random_works(rng, layers, n, density=0.6):
    works = []
    for k in range(n):
        layer = layers[k % len(layers)]
        q = random_vector(rng, layer.codes.shape[1], layer.signed_in, density)
        works.append(Work(k % len(layers), layer, q, rng.permutation(len(q))))
    return works


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_layers(config, share):
    """An odd number of layers over and over: each meets both parities and other neighbours."""
    rng = np.random.default_rng(21)
    layers = [
        random_layer(rng, config, 16, 12, code_bits=4),
        random_layer(rng, config, 1, 20, density=0.5, keep_zeros=True, code_bits=2),
        random_layer(rng, config, 5, 9, density=0.9, zero_code=True, code_bits=1),
    ]
    works = random_works(rng, layers, 9)
    activities = check(config, layers, works, share)
    entries = sum(int((work.layer.codes[:, work.q != 0] >= 0).sum()) for work in works)
    filler = sum(
        int((work.layer.codes[:, work.q != 0] == 0).sum()) for work in works if work.layer.zero_code
    )
    drains = sum(len(work.layer.bias) for work in works)
    assert activities.count(Activity.BUSY) == entries - filler
    assert activities.count(Activity.FILLER) == filler > 0
    assert activities.count(Activity.DRAIN) == drains


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_many_random_layers(seed):
    rng = np.random.default_rng(seed)
    config = CONFIGS[seed % 3]
    layers = [
        random_layer(
            rng, config, int(rng.integers(1, 17)), int(rng.integers(1, 20)),
            density=float(rng.random()), code_bits=int(rng.integers(1, 5)),
            keep_zeros=bool(rng.integers(2)), zero_code=bool(rng.integers(2)),
        )
        for _ in range(3)
    ]  # fmt: skip
    check(config, layers, random_works(rng, layers, 60), float(rng.choice([0, 0.2, 0.7])))


def simple_layer(codes, codebook=(0, 1, -1, 2), **options):
    """A layer with bias 0 and shift 0."""
    codes = np.array(codes)
    nothing = np.zeros(len(codes), dtype=np.int64)
    defaults = {"low": -128, "high": 127, "signed_in": True, "signed_out": True}
    return GridLayer(codes, np.array(codebook), nothing, nothing, **(defaults | options))


def in_order(layer, q):
    return Work(0, layer, np.array(q), np.arange(len(q)))


@pytest.mark.parametrize("rows", [(0, 0, 0, 0), (15, 15, 15, 15), (3, 7, 3, 7), (0, 5, 15, 0)])
def test_same_row_in_neighbouring_columns(rows):
    """One entry per column, so that the row comes again at distance 1, 2 or 3."""
    codes = np.full((16, len(rows)), -1)
    for column, row in enumerate(rows):
        codes[row, column] = 1
    layer = simple_layer(codes, codebook=(0, 3))
    check(SMALL, [layer], [in_order(layer, [1, 2, 4, 8])])


@pytest.mark.parametrize("weight", [-(2**15), 2**15 - 1])
def test_extreme_products(weight):
    """One product at a shift that shows its upper bits, for both kinds of input and output."""
    plain = simple_layer([[0]], codebook=(weight, 0))
    plain = replace(plain, shift=np.array([15]), bias=np.array([1 << 14]))
    unsigned_out = {"low": 0, "high": 255, "signed_out": False}
    layers = [
        replace(plain, signed_in=signed, **output)
        for signed in (True, False)
        for output in ({}, unsigned_out)
    ]
    works = [
        Work(number, layer, np.array([value]), np.array([0]))
        for number, layer in enumerate(layers)
        for value in ((-128, 127) if layer.signed_in else (128, 255))
    ]
    check(replace(SMALL, sum_bits=24), layers, works)


def test_layer_without_entries():
    """Only rows to drain: the biases come out, and of zeros only the last."""
    layer = simple_layer(np.full((16, 3), -1))
    biased = replace(layer, bias=np.arange(16) - 8)
    check(SMALL, [layer], [in_order(layer, [1, 2, 3])] * 2)
    check(SMALL, [biased], [in_order(biased, [0, 0, 0])] * 3)


def test_one_row_layers_in_neighbouring_cycles():
    """A drain takes a single cycle, parameters change with each."""
    config = CONFIGS[2]
    layers = [
        simple_layer([[1]], codebook=(0, 100), high=50),
        simple_layer([[1]], codebook=(0, 100), signed_in=False, signed_out=False, low=0, high=255),
    ]
    works = [Work(k % 2, layers[k % 2], np.array([2 - k % 2]), np.array([0])) for k in range(8)]
    assert [work.tokens()[0][1] for work in works[:2]] == [50, 100]
    check(config, layers, works)


def test_latency_and_rate():
    """Slices of one entry and a drain go through without a gap; results as late as stated."""
    n = 12
    layer = simple_layer(np.where(np.eye(16, n, dtype=int), 1, -1), codebook=(0, 1))
    grid = place(SMALL, [layer])
    dut = PE(SMALL)
    activities, outputs = [], []
    work = in_order(layer, [1] * n)

    async def bench(ctx):
        await load(ctx, dut, grid.words)
        ctx.set(dut.layers[0], layer_values(grid.records[0], SMALL))
        await send(ctx, dut.i, [*work.slices(grid), *work.rows(SMALL)])

    async def use(ctx):
        ctx.set(dut.o.ready, 1)
        await wait(ctx, dut.i.valid & dut.i.ready)
        await ctx.tick()
        for _ in range(70):
            _, _, activity, valid, row = await ctx.tick().sample(
                dut.activity, dut.o.valid, dut.o.p.row
            )
            activities.append(activity)
            outputs.append(row if valid else None)

    simulate(dut, bench, use)
    # The first slice passes the queue, is taken by the fetch, and shows two cycles later.
    drain = 16
    first = activities.index(Activity.BUSY)
    assert first == 4 - 1  # `use` starts a cycle after the first slice
    work_done = [Activity.BUSY] * n + [Activity.DRAIN] * drain
    assert activities[first : first + n + drain] == work_done
    assert set(activities[first + n + drain :]) == {Activity.IDLE}
    rows = [row for row in outputs if row is not None]
    assert rows == [*range(n), 15]
    places = [k for k, row in enumerate(outputs) if row is not None]
    assert np.diff(places[:n]).tolist() == [1] * (n - 1)


def test_queue_takes_its_depth():
    """While a long slice is worked off, exactly `queue_depth` more fit."""
    codes = np.full((16, 1), 1)
    layer = simple_layer(codes, codebook=(0, 1))
    grid = place(SMALL, [layer])
    dut = PE(SMALL)
    taken = [0]

    async def bench(ctx):
        await load(ctx, dut, grid.words)
        ctx.set(dut.layers[0], layer_values(grid.records[0], SMALL))
        ctx.set(dut.i.payload, in_order(layer, [1]).slices(grid)[0])
        ctx.set(dut.i.valid, 1)
        for _ in range(12):
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            taken[0] += ready

    simulate(dut, bench)
    assert taken[0] == 1 + SMALL.queue_depth


def test_only_the_selected_pe_is_loaded():
    """Weights go to the selected PE, codebooks to every one."""
    layer = simple_layer(np.full((2, 4), 1), codebook=(0, 5))
    grid = place(SMALL, [layer])
    other = place(SMALL, [simple_layer(np.full((2, 4), 0), codebook=(9, 5))])
    works = [in_order(layer, [1, 2, 3, 4])]
    dut = PE(SMALL)
    got = []

    async def bench(ctx):
        await load(ctx, dut, grid.words)
        ctx.set(dut.selected, 0)
        await write_words(ctx, dut.write, other.words)
        await feed_layers(ctx, dut, SMALL, grid, works, [0])
        got.extend(as_tuples(await receive(ctx, dut.o, 2)))

    simulate(dut, bench)
    assert got == works[0].tokens()


def test_clearing_after_reset():
    """Not ready for `rows_per_pe` cycles, then cleared."""
    dut = PE(SMALL)
    seen = []

    async def bench(ctx):
        for _ in range(SMALL.rows_per_pe + 2):
            _, _, *now = await ctx.tick().sample(dut.cleared, dut.i.ready)
            seen.append(tuple(now))

    simulate(dut, bench)
    assert seen == [(0, 0)] * SMALL.rows_per_pe + [(1, 1)] * 2


def test_reset_in_mid_stream():
    """Resets at many moments of a layer on odd and even parity: the next layer is right."""
    rng = np.random.default_rng(5)
    layers = [
        random_layer(rng, SMALL, 4, 6, density=0.8, signed_in=True),
        random_layer(rng, SMALL, 3, 6, density=0.8, signed_in=False, signed_out=True),
    ]
    works = random_works(rng, layers, 3, density=1.0)
    grid = place(SMALL, layers)
    dut = PE(SMALL)
    reset = Signal()
    got, want = [], []

    async def run(ctx, part):
        for k, work in enumerate(part):
            ctx.set(dut.layers[k % 2], layer_values(grid.records[work.number], SMALL))
            await send(ctx, dut.i, [*work.slices(grid), *work.rows(SMALL)])
            want.append(work.tokens())
            got.append(as_tuples(await receive(ctx, dut.o, len(want[-1]))))

    async def bench(ctx):
        await load(ctx, dut, grid.words)
        for length in range(0, 60, 3):
            # Stuff the PE without regard for what comes out, then cut it short.
            stuff = [*works[0].slices(grid), *works[0].rows(SMALL), *works[1].slices(grid)]
            for index in range(2):
                values = layer_values(grid.records[works[index].number], SMALL)
                ctx.set(dut.layers[index], values)
            ctx.set(dut.o.ready, length % 2)
            index = 0
            await wait(ctx, dut.cleared)
            for _ in range(length):
                ctx.set(dut.i.valid, index < len(stuff))
                ctx.set(dut.i.payload, stuff[min(index, len(stuff) - 1)])
                _, _, ready = await ctx.tick().sample(dut.i.ready)
                index += ready
            ctx.set(dut.i.valid, 0)
            ctx.set(dut.o.ready, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await run(ctx, works[1:])

    simulate(ResetInserter(reset)(dut), bench)
    assert got == want
    assert len(got) == 40


def test_write_without_a_kind_for_a_pe_changes_nothing():
    """Columns and program on the bus are not for a PE."""
    layer = simple_layer(np.full((2, 1), 1), codebook=(0, 5))
    grid = place(SMALL, [layer])
    work = in_order(layer, [3])
    dut = PE(SMALL)
    got = []

    async def bench(ctx):
        await load(ctx, dut, grid.words)
        for kind in (Section.COLUMNS, Section.PROGRAM, 0, 7):
            await write_words(ctx, dut.write, [(kind, 0, address, 1) for address in range(8)])
        await feed_layers(ctx, dut, SMALL, grid, [work], [0])
        got.extend(as_tuples(await receive(ctx, dut.o, 2)))

    simulate(dut, bench)
    assert got == work.tokens() == [(0, 15, 0), (1, 15, 1)]
