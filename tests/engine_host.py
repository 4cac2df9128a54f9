# SPDX-License-Identifier: BSD-2-Clause
"""A host that talks frames to a whole engine in Amaranth's own simulator, for tests."""

import struct
import zlib
from dataclasses import replace

import numpy as np
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network
from gossamer.rtl.engine import Engine
from gossamer.rtl.formats import COUNTER_NAMES, Command, Identity, State, Status
from gossamer.rtl.frames import Frame, FrameDecoder, encode_frame
from gossamer.sim.streams import idle, send, watch
from networks import random_inputs, random_network
from rtl_models import SMALL, pauses, simulate

OK = bytes([Status.OK])
ONE = replace(SMALL, weight_depth=1024)
THREE = replace(SMALL, n_pes=3, rows_per_pe=8, output_depth=64)
ABORT = encode_frame(Frame(Command.ABORT, 99))


class Host:
    """Talks to an engine inside a testbench; may pause at any byte and leave answers for later."""

    def __init__(self, ctx, engine, config, share):
        self.ctx, self.engine, self.seq = ctx, engine, 0
        self.width = config.activation_bytes
        self.chunk = (config.max_payload - 4) // 8 * 8  # data bytes of a LOAD or INPUT
        self.gaps = pauses(1, share), pauses(2, share)
        self.decoder = FrameDecoder()

    async def send(self, data):
        await send(self.ctx, self.engine.i, data, self.gaps[0], limit=20000)

    async def receive(self, limit=20000):
        ctx, o = self.ctx, self.engine.o
        frames = []
        for _ in range(limit):
            pause = next(self.gaps[1]) if self.gaps[1] else 0
            if pause:
                ctx.set(o.ready, 0)
                await idle(ctx, pause)
            ctx.set(o.ready, 1)
            _, _, valid, byte = await ctx.tick().sample(o.valid, o.payload)
            frames = self.decoder.feed(bytes([byte])) if valid else []
            if frames:
                break
        ctx.set(o.ready, 0)
        assert not self.decoder.damaged
        (frame,) = frames
        return frame.type, frame.seq, frame.payload

    async def post(self, *requests):
        """Send requests (command, payload) without a pause; return their seqs."""
        seqs = []
        for command, payload in requests:
            self.seq = (self.seq + 1) & 255
            seqs.append(self.seq)
            await self.send(encode_frame(Frame(command, self.seq, payload)))
        return seqs

    async def request(self, command, payload=b""):
        """Send a request, check that the answer belongs to it, return status and data."""
        (seq,) = await self.post((command, payload))
        kind, answered, answer = await self.receive()
        assert (kind, answered) == (command | 0x80, seq)
        return answer

    async def load(self, image):
        """Load and commit an image."""
        for offset in range(0, len(image.data), self.chunk):
            piece = image.data[offset : offset + self.chunk]
            assert await self.request(*load_of(offset, piece)) == OK
        assert await self.request(*commit_of(image.data)) == OK

    async def infer(self, image, q, slot=0):
        """Outputs (n_outputs,) and counters of one input vector (n_inputs,), sent in pieces."""
        values, counters = await self.infer_batch(image, q[None], slot)
        return values[0], counters

    async def infer_batch(self, image, q, slot=0):
        """Outputs (images, n_outputs) and counters of one run of `q` (images, n_inputs)."""
        await self.fill(slot, q)
        values, counters = outputs(image, await self.request(*run_of(slot, len(q))), len(q))
        return np.array(values).reshape(len(q), -1), counters

    async def fill(self, slot, q):
        """Send the vectors `q` (images, n_inputs) to an input slot, in pieces."""
        for number, vector in enumerate(q):
            raw = bytes_of(vector, self.width)
            for start in range(0, len(raw), self.chunk):
                head = struct.pack("<BH", slot | number << 1, start // (4 * self.width))
                data = head + raw[start : start + self.chunk]
                assert await self.request(Command.INPUT, data) == OK

    async def status(self):
        """State, flags, loaded."""
        answer = await self.request(Command.STATUS)
        assert answer[0] == Status.OK
        return struct.unpack("<BBI", answer[1:])

    async def settle(self):
        """Wait until sums are cleared."""
        while (state := (await self.status())[0]) == State.CLEARING:
            pass
        return state

    async def quiet(self, cycles=300):
        """Nothing may come for some time."""
        self.ctx.set(self.engine.o.ready, 1)
        for _ in range(cycles):
            _, _, valid = await self.ctx.tick().sample(self.engine.o.valid)
            assert not valid, "an answer that nobody asked for"
        self.ctx.set(self.engine.o.ready, 0)


def talk(config, conversation, share=0.0):
    """Have a conversation with an engine; with pauses, its byte stream is watched, too."""
    engine = Engine(Identity(config, 1_000_000, b"testtest"))
    ends = []

    async def bench(ctx):
        await conversation(Host(ctx, engine, config, share))
        ends.append(True)

    async def check(ctx):
        await watch(ctx, engine.o)

    simulate(engine, bench, background=[check] if share else [])
    assert ends == [True]


def example(config, sizes, seed=1, n=4, **options):
    """Image, inputs (n, n_in) and expected outputs (n, n_out) of a random network."""
    rng = np.random.default_rng(seed)
    widths = {"sum_bits": config.sum_bits, "activation_bits": config.activation_bits}
    options = {**widths, "code_bits": 3} | options
    network = random_network(rng, sizes, **options)
    q = random_inputs(rng, network, n, density=0.7)
    return compile_network(network, config), q, golden.run(network, q)


def bytes_of(q, width=1):
    padded = np.zeros(-(-len(q) // 4) * 4, dtype=np.int64)
    padded[: len(q)] = q
    return (padded & ((1 << 8 * width) - 1)).astype(f"<u{width}").tobytes()


def input_of(slot, q, image=0, width=1):
    return Command.INPUT, struct.pack("<BH", slot | image << 1, 0) + bytes_of(q, width)


def run_of(slot, images=1):
    return Command.RUN, bytes([slot, images])


def load_of(offset, data):
    return Command.LOAD, struct.pack("<I", offset) + data


def commit_of(data):
    return Command.COMMIT, struct.pack("<II", len(data), zlib.crc32(data))


def outputs(image, payload, images=1):
    """Output values, image after image, and counters of a RUN's answer."""
    assert payload[0] == Status.OK
    counters = dict(zip(COUNTER_NAMES, struct.unpack_from("<8I", payload, 1), strict=True))
    kind = "i" if image.layers[-1].record["signed_out"] else "u"
    values = np.frombuffer(payload[33:], f"<{kind}{image.config.activation_bytes}")
    assert len(values) == images * image.result_slots
    return values.reshape(images, -1)[:, image.output_slots].reshape(-1).tolist(), counters


def check_counters(counters, config):
    classes = sum(value for name, value in counters.items() if name != "cycles")
    assert classes == (config.multipliers * counters["cycles"] if config.counters else 0)
    assert counters["cycles"] > 0
