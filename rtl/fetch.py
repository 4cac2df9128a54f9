# SPDX-License-Identifier: BSD-2-Clause
"""Fetch of a PE: slices and ENDs become one address of weight memory per cycle."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .layouts import layer_layout, select_layer, slice_layout

__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Walk through the entries of each slice, and at END through the biases of all rows.

    **Latency**: the first address one cycle after a slice is taken; the outputs that describe a
    word come a cycle after its address, with the word. **Throughput**: one word per cycle, no
    gap between slices.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of slice_layout)
    layers : In(ArrayLayout(layer_layout, 2))
        Parameters of even and odd layers since reset.
    address, read : Out
        Weight memory.
    mac : Out(1)
        The word is an entry.
    drain : Out(1)
        The word belongs to a row's bias,
    row_done : Out(1)
        and is that row's last word.
    row, last : Out
        In a drain: the local row, and whether the word is the layer's last.
    value : Out(signed(A + 1))
        Activation that goes with an entry.
    parity : Out(1)
        Layer of the word.
    """

    i: stream.Interface
    layers: data.View
    address: Signal
    read: Signal
    mac: Signal
    drain: Signal
    row_done: Signal
    row: Signal
    last: Signal
    value: Signal
    parity: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(slice_layout(config))),
                "layers": In(data.ArrayLayout(layer_layout(config), 2)),
                "address": Out(config.base_bits),
                "read": Out(1),
                "mac": Out(1),
                "drain": Out(1),
                "row_done": Out(1),
                "row": Out(config.row_bits),
                "last": Out(1),
                "value": Out(signed(config.activation_bits + 1)),
                "parity": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count down the words of the current slice or drain; take the next with the last word."""
        m = Module()
        config = self._config
        draining, parity = Signal(), Signal()
        most_words = max(config.rows_per_pe * config.bias_words, 1 << config.wide_count_bits)
        left = Signal(range(most_words), reset_less=True)  # words after the current one
        value = Signal.like(self.value, reset_less=True)
        word_index = Signal(range(max(config.bias_words, 2)))
        row = Signal(config.row_bits)
        row_done = word_index == config.bias_words - 1

        # What is taken belongs to the layer after the last END, even in the END's last cycle.
        finishing = self.read & (left == 0)
        next_parity = parity ^ (finishing & draining)
        layer = select_layer(self.layers, next_parity)
        front = self.i.p
        m.d.comb += self.i.ready.eq(~self.read | finishing)
        with m.If(finishing):
            m.d.sync += [self.read.eq(0), parity.eq(next_parity)]
        with m.If(self.read):
            m.d.sync += [self.address.eq(self.address + 1), left.eq(left - 1)]
            m.d.sync += word_index.eq(word_index + 1)
            with m.If(row_done):
                m.d.sync += [word_index.eq(0), row.eq(row + 1)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                self.read.eq(1),
                draining.eq(front.end),
                self.address.eq(Mux(front.end, layer.bias_base, front.base)),
                left.eq(Mux(front.end, layer.last_drain_word, front.count - 1)),
                value.eq(Cat(front.value, front.value[-1] & layer.signed_in).as_signed()),
                word_index.eq(0),
                row.eq(0),
            ]
        m.d.sync += [
            self.mac.eq(self.read & ~draining),
            self.drain.eq(self.read & draining),
            self.row_done.eq(row_done),
            self.row.eq(row),
            self.last.eq(left == 0),
            self.value.eq(value),
            self.parity.eq(parity),
        ]
        return m
