# SPDX-License-Identifier: BSD-2-Clause
"""A device in Python behind a port object, with faults on both ways: tests of the driver use it.

It keeps the protocol (docs/protocol.md) to the letter, and answers runs with the golden model. A
run ends when the host has nothing more to say, so that requests overtake its answer.
"""

import contextlib
import random
import time
import zlib
from dataclasses import dataclass

import numpy as np
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network, program_image
from gossamer.host.compiler.quantize import QuantizedNetwork
from gossamer.host.errors import CapacityError
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Command, Identity, State, Status
from gossamer.rtl.frames import Frame, FrameDecoder, encode_frame

CONFIG = EngineConfig(
    n_pes=4, entry_bits=16, weight_depth=4096, rows_per_pe=64, column_words=512, codebook_depth=256,
    max_layers=4, input_depth=1024, output_depth=256, rx_bytes=256,
)  # fmt: skip
CLOCK_HZ = 10_000_000
CYCLES = 100  # of any run


@dataclass
class Faults:
    """What goes wrong on the line.

    Parameters
    ----------
    damage : float
        Share of writes, and of answers, in which one byte is changed or lost.
    piece : int
        Most bytes that one read returns.
    zero_reads : float
        Share of reads that return nothing although there is something.
    boot_garbage : bytes
        Waiting to be read when the port opens.
    silent_after : int
        Requests answered before the device falls silent for good.
    short_writes : bool
        A write takes at most 7 bytes.
    """

    damage: float = 0.0
    piece: int = 10**9
    zero_reads: float = 0.0
    boot_garbage: bytes = b""
    silent_after: int = 10**9
    short_writes: bool = False
    seed: int = 1


