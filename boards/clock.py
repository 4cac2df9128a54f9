# SPDX-License-Identifier: BSD-2-Clause
"""Reset of an engine until its PLL has locked."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["LockReset"]


class LockReset(wiring.Component):
    """Reset from configuration until `CYCLES` cycles after lock, and again when lock is lost.

    Runs in the clock domain ``start``, which has the engine's clock and no reset.

    **Latency**: `CYCLES` + 3 cycles from `locked` to the end of `reset`.

    Members
    -------
    locked : In(1)
        Of the PLL; synchronised here.
    reset : Out(1)
        Straight from a flip-flop, high after configuration.
    """

    CYCLES = 511
    """At 24 MHz 21 us. An iCE40's block RAM reads zeros for 3 us after configuration."""

    locked: Signal
    reset: Signal

    def __init__(self) -> None:
        super().__init__({"locked": In(1), "reset": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Count cycles since lock."""
        m = Module()
        locked, reset = Signal(), Signal(init=1)
        waited = Signal(range(self.CYCLES + 1))
        m.submodules.lock = FFSynchronizer(self.locked, locked, o_domain="start")
        m.d.comb += self.reset.eq(reset)
        m.d.start += reset.eq(waited != self.CYCLES)
        with m.If(~locked):
            m.d.start += waited.eq(0)
        with m.Elif(waited != self.CYCLES):
            m.d.start += waited.eq(waited + 1)
        return m
