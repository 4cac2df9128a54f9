# SPDX-License-Identifier: BSD-2-Clause
"""Codebook of a PE: code -> 16-bit weight. Every PE holds a copy of all layers' codebooks.

Ref: Han et al., "Deep Compression", ICLR 2016, section 3 (weight sharing).
"""

from amaranth import Module, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig

__all__ = ["Codebook"]


class Codebook(wiring.Component):
    """Look-up of a shared weight.

    **Latency**: `LATENCY` = 2 cycles from `code` to `weight` (memory, then a register that keeps
    the memory's slow clock-to-out off the multiplier's path). **Throughput**: one per cycle.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    code : In(ceil_log2(codebook_depth))
        Address: the layer's codebook base plus the code.
    weight : Out(signed(16))
    write, write_address, write_data : In
        Load port.
    """

    LATENCY = 2

    code: Signal
    weight: Signal
    write: Signal
    write_address: Signal
    write_data: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._depth = config.codebook_depth
        super().__init__(
            {
                "code": In(range(config.codebook_depth)),
                "weight": Out(signed(16)),
                "write": In(1),
                "write_address": In(range(config.codebook_depth)),
                "write_data": In(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory with a load port."""
        m = Module()
        m.submodules.values = values = memory.Memory(shape=signed(16), depth=self._depth, init=[])
        read_port = values.read_port()
        write_port = values.write_port()
        m.d.comb += [
            read_port.addr.eq(self.code),
            write_port.addr.eq(self.write_address),
            write_port.data.eq(self.write_data),
            write_port.en.eq(self.write),
        ]
        m.d.sync += self.weight.eq(read_port.data)
        return m
