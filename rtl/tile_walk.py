# SPDX-License-Identifier: BSD-2-Clause
"""Walk of the tensor tile: which group of inputs meets which words of weights, cycle by cycle.

The first block of rows walks all groups of four inputs and lists those that hold a nonzero; the
other blocks walk the list. The last group is always listed, so every block ends with it.
"""

import numpy as np
import numpy.typing as npt
from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .layouts import layer_layout
from .pipeline import delay

__all__ = ["TileWalk", "tile_word_layout"]


def tile_word_layout(config: EngineConfig) -> data.StructLayout:
    """A step of the tile: a word of weights (the same address in all rows) and its group.

    `first` and `last` mark a block's words, `final` the last word of the layer. Without `valid`,
    `waiting` tells that a word waits for the rows of the block before to leave.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "waiting": 1,
            "group": ceil_log2(config.input_depth // 4),
            "address": ceil_log2(config.tile_depth),
            "first": 1,
            "last": 1,
            "final": 1,
        }
    )


class TileWalk(wiring.Component):
    """Steps through blocks of rows, groups of inputs and passes.

    **Latency**: the first word `LATENCY` cycles after `start`. **Throughput**: one word per cycle,
    also from block to block, but the last words of two blocks are `tile_rows` cycles apart (the
    rows of a block leave one per cycle), and a listed group comes `LIST_LATENCY` cycles after it
    was first walked at the earliest, which only tells after a first block with next to no groups.
    `model` counts the cycles.
    **Memory**: the list, one word per group of `input_depth`.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start : In(1)
        Walk a layer; only when the rows of the layer before have left.
    layer : In(layer_layout)
        Steady from `start` until `word.final`.
    word : Out(tile_word_layout)
    nonzero : In(1)
        `NONZERO_LATENCY` cycles after a word: whether its group has a nonzero.
    """

    LATENCY = 3
    NONZERO_LATENCY = 3
    LIST_LATENCY = 2 + NONZERO_LATENCY + 1

    start: Signal
    layer: data.View
    word: data.View
    nonzero: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "layer": In(layer_layout(config)),
                "word": Out(tile_word_layout(config)),
                "nonzero": In(1),
            }
        )

    @classmethod
    def model(
        cls, nonzero: npt.NDArray[np.bool_], passes: int, blocks: int, rows: int
    ) -> tuple[list[int], int]:
        """Count a layer's cycles.

        Parameters
        ----------
        nonzero : (groups,) bool
            Whether any of the images has a nonzero in the group.
        passes, blocks, rows : int
            Words per group, blocks of rows, rows of the tile.

        Returns
        -------
        cycles : list of int
            For each block the cycle of its last word, counted from the layer's first word.
        waits : int
            Cycles in which a word waits for rows to leave.
        """
        groups = len(nonzero)
        listed = np.flatnonzero(nonzero | (np.arange(groups) == groups - 1))
        ends, waits = [groups * passes - 1], 0
        for block in range(1, blocks):
            now = ends[-1]
            for group in listed.tolist() if block == 1 else []:
                now = max(now + 1, group * passes + cls.LIST_LATENCY) + passes - 1
            if block > 1:
                now += len(listed) * passes
            ends.append(max(now, ends[-1] + rows))
            waits += ends[-1] - now
        return ends, waits

    def elaborate(self, platform: object) -> Module:
        """Choose a step; fetch its group from the list; add up the address."""
        m = Module()
        config, layer, word = self._config, self.layer, self.word
        depth = max(config.input_depth // 4, 2)
        m.submodules.groups = groups = memory.Memory(shape=range(depth), depth=depth, init=[])
        read_port, write_port = groups.read_port(), groups.write_port()
        last_group = layer.last_input >> 2

        # A step is taken: `index` counts groups in the first block, places in the list afterwards.
        walking, listing, complete = Signal(), Signal(), Signal()
        index, count, last_index = Signal(range(depth)), Signal(range(depth)), Signal(range(depth))
        second, fresh = Signal(), Signal()
        block = Signal(16)
        left = Signal(range(max(config.tile_rows, 2)))  # cycles until a last word may follow
        known, ends_group, ends_block, step, waiting = (Signal() for _ in range(5))
        m.d.comb += [
            known.eq(walking & (listing | complete | (index != count))),
            ends_group.eq(second | ~layer.two_pass),
            ends_block.eq(
                ends_group & Mux(listing, index == last_group, complete & (index == last_index))
            ),
            waiting.eq(known & ends_block & left.any()),
            step.eq(known & ~waiting),
        ]
        with m.If(left.any()):
            m.d.sync += left.eq(left - 1)
        with m.If(self.start):
            m.d.sync += [
                walking.eq(1),
                listing.eq(1),
                fresh.eq(1),
                block.eq(0),
            ]
        with m.If(step):
            m.d.sync += [second.eq(~ends_group), fresh.eq(ends_block)]
            with m.If(ends_group):
                m.d.sync += index.eq(index + 1)
            with m.If(ends_block):
                m.d.sync += [
                    index.eq(0),
                    listing.eq(0),
                    block.eq(block + 1),
                    left.eq(config.tile_rows - 1),
                    walking.eq(block != layer.last_block),
                ]

        # Its group is there.
        step_q1, waiting_q1 = delay(m, step, 1), delay(m, waiting, 1)
        listing_q1, second_q1, index_q1 = (delay(m, x, 1) for x in (listing, second, index))
        first_q1, last_q1 = delay(m, fresh, 1), delay(m, ends_block, 1)
        final_q1 = delay(m, ends_block & (block == layer.last_block), 1)
        group = Signal(range(depth))
        base, stride = Signal.like(word.address), Signal(17)
        m.d.comb += [
            read_port.addr.eq(index),
            group.eq(Mux(listing_q1, index_q1, read_port.data)),
        ]
        m.d.sync += [
            word.valid.eq(step_q1),
            word.waiting.eq(waiting_q1),
            word.group.eq(group),
            word.address.eq(base + Mux(layer.two_pass, Cat(second_q1, group), group)),
            word.first.eq(first_q1),
            word.last.eq(last_q1),
            word.final.eq(final_q1),
            stride.eq((last_group + 1) << layer.two_pass),
        ]
        with m.If(self.start):
            m.d.sync += base.eq(layer.tile_base)
        with m.Elif(step_q1 & last_q1):
            m.d.sync += base.eq(base + stride)

        # Groups of the first block come back in order.
        checked = Signal(range(depth))
        check = delay(m, step_q1 & listing_q1 & ~second_q1, 1 + self.NONZERO_LATENCY)
        is_last = Signal()
        m.d.comb += [
            is_last.eq(checked == last_group),
            write_port.addr.eq(count),
            write_port.data.eq(checked),
            write_port.en.eq(check & (self.nonzero | is_last)),
        ]
        with m.If(self.start):
            m.d.sync += [checked.eq(0), count.eq(0), complete.eq(0)]
        with m.If(check):
            m.d.sync += checked.eq(checked + 1)
        with m.If(write_port.en):
            m.d.sync += [count.eq(count + 1), last_index.eq(count), complete.eq(is_last)]
        return m
