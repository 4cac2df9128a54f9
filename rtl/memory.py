# SPDX-License-Identifier: BSD-2-Clause
"""Weight memory of a PE: block RAM, or iCE40 UltraPlus single-port RAM behind the same ports.

Ref: Lattice TN-02022, "iCE40 SPRAM Usage Guide" (SB_SPRAM256KA: 16384 x 16, one port, no initial
contents).
"""

from amaranth import Const, Instance, Module, Signal
from amaranth.hdl import ClockSignal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["WeightMemory"]


class WeightMemory(wiring.Component):
    """One word per cycle, read or write.

    **Latency**: `data` holds the word one cycle after `read` with its `address`, until the next
    read. Reads and writes never meet: images are loaded while no layer runs. A write wins.

    Parameters
    ----------
    width : int
        Bits per word.
    depth : int
        Words.
    spram : bool
        Use an SB_SPRAM256KA (width 16, depth 16384) when built for an iCE40; in simulation and on
        other targets the generic memory stands in for it.

    Members
    -------
    address : In(ceil_log2(depth))
    read : In(1)
    data : Out(width)
    write : In(1)
    write_data : In(width)
    """

    address: Signal
    read: Signal
    data: Signal
    write: Signal
    write_data: Signal

    def __init__(self, *, width: int, depth: int, spram: bool = False) -> None:
        if spram and (width, depth) != (16, 16384):
            raise ValueError(f"spram must be 16 bits x 16384 words, not {width!r} x {depth!r}")
        self._width = width
        self._depth = depth
        self._spram = spram
        super().__init__(
            {
                "address": In(range(depth)),
                "read": In(1),
                "data": Out(width),
                "write": In(1),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Instantiate the single-port cell on an iCE40, a memory elsewhere."""
        m = Module()
        if self._spram and getattr(platform, "family", None) == "iCE40":
            m.submodules.spram = Instance(
                "SB_SPRAM256KA",
                i_CLOCK=ClockSignal(),
                i_ADDRESS=self.address,
                i_DATAIN=self.write_data,
                i_MASKWREN=Const(0b1111, 4),
                i_WREN=self.write,
                i_CHIPSELECT=self.read | self.write,
                i_STANDBY=Const(0),
                i_SLEEP=Const(0),
                i_POWEROFF=Const(1),
                o_DATAOUT=self.data,
            )
            return m
        m.submodules.words = words = memory.Memory(shape=self._width, depth=self._depth, init=[])
        read_port = words.read_port()
        write_port = words.write_port()
        m.d.comb += [
            read_port.addr.eq(self.address),
            read_port.en.eq(self.read & ~self.write),
            self.data.eq(read_port.data),
            write_port.addr.eq(self.address),
            write_port.en.eq(self.write),
            write_port.data.eq(self.write_data),
        ]
        return m
