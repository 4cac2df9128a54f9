# SPDX-License-Identifier: BSD-2-Clause
"""Activation store: vectors of a run's images as dense words of four activations.

Two input slots are written by the host. With a tile there are two banks besides, for vectors
between layers. Slots and banks are different memories, so that an input can arrive while a layer
writes; every image has memories of its own, so that the tile reads one group of all images at once.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import vector_layout

__all__ = ["ActivationStore"]


class ActivationStore(wiring.Component):
    """Vectors in slots and banks, read by groups of four activations.

    **Latency**: `words` holds the group of all images one cycle after `read`, until the next read.
    **Memory**: `batch` x 2 x `input_depth` activations, twice that with a tile.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    read : In(1)
    from_bank, source, group : In
        Whether to read a bank or a slot, which of the two, and which group.
    words : Out(ArrayLayout(4 A bits, batch))
        Per image four activations, the lowest first.
    write, write_slot, write_image, write_group, write_data : In
        Write four activations of an input slot.
    bank_write, bank, vector : In
        With a tile: write one activation of some or all images of a bank.
    """

    read: Signal
    from_bank: Signal
    source: Signal
    group: Signal
    words: data.View
    write: Signal
    write_slot: Signal
    write_image: Signal
    write_group: Signal
    write_data: Signal
    bank_write: Signal
    bank: Signal
    vector: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._groups = config.input_depth // 4
        group_bits = ceil_log2(self._groups)
        super().__init__(
            {
                "read": In(1),
                "from_bank": In(1),
                "source": In(1),
                "group": In(group_bits),
                "words": Out(data.ArrayLayout(4 * config.activation_bits, config.batch)),
                "write": In(1),
                "write_slot": In(1),
                "write_image": In(max(ceil_log2(config.batch), 1)),
                "write_group": In(group_bits),
                "write_data": In(4 * config.activation_bits),
                "bank_write": In(1),
                "bank": In(1),
                "vector": In(vector_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A memory for the slots and one for the banks of each image; all are read together."""
        m = Module()
        config = self._config
        from_bank_q1 = Signal()
        with m.If(self.read):
            m.d.sync += from_bank_q1.eq(self.from_bank)
        for image in range(config.batch):
            slots = self._memory(m, f"slots_{image}")
            write_port = slots.write_port()
            m.d.comb += [
                write_port.addr.eq(Cat(self.write_group, self.write_slot)),
                write_port.data.eq(self.write_data),
                write_port.en.eq(self.write & (self.write_image == image)),
            ]
            slot_data = self._read(m, slots)
            if not config.tile_rows:
                m.d.comb += self.words[image].eq(slot_data)
                continue
            banks = self._memory(m, f"banks_{image}")
            write_port = banks.write_port(granularity=config.activation_bits)
            slot = self.vector.slot
            m.d.comb += [
                write_port.addr.eq(Cat(slot[2 : 2 + len(self.group)], self.bank)),
                write_port.data.eq(self.vector.values[image].replicate(4)),
                write_port.en.eq(
                    Mux(self.bank_write & self.vector.images[image], 1 << slot[:2], 0)
                ),
                self.words[image].eq(Mux(from_bank_q1, self._read(m, banks), slot_data)),
            ]
        return m

    def _memory(self, m: Module, name: str) -> memory.Memory:
        words = memory.Memory(
            shape=4 * self._config.activation_bits, depth=2 * self._groups, init=[]
        )
        m.submodules[name] = words
        return words

    def _read(self, m: Module, words: memory.Memory):
        read_port = words.read_port()
        m.d.comb += [
            read_port.addr.eq(Cat(self.group, self.source)),
            read_port.en.eq(self.read),
        ]
        return read_port.data
