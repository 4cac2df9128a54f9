# SPDX-License-Identifier: BSD-2-Clause
"""Tensor tile: R rows times C images times two weights of a group of four inputs per cycle.

A group's words name the positions of their weights, so 2:4 needs one word per row and group, a
dense group two. Groups whose inputs are all zero are walked once per layer, not once per block.

Ref: Mishra et al., "Accelerating Sparse Deep Neural Networks", arXiv 2104.08378, section 3 (2:4
operand selection); the list of nonzero groups is ours.
"""

import numpy as np
import numpy.typing as npt
from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout, View
from amaranth.lib.wiring import In, Out, connect, flipped

from .arith import Ints, requantize
from .config import EngineConfig, ceil_log2
from .layouts import WriteBus, WriteSignature, layer_layout, tile_activity_layout, vector_layout
from .pipeline import delay
from .tile_drain import TileDrain
from .tile_lane import TileLane
from .tile_walk import TileWalk

__all__ = ["TensorTile"]


class TensorTile(wiring.Component):
    """``o[image][row] = requantize(sum(weights[row] * inputs[image]), bias[row], shift[row])``.

    **Latency**: `LATENCY` + R cycles more than the words take from `start` to `done` (`cycles`).
    **Throughput**: one word per row of the tile and cycle, without gaps between blocks of R rows;
    a block of fewer than R words takes R cycles. Outputs leave one row per cycle while the next
    block runs.
    **Overflow/rounding**: sums never overflow, the compiler bounds them; rounding as in
    `rtl/arith.py`. **Memory**: per row of the tile its words and two codebooks; biases; the list.

    Parameters
    ----------
    config : EngineConfig
        With `tile_rows` of at least 1.

    Members
    -------
    start : In(1)
        Begin a layer; only while not busy.
    images : In(image_bits)
        Images of the run, 1..C; steady while busy.
    layer : In(layer_layout)
        Its parameters, steady from `start` until `done`.
    busy : Out(1)
        From the cycle after `start` to that of `done`.
    done : Out(1)
        Pulse with the last row.
    read, group : Out
        The group of the source vectors that is wanted.
    data : In(C x 4 x A bits)
        Its inputs, one cycle after `read`: image 0 in the low bits, lowest slot first. Images from
        `images` on, and slots without a row, may hold anything.
    o_valid, o : Out(1), Out(vector_layout)
        One row in each cycle, in order, without back-pressure; rows that fill up the last block
        come, too.
    write : In(WriteSignature)
        Loader's bus.
    activity : Out(tile_activity_layout)
        Use of the multipliers: all are `drain` while a word waits for rows to leave, and from the
        last word to the last row. Nothing is reported with `done` or later.

    Raises
    ------
    ValueError
        The config has no tile.
    """

    LATENCY = TileWalk.LATENCY + TileLane.ADD_LATENCY + TileDrain.LATENCY - 2

    start: Signal
    images: Signal
    layer: View
    busy: Signal
    done: Signal
    read: Signal
    group: Signal
    data: Signal
    o_valid: Signal
    o: View
    write: WriteBus
    activity: View

    def __init__(self, config: EngineConfig) -> None:
        if not config.tile_rows:
            raise ValueError(f"tile_rows must be at least 1, not {config.tile_rows!r}")
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "images": In(config.image_bits),
                "layer": In(layer_layout(config)),
                "busy": Out(1),
                "done": Out(1),
                "read": Out(1),
                "group": Out(ceil_log2(config.input_depth // 4)),
                "data": In(config.tile_columns * 4 * config.activation_bits),
                "o_valid": Out(1),
                "o": Out(vector_layout(config)),
                "write": In(WriteSignature(config)),
                "activity": Out(tile_activity_layout(config)),
            }
        )

    @staticmethod
    def model(weights: Ints, inputs: Ints, bias: Ints, shift: Ints, low: int, high: int) -> Ints:
        """Outputs of a layer.

        Parameters
        ----------
        weights : (rows, cols) int64
        inputs : (images, cols) int64
        bias, shift : (rows,) int64
        low, high : int
            The layer's clamp.

        Returns
        -------
        (images, rows) int64
        """
        return requantize(inputs @ weights.T, bias, shift, low, high)

    @classmethod
    def cycles(cls, nonzero: npt.NDArray[np.bool_], passes: int, blocks: int, rows: int) -> int:
        """Cycles from `start` to `done`, neither counted twice; parameters as `TileWalk.model`."""
        ends, _ = TileWalk.model(nonzero, passes, blocks, rows)
        return ends[-1] + 1 + cls.LATENCY + rows

    def elaborate(self, platform: object) -> Module:
        """Hand each word and its inputs to all lanes; collect a block's sums."""
        m = Module()
        config = self._config
        m.submodules.walk = walk = TileWalk(config)
        m.submodules.drain = drain = TileDrain(config)
        word = walk.word

        with m.If(self.start):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.done):
            m.d.sync += self.busy.eq(0)

        # Inputs come a cycle after their word and are looked at from a register.
        inputs_q2 = Signal.like(self.data, reset_less=True)
        m.d.sync += inputs_q2.eq(self.data)
        nonzero = Signal(config.tile_columns)
        m.d.comb += nonzero.eq(
            Cat(
                inputs_q2.word_select(image, 4 * config.activation_bits).any()
                & (self.images > image)
                for image in range(config.tile_columns)
            )
        )
        m.d.sync += walk.nonzero.eq(nonzero.any())
        assert TileWalk.NONZERO_LATENCY == 3, "read, register, this register"
        inputs = delay(m, inputs_q2, TileLane.DATA_LATENCY - 2)

        flags = Signal(
            StructLayout(dict.fromkeys(("valid", "waiting", "first", "last", "final"), 1))
        )
        m.d.comb += [flags[name].eq(word[name]) for name, _ in flags.shape()]
        decoded = delay(m, flags, TileLane.WORD_LATENCY)
        at_add = delay(m, decoded, TileLane.ADD_LATENCY - TileLane.WORD_LATENCY)
        zero_codes = []
        for row in range(config.tile_rows):
            m.submodules[f"lane{row}"] = lane = TileLane(config)
            zero_codes.append(lane.zero_codes)
            m.d.comb += [
                lane.layer.eq(self.layer),
                lane.read.eq(word.valid),
                lane.address.eq(word.address),
                lane.data.eq(inputs),
                lane.add.eq(at_add.valid),
                lane.first.eq(at_add.first),
                lane.selected.eq(self.write.pe == row),
                drain.sums[row].eq(lane.sums),
            ]
            connect(m, flipped(self.write), lane.write)
        m.d.comb += [
            walk.start.eq(self.start),
            walk.layer.eq(self.layer),
            self.read.eq(word.valid),
            self.group.eq(word.group),
            drain.start.eq(self.start),
            drain.layer.eq(self.layer),
            drain.images.eq(self.images),
            drain.last.eq(at_add.valid & at_add.last),
            drain.final.eq(at_add.final),
            self.o_valid.eq(drain.o_valid),
            self.o.eq(drain.o),
            self.done.eq(drain.done),
        ]
        connect(m, flipped(self.write), drain.write)
        self._count(m, decoded, zero_codes, drain.nearly_done)
        return m

    def _count(self, m: Module, word: View, zero_codes: list[Signal], end: Signal) -> None:
        """Report what multipliers do: words as they are decoded, or waiting for rows to leave."""
        pairs, images = 2 * self._config.tile_rows, self.images
        fillers = Signal(range(pairs + 1))
        m.d.sync += fillers.eq(Mux(self.layer.zero_code, sum(zero_codes), 0))
        word_q = delay(m, word, 1)
        closing = Signal()
        with m.If(word_q.valid & word_q.final):
            m.d.sync += closing.eq(1)
        with m.If(end):
            m.d.sync += closing.eq(0)

        def times(count: Value, factor: Value) -> Value:
            """Product by adding, so that no multiplier is spent on it."""
            return sum((Mux(factor[k], count << k, 0) for k in range(len(factor))), Const(0))

        activity = self.activity
        others = (self._config.tile_columns - images)[: len(images)]
        m.d.sync += activity.eq(0)
        with m.If(word_q.valid):
            m.d.sync += [
                activity.busy.eq(times(pairs - fillers, images)),
                activity.filler.eq(times(fillers, images)),
                activity.imbalance.eq(times(Const(pairs), others)),
            ]
        with m.Elif(word_q.waiting | (closing & ~end)):
            m.d.sync += activity.drain.eq(pairs * self._config.tile_columns)
