# SPDX-License-Identifier: BSD-2-Clause
"""Sparse array: broadcast activations in, merged outputs of all PEs out."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.columns import ColumnRecords
from gossamer.rtl.drain import Drain
from gossamer.rtl.pe import PE, Activity
from gossamer.rtl.sparse_array import SparseArray
from gossamer.sim.streams import idle, receive, send, watch
from rtl_models import (
    PAUSES,
    SMALL,
    GridLayer,
    drained,
    layer_values,
    pauses,
    place,
    random_layer,
    random_vector,
    simulate,
    wait,
    write_words,
)


@dataclass
class Work:
    """A layer of the grid with an input vector and the order in which it is broadcast."""

    number: int
    layer: GridLayer
    q: np.ndarray
    order: np.ndarray

    def activations(self):
        """Nonzeros and a few zeros; `last` stands on the last, whatever it is."""
        last = len(self.order) - 1
        return [
            {"slot": int(slot), "value": int(self.q[slot]) & 0xFF, "last": int(k == last)}
            for k, slot in enumerate(self.order)
        ]

    def tokens(self, n_pes):
        """Per PE: (row, value, last of the PE)."""
        values = self.layer.model(self.q)
        return [drained(values[pe::n_pes], self.layer.keep_zeros) for pe in range(n_pes)]


def random_works(rng, layers, n, density=0.5):
    works = []
    for k in range(n):
        number = k % len(layers)
        layer = layers[number]
        q = random_vector(rng, layer.codes.shape[1], layer.signed_in, density)
        order = rng.permutation(len(q))
        # Most zeros are left out, but never all of the vector.
        order = order[(q[order] != 0) | (rng.random(len(q)) < 0.2)]
        works.append(Work(number, layer, q, order if len(order) else np.array([0])))
    return works


async def feed(ctx, dut, config, grid, works, left, gaps=None):
    """What a sequencer does, at the earliest moments that the array allows."""
    for k, work in enumerate(works):
        while left[0] < k - 1:
            await ctx.tick()
        ctx.set(dut.layers[k % 2], layer_values(grid.records[work.number], config))
        ctx.set(dut.parity, k % 2)
        *first, last = work.activations()
        await send(ctx, dut.i, first, gaps, limit=3000)
        while left[0] < k:
            await ctx.tick()
        await send(ctx, dut.i, [last], gaps, limit=3000)


async def collect_layer(ctx, dut, gaps=None):
    """Tokens (pe, row, value) up to the one with `last`."""
    tokens = []
    while True:
        (item,) = await receive(ctx, dut.o, 1, gaps, limit=50000)
        tokens.append((item.pe, item.row, item.value))
        if item.last:
            return tokens


def judge(got, work, n_pes):
    """Each PE's tokens must be there, in the PE's order."""
    for pe, want in enumerate(work.tokens(n_pes)):
        mine = [(row, value) for p, row, value in got if p == pe]
        assert mine == [token[:2] for token in want], f"layer {work.number}, PE {pe}"
    assert len(got) == sum(map(len, work.tokens(n_pes)))


def check(config, layers, works, share=0.0, wide=False):
    grid = place(config, layers, wide=wide)
    dut = SparseArray(config)
    got, left = [], [0]

    async def stimulate(ctx):
        await write_words(ctx, dut.write, grid.words)
        await feed(ctx, dut, config, grid, works, left, pauses(1, share))

    async def collect(ctx):
        gaps = pauses(2, share)
        for _ in works:
            got.append(await collect_layer(ctx, dut, gaps))
            left[0] += 1
        await idle(ctx, 12)
        assert not ctx.get(dut.o.valid)

    async def check_stream(ctx):
        await watch(ctx, dut.o)

    simulate(dut, stimulate, collect, background=[check_stream])
    for tokens, work in zip(got, works, strict=True):
        judge(tokens, work, config.n_pes)


def three_layers(rng, config):
    return [
        random_layer(rng, config, 7, 19, density=0.3),
        random_layer(rng, config, 1, 9, density=0.6, keep_zeros=True),
        random_layer(rng, config, 4, 13, density=0.9, zero_code=True, code_bits=2),
    ]


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("n_pes", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_random_layers(n_pes, share):
    rng = np.random.default_rng(n_pes)
    config = replace(SMALL, n_pes=n_pes, rows_per_pe=8, queue_depth=2 if n_pes == 5 else 4)
    layers = three_layers(rng, config)
    check(config, layers, random_works(rng, layers, 5), share)


def test_three_pes():
    """A number of PEs that is no power of two, short queues, pauses."""
    rng = np.random.default_rng(3)
    config = replace(SMALL, n_pes=3, rows_per_pe=8, queue_depth=2)
    layers = three_layers(rng, config)
    check(config, layers, random_works(rng, layers, 4), 0.4)


def test_wide_counts():
    """Slices longer than a narrow count holds, and short ones in wide records."""
    rng = np.random.default_rng(3)
    config = replace(SMALL, n_pes=2, count_bits=2, rows_per_pe=15)
    layers = [
        random_layer(rng, config, 15, 9, density=1.0, code_bits=2),
        random_layer(rng, config, 3, 11, density=0.3),
    ]
    check(config, layers, random_works(rng, layers, 4))
    check(config, layers[1:], random_works(rng, layers[1:], 2), wide=True)


@pytest.mark.slow
@pytest.mark.parametrize(("n_pes", "n_works"), [(2, 30), (6, 10), (16, 2)])
def test_many_random_layers(n_pes, n_works):
    rng = np.random.default_rng(n_pes)
    config = replace(SMALL, n_pes=n_pes, weight_depth=2000, column_words=128)
    layers = [
        random_layer(
            rng, config, int(rng.integers(1, 17)), int(rng.integers(1, 33)),
            density=float(rng.random()), keep_zeros=bool(rng.integers(2)),
        )
        for _ in range(5)
    ]  # fmt: skip
    check(config, layers, random_works(rng, layers, n_works), 0.3)


def simple_layer(codes, codebook=(0, 1), **options):
    codes = np.array(codes)
    nothing = np.zeros(len(codes), dtype=np.int64)
    defaults = {"low": -128, "high": 127, "signed_in": True, "signed_out": True}
    return GridLayer(codes, np.array(codebook), nothing, nothing, **(defaults | options))


TWO_PES = replace(SMALL, n_pes=2)


@pytest.mark.parametrize("empty", [[], [0], [3], [0, 1, 2, 3]], ids=lambda c: f"empty {c}")
def test_last_token_and_empty_columns(empty):
    """Rows leave behind the last token even if it is zero or its column empty for every PE."""
    codes = np.full((6, 4), 1)
    codes[:, empty] = -1
    codes[1, :] = -1
    layer = simple_layer(codes)
    inputs = [[0, 0, 0, 0], [0, 0, 0, 5], [5, 0, 0, 0], [1, 2, 3, 4]]
    check(TWO_PES, [layer], [Work(0, layer, np.array(q), np.arange(4)) for q in inputs * 2])


def observe(config, layer, q, before=None):
    """Broadcast `q` at full rate; per cycle (ready, blocked, broadcasting, activities, o.valid)."""
    grid = place(config, [layer])
    dut = SparseArray(config)
    seen = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        ctx.set(dut.layers[0], layer_values(grid.records[0], config))
        ctx.set(dut.o.ready, 1)
        await wait(ctx, dut.cleared)
        await send(ctx, dut.i, Work(0, layer, q, np.arange(len(q))).activations())

    async def watcher(ctx):
        await wait(ctx, dut.cleared)
        while len(seen) < 90:
            _, _, *now = await ctx.tick().sample(
                dut.i.valid, dut.i.ready, dut.blocked, dut.broadcasting, dut.activities, dut.o.valid
            )
            if seen or now[0]:
                now[4] = list(now[4])
                seen.append(now)

    simulate(dut, bench, watcher)
    return seen


def test_latency_and_rate():
    """One activation a cycle; no PE idles while each column gives it an entry."""
    n = 12
    layer = simple_layer(np.full((2, n), 1))
    seen = observe(TWO_PES, layer, np.ones(n, dtype=int))
    assert [now[0] for now in seen[: n + 1]] == [1] * n + [0]
    assert all(now[1] for now in seen[:n])
    assert not any(now[2] for now in seen)
    # Queue after LATENCY; then out of it, fetched, and reported two cycles later.
    start = SparseArray.LATENCY + 4
    for pe in range(2):
        use = [now[4][pe] for now in seen]
        assert use.index(Activity.BUSY) == start
        assert use[start : start + n] == [Activity.BUSY] * n
        assert use[start + n : start + n + 2] == [Activity.DRAIN, Activity.IDLE]  # one row
        assert use.count(Activity.BUSY) == n
    # Until the last activation is in the queues; the row follows it a cycle later.
    in_flight = n + ColumnRecords.LATENCY
    assert [now[3] for now in seen[: in_flight + 2]] == [0] + [1] * in_flight + [0]


def test_full_queue_blocks():
    """All entries in PE 0: it works without a gap while the broadcast waits for its queue."""
    n = 12
    codes = np.full((8, n), -1)
    codes[::2] = 1
    seen = observe(TWO_PES, simple_layer(codes), np.ones(n, dtype=int))
    assert any(now[2] for now in seen)
    use = [now[4][0] for now in seen]
    start = use.index(Activity.BUSY)
    assert use[start : start + 4 * n] == [Activity.BUSY] * (4 * n)
    assert Activity.BUSY not in [now[4][1] for now in seen]


def test_empty_slices_cost_nothing():
    """Columns without entries pass at full rate even if a PE's queue is full."""
    n = 20
    codes = np.full((16, n), -1)
    codes[::2, : 1 + TWO_PES.queue_depth] = 1  # PE 0 busy for long, its queue just full
    codes[1, -8:] = 1
    seen = observe(TWO_PES, simple_layer(codes), np.ones(n, dtype=int))
    taken = [k for k, now in enumerate(seen) if now[0] and now[1]]
    assert taken == list(range(n))
    use = [now[4][1] for now in seen]
    assert use.count(Activity.BUSY) == 8


