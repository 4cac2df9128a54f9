# SPDX-License-Identifier: BSD-2-Clause
"""Result buffer: outputs of a run's images in any order in, dense vectors out."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import vector_layout

__all__ = ["ResultBuffer"]


class ResultBuffer(wiring.Component):
    """Result vectors of a run. The last layer keeps its zeros, so every slot is written each run.

    With a tile there is room for two runs: results of one are sent while the next one writes, which
    the tile could not put off. Where there is no room, writes wait: a run that ends before results
    have been sent stands still, nothing is overwritten.

    **Latency**: `data` holds the value of `image` and `address` one cycle later.
    **Memory**: `batch` x `output_depth` activations, twice that with a tile.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of vector_layout)
    collected, sent : In(1)
        Pulses: a run's results are complete, the oldest ones have been read.
    ready : Out(1)
        Complete results are there.
    image, address, data : In, In, Out
        Read the oldest ones.
    """

    i: stream.Interface
    collected: Signal
    sent: Signal
    ready: Signal
    image: Signal
    address: Signal
    data: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(vector_layout(config))),
                "collected": In(1),
                "sent": In(1),
                "ready": Out(1),
                "image": In(max(ceil_log2(config.batch), 1)),
                "address": In(range(config.output_depth)),
                "data": Out(config.activation_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory per image, written by slot; runs take the places in turn."""
        m = Module()
        config = self._config
        places = 2 if config.tile_rows else 1
        n_complete = Signal(range(places + 1))
        m.d.sync += n_complete.eq(n_complete + self.collected - self.sent)
        m.d.comb += [self.i.ready.eq(n_complete != places), self.ready.eq(n_complete != 0)]
        write_place, read_place = Signal(places - 1), Signal(places - 1)
        m.d.sync += [
            write_place.eq(write_place ^ self.collected),
            read_place.eq(read_place ^ self.sent),
        ]

        found = Signal(data.ArrayLayout(config.activation_bits, config.batch))
        image_q1 = Signal.like(self.image)
        m.d.sync += image_q1.eq(self.image)
        m.d.comb += self.data.eq(found[image_q1] if config.batch > 1 else found[0])
        for image in range(config.batch):
            values = memory.Memory(
                shape=config.activation_bits, depth=places * config.output_depth, init=[]
            )
            m.submodules[f"values_{image}"] = values
            read_port, write_port = values.read_port(), values.write_port()
            slot = self.i.p.slot
            m.d.comb += [
                write_port.addr.eq(Cat(slot[: len(self.address)], write_place)),
                write_port.data.eq(self.i.p.values[image]),
                write_port.en.eq(self.i.valid & self.i.ready & self.i.p.images[image]),
                read_port.addr.eq(Cat(self.address, read_place)),
                found[image].eq(read_port.data),
            ]
        return m
