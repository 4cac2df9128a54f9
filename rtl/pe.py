# SPDX-License-Identifier: BSD-2-Clause
"""One processing element: queue, fetch, codebook, multiply, accumulate, drain.

A slice of a column and the drain of a layer run through the same pipeline, in the order in which
the queue delivered them, so nothing has to wait for the pipeline to empty between the two.

Ref: Han et al., "EIE", ISCA 2016, section IV (PE with activation queue, codebook and accumulators);
here empty slices never enter the queue, row indices are absolute (no fillers), and END makes the PE
drain its own rows.
"""

from amaranth import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .codebook import Codebook
from .config import EngineConfig
from .drain import Drain
from .formats import Section
from .layouts import layer_layout, slice_layout, token_layout, write_signature
from .memory import WeightMemory
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

    ``sum[row] += codebook[code] * value`` for each entry of a slice; END requantizes and clears all
    rows (`rtl/drain.py`).

    **Latency**: an entry's sum is updated `LATENCY` cycles after its fetch. **Throughput**: one
    entry per cycle, also across slices and when neighbouring entries hit the same row (the sum is
    forwarded); `bias_words` cycles per row in a drain. **Overflow**: none, the compiler bounds
    every subset of a row's terms. After reset all sums are cleared first, `rows_per_pe` cycles in
    which `i` is not ready.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of slice_layout)
        Slices (count >= 1) and ENDs.
    o : Out(stream of token_layout)
        Output activations of one layer after another; the last token of each has `last`.
    layers : In(ArrayLayout(layer_layout, 2))
        Parameters of even and odd layers since reset. Those of layer l must be steady from its
        first slice until its last output has left.
    write, selected : In
        Loader's bus, and whether it is for this PE.
    activity : Out(Activity)
        Use of the multiplier slot, two cycles after the fetch.
    cleared : Out(1)
        Whether the sums are cleared since reset.
    """

    LATENCY = 5

    i: stream.Interface
    o: stream.Interface
    selected: Signal
    activity: Signal
    cleared: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(slice_layout(config))),
                "o": Out(stream.Signature(token_layout(config, 0))),
                "layers": In(data.ArrayLayout(layer_layout(config), 2)),
                "write": In(write_signature(config)),
                "selected": In(1),
                "activity": Out(Activity),
                "cleared": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Pipeline: fetch, word (q1), codebook (q2, q3), product (q4), sum (q5)."""
        m = Module()
        config = self._config

        m.submodules.queue = queue = Queue(slice_layout(config), depth=config.queue_depth)
        m.submodules.weights = weights = WeightMemory(
            width=config.entry_bits, depth=config.weight_depth, spram=config.spram
        )
        m.submodules.codebook = codebook = Codebook(config)
        m.submodules.sums = sums = memory.Memory(
            shape=signed(config.sum_bits), depth=config.rows_per_pe, init=[]
        )
        m.submodules.drain = drain = Drain(config)
        sum_read, sum_write = sums.read_port(), sums.write_port()
        connect(m, drain.o, flipped(self.o))

        # Clear the sums after reset.
        clear_row = Signal(range(config.rows_per_pe))
        with m.If(~self.cleared):
            m.d.sync += clear_row.eq(clear_row + 1)
            with m.If(clear_row == config.rows_per_pe - 1):
                m.d.sync += self.cleared.eq(1)
        m.d.comb += [
            queue.i.p.eq(self.i.p),
            queue.i.valid.eq(self.i.valid & self.cleared),
            self.i.ready.eq(queue.i.ready & self.cleared),
        ]

        # Fetch: one word per cycle of the current slice or drain.
        active, draining, parity = Signal(), Signal(), Signal()
        address = Signal(config.base_bits, reset_less=True)
        left = Signal(
            range(max(config.rows_per_pe * config.bias_words, 1 << config.wide_count_bits)),
            reset_less=True,
        )  # words after the current one
        value = Signal(signed(config.activation_bits + 1), reset_less=True)
        word_index = Signal(range(max(config.bias_words, 2)))
        row = Signal(config.row_bits)

        # A slice belongs to the layer after the last END, so the parity flips as an END is over.
        finishing = active & (left == 0)
        front = queue.o.p
        next_parity = parity ^ (finishing & draining)
        layer = Array(self.layers)[next_parity]
        m.d.comb += queue.o.ready.eq(~active | finishing)
        with m.If(finishing):
            m.d.sync += [active.eq(0), draining.eq(0), parity.eq(next_parity)]
        with m.If(active):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1)]
            with m.If(draining):
                m.d.sync += word_index.eq(word_index + 1)
                with m.If(word_index == config.bias_words - 1):
                    m.d.sync += [word_index.eq(0), row.eq(row + 1)]
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += [
                active.eq(1),
                draining.eq(front.end),
                address.eq(Mux(front.end, layer.bias_base, front.base)),
                left.eq(Mux(front.end, layer.last_drain_word, front.count - 1)),
                value.eq(Cat(front.value, front.value[-1] & layer.signed_in).as_signed()),
                word_index.eq(0),
                row.eq(0),
            ]
        m.d.comb += [
            weights.address.eq(Mux(self.write.en, self.write.address, address)),
            weights.read.eq(active),
            weights.write.eq(self.write.en & self.selected & (self.write.kind == Section.WEIGHTS)),
            weights.write_data.eq(self.write.data),
            codebook.write.eq(self.write.en & (self.write.kind == Section.CODEBOOK)),
            codebook.write_address.eq(self.write.address),
            codebook.write_data.eq(self.write.data),
        ]

        # q1: the word is there. Masks split an entry; a bias is gathered word by word.
        mac_q1, end_q1, parity_q1 = Signal(), Signal(), Signal()
        row_done_q1 = Signal(reset_less=True)
        row_q1 = Signal.like(row, reset_less=True)
        last_q1 = Signal(reset_less=True)
        value_q1 = Signal.like(value, reset_less=True)
        m.d.sync += [
            mac_q1.eq(active & ~draining),
            end_q1.eq(active & draining),
            parity_q1.eq(parity),
            row_done_q1.eq(word_index == config.bias_words - 1),
            row_q1.eq(row),
            last_q1.eq(left == 0),
            value_q1.eq(value),
        ]
        layer_q1 = Array(self.layers)[parity_q1]
        word = weights.data
        code = Cat(*reversed(list(word[-8:]))) & layer_q1.code_mask
        m.d.comb += codebook.code.eq(layer_q1.codebook_base | code)
        with m.If(mac_q1):
            m.d.sync += self.activity.eq(
                Mux(layer_q1.zero_code & ~code.any(), Activity.FILLER, Activity.BUSY)
            )
        with m.Else():
            m.d.sync += self.activity.eq(Mux(end_q1, Activity.DRAIN, Activity.IDLE))
        bias_q2 = Signal(config.bias_words * config.entry_bits, reset_less=True)
        with m.If(end_q1):
            m.d.sync += bias_q2.eq(Cat(bias_q2, word)[config.entry_bits :])

        # q2 and q3: the codebook looks up; q4: product, and the sum's old value; q5: written.
        valid, end, op_row, operand, last, op_parity = (
            mac_q1 | (end_q1 & row_done_q1),
            end_q1,
            Mux(mac_q1, word & layer_q1.row_mask, row_q1),
            value_q1,
            last_q1,
            parity_q1,
        )
        stages = []
        for stage in (2, 3, 4):
            valid_q = Signal(name=f"valid_q{stage}")
            end_q = Signal(name=f"end_q{stage}", reset_less=True)
            op_row_q = Signal(config.row_bits, name=f"op_row_q{stage}", reset_less=True)
            operand_q = Signal.like(value, name=f"operand_q{stage}", reset_less=True)
            last_q = Signal(name=f"last_q{stage}", reset_less=True)
            op_parity_q = Signal(name=f"op_parity_q{stage}", reset_less=True)
            m.d.sync += [
                valid_q.eq(valid),
                end_q.eq(end),
                op_row_q.eq(op_row),
                operand_q.eq(operand),
                last_q.eq(last),
                op_parity_q.eq(op_parity),
            ]
            valid, end, op_row = valid_q, end_q, op_row_q
            operand, last, op_parity = operand_q, last_q, op_parity_q
            stages.append((valid, end, op_row, operand))
        _, (valid_q3, _, row_q3, operand_q3), (valid_q4, end_q4, row_q4, _) = stages
        bias_q3 = Signal.like(bias_q2, reset_less=True)
        bias_q4 = Signal.like(bias_q2, reset_less=True)
        m.d.sync += [bias_q3.eq(bias_q2), bias_q4.eq(bias_q3)]

        product_q4 = Signal(signed(config.activation_bits + 17), reset_less=True)
        m.d.sync += product_q4.eq(codebook.weight * operand_q3)
        written_q5 = Signal(signed(config.sum_bits), reset_less=True)
        forward_q4 = Signal()
        old, new = Signal(signed(config.sum_bits)), Signal(signed(config.sum_bits))
        m.d.sync += [
            forward_q4.eq(valid_q3 & valid_q4 & (row_q3 == row_q4)),
            written_q5.eq(new),
        ]
        m.d.comb += [
            sum_read.addr.eq(row_q3),
            sum_read.en.eq(1),
            old.eq(Mux(forward_q4, written_q5, sum_read.data)),
            new.eq(Mux(end_q4, 0, old + product_q4)),
            sum_write.addr.eq(Mux(self.cleared, row_q4, clear_row)),
            sum_write.data.eq(Mux(self.cleared, new, 0)),
            sum_write.en.eq(valid_q4 | ~self.cleared),
        ]

        drain_parity = Signal()
        with m.If(drain.valid):
            m.d.sync += drain_parity.eq(op_parity)
        m.d.comb += [
            drain.valid.eq(valid_q4 & end_q4),
            drain.sum.eq(old),
            Cat(drain.bias, drain.shift).eq(bias_q4),
            drain.row.eq(row_q4),
            drain.last.eq(last),
            drain.layer.eq(Array(self.layers)[drain_parity]),
        ]
        return m