def test_zeros_cost_no_work():
    """A zero, also one that closes the vector, reaches no PE; its rows still follow."""
    layer = simple_layer(np.full((2, 5), 1))
    seen = observe(TWO_PES, layer, np.array([0, 3, 0, 0, 0]))
    for pe in range(2):
        use = [now[4][pe] for now in seen]
        assert (use.count(Activity.BUSY), use.count(Activity.DRAIN)) == (1, 1)
    assert [now[0] and now[1] for now in seen[:6]] == [1] * 5 + [0]


def test_drained():
    """Low from a layer's last activation until every PE has drained it, one of them later."""
    codes = np.full((6, 1), -1)
    codes[1::2] = 1  # PE 1 has three entries, PE 0 none
    layer = simple_layer(codes)
    grid = place(TWO_PES, [layer])
    dut = SparseArray(TWO_PES)
    seen = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        ctx.set(dut.layers, [layer_values(grid.records[0], TWO_PES)] * 2)
        ctx.set(dut.o.ready, 1)
        await wait(ctx, dut.cleared)
        for parity in (1, 0, 1):
            assert ctx.get(dut.drained)
            await send(ctx, dut.i, [{"slot": 0, "value": 1, "last": 1}])
            ctx.set(dut.parity, parity)
            cycles = await wait(ctx, dut.drained)
            both = [ctx.get(dut.activities[pe]) for pe in range(2)]
            seen.append((cycles, both))
            await idle(ctx, 20)

    simulate(dut, bench)
    assert len(set(map(str, seen))) == 1
    # The last of three rows is fetched behind columns, queue, three entries and the other rows; it
    # comes to the sums a cycle before PE.LATENCY, to the list Drain.LATENCY later.
    last_row = SparseArray.LATENCY + 2 + 3 + 3 - 1
    listed = last_row + PE.LATENCY - 1 + Drain.LATENCY
    assert seen[0] == (listed - 1, [Activity.IDLE] * 2)


