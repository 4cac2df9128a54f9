# SPDX-License-Identifier: BSD-2-Clause
"""Loader: bytes of an image become words on the bus."""

import random
from dataclasses import replace

import pytest
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Section, bytes_per_word, section, sections_of
from gossamer.rtl.loader import Loader
from gossamer.sim.streams import idle, send
from rtl_models import PAUSES, SMALL, TILED, TINY, pauses, simulate

CONFIGS = [
    replace(SMALL, n_pes=3),
    replace(TINY, n_pes=2),
    EngineConfig(n_pes=64, entry_bits=36, weight_depth=65536, count_bits=8, column_words=16),
    TILED,
]
IDS = ["small", "tiny", "widest", "tiled"]


def random_sections(rng, config, n):
    """Plain sections as (kind, pe, address, words), some of them empty."""
    kinds = sections_of(config)
    kinds.pop(Section.CODED_ENTRIES, None)
    out = []
    for _ in range(n):
        kind, memories = rng.choice(list(kinds.items()))
        width = {
            Section.WEIGHTS: config.entry_bits,
            Section.COLUMNS: config.column_bits,
            Section.TILE_WEIGHTS: config.tile_word_bits,
            Section.TILE_BIASES: config.sum_bits - 1 + config.shift_bits,
            Section.CODE_SYMBOLS: 8,
        }.get(kind, 16)
        count = rng.choice([0, 1, 2, 5])
        words = [rng.choice([0, (1 << width) - 1, rng.getrandbits(width)]) for _ in range(count)]
        pe = rng.choice([0, memories - 1])
        out.append((kind, pe, rng.choice([0, 300, 65535 - count]), words))
    return out


def writes_of(sections):
    return [
        (kind, pe, address + k, word)
        for kind, pe, address, words in sections
        for k, word in enumerate(words)
    ]


async def collect(ctx, dut, writes):
    while True:
        _, _, en, *write = await ctx.tick().sample(
            dut.write.en, dut.write.kind, dut.write.pe, dut.write.address, dut.write.data
        )
        if en:
            writes.append(tuple(write))


def load(config, images, share=0.0):
    """Feed images, `restart` before each; per image its writes, `complete`, `error`."""
    dut = Loader(config)
    writes, results = [], []
    cycles = []

    async def bench(ctx):
        gaps = pauses(1, share)
        for image in images:
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            writes.clear()
            cycles.append(await send(ctx, dut.i, image, gaps))
            await idle(ctx, 3)
            results.append((list(writes), ctx.get(dut.complete), ctx.get(dut.error)))

    async def watcher(ctx):
        await collect(ctx, dut, writes)

    simulate(dut, bench, background=[watcher])
    if not share:
        assert cycles == [len(image) for image in images], "a byte per cycle"
    return results


def trimmed(config, writes):
    """Words as the bus brings them: upper bytes of a narrow one do not count."""
    return [
        (kind, pe, address, word % (1 << 8 * bytes_per_word(Section(kind), config)))
        for kind, pe, address, word in writes
    ]


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_sections(config, share):
    rng = random.Random(8)
    sections = random_sections(rng, config, 40)
    image = b"".join(section(*part, config) for part in sections)
    ((writes, complete, error),) = load(config, [image], share)
    assert trimmed(config, writes) == writes_of(sections)
    assert (complete, error) == (1, 0)


def test_latency():
    """A word is written in the second cycle after its last byte."""
    dut = Loader(SMALL)
    seen = []

    async def bench(ctx):
        image = section(Section.CODEBOOK, 0, 5, [1, 2], SMALL)
        for byte in [*image, 0, 0, 0]:
            ctx.set(dut.i.payload, byte)
            ctx.set(dut.i.valid, 1)
            _, _, en, address = await ctx.tick().sample(dut.write.en, dut.write.address)
            seen.append(address if en else None)

    simulate(dut, bench)
    assert seen == [None] * 11 + [5, None, 6, None]


def word(kind, pe=0, count=1):
    return bytes([kind, pe, 0, 0]) + count.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("image", "n_writes", "complete", "error"),
    [
        (b"", 0, 1, 0),
        (word(3)[:1], 0, 0, 0),
        (word(3)[:7], 0, 0, 0),
        (word(3), 0, 0, 0),
        (word(3) + b"x", 0, 0, 0),
        (word(3) + b"xy", 1, 1, 0),
        (word(3) + b"xyz", 1, 0, 0),
        (word(3, count=0), 0, 1, 0),
        (word(3, count=0) * 2, 0, 1, 0),
        (word(0) + bytes(40), 0, 0, 1),
        (word(5) + bytes(40), 0, 0, 1),
        (word(0x83) + bytes(40), 0, 0, 1),
        (word(255) + bytes(40), 0, 0, 1),
        (word(0, count=0), 0, 0, 1),
        (word(3) + b"xy" + word(7) + word(3) + b"xy", 1, 0, 1),
        (word(1, pe=3) + bytes(40), 0, 0, 1),
        (word(3, pe=1) + b"xy", 0, 0, 1),
        (word(1, pe=255) + bytes(40), 0, 0, 1),
        (word(1, pe=2) + bytes(3), 1, 1, 0),
        (word(3, count=0x01000002) + b"xyzw", 2, 0, 0),
        (word(3, count=0x01000000) + b"xyzw", 2, 0, 0),
        (word(3, count=0x00010000) + b"xyzw", 2, 0, 0),
    ],
)
def test_whole_and_malformed_images(image, n_writes, complete, error):
    """Nothing is written after an error; the next image is loaded as if nothing had been."""
    good = section(Section.WEIGHTS, 2, 9, [0x12345, 0x3FFFF], CONFIGS[0])
    results = load(CONFIGS[0], [image, good])
    writes, *flags = results[0]
    assert len(writes) == n_writes
    assert flags == [complete, error]
    assert trimmed(CONFIGS[0], results[1][0]) == [(1, 2, 9, 0x12345), (1, 2, 10, 0x3FFFF)]
    assert results[1][1:] == (1, 0)


@pytest.mark.parametrize(
    ("kind", "pe", "error"), [(5, 0, 0), (5, 1, 0), (5, 2, 1), (6, 0, 0), (6, 1, 1), (7, 0, 1)]
)
def test_rows_of_the_tile(kind, pe, error):
    ((writes, _, found),) = load(TILED, [word(kind, pe=pe) + bytes(8)])
    assert found == error
    assert bool(writes) == (not error)
