# SPDX-License-Identifier: BSD-2-Clause
"""iCEBreaker: iCE40UP5K, 12 MHz crystal, FTDI USB bridge whose second channel is the UART.

The engine runs at 24 MHz from the PLL; the internal oscillator is 10 % off, too much for a UART.
Ref: Lattice TN1251, "iCE40 sysCLOCK PLL Design and Usage Guide" (VCO 533..1066 MHz); FPGA-TN-02008,
"iCE40 Technology Library".
"""

from typing import Any

from amaranth import ClockDomain, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer
from amaranth_boards.icebreaker import ICEBreakerPlatform

from ..rtl.config import EngineConfig
from ..rtl.formats import Identity
from .common import Board, UartEngine

__all__ = ["BOARD", "IceBreakerTop"]

RESET_CYCLES = 511
"""Reset after the PLL has locked: 21 us. Block RAM reads zeros for 3 us after configuration."""


class IceBreakerTop(Elaboratable):
    """PLL, reset and pins around the engine."""

    def __init__(self, identity: Identity, board: Board) -> None:
        self._identity = identity
        self._board = board

    def elaborate(self, platform: Any) -> Module:
        """Clock 12 MHz x 64 / 32; the reset ends `RESET_CYCLES` after lock."""
        m = Module()
        m.domains.sync = ClockDomain()
        m.domains.start = ClockDomain(reset_less=True)
        clock = Signal()
        locked = Signal()
        locked_sync = Signal()
        crystal = platform.request("clk12", dir="-")
        m.submodules.pll = Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=0,
            p_DIVF=63,
            p_DIVQ=5,
            p_FILTER_RANGE=1,
            i_PACKAGEPIN=crystal.io,
            i_RESETB=1,
            i_BYPASS=0,
            o_PLLOUTGLOBAL=clock,
            o_LOCK=locked,
        )
        platform.add_clock_constraint(clock, self._board.clock_hz)
        m.submodules.lock = FFSynchronizer(locked, locked_sync, o_domain="start")
        waited = Signal(range(RESET_CYCLES + 1))
        reset = Signal(init=1)
        m.d.comb += [
            ClockSignal("sync").eq(clock),
            ClockSignal("start").eq(clock),
            ResetSignal("sync").eq(reset),
        ]
        m.d.start += reset.eq(waited != RESET_CYCLES)
        with m.If(~locked_sync):
            m.d.start += waited.eq(0)
        with m.Elif(waited != RESET_CYCLES):
            m.d.start += waited.eq(waited + 1)

        pins = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer(io.Direction.Input, pins.rx)
        m.submodules.tx = tx = io.Buffer(io.Direction.Output, pins.tx)
        m.submodules.engine = engine = UartEngine(self._identity, divisor=self._board.divisor)
        m.d.comb += [engine.rx.eq(rx.i), tx.o.eq(engine.tx)]
        return m


BOARD = Board(
    name="icebreaker",
    config=EngineConfig(
        n_pes=2,
        sum_bits=24,
        entry_bits=16,
        weight_depth=16384,
        rows_per_pe=256,
        column_words=256,
        count_bits=5,
        codebook_depth=256,
        queue_depth=2,
        max_layers=4,
        input_depth=1024,
        output_depth=512,
        rx_bytes=512,
        counters=False,
        spram=True,
    ),
    clock_hz=24_000_000,
    baud=1_000_000,
    platform=ICEBreakerPlatform,
    top=IceBreakerTop,
)
