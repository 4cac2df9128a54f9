# SPDX-License-Identifier: BSD-2-Clause
"""Bench of the link's packets: what the receiver lets through comes back by the transmitter."""

import random
from typing import Any

import cocotb
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...rtl.frames import FLAG, Frame, FrameDecoder, encode_frame
from ...rtl.packets import FrameReceiver, FrameTransmitter
from .drive import pauses, receive, reset, send, watch

__all__ = ["Echo", "damaged_frames_are_dropped", "good_frames_return", "top"]

RX_BYTES = 256
MAX_PAYLOAD = 112


class Echo(wiring.Component):
    """Receiver and transmitter, back to back."""

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform: object) -> Module:
        """Connect the two."""
        m = Module()
        m.submodules.receiver = receiver = FrameReceiver(rx_bytes=RX_BYTES, max_payload=MAX_PAYLOAD)
        m.submodules.transmitter = transmitter = FrameTransmitter()
        connect(m, flipped(self.i), receiver.i)
        connect(m, transmitter.o, flipped(self.o))
        m.d.comb += [
            transmitter.i.payload.eq(receiver.o.p.data),
            transmitter.i.valid.eq(receiver.o.valid),
            receiver.o.ready.eq(transmitter.i.ready),
        ]
        return m


def top() -> Echo:
    """The block under test."""
    return Echo()


def random_frame(rng: random.Random) -> Frame:
    """A frame in which bytes that need stuffing are common."""
    alphabet = bytes(range(256)) + b"\x7d\x7e\x5d\x5e" * 16
    payload = bytes(rng.choices(alphabet, k=rng.choice([0, 1, 5, rng.randint(0, MAX_PAYLOAD)])))
    return Frame(rng.randrange(256), rng.randrange(256), payload)


def damage(rng: random.Random, line: bytes) -> bytes:
    """The same frame with a flipped bit, cut short, or lengthened."""
    at = rng.randrange(len(line) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return line[:at] + bytes([line[at] ^ 1 << rng.randrange(8)]) + line[at + 1 :]
    if kind == 1:
        return line[:at] + line[-1:]
    return line[:at] + bytes([rng.randrange(256)]) + line[at:]


async def check_echo(dut: Any, line: bytes, seed: int, share: float) -> None:
    """Send `line`; exactly the frames that the decoder accepts must come back."""
    dut.i__valid.value = 0
    dut.o__ready.value = 0
    await reset(dut)
    for name in ("i", "o"):
        cocotb.start_soon(watch(dut, name))
    frames = FrameDecoder(MAX_PAYLOAD).feed(line)
    wanted = b"".join(encode_frame(frame) for frame in frames)
    gaps = [pauses(seed + k, share) if share else None for k in range(2)]
    sender = cocotb.start_soon(send(dut, "i", line, gaps[0]))
    found = bytes(await receive(dut, "o", len(wanted), gaps[1]))
    await sender
    assert found == wanted, f"seed {seed}: {len(frames)} frames"


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.3, 0.7])
async def good_frames_return(dut: Any, share: float) -> None:
    """Frames of all lengths, with empty ones between."""
    rng = random.Random(1)
    frames = [random_frame(rng) for _ in range(40)]
    line = b"".join(encode_frame(f) + bytes([FLAG] * rng.randrange(3)) for f in frames)
    await check_echo(dut, line, 10, share)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.3, 0.7])
async def damaged_frames_are_dropped(dut: Any, share: float) -> None:
    """Garbage at open, then good and damaged frames in turn, and one that is too long."""
    rng = random.Random(2)
    line = bytes(rng.randbytes(50)) + bytes([FLAG])
    for k in range(40):
        frame = encode_frame(random_frame(rng))
        line += damage(rng, frame) if k % 2 else frame
    line += encode_frame(Frame(1, 1, bytes(MAX_PAYLOAD + 1))) + encode_frame(Frame(9, 9, b"end"))
    await check_echo(dut, line, 20, share)
