# SPDX-License-Identifier: BSD-2-Clause
"""Result buffer: outputs of a run's images in any order in, dense vectors out."""

from amaranth import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import vector_layout

__all__ = ["ResultBuffer"]


class ResultBuffer(wiring.Component):
    """Result vectors of one run. The last layer keeps its zeros, so every slot is written each run.

    While `full`, writes wait: a run that ends before the results of the run before have been sent
    stands still, nothing is overwritten.

    **Latency**: `data` holds the value of `image` and `address` one cycle later.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of vector_layout)
    full : In(1)
        The vectors have not been read yet.
    image, address, data : In, In, Out
    """

    i: stream.Interface
    full: Signal
    image: Signal
    address: Signal
    data: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(vector_layout(config))),
                "full": In(1),
                "image": In(max(ceil_log2(config.batch), 1)),
                "address": In(range(config.output_depth)),
                "data": Out(config.activation_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory per image, written by slot."""
        m = Module()
        config = self._config
        m.d.comb += self.i.ready.eq(~self.full)
        found = Signal(data.ArrayLayout(config.activation_bits, config.batch))
        image_q1 = Signal.like(self.image)
        m.d.sync += image_q1.eq(self.image)
        m.d.comb += self.data.eq(found[image_q1] if config.batch > 1 else found[0])
        for image in range(config.batch):
            values = memory.Memory(shape=config.activation_bits, depth=config.output_depth, init=[])
            m.submodules[f"values_{image}"] = values
            read_port, write_port = values.read_port(), values.write_port()
            m.d.comb += [
                write_port.addr.eq(self.i.p.slot),
                write_port.data.eq(self.i.p.values[image]),
                write_port.en.eq(self.i.valid & self.i.ready & self.i.p.images[image]),
                read_port.addr.eq(self.address),
                found[image].eq(read_port.data),
            ]
        return m