def test_cleared_after_rows_per_pe_cycles():
    dut = SparseArray(TWO_PES)
    seen = []

    async def bench(ctx):
        for _ in range(TWO_PES.rows_per_pe + 1):
            _, _, cleared = await ctx.tick().sample(dut.cleared)
            seen.append(cleared)

    simulate(dut, bench)
    assert seen == [0] * TWO_PES.rows_per_pe + [1]


def test_reset_in_mid_stream():
    """A reset at any moment of a layer leaves nothing: parity, sums, lists, ends."""
    rng = np.random.default_rng(6)
    config = replace(SMALL, n_pes=3, rows_per_pe=4)
    layers = [random_layer(rng, config, 4, 8, density=0.6), random_layer(rng, config, 3, 8)]
    works = random_works(rng, layers, 3, density=0.9)
    grid = place(config, layers)
    dut = SparseArray(config)
    reset = Signal()
    got = []

    async def bench(ctx):
        await write_words(ctx, dut.write, grid.words)
        for length in range(1, 56, 6):
            for index in range(2):
                values = layer_values(grid.records[works[index].number], config)
                ctx.set(dut.layers[index], values)
            ctx.set(dut.parity, 0)
            ctx.set(dut.o.ready, length % 2)
            await wait(ctx, dut.cleared)
            stuff = [(0, token) for token in works[0].activations()]
            stuff += [(1, token) for token in works[1].activations()[:-1]]
            index = 0
            for _ in range(length):
                ctx.set(dut.i.valid, index < len(stuff))
                parity, token = stuff[min(index, len(stuff) - 1)]
                ctx.set(dut.parity, parity)
                ctx.set(dut.i.payload, token)
                _, _, ready = await ctx.tick().sample(dut.i.ready)
                index += ready
            ctx.set(dut.i.valid, 0)
            ctx.set(dut.o.ready, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for k, work in enumerate(works[1:]):
                ctx.set(dut.layers[k], layer_values(grid.records[work.number], config))
                ctx.set(dut.parity, k)
                await send(ctx, dut.i, work.activations())
                got.append((work, await collect_layer(ctx, dut)))

    simulate(ResetInserter(reset)(dut), bench)
    assert len(got) == 20
    for work, tokens in got:
        judge(tokens, work, 3)
