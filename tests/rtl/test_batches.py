# SPDX-License-Identifier: BSD-2-Clause
"""Batches and 16-bit activations on a whole engine behind its byte link."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from engine_host import (
    OK,
    bytes_of,
    check_counters,
    example,
    input_of,
    outputs,
    run_of,
    talk,
)
from gossamer.rtl.formats import Command, State, Status, Unit
from gossamer.sim.streams import idle
from rtl_models import SMALL, TILED

WIDE = {"activation_bits": 16, "sum_bits": 36}
FOUR = replace(TILED, tile_rows=1, tile_columns=4)
CONFIGS = {
    "16 bits": replace(SMALL, n_pes=3, rows_per_pe=8, weight_depth=1024, **WIDE),
    "tile 1x1": replace(TILED, n_pes=1, rows_per_pe=16, tile_rows=1, tile_columns=1),
    "tile 2x2": TILED,
    "tile 2x2, 16 bits": replace(TILED, **WIDE),
    "tile 1x4": FOUR,
    "tile 4x4, 16 bits": replace(TILED, tile_rows=4, tile_columns=4, **WIDE),
}
ALL = [
    pytest.param(name, marks=[] if name == "tile 2x2, 16 bits" else pytest.mark.slow)
    for name in CONFIGS
]


def mixed(config, seed, n):
    """A tile layer, one for the array because of its codes, and a tile layer."""
    return example(
        config, (10, 9, 7, 6), seed, n, structure=["2:4", "unstructured", "2:4"],
        weight_density=[1.0, 0.4, 1.0], code_bits=[3, 5, 3],
    )  # fmt: skip


def units(image):
    return [layer.unit for layer in image.layers]


@pytest.mark.parametrize("name", ALL)
def test_batches_equal_golden(name):
    """Layers of both units in one network, full and short runs, slots in turn."""
    config = CONFIGS[name]
    image, q, want = mixed(config, 3, 9)
    if config.tile_rows:
        assert units(image) == [Unit.TENSOR_TILE, Unit.SPARSE_ARRAY, Unit.TENSOR_TILE]
    full = config.batch
    sizes = [full, max(full - 1, 1), 1, full]

    async def conversation(host):
        await host.load(image)
        first = 0
        for k, n in enumerate(sizes):
            rows = np.arange(first, first + n) % 9
            got, counters = await host.infer_batch(image, q[rows], k % 2)
            assert got.tolist() == want[rows].tolist(), f"run {k} of {n}"
            check_counters(counters, config)
            first += n

    talk(config, conversation, 0.2 if name == "tile 2x2" else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_batches(seed):
    """Any tile, any width, any order of layers; runs of any number of images."""
    rng = np.random.default_rng(seed)
    widths = WIDE if seed % 3 == 0 else {"sum_bits": int(rng.choice([24, 32]))}
    config = replace(
        TILED, n_pes=int(rng.choice([1, 2, 3, 5])), weight_depth=2000, column_words=128,
        tile_rows=int(rng.choice([1, 2, 4, 8])), tile_columns=int(rng.choice([1, 2, 4])),
        tile_code_bits=int(rng.integers(3, 6)), counters=bool(rng.integers(2)), output_depth=64,
        rows_per_pe=16, queue_depth=int(rng.integers(2, 9)), **widths,
    )  # fmt: skip
    sizes = [int(rng.integers(1, 33)), *(int(n) for n in rng.integers(1, 15, 4))]
    structure = [str(kind) for kind in rng.choice(["2:4", "dense", "unstructured"], 4)]
    density = float(rng.choice([0, 0.2, 0.6, 1.0]))
    image, q, want = example(config, sizes, seed, n=12, structure=structure, weight_density=density)

    async def conversation(host):
        await host.load(image)
        first = 0
        for k in range(8):
            n = int(rng.integers(1, config.batch + 1))
            rows = np.arange(first, first + n) % 12
            got, counters = await host.infer_batch(image, q[rows], k % 2)
            assert got.tolist() == want[rows].tolist(), f"run {k} of {n} on {config}"
            check_counters(counters, config)
            first += n

    talk(config, conversation, 0.1 if seed % 2 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tile 2x2", "tile 4x4, 16 bits"])
def test_two_batches_queued(name):
    """Both slots filled and queued; numbers of images stay with their runs."""
    config = CONFIGS[name]
    image, q, want = mixed(config, 4, 8)
    full = config.batch

    async def conversation(host):
        await host.load(image)
        for first, second in ((full, full - 1), (1, full)):
            parts = q[:first], q[full : full + second]
            for slot, part in enumerate(parts):
                await host.fill(slot, part)
            seqs = await host.post(run_of(0, first), run_of(1, second))
            await idle(host.ctx, 400)
            for seq, start, n in zip(seqs, (0, full), (first, second), strict=True):
                kind, answered, payload = await host.receive()
                assert (kind, answered) == (Command.RUN | 0x80, seq)
                got, counters = outputs(image, payload, n)
                assert got == want[start : start + n].reshape(-1).tolist()
                check_counters(counters, config)

    talk(config, conversation)


@pytest.mark.parametrize(
    "moments",
    [(70,), pytest.param(range(0, 500, 31), marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_abort_in_a_batch(moments):
    """At any layer and image; the next batch is right, whatever its number of images."""
    config = CONFIGS["tile 2x2"]
    image, q, want = mixed(config, 5, 4)
    answered = []

    async def conversation(host):
        await host.load(image)
        for slot in range(2):
            await host.fill(slot, q[2 * slot : 2 * slot + 2])
        for k, delay in enumerate(moments):
            seqs = await host.post(*[run_of(0, 2), run_of(1, 2)][: 1 + k % 2])
            await idle(host.ctx, delay)
            (abort,) = await host.post((Command.ABORT, b""))
            got = await host.receive()
            answered.append(got[0] == Command.RUN | 0x80)
            expected = iter(((seqs[0], want[:2]), (seqs[-1], want[2:])))
            while got[0] == Command.RUN | 0x80:
                seq, values = next(expected)
                assert got[1] == seq
                assert outputs(image, got[2], 2)[0] == values.reshape(-1).tolist()
                got = await host.receive()
            assert got == (Command.ABORT | 0x80, abort, OK)
            assert await host.settle() == State.READY
            slot, n = k // 2 % 2, 1 + k % 2
            values, counters = outputs(image, await host.request(*run_of(slot, n)), n)
            assert values == want[2 * slot : 2 * slot + n].reshape(-1).tolist(), delay
            check_counters(counters, config)
        await host.quiet()

    talk(config, conversation)
    assert False in answered


@pytest.mark.slow
def test_images_of_a_slot():
    """A slot keeps images that are not written, a run leaves those beyond its number alone."""
    image, q, want = example(FOUR, (15, 6, 5), 2, n=8, structure="2:4", weight_density=1.0)

    async def conversation(host):
        await host.load(image)
        contents = q[:4].copy()
        await host.fill(1, contents)
        expected = want[:4].copy()
        for number, k, n in ((2, 4, 4), (0, 5, 1), (3, 6, 3), (1, 7, 4)):
            data = bytes_of(q[k])
            for group in (3, 1, 0, 2):
                head = struct.pack("<BH", 1 | number << 1, group)
                piece = data[4 * group : 4 * group + 4]
                assert await host.request(Command.INPUT, head + piece) == OK
            expected[number] = want[k]
            got, _ = outputs(image, await host.request(*run_of(1, n)), n)
            assert got == expected[:n].reshape(-1).tolist()

    talk(FOUR, conversation)


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["2:4", "unstructured"])
def test_slot_is_busy_until_the_last_image_has_been_read(structure):
    """Whichever image is written as soon as the slot takes it: the run has read the old one."""
    config = replace(FOUR, tile_code_bits=3)
    code_bits = 3 if structure == "2:4" else 4
    image, q, want = example(
        config, (16, 12, 5), 2, structure=[structure, "2:4"], weight_density=1.0,
        code_bits=[code_bits, 2],
    )  # fmt: skip
    assert units(image)[0] == (Unit.TENSOR_TILE if structure == "2:4" else Unit.SPARSE_ARRAY)

    async def conversation(host):
        await host.load(image)
        for number in range(4):
            await host.fill(0, q)
            await host.post(run_of(0, 4))
            statuses = []
            while OK not in statuses:
                (seq,) = await host.post((Command.INPUT, bytes([number << 1, 0, 0, 1, 2, 3, 4])))
                kind, answered, status = await host.receive()
                assert (kind, answered) == (Command.INPUT | 0x80, seq)
                statuses.append(status)
            assert statuses[0] == bytes([Status.BUSY])
            kind, _, payload = await host.receive()
            assert kind == Command.RUN | 0x80
            assert outputs(image, payload, 4)[0] == want.reshape(-1).tolist(), number

    talk(config, conversation)


@pytest.mark.parametrize("name", ALL)
def test_places_that_are_not_there(name):
    """Slots, images and groups beyond the engine's are refused and change nothing."""
    config = CONFIGS[name]
    image, q, want = example(config, (17, 5), 2, n=2, weight_density=1.0)
    width = config.activation_bytes
    group = bytes(4 * width)

    async def conversation(host):
        await host.load(image)
        await host.fill(0, q[:1])
        refused = [
            run_of(0, 0), run_of(0, config.batch + 1), run_of(2, 1), run_of(0, 255),
            input_of(0, q[1], config.batch, width), input_of(0, q[1], 127, width),
            (Command.INPUT, struct.pack("<BH", 0, config.input_depth // 4) + group),
            (Command.INPUT, struct.pack("<BH", 0, config.input_depth // 4 - 1) + group + group),
        ]  # fmt: skip
        for command, payload in refused:
            status = await host.request(command, payload)
            assert status == bytes([Status.BAD_ARGUMENT]), (command, payload)
        got, _ = outputs(image, await host.request(*run_of(0)))
        assert got == want[0].tolist()

    talk(config, conversation)
