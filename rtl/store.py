# SPDX-License-Identifier: BSD-2-Clause
"""Activation store: two input slots of dense words, read as a stream of nonzeros."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import activation_layout

__all__ = ["ActivationStore"]


class ActivationStore(wiring.Component):
    """Input slots, written and read in words of four activations.

    `start` begins a scan of one slot: its nonzeros leave in ascending order, the last activation
    leaves with `last`, be it zero or not.

    **Latency**: the first nonzero leaves three cycles after `start`. **Throughput**: one nonzero
    per cycle; a word of four zeros takes a cycle.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1)
        Begin a scan; only when no scan is going on.
    slot, last_input : In
        Slot to scan, and the number of its last activation.
    o : Out(stream of activation_layout)
    write, write_slot, write_group, write_data : In
        Write four activations.
    """

    start: Signal
    slot: Signal
    last_input: Signal
    o: stream.Interface
    write: Signal
    write_slot: Signal
    write_group: Signal
    write_data: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._groups = config.input_depth // 4
        group_bits = ceil_log2(self._groups)
        super().__init__(
            {
                "start": In(1),
                "slot": In(1),
                "last_input": In(16),
                "o": Out(stream.Signature(activation_layout(config))),
                "write": In(1),
                "write_slot": In(1),
                "write_group": In(group_bits),
                "write_data": In(4 * config.activation_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a word ahead; hand out the current word's nonzeros lowest first."""
        m = Module()
        bits = self._config.activation_bits
        group_bits = len(self.write_group)
        m.submodules.words = words = memory.Memory(shape=4 * bits, depth=2 * self._groups, init=[])
        read_port, write_port = words.read_port(), words.write_port()
        m.d.comb += [
            write_port.addr.eq(Cat(self.write_group, self.write_slot)),
            write_port.data.eq(self.write_data),
            write_port.en.eq(self.write),
        ]

        # Reading: the word of `group` is wanted next; `ahead` says that one has been read.
        reading, ahead, ahead_last, slot = Signal(), Signal(), Signal(), Signal()
        group, ahead_group = Signal(group_bits), Signal(group_bits)
        last_group, last_lane = Signal(group_bits), Signal(2)
        take = Signal()
        with m.If(self.start):
            m.d.sync += [
                reading.eq(1),
                group.eq(0),
                slot.eq(self.slot),
                last_group.eq(self.last_input >> 2),
                last_lane.eq(self.last_input[:2]),
            ]
        m.d.comb += [
            read_port.addr.eq(Cat(group, slot)),
            read_port.en.eq(reading & (take | ~ahead)),
        ]
        with m.If(take):
            m.d.sync += ahead.eq(0)
        with m.If(read_port.en):
            m.d.sync += [
                ahead.eq(1),
                ahead_group.eq(group),
                ahead_last.eq(group == last_group),
                group.eq(group + 1),
                reading.eq(group != last_group),
            ]

        # Current word: `lanes` marks the activations still to go out.
        word = Signal(4 * bits, reset_less=True)
        word_group = Signal(group_bits, reset_less=True)
        word_last = Signal(reset_less=True)
        lanes, rest = Signal(4), Signal(4)
        lane = Signal(2)
        m.d.comb += [
            rest.eq(lanes & (lanes - 1)),
            lane.eq(Mux(lanes[0], 0, Mux(lanes[1], 1, Mux(lanes[2], 2, 3)))),
            self.o.valid.eq(lanes.any()),
            self.o.p.slot.eq(Cat(lane, word_group)),
            self.o.p.value.eq(word.word_select(lane, bits)),
            self.o.p.last.eq(word_last & ~rest.any()),
            take.eq(ahead & (~lanes.any() | (self.o.ready & ~rest.any()))),
        ]
        with m.If(take):
            nonzero = Cat(
                read_port.data.word_select(k, bits).any() | (ahead_last & (last_lane == k))
                for k in range(4)
            )
            m.d.sync += [
                word.eq(read_port.data),
                word_group.eq(ahead_group),
                word_last.eq(ahead_last),
                lanes.eq(nonzero),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += lanes.eq(rest)
        return m
