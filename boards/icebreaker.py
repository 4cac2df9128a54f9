# SPDX-License-Identifier: BSD-2-Clause
"""iCEBreaker: iCE40UP5K, 12 MHz crystal, FTDI USB bridge whose second channel is the UART.

The engine runs at 24 MHz from the PLL; the internal oscillator is 10 % off, too much for a UART.
Ref: Lattice TN1251, "iCE40 sysCLOCK PLL Design and Usage Guide" (VCO 533..1066 MHz); FPGA-TN-02008,
"iCE40 Technology Library".
"""

from typing import Any

from amaranth import ClockDomain, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth_boards.icebreaker import ICEBreakerPlatform

from ..rtl.config import EngineConfig
from ..rtl.formats import Identity
from .clock import LockReset
from .common import Board, UartEngine, connect_uart
from .devices import UP5K

__all__ = ["BOARD", "IceBreakerTop"]


class IceBreakerTop(Elaboratable):
    """PLL, reset and pins around the engine."""

    def __init__(self, identity: Identity, board: Board) -> None:
        self._identity = identity
        self._board = board

    def elaborate(self, platform: Any) -> Module:
        """Clock 12 MHz x 64 / 32; the reset ends some time after lock."""
        m = Module()
        m.domains.sync = ClockDomain()
        m.domains.start = ClockDomain(reset_less=True)
        clock = Signal()
        crystal = platform.request("clk12", dir="-")
        m.submodules.reset = reset = LockReset()
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
            o_LOCK=reset.locked,
        )
        platform.add_clock_constraint(clock, self._board.clock_hz)
        m.d.comb += [
            ClockSignal("sync").eq(clock),
            ClockSignal("start").eq(clock),
            ResetSignal("sync").eq(reset.reset),
        ]
        m.submodules.engine = engine = UartEngine(self._identity, divisor=self._board.divisor)
        connect_uart(m, platform, engine)
        return m


BOARD = Board(
    name="icebreaker",
    config=EngineConfig(
        n_pes=2,
        sum_bits=24,
        entry_bits=16,
        weight_depth=16384,
        rows_per_pe=255,  # a wide count has 8 bits
        column_words=512,
        count_bits=4,
        codebook_depth=256,
        queue_depth=2,
        max_layers=4,
        input_depth=1024,
        output_depth=512,
        rx_bytes=512,
        counters=False,
        spram=True,
        decoder_bits=0,
    ),
    clock_hz=24_000_000,
    baud=1_000_000,
    device=UP5K,
    platform=ICEBreakerPlatform,
    top=IceBreakerTop,
)
