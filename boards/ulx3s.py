# SPDX-License-Identifier: BSD-2-Clause
"""ULX3S with an LFE5U-85F: 25 MHz oscillator, FTDI USB bridge with a UART.

The engine runs at 50 MHz from a PLL: 25 MHz x 2, VCO at 600 MHz.
Ref: Lattice FPGA-TN-02200, "ECP5 and ECP5-5G sysCLOCK PLL/DLL Design and Usage Guide";
FPGA-DS-02012 (VCO 400..800 MHz).
"""

from typing import Any

from amaranth import ClockDomain, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth.lib import io
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from ..rtl.config import EngineConfig
from ..rtl.formats import Identity
from .clock import LockReset
from .common import Board, UartEngine, connect_uart
from .devices import LFE5U_85F

__all__ = ["BOARD", "Ulx3sTop"]

OSCILLATOR_HZ = 25_000_000
VCO_HZ = 600_000_000


class Ulx3sTop(Elaboratable):
    """PLL, reset and pins around the engine."""

    def __init__(self, identity: Identity, board: Board) -> None:
        self._identity = identity
        self._board = board

    def elaborate(self, platform: Any) -> Module:
        """Clock from the PLL, whose feedback is the engine's clock itself.

        nextpnr works out the clock's constraint from the oscillator's and the PLL's dividers, so
        the check of its log (`boards/timing.py`) checks these too.
        """
        m = Module()
        m.domains.sync = ClockDomain()
        m.domains.start = ClockDomain(reset_less=True)
        clock_hz = self._board.clock_hz
        divider = VCO_HZ // clock_hz
        clock = Signal()
        pins = platform.request("clk25", dir="-")
        m.submodules.oscillator = oscillator = io.Buffer(io.Direction.Input, pins)
        m.submodules.reset = reset = LockReset()
        m.submodules.pll = Instance(
            "EHXPLLL",
            # Loop filter for any bandwidth, as Lattice's tools write it.
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=1,
            p_CLKFB_DIV=clock_hz // OSCILLATOR_HZ,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=divider,
            p_CLKOP_CPHASE=divider // 2 - 1,  # no phase shift
            p_CLKOP_FPHASE=0,
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            i_CLKI=oscillator.i,
            i_CLKFB=clock,
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=clock,
            o_LOCK=reset.locked,
        )
        m.d.comb += [
            ClockSignal("sync").eq(clock),
            ClockSignal("start").eq(clock),
            ResetSignal("sync").eq(reset.reset),
        ]
        m.submodules.engine = engine = UartEngine(self._identity, divisor=self._board.divisor)
        connect_uart(m, platform, engine)
        return m


BOARD = Board(
    name="ulx3s-85f",
    config=EngineConfig(
        n_pes=32,
        activation_bits=16,
        sum_bits=36,
        entry_bits=14,
        weight_depth=2048,
        rows_per_pe=32,  # sums and output lists fit distributed RAM
        column_words=512,
        count_bits=3,
        codebook_depth=256,
        queue_depth=32,
        input_depth=1024,
        tile_rows=8,
        tile_depth=2048,
        tile_bias_depth=512,
        decoder_bits=2,
    ),
    clock_hz=50_000_000,
    baud=1_000_000,
    device=LFE5U_85F,
    platform=ULX3S_85F_Platform,
    top=Ulx3sTop,
)
