# SPDX-License-Identifier: BSD-2-Clause
"""Drain of the tensor tile: a block's sums leave row by row while the next block runs."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import Section
from .layouts import WriteBus, WriteSignature, layer_layout, vector_layout
from .pipeline import delay
from .requantize import Requantizer

__all__ = ["TileDrain"]


class TileDrain(wiring.Component):
    """Shadow sums of a block, biases, and a requantizer per image.

    **Latency**: the first row leaves `LATENCY` cycles after `last`. **Throughput**: one row per
    cycle for all images; `last` may come every `tile_rows` cycles.
    **Memory**: `tile_bias_depth` x (P - 1 + shift_bits); a block's sums in registers.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1)
        A layer begins; only after `done` of the layer before.
    layer, images : In
        Parameters and number of images, steady from `start` until `done`.
    last, final : In(1)
        The sums of a block are there in the next cycle; it is the layer's last block.
    sums : In(R x C x signed(P))
    o_valid, o : Out(1), Out(vector_layout)
        One row of the layer.
    done, nearly_done : Out(1)
        The layer's last row leaves now, in the next cycle.
    write : In(WriteSignature)
    """

    LATENCY = 2 + Requantizer.LATENCY

    start: Signal
    layer: data.View
    images: Signal
    last: Signal
    final: Signal
    sums: data.View
    o_valid: Signal
    o: data.View
    done: Signal
    nearly_done: Signal
    write: WriteBus

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        row = data.ArrayLayout(signed(config.sum_bits), config.tile_columns)
        super().__init__(
            {
                "start": In(1),
                "layer": In(layer_layout(config)),
                "images": In(config.image_bits),
                "last": In(1),
                "final": In(1),
                "sums": In(data.ArrayLayout(row, config.tile_rows)),
                "o_valid": Out(1),
                "o": Out(vector_layout(config)),
                "done": Out(1),
                "nearly_done": Out(1),
                "write": In(WriteSignature(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count a block's rows; fetch their biases; shift their sums; requantize."""
        m = Module()
        config, write = self._config, self.write
        rows = config.tile_rows

        # A row's bias is fetched from the cycle of `last` on, to be there with the row's sums.
        left, ending = Signal(range(max(rows, 2))), Signal()
        fetch, final_row = Signal(), Signal()
        m.d.comb += fetch.eq(self.last | left.any())
        with m.If(self.last):
            m.d.sync += [left.eq(rows - 1), ending.eq(self.final)]
            m.d.comb += final_row.eq(self.final if rows == 1 else 0)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)
            m.d.comb += final_row.eq(ending & (left == 1))
        m.submodules.biases = biases = memory.Memory(
            shape=config.bias_bits, depth=config.tile_bias_depth, init=[]
        )
        read_port, write_port = biases.read_port(), biases.write_port()
        bias_q2 = Signal(config.bias_bits, reset_less=True)
        with m.If(self.start):
            m.d.sync += read_port.addr.eq(self.layer.tile_bias_base)
        with m.Elif(fetch):
            m.d.sync += read_port.addr.eq(read_port.addr + 1)
        m.d.sync += bias_q2.eq(read_port.data)
        m.d.comb += [
            write_port.addr.eq(write.address),
            write_port.data.eq(write.data),
            write_port.en.eq(write.en & (write.kind == Section.TILE_BIASES)),
        ]

        shadow = Signal.like(self.sums, reset_less=True)
        with m.If(delay(m, self.last, 1)):
            m.d.sync += shadow.eq(self.sums)
        with m.Else():
            m.d.sync += [shadow[row].eq(shadow[row + 1]) for row in range(rows - 1)]
        for image in range(config.tile_columns):
            m.submodules[f"requantizer{image}"] = requantizer = Requantizer(config)
            m.d.comb += [
                requantizer.layer.eq(self.layer),
                requantizer.sum.eq(shadow[0][image]),
                Cat(requantizer.bias, requantizer.shift).eq(bias_q2),
                self.o.values[image].eq(requantizer.value),
                self.o.images[image].eq(self.images > image),
            ]

        slot = Signal(config.slot_bits)
        nearly_done = delay(m, final_row, self.LATENCY - 1)
        m.d.comb += [
            self.o_valid.eq(delay(m, fetch, self.LATENCY)),
            self.o.slot.eq(slot),
            self.nearly_done.eq(nearly_done),
            self.done.eq(delay(m, nearly_done, 1)),
        ]
        with m.If(self.start):
            m.d.sync += slot.eq(0)
        with m.Elif(self.o_valid):
            m.d.sync += slot.eq(slot + 1)
        return m
