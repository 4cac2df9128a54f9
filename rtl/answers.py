# SPDX-License-Identifier: BSD-2-Clause
"""Answers to the host, byte by byte, for the frame transmitter."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import COUNTER_NAMES, IDENTITY, Command, Identity, State, Status

__all__ = ["AnswerSender"]

_HEAD = 5  # type, seq, length, status
_COUNTERS = 4 * len(COUNTER_NAMES)


class AnswerSender(wiring.Component):
    """Send one answer: type with bit 7 set, seq, length (u16), status, and what belongs to it.

    HELLO brings the identity, STATUS state, flags and image bytes loaded, RUN the counters and the
    results; other answers, and those with a status other than OK, end with the status.

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
    counts, result_count, result_address, result_data : In, In, Out, In
        For RUN; `result_data` follows `result_address` by a cycle.
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
    result_address: Signal
    result_data: Signal
    o: stream.Interface

    def __init__(self, identity: Identity) -> None:
        self._rom = identity.pack()
        config: EngineConfig = identity.config
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
        byte = Signal(8)
        offering = Signal()
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
                    m.d.sync += body.eq(_COUNTERS + self.result_count)

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
                            self.result_data,
                        )
                    )

        m.d.comb += [
            last.eq(body + _HEAD - 1),
            self.result_address.eq(offset - _COUNTERS + (offering & self.o.ready)),  # one ahead
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
        return m