class FakeDevice:
    """The engine: bytes in, bytes out."""

    def __init__(self, network: QuantizedNetwork | None = None, config: EngineConfig = CONFIG):
        self.config = config
        self.network = network
        self.identity = Identity(config, CLOCK_HZ, b"fakefake").pack()
        self.results = {}  # image bytes -> (last layer, compiled image)
        if network is not None:
            full = compile_network(network, config)
            last = len(network.layers) - 1
            self.results[full.data] = last, full
            for k in range(len(network.layers)):
                with contextlib.suppress(CapacityError):  # too wide to return
                    patch = program_image(full, k)
                    self.results[patch.data] = k, patch
        self.decoder = FrameDecoder(config.max_payload)
        self.image = bytearray()
        self.committed = b""
        self.loading = False
        self.vector_bytes = config.input_depth * config.activation_bytes
        self.slots = [[bytearray(self.vector_bytes)] * config.batch for _ in range(2)]
        self.runs: list[tuple[int, int, int]] = []  # (seq, slot, images); the first one goes on
        self.clearing = 0
        self.bad_frames = False
        self.requests: list[Command] = []
        self.held_bytes = 0

    @property
    def state(self) -> State:
        if self.clearing:
            return State.CLEARING
        if self.runs:
            return State.RUNNING
        if self.committed:
            return State.READY
        return State.LOADING if self.loading else State.EMPTY

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return the answers that are ready at once."""
        before = self.decoder.damaged + self.decoder.oversize
        frames = self.decoder.feed(data)
        self.bad_frames |= self.decoder.damaged + self.decoder.oversize != before
        return b"".join(self.answer(frame) for frame in frames)

    def answer(self, frame: Frame) -> bytes:
        if frame.type not in set(Command):
            return self.reply(frame, Status.UNKNOWN)
        self.requests.append(Command(frame.type))
        handler = getattr(self, f"on_{Command(frame.type).name.lower()}")
        return handler(frame)

    def reply(self, frame: Frame, status: Status, data: bytes = b"") -> bytes:
        return encode_frame(Frame(frame.type | 0x80, frame.seq, bytes([status]) + data))

    def on_hello(self, frame: Frame) -> bytes:
        return self.reply(frame, Status.OK, self.identity)

    def on_status(self, frame: Frame) -> bytes:
        data = bytes([self.state, self.bad_frames]) + len(self.image).to_bytes(4, "little")
        self.bad_frames = False
        self.clearing = max(0, self.clearing - 1)
        return self.reply(frame, Status.OK, data)

    def on_load(self, frame: Frame) -> bytes:
        if len(frame.payload) < 4:
            return self.reply(frame, Status.BAD_LENGTH)
        offset, data = int.from_bytes(frame.payload[:4], "little"), frame.payload[4:]
        if self.runs:
            return self.reply(frame, Status.BUSY)
        if offset == 0:
            self.image.clear()
            self.committed, self.loading = b"", True
        if not self.loading:
            return self.reply(frame, Status.BAD_STATE)
        if offset > len(self.image):
            return self.reply(frame, Status.BAD_OFFSET)
        if offset == len(self.image):
            self.image += data
        return self.reply(frame, Status.OK)

    def on_commit(self, frame: Frame) -> bytes:
        length, crc = (int.from_bytes(frame.payload[i : i + 4], "little") for i in (0, 4))
        same = length == len(self.image) and crc == zlib.crc32(self.image)
        if self.runs:
            return self.reply(frame, Status.BUSY)
        if not same or not (self.loading or self.committed):
            self.committed, self.loading = b"", False
            return self.reply(frame, Status.BAD_IMAGE)
        if self.loading:
            self.committed, self.loading, self.clearing = bytes(self.image), False, 2
        return self.reply(frame, Status.OK)

    def on_input(self, frame: Frame) -> bytes:
        place, group = frame.payload[0], int.from_bytes(frame.payload[1:3], "little")
        slot, number = place & 1, place >> 1
        data = frame.payload[3:]
        if not self.committed or self.clearing:
            return self.reply(frame, Status.BAD_STATE)
        start = 4 * self.config.activation_bytes * group
        assert len(data) % (4 * self.config.activation_bytes) == 0
        if number >= self.config.batch or start + len(data) > self.vector_bytes:
            return self.reply(frame, Status.BAD_ARGUMENT)
        if any(run[1] == slot for run in self.runs):
            return self.reply(frame, Status.BUSY)
        vector = bytearray(self.slots[slot][number])
        vector[start : start + len(data)] = data
        self.slots[slot][number] = vector
        return self.reply(frame, Status.OK)

    def on_run(self, frame: Frame) -> bytes:
        if not self.committed or self.clearing:
            return self.reply(frame, Status.BAD_STATE)
        slot, images = frame.payload
        if slot > 1 or not 1 <= images <= self.config.batch:
            return self.reply(frame, Status.BAD_ARGUMENT)
        if any(run[0] == frame.seq for run in self.runs):
            return b""
        if len(self.runs) == 2:
            return self.reply(frame, Status.BUSY)
        self.runs.append((frame.seq, slot, images))
        return b""

    def on_abort(self, frame: Frame) -> bytes:
        self.runs.clear()
        self.clearing = 1
        self.loading = False
        return self.reply(frame, Status.OK)

    def finish_run(self) -> bytes:
        """Answer of the run that is going on; nothing if there is none."""
        if not self.runs:
            return b""
        seq, slot, images = self.runs.pop(0)
        layer, image = self.results[self.committed]
        width = self.config.activation_bytes
        raw = b"".join(self.slots[slot][:images])
        kind = "i" if self.network.layers[0].signed_in else "u"
        q = np.frombuffer(raw, f"<{kind}{width}").astype(np.int64).reshape(images, -1)
        outputs = golden.run_layers(self.network, q[:, : image.n_inputs])[layer]
        dense = np.zeros((images, image.result_slots), dtype=np.int64)
        dense[:, image.output_slots] = outputs
        counts = [CYCLES, CYCLES * self.config.multipliers - 100, 0, 50, 0, 30, 20, 0]
        numbers = b"".join(count.to_bytes(4, "little") for count in counts)
        limit = (1 << 8 * width) - 1
        data = numbers + (dense & limit).astype(f"<u{width}").tobytes()
        return self.reply(Frame(Command.RUN, seq), Status.OK, data)


class FakePort:
    """pyserial's interface over a `FakeDevice`."""

    def __init__(self, device: FakeDevice, faults: Faults | None = None, wait: float = 0.002):
        self.device = device
        self.faults = faults or Faults()
        self.wait = wait  # what a read without data takes
        self.rng = random.Random(self.faults.seed)
        self.inbox = bytearray(self.faults.boot_garbage)
        self.is_open = True
        self.reads = 0

    @property
    def in_waiting(self) -> int:
        return len(self.inbox)

    def read(self, size: int = 1) -> bytes:
        self.reads += 1
        if not self.inbox:
            self.say(self.device.finish_run())
        if not self.inbox:
            time.sleep(self.wait)
        if self.rng.random() < self.faults.zero_reads:
            return b""
        size = min(size, self.faults.piece)
        data = bytes(self.inbox[:size])
        del self.inbox[:size]
        return data

    def write(self, data: bytes) -> int:
        if self.faults.short_writes:
            data = data[:7]
        self.say(self.device.feed(self.harm(data)))
        return len(data)

    def close(self) -> None:
        self.is_open = False

    def say(self, answers: bytes) -> None:
        if len(self.device.requests) > self.faults.silent_after:
            return
        for piece in answers.split(b"\x7e")[:-1]:
            self.inbox += self.harm(piece + b"\x7e")

    def harm(self, data: bytes) -> bytes:
        if self.rng.random() >= self.faults.damage:
            return data
        broken = bytearray(data)
        at = self.rng.randrange(len(broken))
        if self.rng.random() < 0.5:
            del broken[at]
        else:
            broken[at] ^= 1 << self.rng.randrange(8)
        return bytes(broken)
