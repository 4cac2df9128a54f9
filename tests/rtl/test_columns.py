# SPDX-License-Identifier: BSD-2-Clause
"""Column records against plain tables of slices, and of biases."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.columns import ColumnRecords
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Section, pack_columns
from gossamer.sim.streams import idle
from rtl_models import PAUSES, SMALL, TINY, layer_values, pauses, simulate, write_words

CONFIGS = [
    replace(SMALL, n_pes=3),
    replace(TINY, n_pes=2, column_words=8, input_depth=32),
    EngineConfig(
        n_pes=1, weight_depth=65536, rows_per_pe=256, column_words=16, count_bits=8,
        input_depth=64, codebook_depth=4,
    ),
]  # fmt: skip
IDS = ["3 PEs", "tiny", "widest"]


def random_table(rng, config, n_words, wide):
    """Bases (n_pes, words) and counts (n_pes, words, columns); each base and sum of counts fits."""
    columns = 4 if wide else 8
    most = (1 << (config.count_bits * (2 if wide else 1))) - 1
    counts = rng.integers(0, most + 1, (config.n_pes, n_words, columns))
    counts[rng.random(counts.shape) < 0.3] = 0
    counts[rng.random(counts.shape) < 0.1] = most
    bases = rng.integers(0, config.weight_depth, (config.n_pes, n_words))
    return bases, counts


def words_of(config, tables):
    """Bus words of (columns_base, wide, bases, counts)."""
    for first, wide, bases, counts in tables:
        for pe in range(config.n_pes):
            packed = pack_columns(bases[pe], counts[pe], wide, config)
            for k, word in enumerate(packed):
                yield Section.COLUMNS, pe, first + k, word


def wanted(config, table, slot, value=0):
    """What a column is for each PE: (drain, value, base, count)."""
    _, wide, bases, counts = table
    word, place = divmod(slot, 4 if wide else 8)
    mask = config.weight_depth - 1 if config.weight_depth & (config.weight_depth - 1) == 0 else None
    out = []
    for pe in range(config.n_pes):
        base = int(bases[pe, word] + counts[pe, word, :place].sum())
        base = base & mask if mask else base
        out.append((0, value, base, int(counts[pe, word, place])))
    return out


def work_of(ctx, dut, pe):
    """What is looked up for a PE: as `wanted`, or (1, bias word)."""
    work = dut.work[pe]
    if ctx.get(work.drain):
        return 1, ctx.get(work.body.bias)
    part = work.body.slice
    return 0, ctx.get(part.value), ctx.get(part.base), ctx.get(part.count)


async def ask(ctx, dut, config, tables, query):
    """Put a query at the inputs: (table, slot, value), or (address of a row's biases, row)."""
    if len(query) == 2:
        base, row = query
        ctx.set(dut.layer, layer_values({"bias_base": base}, config))
        ctx.set(dut.drain, 1)
        ctx.set(dut.row, row)
        return
    number, slot, value = query
    first, wide, _, _ = tables[number]
    record = {"columns_base": first, "wide_counts": int(wide)}
    ctx.set(dut.layer, layer_values(record, config))
    ctx.set(dut.drain, 0)
    ctx.set(dut.slot, slot)
    ctx.set(dut.value, value)


def look_up(config, tables, queries, share=0.0, words=()):
    """Work of every PE for each query, one per advance; also whether it is `filled`."""
    dut = ColumnRecords(config)
    found = []

    async def bench(ctx):
        await write_words(ctx, dut.write, [*words_of(config, tables), *words])
        gaps = pauses(9, share)
        for query in [*queries, *[(0, 0, 0)] * ColumnRecords.LATENCY]:
            await ask(ctx, dut, config, tables, query)
            ctx.set(dut.advance, 0)
            if gaps:
                await idle(ctx, next(gaps))
            found.append([work_of(ctx, dut, pe) for pe in range(config.n_pes)])
            for pe, work in enumerate(found[-1]):
                assert ctx.get(dut.filled[pe]) == (work[0] or work[3] > 0)
            ctx.set(dut.advance, 1)
            await ctx.tick()

    simulate(dut, bench)
    return found[ColumnRecords.LATENCY :]


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_columns(config, share):
    """Exactly `LATENCY` advances after its slot, at one column per advance, layers mixed."""
    rng = np.random.default_rng(2)
    half = config.column_words // 2
    tables = []
    for k, wide in enumerate([False, True]):
        words = half if wide else min(half, config.input_depth // 8)
        tables.append((k * half, wide, *random_table(rng, config, words, wide)))
    queries = []
    for _ in range(250):
        number = int(rng.integers(2))
        columns = tables[number][3].shape[1] * tables[number][3].shape[2]
        slot = int(rng.integers(min(columns, 1 << config.slot_bits)))
        queries.append((number, slot, int(rng.integers(1 << config.activation_bits))))
    want = [wanted(config, tables[number], slot, value) for number, slot, value in queries]
    assert look_up(config, tables, queries, share) == want


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_biases_between_columns(config, share):
    """Rows and columns of two layers in any order; every bit of a bias goes through."""
    rng = np.random.default_rng(12)
    table = (0, False, *random_table(rng, config, 2, False))
    rows = min(config.rows_per_pe, config.column_words - 3)
    biases = rng.integers(0, 1 << config.bias_bits, (rows, config.n_pes))
    biases[0], biases[-1] = (1 << config.bias_bits) - 1, 1 << config.bias_bits - 1
    words = [
        (Section.COLUMNS, pe, 3 + row, int(biases[row, pe]))
        for row in range(rows)
        for pe in range(config.n_pes)
    ]
    queries, want = [], []
    for _ in range(100):
        if rng.integers(2):
            slot = int(rng.integers(min(16, 1 << config.slot_bits)))
            queries.append((0, slot, 3))
            want.append(wanted(config, table, slot, 3))
        else:
            row, base = int(rng.integers(rows)), int(rng.integers(2))
            base = min(base, row)
            queries.append((3 + base, row - base))
            want.append([(1, int(word)) for word in biases[row]])
    assert look_up(config, [table], queries, share, words) == want


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("place", range(8))
def test_one_count_at_every_place(place, wide):
    """The largest count alone in a word, seen from every column of it."""
    columns = 4 if wide else 8
    place %= columns
    config = SMALL
    counts = np.zeros((1, 1, columns), dtype=int)
    counts[0, 0, place] = (1 << (config.count_bits * (2 if wide else 1))) - 1
    table = (5, wide, np.array([[3]]), counts)
    queries = [(0, slot, 1) for slot in range(columns)]
    want = [wanted(config, table, slot, 1) for _, slot, _ in queries]
    assert look_up(config, [table], queries) == want
    assert want[place][0] == (0, 1, 3, counts.max())
    assert want[-1][0][2] == (3 if place == columns - 1 else 3 + counts.max())


@pytest.mark.parametrize("wide", [False, True])
def test_all_counts_at_their_maximum(wide):
    config = CONFIGS[2]
    columns = 4 if wide else 8
    most = (1 << (config.count_bits * (2 if wide else 1))) - 1
    counts = np.full((1, 1, columns), min(most, 65535 // columns))
    table = (15, wide, np.array([[0]]), counts)
    queries = [(0, slot, 0) for slot in range(columns)]
    assert look_up(config, [table], queries) == [wanted(config, table, k) for _, k, _ in queries]


def test_full_memory_with_empty_slices_at_the_end():
    """Empty slices behind the last word of a full memory stay empty."""
    config = SMALL
    counts = np.zeros((1, 1, 8), dtype=int)
    table = (0, False, np.array([[config.weight_depth]]), counts)
    found = look_up(config, [table], [(0, slot, 0) for slot in range(8)])
    assert [work[3] for (work,) in found] == [0] * 8


def test_only_its_own_sections_are_written():
    """Another kind or PE on the bus leaves a record as it is."""
    config = CONFIGS[0]
    rng = np.random.default_rng(4)
    table = (0, False, *random_table(rng, config, 2, False))
    dut = ColumnRecords(config)
    found = []

    async def bench(ctx):
        await write_words(ctx, dut.write, words_of(config, [table]))
        for kind in Section:
            if kind != Section.COLUMNS:
                await write_words(ctx, dut.write, [(kind, pe, 0, 0) for pe in range(3)])
        await write_words(ctx, dut.write, [(Section.COLUMNS, 1, 1, 0)])
        ctx.set(dut.write.kind, Section.COLUMNS)
        ctx.set(dut.write.address, 0)
        await idle(ctx, 2)  # the bus stands still without `en`
        ctx.set(dut.advance, 1)
        for slot in (0, 7, 8, 15):
            ctx.set(dut.slot, slot)
            await idle(ctx, ColumnRecords.LATENCY)
            found.append([work_of(ctx, dut, pe) for pe in range(3)])

    simulate(dut, bench)
    want = [wanted(config, table, slot) for slot in (0, 7, 8, 15)]
    for row in want[2:]:
        row[1] = (0, 0, 0, 0)
    assert found == want
