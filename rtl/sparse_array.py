# SPDX-License-Identifier: BSD-2-Clause
"""Sparse array: one nonzero activation per cycle goes to all PEs, outputs come back merged.

Ref: Han et al., "EIE", ISCA 2016. Rows are dealt to PEs; each PE works through its slice of the
column of every broadcast activation. A queue per PE evens out slices of unequal length.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .columns import ColumnRecords
from .config import EngineConfig
from .layouts import (
    WriteBus,
    WriteSignature,
    activation_layout,
    layer_layout,
    select_layer,
    token_layout,
)
from .merge import MergeTree
from .pe import PE, Activity
from .streams import Queue

__all__ = ["SparseArray"]


class SparseArray(wiring.Component):
    """Matrix-vector products of one layer after another, activations in any order.

    The token with `last` closes the layer's input: after it every queue gets the rows to drain, one
    per cycle, each with its bias. Zeros are dropped here, so a closing zero costs no PE a cycle.

    **Latency**: `ColumnRecords.LATENCY` cycles from `i` to the queues; from the output lists to `o`
    a cycle for each level of the merge tree and one more. **Throughput**: one activation per cycle
    while every PE with a non-empty slice has room in its queue.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of activation_layout)
    o : Out(stream of token_layout)
        Output activations; `last` closes each layer.
    layers : In(ArrayLayout(layer_layout, 2))
        Parameters of even and odd layers since reset.
    parity : In(1)
        Which of them is the layer of `i`.
    write : In
        Loader's bus.
    activities : Out(ArrayLayout(Activity, n_pes))
    blocked : Out(1)
        A full queue holds up the broadcast.
    broadcasting : Out(1)
        An activation is on its way to the queues.
    cleared : Out(1)
        All sums are cleared since reset.
    drained : Out(1)
        All PEs have drained the layer before that of `i`.
    """

    LATENCY = 1 + ColumnRecords.LATENCY

    i: stream.Interface
    o: stream.Interface
    layers: data.View
    write: WriteBus
    parity: Signal
    activities: data.View
    blocked: Signal
    broadcasting: Signal
    cleared: Signal
    drained: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(activation_layout(config))),
                "o": Out(stream.Signature(token_layout(config, config.pe_bits))),
                "layers": In(data.ArrayLayout(layer_layout(config), 2)),
                "parity": In(1),
                "write": In(WriteSignature(config)),
                "activities": Out(data.ArrayLayout(Activity, config.n_pes)),
                "blocked": Out(1),
                "broadcasting": Out(1),
                "cleared": Out(1),
                "drained": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Column records, then a queue per PE, then the merge tree."""
        m = Module()
        config = self._config
        m.submodules.columns = columns = ColumnRecords(config)
        m.submodules.merge = merge = MergeTree(config)
        pes = [PE(config) for _ in range(config.n_pes)]
        # The next layer's look-up must not reach through all levels of the tree in one cycle.
        m.submodules.outputs = outputs = Queue(token_layout(config, config.pe_bits), depth=2)
        connect(m, merge.o, outputs.i)
        connect(m, outputs.o, flipped(self.o))
        connect(m, columns.write, flipped(self.write))

        # Whether all PEs have room must not reach the store's memory in the same cycle, so tokens
        # wait in a queue, each with the parity of its layer.
        waiting = data.StructLayout({"token": activation_layout(config), "parity": 1})
        m.submodules.inputs = inputs = Queue(waiting, depth=2)
        token, valid = inputs.o.p.token, inputs.o.valid
        m.d.comb += [
            inputs.i.p.token.eq(self.i.p),
            inputs.i.p.parity.eq(self.parity),
            inputs.i.valid.eq(self.i.valid),
            self.i.ready.eq(inputs.i.ready),
        ]

        # A token holds an activation, the end of its layer, or both: then the layer's rows follow
        # in the next cycles. Each stage holds an activation, a row to drain or nothing, and whether
        # the queues have room is known from flip-flops through one gate per PE and a tree of ANDs.
        advance, closing = Signal(), Signal()
        act, draining = Signal(), Signal()
        row = Signal(config.row_bits)
        layer = select_layer(self.layers, inputs.o.p.parity)
        last_row = row == layer.last_row[: config.row_bits]
        m.d.comb += [
            draining.eq(closing | (valid & token.last & ~token.value.any())),
            act.eq(valid & token.value.any() & ~closing),
            columns.drain.eq(draining),
            columns.slot.eq(token.slot),
            columns.value.eq(token.value),
            columns.row.eq(row),
            columns.layer.eq(layer),
            columns.advance.eq(advance),
            inputs.o.ready.eq(advance & Mux(draining, last_row, ~token.last)),
        ]
        with m.If(advance & valid & token.last):
            m.d.sync += closing.eq(~(draining & last_row))
            with m.If(draining):
                m.d.sync += row.eq(Mux(last_row, 0, row + 1))
        filled_q, acts = act | draining, [act]
        for stage in range(1, ColumnRecords.LATENCY + 1):
            filled_next, act_next = Signal(name=f"filled_q{stage}"), Signal(name=f"act_q{stage}")
            with m.If(advance):
                m.d.sync += [filled_next.eq(filled_q), act_next.eq(acts[-1])]
            filled_q = filled_next
            acts.append(act_next)

        rooms = Signal(config.n_pes)
        push = Signal()
        m.d.comb += [
            push.eq(filled_q & rooms.all()),
            self.blocked.eq(filled_q & ~rooms.all()),
            advance.eq(~self.blocked),
            self.broadcasting.eq(Cat(*acts).any()),
        ]

        for k, pe in enumerate(pes):
            m.submodules[f"pe_{k}"] = pe
            m.d.comb += [
                rooms[k].eq(pe.i.ready | ~columns.filled[k]),
                pe.i.valid.eq(push & columns.filled[k]),
                pe.i.p.eq(columns.work[k]),
                pe.layers.eq(self.layers),
                pe.selected.eq(self.write.pe == k),
                self.activities[k].eq(pe.activity),
            ]
            connect(m, pe.write, flipped(self.write))
            connect(m, pe.o, getattr(merge, f"i{k}"))
        m.d.comb += [
            self.cleared.eq(Cat(*(pe.cleared for pe in pes)).all()),
            self.drained.eq(Cat(*(pe.drained_parity == self.parity for pe in pes)).all()),
        ]
        return m
