# SPDX-License-Identifier: BSD-2-Clause
"""Scanner: a stored vector becomes a stream of its nonzeros."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import activation_layout

__all__ = ["Scanner"]


class Scanner(wiring.Component):
    """Read a vector group by group and hand out its nonzeros in ascending order.

    The last activation leaves with `last`, be it zero or not.

    **Latency**: the first nonzero leaves three cycles after `start`. **Throughput**: one nonzero
    per cycle; a group of four zeros takes a cycle.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1)
        Begin a scan; only when no scan is going on.
    last_input : In(16)
        Number of the vector's last activation.
    read, group, data : Out, Out, In
        The store, whose `data` follows `read` by a cycle; slot, bank and image are chosen beside.
    o : Out(stream of activation_layout)
    """

    start: Signal
    last_input: Signal
    read: Signal
    group: Signal
    data: Signal
    o: stream.Interface

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "last_input": In(16),
                "read": Out(1),
                "group": Out(ceil_log2(config.input_depth // 4)),
                "data": In(4 * config.activation_bits),
                "o": Out(stream.Signature(activation_layout(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a word ahead; hand out the current word's nonzeros lowest first."""
        m = Module()
        bits = self._config.activation_bits

        # Reading: the word of `group` is wanted next; `ahead` says that one has been read.
        reading, ahead, ahead_last = Signal(), Signal(), Signal()
        ahead_group, last_group = Signal.like(self.group), Signal.like(self.group)
        last_lane = Signal(2)
        take = Signal()
        with m.If(self.start):
            m.d.sync += [
                reading.eq(1),
                self.group.eq(0),
                last_group.eq(self.last_input >> 2),
                last_lane.eq(self.last_input[:2]),
            ]
        m.d.comb += self.read.eq(reading & (take | ~ahead))
        with m.If(take):
            m.d.sync += ahead.eq(0)
        with m.If(self.read):
            m.d.sync += [
                ahead.eq(1),
                ahead_group.eq(self.group),
                ahead_last.eq(self.group == last_group),
                self.group.eq(self.group + 1),
                reading.eq(self.group != last_group),
            ]

        # Current word: `lanes` marks the activations still to go out.
        word = Signal(4 * bits, reset_less=True)
        word_group = Signal.like(self.group, reset_less=True)
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
                self.data.word_select(k, bits).any() | (ahead_last & (last_lane == k))
                for k in range(4)
            )
            # What stands behind the vector's end in its last group is not part of it.
            inside = Cat(~ahead_last | (last_lane >= k) for k in range(4))
            m.d.sync += [
                word.eq(self.data),
                word_group.eq(ahead_group),
                word_last.eq(ahead_last),
                lanes.eq(nonzero & inside),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += lanes.eq(rest)
        return m
