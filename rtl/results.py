# SPDX-License-Identifier: BSD-2-Clause
"""Result buffer: outputs in any order in, a dense vector out."""

from amaranth import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .layouts import activation_layout

__all__ = ["ResultBuffer"]


class ResultBuffer(wiring.Component):
    """One result vector. The last layer keeps its zeros, so every slot is written in each run.

    While `full`, writes wait: a run that ends before the results of the run before have been sent
    stands still, nothing is overwritten.

    **Latency**: `data` holds the value of `address` one cycle later.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of activation_layout)
    full : In(1)
        The vector has not been read yet.
    address, data : In, Out
    """

    i: stream.Interface
    full: Signal
    address: Signal
    data: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(activation_layout(config))),
                "full": In(1),
                "address": In(range(config.output_depth)),
                "data": Out(config.activation_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory, written by slot."""
        m = Module()
        config = self._config
        m.submodules.values = values = memory.Memory(
            shape=config.activation_bits, depth=config.output_depth, init=[]
        )
        read_port, write_port = values.read_port(), values.write_port()
        m.d.comb += [
            self.i.ready.eq(~self.full),
            write_port.addr.eq(self.i.p.slot),
            write_port.data.eq(self.i.p.value),
            write_port.en.eq(self.i.valid & self.i.ready),
            read_port.addr.eq(self.address),
            self.data.eq(read_port.data),
        ]
        return m
