# SPDX-License-Identifier: BSD-2-Clause
"""One processing element: queue, fetch, codebook, multiply, accumulate, drain.

The slices of a layer and the drain of its rows run through the same pipeline, in the order in which
the queue delivered them, so nothing has to wait for the pipeline to empty between the two.

Ref: Han et al., "EIE", ISCA 2016, section IV (PE with activation queue, codebook and accumulators);
here empty slices never enter the queue, row indices are absolute (no fillers), and each PE drains
its own rows.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .accumulate import Accumulator
from .codebook import Codebook
from .config import EngineConfig
from .drain import Drain
from .fetch import Fetch
from .formats import Section
from .layouts import (
    WriteBus,
    WriteSignature,
    layer_layout,
    select_layer,
    token_layout,
    work_layout,
)
from .memory import WeightMemory
from .pipeline import delay
from .streams import Queue

__all__ = ["PE", "Activity"]


class Activity(enum.Enum, shape=2):
    """What a PE's multiplier slot was used for in a cycle."""

    IDLE = 0
    BUSY = 1
    FILLER = 2
    DRAIN = 3


class PE(wiring.Component):
    """Multiply-accumulate over the slices of one layer after another.

    ``sum[row] += codebook[code] * value`` for each entry of a slice; rows to drain come in order,
    each with its bias and shift, and are requantized and cleared (`rtl/drain.py`).

    **Latency**: an entry's sum is updated `LATENCY` cycles after its fetch. **Throughput**: one
    entry or drained row per cycle, also across slices and when neighbouring entries hit the same
    row (the sum is forwarded). **Overflow**: none, the compiler bounds every subset of a row's
    terms. After reset all sums are cleared first, `rows_per_pe` cycles in
    which `i` is not ready.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of work_layout)
        Slices (count >= 1), and behind a layer's slices all its rows to drain.
    o : Out(stream of token_layout)
        Output activations of one layer after another; the last token of each has `last`.
    layers : In(ArrayLayout(layer_layout, 2))
        Parameters of even and odd layers since reset. Those of layer l must be steady from its
        first slice until its last output has left.
    write, selected : In
        Loader's bus, and whether it is for this PE.
    activity : Out(Activity)
        Use of the multiplier slot, two cycles after the fetch.
    drained_parity : Out(1)
        Flips when a layer is drained into the output list.
    cleared : Out(1)
        Whether the sums are cleared since reset.
    """

    LATENCY = 1 + Codebook.LATENCY + Accumulator.LATENCY + 1

    i: stream.Interface
    o: stream.Interface
    layers: data.View
    write: WriteBus
    selected: Signal
    activity: Signal
    drained_parity: Signal
    cleared: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(work_layout(config))),
                "o": Out(stream.Signature(token_layout(config, 0))),
                "layers": In(data.ArrayLayout(layer_layout(config), 2)),
                "write": In(WriteSignature(config)),
                "selected": In(1),
                "activity": Out(Activity),
                "drained_parity": Out(1),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch, look up, accumulate, drain: operations stay in order from end to end."""
        m = Module()
        config = self._config
        m.submodules.queue = queue = Queue(work_layout(config), depth=config.queue_depth)
        m.submodules.fetch = fetch = Fetch(config)
        m.submodules.weights = weights = WeightMemory(
            width=config.entry_bits, depth=config.weight_depth, spram=config.spram
        )
        m.submodules.codebook = codebook = Codebook(config)
        m.submodules.accumulator = accumulator = Accumulator(config)
        m.submodules.drain = drain = Drain(config)
        connect(m, queue.o, fetch.i)
        connect(m, drain.o, flipped(self.o))

        clear_row = Signal(range(config.rows_per_pe))
        with m.If(~self.cleared):
            m.d.sync += clear_row.eq(clear_row + 1)
            with m.If(clear_row == config.rows_per_pe - 1):
                m.d.sync += self.cleared.eq(1)

        # The word is there: masks split an entry.
        word = weights.data
        layer = select_layer(self.layers, fetch.parity)
        code = Cat(*reversed(list(word[-8:]))) & layer.code_mask
        with m.If(fetch.mac):
            filler = layer.zero_code & ~code.any()
            m.d.sync += self.activity.eq(Mux(filler, Activity.FILLER, Activity.BUSY))
        with m.Else():
            m.d.sync += self.activity.eq(Mux(fetch.drain, Activity.DRAIN, Activity.IDLE))

        # An operation waits for its weight, and a row's sum meets its bias.
        operation = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "take": 1,
                    "row": config.row_bits,
                    "last": 1,
                    "body": config.bias_bits,
                    "sign": 1,
                }
            )
        )
        m.d.comb += [
            operation.valid.eq(fetch.mac | fetch.drain),
            operation.take.eq(fetch.drain),
            operation.row.eq(Mux(fetch.mac, word & layer.row_mask, fetch.row)),
            operation.last.eq(fetch.last),
            operation.body.eq(fetch.body),
            operation.sign.eq(fetch.sign),
        ]
        delayed = delay(m, operation, Codebook.LATENCY)
        operand = Cat(delayed.body[: config.activation_bits], delayed.sign).as_signed()
        last, row, bias = (
            delay(m, field, Accumulator.LATENCY)
            for field in (delayed.last, delayed.row, delayed.body)
        )
        # The drain is done with a layer when its last row is listed.
        with m.If(delay(m, drain.valid & drain.last, Drain.LATENCY - 1)):
            m.d.sync += self.drained_parity.eq(~self.drained_parity)

        m.d.comb += [
            queue.i.p.eq(self.i.p),
            queue.i.valid.eq(self.i.valid & self.cleared),
            self.i.ready.eq(queue.i.ready & self.cleared),
            fetch.layers.eq(self.layers),
            weights.address.eq(Mux(self.write.en, self.write.address, fetch.address)),
            weights.read.eq(fetch.read),
            weights.write.eq(self.write.en & self.selected & (self.write.kind == Section.WEIGHTS)),
            weights.write_data.eq(self.write.data),
            codebook.code.eq(layer.codebook_base | code),
            codebook.write.eq(self.write.en & (self.write.kind == Section.CODEBOOK)),
            codebook.write_address.eq(self.write.address),
            codebook.write_data.eq(self.write.data),
            accumulator.valid.eq(delayed.valid),
            accumulator.take.eq(delayed.take),
            accumulator.row.eq(delayed.row),
            accumulator.operand.eq(operand),
            accumulator.weight.eq(codebook.weight),
            accumulator.clear.eq(~self.cleared),
            accumulator.clear_row.eq(clear_row),
            drain.valid.eq(accumulator.taken),
            drain.sum.eq(accumulator.sum),
            Cat(drain.bias, drain.shift).eq(bias),
            drain.row.eq(row),
            drain.last.eq(last),
            drain.layer.eq(select_layer(self.layers, self.drained_parity)),
        ]
        return m
