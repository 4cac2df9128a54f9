# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Huffman decoder: any complete table, any pace, and whatever is no section."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module, ResetInserter, Signal
from coded import canonical, coded_bytes, random_lengths, table_of
from gossamer.rtl.formats import CODE_LENGTHS, CODE_TABLE_WORDS, Section
from gossamer.rtl.huffman import HuffmanDecoder
from gossamer.sim.streams import idle
from rtl_models import PAUSES, SMALL, pauses, simulate

PACES = [1, 2, 4]


def section_of(rng, n_entries, gap_lengths, code_lengths, escape=None):
    """Table, symbols, data and the items that they stand for."""
    gaps, codes = canonical(gap_lengths), canonical(code_lengths)
    bits, items = "", []
    for k in range(n_entries):
        while True:
            gap = int(rng.choice(list(gaps)))
            bits += gaps[gap]
            items.append((gap, 0, 0))
            if gap != escape:
                break
        code = int(rng.choice(list(codes)))
        bits += codes[code]
        items.append((code, 1, int(k == n_entries - 1)))
    table, symbols = table_of(gap_lengths, code_lengths, escape=escape)
    return table, symbols, coded_bytes(n_entries, bits), items


def decode(pace, sections, share=0.0):
    """Decode sections (table, symbols, data), a reset between; items, error and cycles of each."""
    config = replace(SMALL, decoder_bits=pace)
    dut = HuffmanDecoder(config)
    outcomes = []

    async def bench(ctx):
        async def write(kind, words):
            for address, word in enumerate(words):
                ctx.set(dut.write.en, 1)
                ctx.set(dut.write.kind, kind)
                ctx.set(dut.write.address, address)
                ctx.set(dut.write.data, word)
                await ctx.tick()
            ctx.set(dut.write.en, 0)

        for table, symbols, data in sections:
            await write(Section.CODE_TABLE, table)
            await write(Section.CODE_SYMBOLS, symbols)
            outcomes.append(await section(ctx, data))

    async def section(ctx, data):
        gaps, waits = (pauses(seed, share) for seed in (1, 2))
        items, sent, pause, wait, settings, is_empty = [], 0, 0, 0, [], 0
        ctx.set(dut.run, 1)
        cycle, finished = 0, False
        while not finished:
            cycle += 1
            assert cycle < 40 * len(data) + 400, "neither the end nor an error"
            ctx.set(dut.more, int(sent < len(data)))
            ctx.set(dut.i.valid, int(sent < len(data) and not pause))
            ctx.set(dut.i.payload, data[min(sent, len(data) - 1)] if data else 0)
            ctx.set(dut.o.ready, int(not wait))
            _, _, taken, valid, item, done, error, set_, setting, empty = await ctx.tick().sample(
                dut.i.ready, dut.o.valid, dut.o.payload, dut.done, dut.error, dut.set,
                dut.setting, dut.empty,
            )  # fmt: skip
            if taken and sent < len(data) and not pause:
                sent += 1
                pause = next(gaps) if gaps else 0
            else:
                pause = max(pause - 1, 0)
            if valid and not wait:
                items.append((item.value, item.code, item.last))
                wait = next(waits) if waits else 0
            else:
                wait = max(wait - 1, 0)
            if set_:
                settings.append(setting)
            is_empty |= empty
            finished = error or (done and (is_empty or (items and items[-1][2])))
        ctx.set(dut.run, 0)
        ctx.set(dut.i.valid, 0)
        ctx.set(reset, 1)
        await idle(ctx, 1)
        ctx.set(reset, 0)
        return items, error, cycle, settings, is_empty

    reset = Signal()
    top = Module()
    top.submodules.dut = ResetInserter(reset)(dut)
    simulate(top, bench)
    return outcomes


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("pace", PACES)
def test_random_tables(pace, share):
    rng = np.random.default_rng(pace)
    sections = []
    for n_gaps, n_codes, n_entries in [
        (1, 1, 9),
        (2, 1, 8),
        (1, 2, 3),
        (7, 30, 40),
        (256, 256, 90),
    ]:
        gaps, codes = random_lengths(rng, n_gaps), random_lengths(rng, n_codes)
        escape = n_gaps - 1 if n_gaps > 1 else None
        sections.append(section_of(rng, n_entries, gaps, codes, escape))
    deep = random_lengths(rng, 20, deep=True), random_lengths(rng, 16, deep=True)
    sections.append(section_of(rng, 40, *deep))
    sections.append(section_of(rng, 0, *deep))
    outcomes = decode(pace, [section[:3] for section in sections], share)
    for (table, symbols, data, items), outcome in zip(sections, outcomes, strict=True):
        found, error, _, settings, empty = outcome
        assert (found, error, empty) == (items, 0, int(not items))
        assert settings == table[2 * CODE_LENGTHS :]
        assert HuffmanDecoder.model(table, symbols, data) == (items, True)


