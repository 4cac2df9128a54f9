# SPDX-License-Identifier: BSD-2-Clause
"""Loader: coded sections become the words that plain ones write, and damaged ones an error."""

from dataclasses import replace

import numpy as np
import pytest
from coded import Slices, code_slices
from gossamer.rtl.formats import Section, section
from gossamer.rtl.loader import Loader
from gossamer.sim.streams import idle, send
from rtl_models import PAUSES, SMALL, TILED, pauses, simulate

CONFIGS = {
    "1 bit": replace(SMALL, n_pes=3, decoder_bits=1),
    "4 bits, tile": replace(TILED, decoder_bits=4),
    "2 bits, wide words": replace(
        SMALL, n_pes=2, entry_bits=36, rows_per_pe=300, weight_depth=60000, count_bits=5,
        column_words=600, decoder_bits=2,
    ),
}  # fmt: skip


def load(config, images, share=0.0):
    """Feed images, `restart` before each; per image its writes, `complete`, `error` and cycles."""
    dut = Loader(config)
    writes, results = [], []

    async def bench(ctx):
        gaps = pauses(1, share)
        for image in images:
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            writes.clear()
            cycles = await send(ctx, dut.i, image, gaps, limit=100_000)
            for _ in range(100_000):
                await idle(ctx, 1)
                if not ctx.get(dut.busy):
                    break
                cycles += 1
            await idle(ctx, 12)
            flags = ctx.get(dut.complete), ctx.get(dut.error), ctx.get(dut.busy)
            results.append((list(writes), flags, cycles))

    async def watcher(ctx):
        bus = dut.write
        while True:
            _, _, en, *word = await ctx.tick().sample(
                bus.en, bus.kind, bus.pe, bus.address, bus.data
            )
            if en:
                writes.append(tuple(word))

    simulate(dut, bench, background=[watcher])
    return results


def layer(rng, config, rows, n_columns, density, width, codes=16, address=7, base=2):
    """Sections of a layer in all PEs, and the words that they stand for, sorted."""
    alphabet = rng.choice(256, codes, replace=False) if codes > 1 else [0]
    parts = [
        Slices.random(rng, rows, n_columns, density * (k > 0 or config.n_pes == 1), alphabet)
        for k in range(config.n_pes)
    ]
    if not sum(part.n_entries for part in parts):
        parts[-1].columns[0].append((0, int(alphabet[0])))
    table, symbols, data = code_slices(parts, width, base, config, rng)
    made = [
        section(Section.CODE_TABLE, 0, 0, table, config),
        section(Section.CODE_SYMBOLS, 0, 0, symbols, config),
    ]
    words = []
    for pe, (part, coded) in enumerate(zip(parts, data, strict=True)):
        made.append(section(Section.CODED_ENTRIES, pe, address, list(coded), config))
        entries, records = part.words(address, base, bool(table[32] >> 15), config)
        words += [(Section.WEIGHTS, pe, at, word) for at, word in entries.items()]
        words += [(Section.COLUMNS, pe, at, word) for at, word in records.items()]
    return b"".join(made), sorted(words)


def memory_words(writes, config):
    """Writes without those to the decoder's own memories, each as wide as its memory."""
    widths = {Section.WEIGHTS: config.entry_bits, Section.COLUMNS: config.column_bits}
    return sorted(
        (kind, pe, at, word & (1 << widths[kind]) - 1)
        for kind, pe, at, word in writes
        if kind in widths
    )


LAYERS = [
    # rows, columns, density, gap bits, codes
    (1, 1, 1.0, 1, 1),
    (5, 9, 0.3, 1, 2),
    (16, 8, 0.9, 8, 60),
    (8, 32, 0.02, 2, 16),
    (3, 17, 0.6, 3, 200),
    (1, 20, 0.4, 8, 3),
]


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("name", CONFIGS)
def test_coded_layers_are_written_as_plain_ones(name, share):
    """One after the other in one image, plain sections between them."""
    config, rng = CONFIGS[name], np.random.default_rng(5)
    if name == "2 bits, wide words":
        layers = [(300, 3, 0.5, 8, 200), (300, 20, 0.003, 4, 5), (20, 30, 0.1, 5, 33)]
    else:
        layers = [case for case in LAYERS if case[0] <= config.rows_per_pe]
    image, wanted = b"", []
    for k, case in enumerate(layers):
        data, words = layer(rng, config, *case, address=20 * k, base=k)
        image += data + section(Section.WEIGHTS, 0, 0, [k, 9], config)
        wanted += [*words, (Section.WEIGHTS, 0, 0, k), (Section.WEIGHTS, 0, 1, 9)]
    ((writes, flags, _),) = load(config, [image], share)
    assert flags == (1, 0, 0)
    assert memory_words(writes, config) == sorted(wanted)


