# SPDX-License-Identifier: BSD-2-Clause
"""Queues of streams: the standard FIFOs with a layout for their payload."""

from amaranth import Module, Shape
from amaranth.hdl import ShapeLike
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """First-in first-out queue of any payload.

    **Latency**: one cycle from `i` to `o`; two if `block`. **Throughput**: one payload per cycle.
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
            self.i.ready.eq(inner.w_rdy),
            self.o.valid.eq(inner.r_rdy),
            inner.r_en.eq(self.o.ready),
        ]
        m.d.comb += self.o.p.eq(inner.r_data)
        return m
