# SPDX-License-Identifier: BSD-2-Clause
"""Frames to and from a whole engine in Amaranth's own simulator, for tests."""

import struct
import zlib

import numpy as np
from amaranth.sim import Simulator
from gossamer.host.compiler import Image
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.engine import Engine
from gossamer.rtl.formats import COUNTER_NAMES, Command, Identity

FLAG, ESCAPE = 0x7E, 0x7D


def frame(command: int, seq: int, payload: bytes = b"") -> bytes:
    """A stuffed frame with its closing FLAG."""
    body = struct.pack("<BBH", command, seq, len(payload)) + payload
    body += zlib.crc32(body).to_bytes(4, "little")
    out = bytearray()
    for byte in body:
        out += bytes([ESCAPE, byte ^ 0x20]) if byte in (FLAG, ESCAPE) else bytes([byte])
    return bytes(out) + bytes([FLAG])


class Bench:
    """Talks to an engine byte by byte inside a testbench."""

    def __init__(self, ctx, engine: Engine, config: EngineConfig):
        self.ctx, self.engine, self.seq = ctx, engine, 0
        self.chunk = (config.max_payload - 4) // 4 * 4  # data bytes of a LOAD or INPUT

    async def send(self, data: bytes) -> None:
        ctx, i = self.ctx, self.engine.i
        for byte in data:
            ctx.set(i.payload, byte)
            ctx.set(i.valid, 1)
            for _ in range(10000):
                _, _, ready = await ctx.tick().sample(i.ready)
                if ready:
                    break
            else:
                raise AssertionError("engine does not take bytes")
        ctx.set(i.valid, 0)

    async def receive(self, limit: int = 200000) -> tuple[int, int, bytes]:
        ctx, o = self.ctx, self.engine.o
        ctx.set(o.ready, 1)
        raw = bytearray()
        for _ in range(limit):
            _, _, valid, payload = await ctx.tick().sample(o.valid, o.payload)
            if valid and payload == FLAG:
                break
            if valid:
                raw.append(payload)
        else:
            raise AssertionError("engine does not answer")
        ctx.set(o.ready, 0)
        plain, escaped = bytearray(), False
        for byte in raw:
            if byte == ESCAPE:
                escaped = True
            else:
                plain.append(byte ^ (0x20 if escaped else 0))
                escaped = False
        assert zlib.crc32(plain[:-4]) == int.from_bytes(plain[-4:], "little")
        kind, seq, length = struct.unpack("<BBH", plain[:4])
        assert length == len(plain) - 8
        return kind, seq, bytes(plain[4:-4])

    async def request(self, command: Command, payload: bytes = b"") -> bytes:
        """Send a request, check that the answer belongs to it, return status and data."""
        self.seq = (self.seq + 1) & 255
        await self.send(frame(command, self.seq, payload))
        kind, seq, answer = await self.receive()
        assert (kind, seq) == (command | 0x80, self.seq)
        return answer

    async def load(self, image: Image) -> None:
        for offset in range(0, len(image.data), self.chunk):
            chunk = image.data[offset : offset + self.chunk]
            assert await self.request(Command.LOAD, struct.pack("<I", offset) + chunk) == b"\0"
        commit = struct.pack("<II", len(image.data), image.crc32)
        assert await self.request(Command.COMMIT, commit) == b"\0"

    async def infer(self, image: Image, q: np.ndarray, slot: int = 0):
        """Outputs (n_outputs,) and counters for one input vector."""
        padded = np.zeros(-(-len(q) // 4) * 4, dtype=np.int64)
        padded[: len(q)] = q
        raw = (padded & 0xFF).astype(np.uint8).tobytes()
        for start in range(0, len(raw), self.chunk):
            data = struct.pack("<BH", slot, start // 4) + raw[start : start + self.chunk]
            assert await self.request(Command.INPUT, data) == b"\0"
        answer = await self.request(Command.RUN, bytes([slot]))
        assert answer[0] == 0
        counters = dict(zip(COUNTER_NAMES, struct.unpack_from("<8I", answer, 1), strict=True))
        signed = image.layers[-1].record["signed_out"]
        values = np.frombuffer(answer[33:], dtype=np.int8 if signed else np.uint8)
        assert len(values) == image.result_slots
        return values[image.output_slots].astype(np.int64), counters


def simulate(config, testbench, fst=None) -> None:
    """Run `testbench(bench)` on an engine."""
    engine = Engine(Identity(config, 1_000_000, b"testtest"))
    simulator = Simulator(engine)
    simulator.add_clock(1e-6)

    async def run(ctx):
        await testbench(Bench(ctx, engine, config))

    simulator.add_testbench(run)
    if fst:
        with simulator.write_vcd(fst):
            simulator.run()
    else:
        simulator.run()
