# SPDX-License-Identifier: BSD-2-Clause
"""Frames on the link: byte stuffing, CRC-32 and a store-and-forward receive buffer.

`rtl/frames.py` says what a frame is. Stuffing makes FLAG unique on the line, so that a receiver is
in step again after any damage at the next FLAG; the receive buffer shows a frame only once its CRC
was right, so that nothing behind it ever acts on a damaged frame.

Ref: RFC 1662, sections 4.2 (stuffing) and C (CRC-32).
"""

import operator

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from .frames import ESCAPE, FLAG, Frame, FrameDecoder, encode_frame

__all__ = ["CRC_GOOD", "Crc32", "FrameReceiver", "FrameTransmitter", "FrameWalk", "frame_byte"]

CRC_GOOD = 0xDEBB20E3
"""Register of `Crc32` after a frame and its own CRC."""

_POLYNOMIAL = 0xEDB88320

frame_byte = data.StructLayout({"data": 8, "first": 1, "last": 1})
"""One byte of a received frame: type (`first`), seq, length, payload; the CRC is not passed on."""


class Crc32(wiring.Component):
    """CRC-32/ISO-HDLC of a byte stream: ``zlib.crc32``, complement left out.

    A byte `d` turns the register into ``(r >> 8) ^ T[(r ^ d) & 0xff]`` with the usual table T,
    written as XORs. Two uses follow from that form: after a message and its CRC the register is
    `CRC_GOOD`; and a byte equal to the register's own low byte shifts it right by 8, so a sender
    reads its CRC out of the low byte.

    **Latency**: 1 cycle from `en` to `value`. **Throughput**: one byte per cycle.

    Members
    -------
    start : In(1)
        Set the register to all ones; stronger than `en`.
    en : In(1)
        Take `data`.
    data : In(8)
    value : Out(32)
        Register; the CRC is its complement.
    """

    start: Signal
    en: Signal
    data: Signal
    value: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "en": In(1),
                "data": In(8),
                "value": Out(32, init=2**32 - 1),  # pyright: ignore[reportCallIssue] -- stub lacks it
            }
        )

    @staticmethod
    def table(index: int) -> int:
        """Entry of the table T: eight shifts of `index` through the polynomial."""
        value = index
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        return value

    @classmethod
    def model(cls, message: bytes) -> int:
        """Register after `message`, from the start."""
        value = 2**32 - 1
        for byte in message:
            value = value >> 8 ^ cls.table((value ^ byte) & 0xFF)
        return value

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low = Signal(8)
        m.d.comb += low.eq(self.value[:8] ^ self.data)
        columns = [self.table(1 << bit) for bit in range(8)]
        with m.If(self.start):
            m.d.sync += self.value.eq(2**32 - 1)
        with m.Elif(self.en):
            for i in range(32):
                terms = [low[bit] for bit, column in enumerate(columns) if column >> i & 1]
                if i < 24:
                    terms.append(self.value[i + 8])
                m.d.sync += self.value[i].eq(Cat(*terms).xor())
        return m


