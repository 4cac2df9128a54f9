# SPDX-License-Identifier: BSD-2-Clause
"""Answers to the host, byte by byte, for the frame transmitter."""

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import ceil_log2
from .formats import COUNTER_NAMES, IDENTITY, Command, Identity, State, Status

__all__ = ["AnswerSender"]

_HEAD = 5  # type, seq, length, status
_COUNTERS = 4 * len(COUNTER_NAMES)


class AnswerSender(wiring.Component):
    """Send one answer: type with bit 7 set, seq, length (u16), status, and what belongs to it.

    HELLO brings the identity, STATUS state, flags and image bytes loaded, RUN the counters and the
    results, image after image, each value with its low byte first; other answers, and those with a
    status other than OK, end with the status.

    **Latency**: the first byte is valid one cycle after `send` rises. **Throughput**: one byte
    every two cycles.

    Parameters
    ----------
    identity : Identity
        Contents of the identity ROM (in logic: block RAM is scarcer).

    Members
    -------
    send, sent : In(1), Out(1)
        Hold `send` until the pulse of `sent`; the inputs below must be steady meanwhile.
    type, seq, status : In
    state, errors, loaded : In
        For STATUS. Pulses of `errors` (bad frame, UART framing, overrun or oversize) are kept until
        STATUS has told them.
    counts, result_count, result_images : In
        For RUN: counters, results of one image, and number of images.
    result_image, result_address, result_data : Out, Out, In
        For RUN: one result; `result_data` follows its place by a cycle.
    o : Out(stream of 8)
    """

    send: Signal
    sent: Signal
    type: Signal
    seq: Signal
    status: Signal
    state: Signal
    errors: Signal
    loaded: Signal
    counts: data.View
    result_count: Signal
    result_images: Signal
    result_image: Signal
    result_address: Signal
    result_data: Signal
    o: stream.Interface

    def __init__(self, identity: Identity) -> None:
        self._rom = identity.pack()
        self._config = config = identity.config
        super().__init__(
            {
                "send": In(1),
                "sent": Out(1),
                "type": In(7),
                "seq": In(8),
                "status": In(Status),
                "state": In(State),
                "errors": In(3),
                "loaded": In(32),
                "counts": In(data.ArrayLayout(32, len(COUNTER_NAMES))),
                "result_count": In(16),
                "result_images": In(config.image_bits),
                "result_image": Out(max(ceil_log2(config.batch), 1)),
                "result_address": Out(range(config.output_depth)),
                "result_data": In(config.activation_bits),
                "o": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Every other cycle a byte is looked up, every other it is offered."""
        m = Module()
        index, last = Signal(17), Signal(17)
        offset = Signal(17)
        body = Signal(17)
        image_bytes, done_bytes = Signal(17), Signal(17)
        byte = Signal(8)
        offering = Signal()
        byte_bits = ceil_log2(self._config.activation_bytes)
        flags = Signal(3)
        told = Signal()
        m.d.sync += flags.eq(Mux(told, 0, flags) | self.errors)
        m.d.comb += offset.eq(index - _HEAD)
        m.d.sync += body.eq(0)
        with m.If(self.status == Status.OK):
            with m.Switch(self.type):
                with m.Case(Command.HELLO):
                    m.d.sync += body.eq(IDENTITY.size)
                with m.Case(Command.STATUS):
                    m.d.sync += body.eq(6)
                with m.Case(Command.RUN):
                    m.d.sync += body.eq(_COUNTERS + self._times_images(image_bytes))

        with m.If(index < _HEAD):
            head = Cat(self.type, 1, self.seq, (body + 1)[:16], self.status)
            m.d.comb += byte.eq(head.word_select(index[:3], 8))
        with m.Else():
            with m.Switch(self.type):
                with m.Case(Command.HELLO):
                    m.d.comb += byte.eq(Array(self._rom)[offset[:6]])
                with m.Case(Command.STATUS):
                    report = Signal(48)
                    m.d.comb += [
                        told.eq(self.send & ~offering & (index == _HEAD + 1)),
                        report[:8].eq(self.state),
                        report[8:16].eq(flags),
                        report[16:].eq(self.loaded),
                        byte.eq(report.word_select(offset[:3], 8)),
                    ]
                with m.Default():
                    m.d.comb += byte.eq(
                        Mux(
                            offset < _COUNTERS,
                            self.counts.as_value().word_select(offset[:5], 8),
                            self.result_data.word_select(offset[:byte_bits], 8),
                        )
                    )

        ahead = Signal(17)
        m.d.comb += [
            last.eq(body + _HEAD - 1),
            ahead.eq(offset - _COUNTERS - done_bytes + (offering & self.o.ready)),
            image_bytes.eq(self.result_count << byte_bits),
            self.result_address.eq(ahead >> byte_bits),
            self.o.valid.eq(offering),
            self.sent.eq(offering & self.o.ready & (index == last)),
        ]
        with m.If(offering):
            with m.If(self.o.ready):
                m.d.sync += [offering.eq(0), index.eq(index + 1)]
                with m.If(self.sent):
                    m.d.sync += index.eq(0)
        with m.Elif(self.send):
            m.d.sync += offering.eq(1)
            m.d.sync += self.o.payload.eq(byte)
        if self._config.batch > 1:
            # An image's last byte is at hand: the next byte to look up is the next image's first.
            with m.If(self.sent):
                m.d.sync += [done_bytes.eq(0), self.result_image.eq(0)]
            with m.Elif(self.send & ~offering & (ahead + 1 == image_bytes)):
                m.d.sync += [
                    done_bytes.eq(done_bytes + image_bytes),
                    self.result_image.eq(self.result_image + 1),
                ]
        return m

    def _times_images(self, size: Value) -> Value:
        """Product with the number of images, from adders: multipliers are scarcer."""
        if self._config.batch == 1:
            return size
        return sum(
            (Mux(bit, size << k, 0) for k, bit in enumerate(self.result_images)), start=Const(0)
        )
