# SPDX-License-Identifier: BSD-2-Clause
"""Fetch of a PE: slices become one address of weight memory per cycle, rows to drain pass."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .layouts import layer_layout, select_layer, work_layout

__all__ = ["Fetch"]


class Fetch(wiring.Component):
    """Walk through the entries of each slice; number the rows that are to be drained.

    **Latency**: the first address one cycle after a slice is taken; the outputs that describe a
    word come a cycle after its address, with the word. A row to drain takes as long.
    **Throughput**: one word or row per cycle, no gap between them.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of work_layout)
    layers : In(ArrayLayout(layer_layout, 2))
        Parameters of even and odd layers since reset.
    address, read : Out
        Weight memory.
    mac : Out(1)
        The word is an entry.
    drain : Out(1)
        There is a row to drain instead.
    row, last : Out
        In a drain: the local row, and whether it is the layer's last.
    body, sign : Out
        In a drain the row's bias and shift, else the activation in the lowest bits and its sign.
    parity : Out(1)
        Layer of the word or row.
    """

    i: stream.Interface
    layers: data.View
    address: Signal
    read: Signal
    mac: Signal
    drain: Signal
    row: Signal
    last: Signal
    body: Signal
    sign: Signal
    parity: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(work_layout(config))),
                "layers": In(data.ArrayLayout(layer_layout(config), 2)),
                "address": Out(config.base_bits),
                "read": Out(1),
                "mac": Out(1),
                "drain": Out(1),
                "row": Out(config.row_bits),
                "last": Out(1),
                "body": Out(config.bias_bits),
                "sign": Out(1),
                "parity": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Count down the entries of the current slice; take what comes next with the last one."""
        m = Module()
        config = self._config
        busy, draining, parity = Signal(), Signal(), Signal()
        left = Signal(config.wide_count_bits, reset_less=True)  # entries after the current one
        body = Signal.like(self.body, reset_less=True)
        row, last = Signal(config.row_bits), Signal()
        layer = select_layer(self.layers, parity)
        front = self.i.p

        done = draining | (left == 0)
        m.d.comb += [
            self.read.eq(busy & ~draining),
            self.i.ready.eq(~busy | done),
            last.eq(draining & (row == layer.last_row[: config.row_bits])),
        ]
        m.d.sync += [self.address.eq(self.address + 1), left.eq(left - 1)]
        with m.If(self.i.ready):
            m.d.sync += [
                busy.eq(self.i.valid),
                draining.eq(front.drain),
                self.address.eq(front.body.slice.base),
                left.eq(front.body.slice.count - 1),
                body.eq(front.body.bias),
            ]
        with m.If(busy & draining):
            m.d.sync += row.eq(row + 1)
            with m.If(last):
                m.d.sync += [row.eq(0), parity.eq(~parity)]
        m.d.sync += [
            self.mac.eq(busy & ~draining),
            self.drain.eq(busy & draining),
            self.row.eq(row),
            self.last.eq(last),
            self.body.eq(body),
            self.sign.eq(body[config.activation_bits - 1] & layer.signed_in),
            self.parity.eq(parity),
        ]
        return m
