# SPDX-License-Identifier: BSD-2-Clause
"""Result buffer: written in any order, held while full."""

import random
from dataclasses import replace

import pytest
from gossamer.rtl.results import ResultBuffer
from gossamer.sim.streams import send
from rtl_models import PAUSES, SMALL, TILED, pauses, simulate


async def read_all(ctx, dut, n):
    """Values of all addresses, read one a cycle; each comes a cycle late."""
    values = []
    for address in [*range(n), 0]:
        ctx.set(dut.address, address)
        _, _, value = await ctx.tick().sample(dut.data)
        values.append(value)
    return values[1:]


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("depth", [2, 32])
def test_vectors_in_any_order(depth, share):
    rng = random.Random(depth)
    dut = ResultBuffer(replace(SMALL, output_depth=depth, n_pes=2))
    vectors = [[rng.randrange(256) for _ in range(depth)] for _ in range(3)]
    got, cycles = [], []

    async def bench(ctx):
        for vector in vectors:
            items = [{"slot": k, "values": [v], "images": 1} for k, v in enumerate(vector)]
            rng.shuffle(items)
            cycles.append(await send(ctx, dut.i, items, pauses(1, share)))
            got.append(await read_all(ctx, dut, depth))

    simulate(dut, bench)
    assert got == vectors
    if not share:
        assert cycles == [depth] * 3


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


@pytest.mark.parametrize(("config", "places"), [(SMALL, 1), (TILED, 2)], ids=["array", "tile"])
def test_results_wait_until_they_are_sent(config, places):
    """Runs take turns at the places; nothing is taken or written where all hold results."""
    dut = ResultBuffer(config)
    batch = config.batch
    got, ready = [], []

    def items(run):
        return [{"slot": k, "values": [10 * run + k] * batch, "images": 1} for k in range(4)]

    async def bench(ctx):
        for run in range(1, places + 1):
            assert ctx.get(dut.i.ready)
            await send(ctx, dut.i, items(run))
            await pulse(ctx, dut.collected)
        for run in range(places + 1, places + 5):
            ctx.set(dut.i.payload, {"slot": 1, "values": [255] * batch, "images": 1})
            ctx.set(dut.i.valid, 1)
            for _ in range(3):
                _, _, accepted, complete = await ctx.tick().sample(dut.i.ready, dut.ready)
                ready.append((accepted, complete))
            ctx.set(dut.i.valid, 0)
            got.append(await read_all(ctx, dut, 4))
            await pulse(ctx, dut.sent)
            ready.append((ctx.get(dut.i.ready), ctx.get(dut.ready)))
            await send(ctx, dut.i, items(run))
            await pulse(ctx, dut.collected)

    simulate(dut, bench)
    assert got == [[10 * run + k for k in range(4)] for run in range(1, 5)]
    assert ready == ([(0, 1)] * 3 + [(1, places - 1)]) * 4


def test_one_run_is_collected_as_another_is_sent():
    dut = ResultBuffer(TILED)
    got = []

    async def bench(ctx):
        await send(ctx, dut.i, [{"slot": 0, "values": [1, 2], "images": 3}])
        await pulse(ctx, dut.collected)
        await send(ctx, dut.i, [{"slot": 0, "values": [3, 4], "images": 3}])
        ctx.set(dut.sent, 1)
        await pulse(ctx, dut.collected)
        ctx.set(dut.sent, 0)
        assert (ctx.get(dut.ready), ctx.get(dut.i.ready)) == (1, 1)
        for image in range(2):
            ctx.set(dut.image, image)
            got.extend(await read_all(ctx, dut, 1))

    simulate(dut, bench)
    assert got == [3, 4]


@pytest.mark.parametrize("activation_bits", [8, 16])
def test_images_are_apart(activation_bits):
    """A value goes to the images that the mask names."""
    rng = random.Random(9)
    sum_bits = 36 if activation_bits == 16 else 32
    config = replace(
        TILED, tile_columns=4, activation_bits=activation_bits, sum_bits=sum_bits, output_depth=8
    )
    dut = ResultBuffer(config)
    want = [[0] * 8 for _ in range(4)]
    items = []
    for _ in range(60):
        slot, images = rng.randrange(8), rng.randrange(16)
        values = [rng.randrange(1 << activation_bits) for _ in range(4)]
        items.append({"slot": slot, "values": values, "images": images})
        for image in range(4):
            if images >> image & 1:
                want[image][slot] = values[image]
    got = []

    async def bench(ctx):
        await send(ctx, dut.i, items)
        for image in range(4):
            ctx.set(dut.image, image)
            got.append(await read_all(ctx, dut, 8))

    simulate(dut, bench)
    assert got == want
