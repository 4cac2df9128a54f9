# SPDX-License-Identifier: BSD-2-Clause
"""Answers to the host, byte by byte."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from amaranth import Cat, Module
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import Out, connect, flipped
from gossamer.rtl.answers import AnswerSender
from gossamer.rtl.formats import IDENTITY, Command, Identity, State, Status
from gossamer.sim.streams import idle, receive, watch
from rtl_models import PAUSES, SMALL, TILED, pauses, simulate

WIDE = replace(SMALL, activation_bits=16, sum_bits=36)
CONFIGS = [
    SMALL,
    WIDE,
    TILED,
    replace(WIDE, tile_rows=1, tile_columns=4),
]


class Answering(wiring.Component):
    """The sender with a memory of results (images, output_depth)."""

    def __init__(self, config=SMALL, results=None):
        self.identity = Identity(config, 12_000_000, b"whatever")
        self.sender = AnswerSender(self.identity)
        depth = config.batch * config.output_depth
        rows = [0] * depth if results is None else results.reshape(-1).tolist()
        self.results = memory.Memory(shape=config.activation_bits, depth=depth, init=rows)
        super().__init__({"o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = sender = self.sender
        m.submodules.results = results = self.results
        connect(m, sender.o, flipped(self.o))
        port = results.read_port()
        m.d.comb += [
            port.addr.eq(Cat(sender.result_address, sender.result_image)),
            sender.result_data.eq(port.data),
        ]
        return m


async def answer(ctx, dut, size, gaps=None, **inputs):
    """Have an answer of `size` bytes sent; whatever comes after is not asked for."""
    for name, value in inputs.items():
        ctx.set(getattr(dut.sender, name), value)
    ctx.set(dut.sender.send, 1)
    raw = bytes(await receive(ctx, dut.o, size, gaps))
    ctx.set(dut.sender.send, 0)
    return raw


def head(command, seq, data):
    return struct.pack("<BBH", command | 0x80, seq, len(data)) + data


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS)
def test_every_kind_of_answer(share, config):
    results = np.random.default_rng(3).integers(
        1 << config.activation_bits, size=(config.batch, config.output_depth)
    )
    dut = Answering(config, results)
    counts = [0x01020304 * (k + 1) for k in range(8)]
    loaded = 0x89ABCDEF
    status = bytes([State.READY, 0]) + struct.pack("<I", loaded)
    values = f"<u{config.activation_bytes}"
    runs = [
        (images, n, struct.pack("<8I", *counts) + results[:images, :n].astype(values).tobytes())
        for images in {1, config.batch - 1 or 1, config.batch}
        for n in (1, 2, 32)
    ]
    cases = [
        (Command.HELLO, Status.OK, 1, 0, dut.identity.pack()),
        *((Command.RUN, Status.OK, images, n, data) for images, n, data in runs),
        (Command.STATUS, Status.OK, 1, 0, status),
        (Command.RUN, Status.BUSY, 1, 7, b""),
        (Command.STATUS, Status.BAD_LENGTH, 1, 0, b""),
        (Command.ABORT, Status.OK, 1, 7, b""),
        (0x7F, Status.UNKNOWN, 1, 7, b""),
        (Command.HELLO, Status.OK, 1, 0, dut.identity.pack()),
        # Answers of any kind and length leave the next result's places alone.
        (Command.HELLO, Status.OK, 1, 20 // config.activation_bytes, dut.identity.pack()),
        (Command.RUN, Status.OK, *runs[-1]),
    ]
    got, want = [], []

    async def bench(ctx):
        ctx.set(dut.sender.state, State.READY)
        ctx.set(dut.sender.loaded, loaded)
        ctx.set(dut.sender.counts, counts)
        gaps = pauses(5, share)
        for seq, (command, code, images, n, data) in enumerate(cases):
            want.append(head(command, seq, bytes([code]) + data))
            got.append(
                await answer(
                    ctx, dut, len(want[-1]), gaps, type=command, seq=seq, status=code,
                    result_images=images, result_count=n,
                )
            )  # fmt: skip

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, bench, background=[check])
    assert got == want
    assert len(dut.identity.pack()) == IDENTITY.size


def test_latency_and_rate():
    """First byte valid one cycle after `send`, one byte every two cycles, `sent` with the last."""
    dut = Answering()
    seen = []

    async def bench(ctx):
        ctx.set(dut.sender.type, Command.STATUS)
        ctx.set(dut.o.ready, 1)
        await idle(ctx, 3)
        ctx.set(dut.sender.send, 1)
        for _ in range(2 * 11):
            _, _, *now = await ctx.tick().sample(dut.o.valid, dut.sender.sent)
            seen.append(tuple(now))

    simulate(dut, bench)
    assert seen == [(0, 0), (1, 0)] * 10 + [(0, 0), (1, 1)]


def test_flags_are_kept_until_told():
    """Each bit shows once, in the next STATUS; one that comes while a STATUS leaves, after that."""
    flags_at = 6
    dut = Answering()
    flags = []

    async def pulse(ctx, bits):
        ctx.set(dut.sender.errors, bits)
        await ctx.tick()
        ctx.set(dut.sender.errors, 0)

    async def bench(ctx):
        size = 11
        for bits in (0, 1, 2, 4, 7):
            await pulse(ctx, bits)
            await answer(ctx, dut, 5, type=Command.HELLO, status=Status.BUSY)
            for _ in range(2):
                raw = await answer(ctx, dut, size, type=Command.STATUS, status=Status.OK)
                flags.append(raw[flags_at])
        for split in range(size + 1):
            ctx.set(dut.sender.send, 1)
            first = bytes(await receive(ctx, dut.o, split))
            await pulse(ctx, 5)
            first += bytes(await receive(ctx, dut.o, size - split))
            second = await answer(ctx, dut, size)
            third = await answer(ctx, dut, size)
            flags.append((first[flags_at] | second[flags_at], third[flags_at]))

    simulate(dut, bench)
    assert flags[:10] == [0, 0, 1, 0, 2, 0, 4, 0, 7, 0]
    assert flags[10:] == [(5, 0)] * 12