class FrameWalk(wiring.Component):
    """Follow a frame byte by byte: header, payload as long as the header says, CRC, end.

    Outputs describe the byte that comes next; they change the cycle after `en`.

    Parameters
    ----------
    length_width : int
        Bits of the payload length that are followed, 8..16.

    Members
    -------
    restart : In(1)
        The next byte is the first of a frame; stronger than `en`.
    en : In(1)
        One byte passes.
    data : In(8)
        That byte.
    first, content, crc, end : Out(1)
        The byte stands first; in header or payload; in the CRC; behind the frame.
    last : Out(1)
        It is the last one before the CRC (depends on `data` behind an empty payload's header).
    sized : Out(1)
        It completes `length`, the payload length, which is only then meaningful.
    length : Out(16)
    """

    restart: Signal
    en: Signal
    data: Signal
    first: Signal
    content: Signal
    crc: Signal
    end: Signal
    last: Signal
    sized: Signal
    length: Signal

    def __init__(self, *, length_width: int) -> None:
        length_width = operator.index(length_width)
        if not 8 <= length_width <= 16:
            raise ValueError(f"length_width must be in 8..16, not {length_width!r}")
        self._length_width = length_width
        flags = ("first", "content", "crc", "end", "last", "sized")
        super().__init__(
            {
                "restart": In(1),
                "en": In(1),
                "data": In(8),
                "length": Out(16),
                **{name: Out(1) for name in flags},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        type_, length_low, length_high, payload, crc0, end = 0, 2, 3, 4, 8, 12
        place = Signal(4)
        left = Signal(self._length_width)
        m.d.comb += [
            self.length.eq(Cat(left[:8], self.data)),
            self.first.eq(place == type_),
            self.sized.eq(place == length_high),
            self.content.eq(~place[3]),
            self.crc.eq(place[2:4] == crc0 >> 2),
            self.end.eq(place[2:4] == end >> 2),
            self.last.eq(
                (self.sized & (self.length == 0)) | ((place == payload) & (left == 1)),
            ),
        ]
        with m.If(self.restart):
            m.d.sync += place.eq(type_)
        with m.Elif(self.en & self.last):
            m.d.sync += place.eq(crc0)
        with m.Elif(self.en & (place != payload) & ~self.end):
            m.d.sync += place.eq(place + 1)
        with m.If(self.en):
            with m.If(place == length_low):
                m.d.sync += left.eq(self.data)
            with m.Elif(self.sized):
                m.d.sync += left.eq(self.length)
            with m.Else():
                m.d.sync += left.eq(left - 1)
        return m


class FrameReceiver(wiring.Component):
    """Take bytes from the line, give out whole frames whose CRC and length are right.

    Bytes of a frame are unstuffed and written to a ring buffer behind the committed part. The FLAG
    behind a good frame commits it; behind a damaged one it rolls the write pointer back. Two FLAGs
    in a row are no error.

    **Latency**: the first byte of a frame is valid 2 cycles after its FLAG was taken.
    **Throughput**: one byte per cycle on both sides. `i.ready` is low only while the buffer is
    full, which needs unread good frames in it: no frame can block the line by itself.
    **Memory**: `rx_bytes` x 8 bits, one port for writing and one for reading.

    Parameters
    ----------
    rx_bytes : int
        Size of the ring buffer in bytes, a power of two in 64..4096. It holds one byte less.
    max_payload : int
        Longest payload taken, 1..`rx_bytes` - 8; longer frames are dropped.

    Members
    -------
    i : In(stream of 8)
        Bytes from the line.
    o : Out(stream of `frame_byte`)
        Bytes of good frames in order.
    errors : Out(2)
        Pulses: bit 0 a frame with a wrong CRC or length was dropped; bit 1 a frame announced more
        than `max_payload` bytes and is being dropped.

    Raises
    ------
    TypeError, ValueError
        A parameter is not an int, or out of its range.
    """

    i: stream.Interface
    o: stream.Interface
    errors: Signal

    def __init__(self, *, rx_bytes: int, max_payload: int) -> None:
        rx_bytes = operator.index(rx_bytes)
        max_payload = operator.index(max_payload)
        if rx_bytes & (rx_bytes - 1) or not 64 <= rx_bytes <= 4096:
            raise ValueError(f"rx_bytes must be a power of two in 64..4096, not {rx_bytes!r}")
        if not 1 <= max_payload <= rx_bytes - 8:
            raise ValueError(f"max_payload must be in 1..{rx_bytes - 8}, not {max_payload!r}")
        self._rx_bytes = rx_bytes
        self._max_payload = max_payload
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(frame_byte)),
                "errors": Out(2),
            }
        )

    def model(self, line: bytes) -> tuple[list[Frame], int, int]:
        """Good frames in `line`, and how often `errors[0]` and `errors[1]` pulse."""
        decoder = FrameDecoder(self._max_payload)
        frames = decoder.feed(line)
        return frames, decoder.damaged, decoder.oversize

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.ring = ring = memory.Memory(shape=8, depth=self._rx_bytes, init=[])
        wr_port = ring.write_port()
        rd_port = ring.read_port()
        committed = Signal(range(self._rx_bytes))
        rd = Signal(range(self._rx_bytes))
        length_width = max(8, bits_for(self._max_payload))

        m.submodules.wr_walk = wr_walk = FrameWalk(length_width=length_width)
        m.submodules.crc = crc = Crc32()
        wr = Signal(range(self._rx_bytes))
        wr_next = Signal(range(self._rx_bytes))
        escaped = Signal()
        bad = Signal()
        skip = Signal()
        taken = Signal()
        is_flag = Signal()
        is_byte = Signal()
        m.d.comb += [
            wr_next.eq(wr + 1),
            self.i.ready.eq(wr_next != rd),
            taken.eq(self.i.valid & self.i.ready),
            is_flag.eq(taken & (self.i.p == FLAG)),
            is_byte.eq(taken & (self.i.p != FLAG) & (self.i.p != ESCAPE)),
            wr_port.addr.eq(wr),
            wr_port.data.eq(self.i.p ^ (escaped << 5)),
            wr_port.en.eq(is_byte & wr_walk.content & ~skip),
            crc.data.eq(wr_port.data),
            crc.en.eq(is_byte),
            crc.start.eq(is_flag),
            wr_walk.data.eq(wr_port.data),
            wr_walk.en.eq(is_byte),
            wr_walk.restart.eq(is_flag),
            self.errors[1].eq(is_byte & wr_walk.sized & (wr_walk.length > self._max_payload)),
        ]
        with m.If(taken):
            m.d.sync += escaped.eq(self.i.p == ESCAPE)
        with m.If(is_flag):
            m.d.sync += [bad.eq(0), skip.eq(0)]
            with m.If(wr_walk.end & (crc.value == CRC_GOOD) & ~(bad | skip | escaped)):
                m.d.sync += committed.eq(wr)
            with m.Else():
                m.d.sync += wr.eq(committed)
                m.d.comb += self.errors[0].eq(~(wr_walk.first | skip))
        with m.If(is_byte & wr_walk.end):
            m.d.sync += bad.eq(1)
        with m.If(self.errors[1]):
            m.d.sync += skip.eq(1)
        with m.If(wr_port.en):
            m.d.sync += wr.eq(wr_next)

        m.submodules.rd_walk = rd_walk = FrameWalk(length_width=length_width)
        m.d.comb += [
            rd_port.addr.eq(rd),
            rd_port.en.eq(~self.o.valid | self.o.ready),
            rd_walk.data.eq(rd_port.data),
            rd_walk.en.eq(self.o.valid & self.o.ready),
            rd_walk.restart.eq(rd_walk.en & rd_walk.last),
            self.o.p.data.eq(rd_port.data),
            self.o.p.first.eq(rd_walk.first),
            self.o.p.last.eq(rd_walk.last),
        ]
        with m.If(rd_port.en):
            m.d.sync += self.o.valid.eq(rd != committed)
            with m.If(rd != committed):
                m.d.sync += rd.eq(rd + 1)
        return m


