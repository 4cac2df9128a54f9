# SPDX-License-Identifier: BSD-2-Clause
"""UART, eight data bits, no parity, one stop bit (8N1), as byte streams.

A UART has no way to stop its peer, so what cannot be taken is lost; here that is never silent:
each lost byte makes a pulse.
"""

import operator

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["MAX_BAUD_ERROR", "Uart", "baud_divisor"]

MAX_BAUD_ERROR = 0.02
"""Accepted deviation of the bit rate. Over the 9.5 bits from start edge to stop sample, 2 % on
each side shift the sample by 0.38 of a bit; half a bit would be too late."""


def baud_divisor(clock_hz: int, baud: int) -> int:
    """Clock cycles per bit.

    Parameters
    ----------
    clock_hz : int
        Clock of the UART in Hz.
    baud : int
        Wanted bits per second.

    Raises
    ------
    ValueError
        No divisor of at least 4 comes within 2 %; names the nearest rate that the clock gives.
    """
    if clock_hz < 1 or baud < 1:
        raise ValueError(f"clock_hz and baud must be positive, not {clock_hz!r} and {baud!r}")
    divisor = max(4, round(clock_hz / baud))
    achievable = clock_hz / divisor
    if abs(achievable / baud - 1) > MAX_BAUD_ERROR:
        raise ValueError(
            f"baud must be within {MAX_BAUD_ERROR:.0%} of a whole divisor (at least 4) of "
            f"{clock_hz} Hz, not {baud!r}; the nearest is {achievable:.0f} baud"
        )
    return divisor


class Uart(wiring.Component):
    """Byte streams to and from two pins.

    **Latency**: `o` is valid half a bit plus 3 cycles after the stop bit begins; the start bit
    appears on `tx` one cycle after `i` was taken. **Throughput**: one byte per ten bit times, each
    way, without gaps.

    Parameters
    ----------
    divisor : int
        Clock cycles per bit, 4..65535; see `baud_divisor`.

    Members
    -------
    rx : In(1)
        Line in, idle high; synchronised here by two flip-flops.
    tx : Out(1)
        Line out, idle high, straight from a flip-flop.
    i : In(stream of 8)
        Bytes to send.
    o : Out(stream of 8)
        Bytes received. One is held; the next one that completes while it waits is lost.
    errors : Out(2)
        Pulses: bit 0 framing error (stop bit low, byte dropped), bit 1 overrun (byte lost).

    Raises
    ------
    TypeError, ValueError
        `divisor` is not an int, or out of range.
    """

    rx: Signal
    tx: Signal
    i: stream.Interface
    o: stream.Interface
    errors: Signal

    def __init__(self, *, divisor: int) -> None:
        divisor = operator.index(divisor)
        if not 4 <= divisor <= 65535:
            raise ValueError(f"divisor must be in 4..65535, not {divisor!r}")
        self._divisor = divisor
        super().__init__(
            {
                "rx": In(1, init=1),  # pyright: ignore[reportCallIssue] -- stub lacks it
                "tx": Out(1, init=1),  # pyright: ignore[reportCallIssue] -- stub lacks it
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "errors": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._receive(m)
        self._transmit(m)
        return m

    def _receive(self, m: Module) -> None:
        line = Signal(init=1)
        m.submodules.sync = FFSynchronizer(self.rx, line, init=1)
        timer = Signal(range(self._divisor))
        bits = Signal(9)  # a one in bit 0 says that eight data bits are in
        m.d.sync += timer.eq(timer - 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        with m.FSM(name="rx_state"):
            with m.State("IDLE"):
                m.d.sync += [timer.eq(self._divisor // 2 - 1), bits.eq(1 << 8)]
                with m.If(~line):
                    m.next = "START"
            with m.State("START"):
                with m.If(timer == 0):
                    m.d.sync += timer.eq(self._divisor - 1)
                    m.next = "DATA"
                    with m.If(line):  # a glitch, not a start bit
                        m.next = "IDLE"
            with m.State("DATA"):
                with m.If(timer == 0):
                    m.d.sync += [timer.eq(self._divisor - 1), bits.eq(Cat(bits[1:], line))]
                    with m.If(bits[1]):
                        m.next = "STOP"
            with m.State("STOP"):
                with m.If(timer == 0):
                    m.next = "IDLE"
                    with m.If(~line):
                        m.d.comb += self.errors[0].eq(1)
                        m.next = "BREAK"
                    with m.Elif(self.o.valid & ~self.o.ready):
                        m.d.comb += self.errors[1].eq(1)
                    with m.Else():
                        m.d.sync += [self.o.p.eq(bits[1:]), self.o.valid.eq(1)]
            with m.State("BREAK"):
                with m.If(line):
                    m.next = "IDLE"

    def _transmit(self, m: Module) -> None:
        timer = Signal(range(self._divisor))
        bits = Signal(9)  # bits still to come; a one marks their end
        ending = Signal()
        m.d.comb += [
            ending.eq(bits == 0),
            self.i.ready.eq(ending & (timer == 0)),
        ]
        with m.If(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Elif(~ending):
            m.d.sync += [
                timer.eq(self._divisor - 1),
                self.tx.eq(bits[0]),
                bits.eq(bits >> 1),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += [
                timer.eq(self._divisor - 1),
                self.tx.eq(0),
                bits.eq(Cat(self.i.p, 1)),
            ]
