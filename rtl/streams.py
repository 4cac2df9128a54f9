# SPDX-License-Identifier: BSD-2-Clause
"""Queues of streams: the standard FIFOs with a layout for their payload."""

from amaranth import Module, Shape, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """First-in first-out queue of any payload.

    **Latency**: one cycle from `i` to `o`; two if `block`. **Throughput**: one payload per cycle.
    Unless `block`, `i.ready` comes straight from a flip-flop: many queues may have to agree in a
    cycle.
    **Memory**: `depth` payloads, in registers or distributed RAM; in block RAM if `block`.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the payload.
    depth : int
        Payloads it holds, at least 2.
    block : bool
        Whether the storage is block RAM (synchronous read).

    Members
    -------
    i : In(stream)
    o : Out(stream)
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self, shape: ShapeLike, *, depth: int, block: bool = False) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self._shape = shape
        self._depth = depth
        self._block = block
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Wrap the standard FIFO, whose payload is a plain bit vector."""
        m = Module()
        kind = fifo.SyncFIFOBuffered if self._block else fifo.SyncFIFO
        m.submodules.fifo = inner = kind(width=Shape.cast(self._shape).width, depth=self._depth)
        m.d.comb += [
            inner.w_data.eq(self.i.p),
            inner.w_en.eq(self.i.valid),
            self.o.valid.eq(inner.r_rdy),
            self.o.p.eq(inner.r_data),
            inner.r_en.eq(self.o.ready),
        ]
        if self._block:
            m.d.comb += self.i.ready.eq(inner.w_rdy)
            return m
        full = Signal()
        m.d.comb += self.i.ready.eq(~full)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += full.eq(0)
        with m.Elif(self.i.valid & (inner.w_level == self._depth - 1)):
            m.d.sync += full.eq(1)
        return m
