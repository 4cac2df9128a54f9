# SPDX-License-Identifier: BSD-2-Clause
"""Bench of the whole engine: a network loaded and run over the byte link, against golden."""

import struct
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from ...host import golden
from ...host.compiler.compiler import Image, compile_network
from ...host.compiler.quantize import Ints
from ...rtl.config import EngineConfig
from ...rtl.engine import Engine
from ...rtl.formats import COUNTER_NAMES, Command, Identity, Status
from ...rtl.frames import FLAG, Frame, FrameDecoder, encode_frame
from .drive import pauses, receive, reset, send, watch
from .vectors import random_inputs, random_network

__all__ = ["CONFIG", "network_matches_golden", "top", "two_inputs_in_flight"]

CONFIG = EngineConfig(
    n_pes=3, weight_depth=2048, rows_per_pe=32, column_words=64, codebook_depth=128,
    input_depth=64, output_depth=64, queue_depth=4, max_layers=4, rx_bytes=256,
)  # fmt: skip
IDENTITY = Identity(CONFIG, clock_hz=100_000_000, bitstream_id=b"cosimula")
ANSWER_LIMIT = 20_000
"""Cycles within which every answer must begin."""


def top() -> Engine:
    """The block under test."""
    return Engine(IDENTITY)


class Host:
    """Requests and answers over the engine's byte streams, with pauses on both."""

    def __init__(self, dut: Any, share: float) -> None:
        self._dut = dut
        self._gaps: list[Iterator[int] | None] = [
            pauses(200 + k, share) if share else None for k in range(2)
        ]
        self._decoder = FrameDecoder()
        self._seq = 0

    async def send(self, command: Command, payload: bytes = b"") -> int:
        """Send a request; return its sequence number."""
        self._seq = (self._seq + 1) & 0xFF
        line = encode_frame(Frame(command, self._seq, payload))
        await send(self._dut, "i", line, self._gaps[0], ANSWER_LIMIT)
        return self._seq

    async def answer(self, command: Command, seq: int) -> bytes:
        """Take the next answer, which must belong to that request and be OK; return its data."""
        frames: list[Frame] = []
        while not frames:
            frames = self._decoder.feed(
                bytes(await receive(self._dut, "o", 1, self._gaps[1], ANSWER_LIMIT))
            )
        (frame,) = frames
        assert (frame.type, frame.seq) == (command | 0x80, seq), frame
        assert frame.payload[0] == Status.OK, Status(frame.payload[0])
        return frame.payload[1:]

    async def request(self, command: Command, payload: bytes = b"") -> bytes:
        """A request and its answer."""
        return await self.answer(command, await self.send(command, payload))

    async def load(self, image: Image) -> None:
        """Load and commit an image."""
        size = CONFIG.max_payload - 4
        for offset in range(0, len(image.data), size):
            chunk = image.data[offset : offset + size]
            await self.request(Command.LOAD, struct.pack("<I", offset) + chunk)
        await self.request(Command.COMMIT, struct.pack("<II", len(image.data), image.crc32))

    async def input(self, slot: int, q: Ints) -> None:
        """Fill an input slot."""
        padded = np.zeros(-(-len(q) // 4) * 4, dtype=np.int64)
        padded[: len(q)] = q
        raw = (padded & 0xFF).astype(np.uint8).tobytes()
        await self.request(Command.INPUT, struct.pack("<BH", slot, 0) + raw)


def check_result(data: bytes, image: Image, expected: Ints) -> None:
    """Outputs equal golden, and the classes of cycles add up."""
    counters = struct.unpack_from(f"<{len(COUNTER_NAMES)}I", data)
    assert sum(counters[1:]) == CONFIG.multipliers * counters[0], dict(
        zip(COUNTER_NAMES, counters, strict=True)
    )
    raw = np.frombuffer(data, dtype=np.uint8, offset=4 * len(counters)).astype(np.int64)
    assert len(raw) == image.result_slots
    assert np.array_equal(raw[image.output_slots], expected & 0xFF), (raw, expected)


async def begin(dut: Any, share: float) -> Host:
    """Reset, flush the link, read the identity."""
    for signal in (dut.i__valid, dut.o__ready, dut.link_errors):
        signal.value = 0
    await reset(dut)
    for name in ("i", "o"):
        cocotb.start_soon(watch(dut, name))
    await send(dut, "i", [FLAG])
    host = Host(dut, share)
    assert await host.request(Command.HELLO) == IDENTITY.pack()
    return host


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.3, 0.7], density=[0.15, 1.0])
async def network_matches_golden(dut: Any, share: float, density: float) -> None:
    """Load a network of three layers, run inputs one by one, then a second network."""
    host = await begin(dut, share)
    for seed, sizes in ((7, (37, 52, 33, 21)), (8, (9, 3))):
        network = random_network(seed, sizes, density=density, codes=32, config=CONFIG)
        image = compile_network(network, CONFIG)
        await host.load(image)
        inputs = random_inputs(seed, network, 3, 0.5)
        for k, (q, expected) in enumerate(zip(inputs, golden.run(network, inputs), strict=True)):
            await host.input(k % 2, q)
            check_result(await host.request(Command.RUN, bytes([k % 2, 1])), image, expected)


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.5])
async def two_inputs_in_flight(dut: Any, share: float) -> None:
    """Both slots are filled and both runs requested before the first answer is taken."""
    host = await begin(dut, share)
    network = random_network(9, (40, 60, 24), density=0.3, codes=32, config=CONFIG)
    image = compile_network(network, CONFIG)
    await host.load(image)
    inputs = random_inputs(9, network, 2, 0.7)
    for slot in range(2):
        await host.input(slot, inputs[slot])
    runs = [await host.send(Command.RUN, bytes([slot, 1])) for slot in range(2)]
    for seq, expected in zip(runs, golden.run(network, inputs), strict=True):
        check_result(await host.answer(Command.RUN, seq), image, expected)