class FrameTransmitter(wiring.Component):
    """Turn messages into frames: append the CRC, stuff, close with a FLAG.

    **Latency**: 0 cycles; `o` follows `i` combinationally. **Throughput**: one byte per cycle on
    the line; `i` waits one cycle for each stuffed byte and five or more (CRC, FLAG) per frame.

    Members
    -------
    i : In(stream of 8)
        Messages one after the other: type, seq, length low, length high, then that many bytes of
        payload. The length is counted here.
    o : Out(stream of 8)
        Bytes for the line.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    @staticmethod
    def model(message: bytes) -> bytes:
        """Bytes on the line for one message (type, seq, length, payload)."""
        return encode_frame(Frame(message[0], message[1], message[4:]))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32()
        m.submodules.walk = walk = FrameWalk(length_width=16)
        byte = Signal(8)
        special = Signal()
        escaped = Signal()
        moved = Signal()
        m.d.comb += [
            # The CRC leaves by its own low byte, which that very byte then shifts out.
            crc.data.eq(Mux(walk.crc, crc.value[:8], self.i.p)),
            byte.eq(Mux(walk.crc, ~crc.value[:8], self.i.p)),
            special.eq(((byte == FLAG) | (byte == ESCAPE)) & ~escaped & ~walk.end),
            self.o.valid.eq(self.i.valid | ~walk.content),
            moved.eq(self.o.valid & self.o.ready),
            walk.data.eq(self.i.p),
            walk.en.eq(moved & ~special),
            walk.restart.eq(moved & walk.end),
            crc.en.eq(walk.en),
            crc.start.eq(walk.restart),
            self.i.ready.eq(self.o.ready & walk.content & ~special),
        ]
        with m.If(moved):
            m.d.sync += escaped.eq(special)
        with m.If(walk.end):
            m.d.comb += self.o.p.eq(FLAG)
        with m.Elif(special):
            m.d.comb += self.o.p.eq(ESCAPE)
        with m.Else():
            m.d.comb += self.o.p.eq(byte ^ (escaped << 5))
        return m
