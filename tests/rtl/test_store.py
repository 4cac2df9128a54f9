# SPDX-License-Identifier: BSD-2-Clause
"""Activation store: slots written by groups, banks by single activations, all read by groups."""

import random
from dataclasses import replace

import pytest
from gossamer.rtl.store import ActivationStore
from rtl_models import SMALL, TILED, TINY, simulate

WIDE = replace(TILED, activation_bits=16, sum_bits=36, tile_columns=4)


def words_of(values, bits):
    """Groups of four as words."""
    return [
        sum(value << (k * bits) for k, value in enumerate(values[at : at + 4]))
        for at in range(0, len(values), 4)
    ]


async def write_slot(ctx, dut, slot, image, words):
    ctx.set(dut.write, 1)
    ctx.set(dut.write_slot, slot)
    ctx.set(dut.write_image, image)
    for group, word in enumerate(words):
        ctx.set(dut.write_group, group)
        ctx.set(dut.write_data, word)
        await ctx.tick()
    ctx.set(dut.write, 0)


async def read_all(ctx, dut, from_bank, source, groups):
    """Per group the words of all images; each comes a cycle late and stays."""
    found = []
    ctx.set(dut.from_bank, from_bank)
    ctx.set(dut.source, source)
    for group in range(groups):
        ctx.set(dut.read, 1)
        ctx.set(dut.group, group)
        await ctx.tick()
        ctx.set(dut.read, 0)
        ctx.set(dut.group, 0)
        await ctx.tick().repeat(2)
        found.append([ctx.get(word) for word in (dut.words[b] for b in range(len(dut.words)))])
    return found


@pytest.mark.parametrize("config", [SMALL, TINY, TILED, WIDE], ids="small tiny tiled 16".split())
def test_slots_of_all_images(config):
    rng = random.Random(1)
    dut = ActivationStore(config)
    most, n, groups = 1 << config.activation_bits, config.input_depth, config.input_depth // 4
    vectors = {
        (slot, image): [rng.randrange(most) for _ in range(n)]
        for slot in range(2)
        for image in range(config.batch)
    }
    got = {}

    async def bench(ctx):
        for (slot, image), vector in vectors.items():
            await write_slot(ctx, dut, slot, image, words_of(vector, config.activation_bits))
        for slot in (1, 0, 1):
            for group, words in enumerate(await read_all(ctx, dut, 0, slot, groups)):
                for image, word in enumerate(words):
                    got.setdefault((slot, image), {})[group] = word

    simulate(dut, bench)
    for place, vector in vectors.items():
        assert list(got[place].values()) == words_of(vector, config.activation_bits)


@pytest.mark.parametrize("config", [TILED, WIDE], ids=["tiled", "16"])
def test_banks_are_written_one_activation_at_a_time(config):
    """Single images or all at once, in any order, while the host writes a slot."""
    rng = random.Random(2)
    dut = ActivationStore(config)
    bits, batch, n = config.activation_bits, config.batch, config.input_depth
    want = {(bank, image): [0] * n for bank in range(2) for image in range(batch)}
    writes = []
    for _ in range(4 * n):
        bank, slot = rng.randrange(2), rng.randrange(n)
        images = rng.choice([1 << rng.randrange(batch), (1 << batch) - 1])
        values = [rng.randrange(1 << bits) for _ in range(batch)]
        writes.append((bank, slot, images, values))
        for image in range(batch):
            if images >> image & 1:
                want[bank, image][slot] = values[image]
    input_vector = [rng.randrange(1 << bits) for _ in range(n)]
    got = []

    async def bench(ctx):
        ctx.set(dut.bank_write, 1)
        for bank, slot, images, values in writes:
            ctx.set(dut.bank, bank)
            ctx.set(dut.vector, {"slot": slot, "values": values, "images": images})
            await ctx.tick()
        ctx.set(dut.bank_write, 0)
        places = ((1, 0), (1, 1), (0, 1))
        got.extend([await read_all(ctx, dut, *place, n // 4) for place in places])

    async def host(ctx):
        await write_slot(ctx, dut, 1, batch - 1, words_of(input_vector, bits))

    simulate(dut, bench, host)
    for bank in range(2):
        for image in range(batch):
            found = [words[image] for words in got[bank]]
            assert found == words_of(want[bank, image], bits), (bank, image)
    assert [words[batch - 1] for words in got[2]] == words_of(input_vector, bits)