@pytest.mark.parametrize(("pace", "length"), [(1, 1), (1, 5), (2, 5), (4, 5), (4, 15), (4, 4)])
def test_rate(pace, length):
    """A symbol of n bits takes ceil(n / pace) cycles; no cycle is lost between symbols or bytes."""
    n = 60
    lengths = [*range(1, 15), 15, 15] if length == 15 else [length] * (1 << length)
    codes, symbol = canonical(lengths), len(lengths) - 2
    items = [(symbol, k & 1, int(k == 2 * n - 1)) for k in range(2 * n)]
    table, symbols = table_of(lengths, lengths)
    data = coded_bytes(n, codes[symbol] * 2 * n)
    ((found, error, cycles, _, _),) = decode(pace, [(table, symbols, data)])
    assert (found, error) == (items, 0)
    least = HuffmanDecoder.START_CYCLES + 2 * n * -(-length // pace)
    assert least <= cycles <= least + 12


def counts(**by_length):
    words = [0] * CODE_LENGTHS
    for name, number in by_length.items():
        words[int(name[1:]) - 1] = number
    return words


HALVES = counts(n1=2)
BAD_COUNTS = {
    "none": counts(),
    "two of the first three": counts(n1=1, n2=1),
    "three halves": counts(n1=3),
    "one too many": counts(n1=1, n2=3),
    "one too many at the end": counts(n1=1, n2=1, n3=1, n15=9),
    "one too few at the end": counts(n1=1, n2=1, n3=1, n8=31),
    "sole, but of two bits": counts(n2=1),
    "sole and more": counts(n1=1, n9=1),
    "far too many": counts(n1=256),
    "wraps to nothing": counts(n9=511),
    "too many open": counts(n16=256),
}


@pytest.mark.parametrize("name", BAD_COUNTS)
def test_tables_that_are_no_code(name):
    """Either alphabet, and the decoder is as new after it."""
    bad, settings = BAD_COUNTS[name], [0, 0, 0, 0xFFFF]
    data = coded_bytes(1, "00")
    good = HALVES + HALVES + settings, [5, 6, 7, 8], coded_bytes(1, "10")
    sections = [(bad + HALVES + settings, [1] * 4, data), good]
    sections += [(HALVES + bad + settings, [1] * 4, data), good]
    outcomes = decode(1, sections)
    for outcome, (table, symbols, found) in zip(outcomes, sections, strict=True):
        items, right = HuffmanDecoder.model(table, symbols, found)
        assert outcome[1] == (not right)
        assert outcome[0] == (items if right else [])
    assert [outcome[1] for outcome in outcomes] == [1, 0, 1, 0]


def test_a_long_code_is_checked_to_its_last_bit():
    lengths = counts(n1=1, n2=1, n3=1, n4=1, n5=1, n6=1, n7=1, n8=1, n9=2)
    assert sum(n << 9 - k for k, n in enumerate(lengths[:9], 1)) == 512
    for change in (-1, 0, 1):
        table = HALVES + counts(**{f"n{k}": 1 for k in range(1, 9)}, n9=2 + change) + [0, 0, 0, 9]
        (outcome,) = decode(1, [(table, [0] * 20, coded_bytes(1, "00"))])
        assert outcome[1] == (change != 0)


CUT = {
    "no bytes": b"",
    "half a count": b"\1",
    "no bits": b"\1\0",
    "second code missing": coded_bytes(2, "10110110"),
    "a byte too many": coded_bytes(1, "0000") + b"\0",
    "two bytes too many": coded_bytes(1, "0000") + b"\0\0",
    "a byte behind no entries": coded_bytes(0, "") + b"\0",
    "bits left over": coded_bytes(1, "00000001"),
    "a bit left over": coded_bytes(1, "000001"),
}


@pytest.mark.parametrize("pace", PACES)
def test_lengths_that_are_wrong(pace):
    quarters = counts(n2=4)
    table, symbols = quarters + counts(n3=8) + [0, 0, 0, 0xFFFF], [*range(12)]
    good = coded_bytes(3, "001011100001111")
    sections = []
    for data in CUT.values():
        sections += [(table, symbols, data), (table, symbols, good)]
    outcomes = decode(pace, sections)
    for name, bad, fine in zip(CUT, outcomes[::2], outcomes[1::2], strict=True):
        assert bad[1], name
        assert not HuffmanDecoder.model(table, symbols, CUT[name])[1], name
        items = [(0, 0, 0), (9, 1, 0), (3, 0, 0), (4, 1, 0), (1, 0, 0), (11, 1, 1)]
        assert (fine[0], fine[1]) == (items, 0), name


@pytest.mark.parametrize("pace", PACES)
def test_bits_that_are_no_code(pace):
    """A sole symbol is the bit 0; 1 leads nowhere."""
    table, symbols = counts(n1=1) + HALVES + [0, 0, 0, 0xFFFF], [7, 8, 9]
    long, cut = coded_bytes(9, "001" + "0" * 40), coded_bytes(9, "001" + "0" * 5)
    for outcome in decode(pace, [(table, symbols, long), (table, symbols, cut)]):
        assert outcome[1]
        assert outcome[0] == [(7, 0, 0), (8, 1, 0)]


def test_no_decoder_without_bits():
    with pytest.raises(ValueError, match="decoder_bits must not be 0"):
        HuffmanDecoder(SMALL)
    assert CODE_TABLE_WORDS == 36