def test_an_order_within_each_memory():
    """Entries and records rise, so nothing is written twice."""
    config = CONFIGS["1 bit"]
    image, _ = layer(np.random.default_rng(1), config, 9, 30, 0.4, 4)
    ((writes, _, _),) = load(config, [image])
    for kind in (Section.WEIGHTS, Section.COLUMNS):
        places = [(pe, at) for own, pe, at, _ in writes if own == kind]
        assert places == sorted(set(places))


@pytest.mark.parametrize("pace", [1, 2, 4])
def test_rate(pace):
    """Never slower than a bit per cycle, columns and start included, in a layer like LeNet's."""
    config = replace(
        SMALL, decoder_bits=pace, weight_depth=4096, column_words=256, input_depth=1024
    )
    image, words = layer(np.random.default_rng(2), config, 16, 200, 0.08, 6, codes=64)
    ((writes, flags, cycles),) = load(config, [image])
    assert flags == (1, 0, 0)
    assert memory_words(writes, config) == words
    size = len(image) - 3 * 8 - 2 * 36
    assert cycles < 8 * size * [1.05, 0.75, 0.6][pace.bit_length() - 1]


def good_image(config):
    return layer(np.random.default_rng(3), config, 6, 11, 0.5, 3)


def damaged(config):
    """Images by what is wrong with them."""
    image, _ = good_image(config)
    at = image.index(bytes([Section.CODED_ENTRIES, 0]))
    table, rest = image[:at], image[at:]
    size = int.from_bytes(rest[4:8], "little")
    head, body = rest[:8], rest[8 : 8 + size]

    def sized(data):
        return table + head[:4] + len(data).to_bytes(4, "little") + data

    def with_setting(number, value):
        place = 8 + 2 * (32 + number)
        return image[:place] + value.to_bytes(2, "little") + image[place + 2 :]

    entries = int.from_bytes(body[:2], "little")
    return {
        "no table": rest,
        "no symbols": table[: 8 + 72] + rest,
        "no counts": table[8 + 72 :] + rest,
        "no such PE": table + bytes([head[0], config.n_pes]) + head[2:] + body,
        "no bytes": sized(b""),
        "count cut": sized(body[:1]),
        "cut": sized(body[:-1]),
        "a byte too many": sized(body + b"\0"),
        "fewer entries": sized((entries - 3).to_bytes(2, "little") + body[2:]),
        "more entries": sized((entries + 9).to_bytes(2, "little") + body[2:]),
        "fewer columns": with_setting(2, 5),
        "one row": with_setting(0, 0),
        "over-subscribed": image[:8] + b"\3\0" + image[10:],
        "under-subscribed": image[:8] + b"\0\0" * 16 + image[40:],
        "unknown kind": image + bytes([10]) + bytes(7),
    }


@pytest.mark.parametrize("pace", [1, 4])
def test_damaged_images(pace):
    """An error, and the next image is loaded as if nothing had been."""
    config = replace(SMALL, decoder_bits=pace)
    good, wanted = good_image(config)
    cases = damaged(config)
    images = [image for case in cases.values() for image in (case, good)]
    outcomes = load(config, images)
    for name, bad, fine in zip(cases, outcomes[::2], outcomes[1::2], strict=True):
        assert bad[1] == (0, 1, 0), name
        assert (fine[1], memory_words(fine[0], config)) == ((1, 0, 0), wanted), name


def test_cut_off_anywhere():
    """An image that ends inside a coded section is not complete, whatever it waits for."""
    config = CONFIGS["1 bit"]
    good, wanted = good_image(config)
    ends = [len(good) - k for k in (1, 9, 17)]
    outcomes = load(config, [image for end in ends for image in (good[:end], good)])
    for cut, fine in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert cut[1] == (0, 0, 0)
        assert (fine[1], memory_words(fine[0], config)) == ((1, 0, 0), wanted)


def test_count_overflow():
    """Eight entries in a column of narrow counts of three bits."""
    config = replace(SMALL, decoder_bits=1)
    rng = np.random.default_rng(4)
    for n, error in ((7, 0), (8, 1)):
        part = Slices(10, [[(row, 0) for row in range(n)], []])
        table, symbols, (data,) = code_slices([part], 2, 0, config, rng)
        table[32] &= 0x7FFF
        image = section(Section.CODE_TABLE, 0, 0, table, config)
        image += section(Section.CODE_SYMBOLS, 0, 0, symbols, config)
        image += section(Section.CODED_ENTRIES, 0, 3, list(data), config)
        ((writes, flags, _),) = load(config, [image])
        assert flags == (1 - error, error, 0)
        assert len([write for write in writes if write[0] == Section.WEIGHTS]) == 7
