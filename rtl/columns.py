# SPDX-License-Identifier: BSD-2-Clause
"""Column records: which entries of every PE belong to an activation's column; biases of its rows.

Instead of a pointer per column and PE (EIE) a record holds one base for eight columns and a count
for each, so a column and PE costs `count_bits` + `base_bits` / 8 bits. A layer with long slices
uses four counts of twice the width in the same word: a wide count is a pair of narrow fields, so
both kinds share one adder tree.

Behind its records a layer has a word for each row that a PE drains: bias and shift of the row. They
lie here because all PEs get theirs in one cycle, one row after the other.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import Section
from .layouts import (
    WriteBus,
    WriteSignature,
    activation_layout,
    layer_layout,
    slice_layout,
    work_layout,
)

__all__ = ["ColumnRecords"]


class ColumnRecords(wiring.Component):
    """Look up one column or one row to drain for all PEs: what goes into their queues.

    **Latency**: `LATENCY` = 3 advances from `slot` to `work`. **Throughput**: one column or row
    per cycle in which `advance` is high; everything stands still otherwise.
    **Memory**: `column_words` x `n_pes` x `column_bits`, one wide memory for all PEs.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    drain : In(1)
        Look up a row instead of a column.
    slot, value : In
        Column number, and the activation that goes with it.
    row : In
        Local row to drain.
    advance : In(1)
    layer : In(layer_layout)
        The layer of `slot` or `row`.
    work : Out(ArrayLayout(work_layout, n_pes))
        Per PE: its slice of the column, or bias and shift of its row.
    filled : Out(n_pes)
        Who has something to do: slices may be empty, rows are there for all. Known beforehand,
        because all PEs wait for it together.
    write : In
        Loader's bus.
    """

    LATENCY = 3

    drain: Signal
    slot: Signal
    value: Signal
    row: Signal
    advance: Signal
    work: data.View
    filled: Signal
    layer: data.View
    write: WriteBus

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "drain": In(1),
                "slot": In(activation_layout(config)["slot"].shape),
                "value": In(config.activation_bits),
                "row": In(config.row_bits),
                "advance": In(1),
                "layer": In(layer_layout(config)),
                "work": Out(data.ArrayLayout(work_layout(config), config.n_pes)),
                "filled": Out(config.n_pes),
                "write": In(WriteSignature(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read the word; sum the counts before the column; add both sums to the base."""
        m = Module()
        config = self._config
        width = config.column_bits
        m.submodules.records = records = memory.Memory(
            shape=width * config.n_pes, depth=config.column_words, init=[]
        )
        read_port = records.read_port()
        write_port = records.write_port(granularity=width)
        write = self.write
        m.d.comb += [
            write_port.addr.eq(write.address),
            write_port.data.eq(write.data[:width].replicate(config.n_pes)),
            write_port.en.eq(
                Mux(
                    write.en & (write.kind == Section.COLUMNS),
                    Const(1, config.n_pes) << write.pe,
                    0,
                )
            ),
            read_port.en.eq(self.advance),
            read_port.addr.eq(
                Mux(self.drain, self.layer.bias_base, self.layer.columns_base)
                + Mux(
                    self.drain,
                    self.row,
                    Mux(self.layer.wide_counts, self.slot >> 2, self.slot >> 3),
                )
            ),
        ]

        column = data.StructLayout({"drain": 1, "wide": 1, "value": config.activation_bits})
        column_q1, column_q2 = (Signal(column, reset_less=True) for _ in range(2))
        place_q1 = Signal(3, reset_less=True)  # of the column's first narrow field
        with m.If(self.advance):
            m.d.sync += [
                column_q1.drain.eq(self.drain),
                column_q1.wide.eq(self.layer.wide_counts),
                column_q1.value.eq(self.value),
                column_q2.eq(column_q1),
                place_q1.eq(Mux(self.layer.wide_counts, self.slot[:2] << 1, self.slot[:3])),
            ]
        for pe in range(config.n_pes):
            word = read_port.data.word_select(pe, width)
            self._locate(m, pe, word, column_q1.wide, column_q2, place_q1)
        return m

    def _locate(
        self,
        m: Module,
        pe: int,
        word: Value,
        wide_q1: Value,
        column_q2: data.View,
        place_q1: Signal,
    ) -> None:
        config = self._config
        bits = config.count_bits
        rest = word[config.base_bits :]
        fields = [rest[k * bits : (k + 1) * bits] for k in range(8)]
        before = [Mux(place_q1 > k, field, 0) for k, field in enumerate(fields)]
        even = sum(before[2::2], start=before[0])
        odd = sum(before[3::2], start=before[1])
        first = Cat(*fields).word_select(place_q1, bits)
        second = Cat(*fields[1::2]).word_select(place_q1[1:], bits)

        kept = max(config.base_bits, config.bias_bits)
        word_q2 = Signal(kept, name=f"word_q2_{pe}", reset_less=True)
        # Memory answers late in a cycle, so only the first sums are made in the same one.
        even_q2 = Signal(bits + 2, name=f"even_q2_{pe}", reset_less=True)
        odd_q2 = Signal(bits + 2, name=f"odd_q2_{pe}", reset_less=True)
        count_q2 = Signal(config.wide_count_bits, name=f"count_q2_{pe}", reset_less=True)
        slice_q2 = slice_layout(config)(
            Cat(
                column_q2.value,
                count_q2,
                (
                    word_q2[: config.base_bits]
                    + even_q2
                    + Mux(column_q2.wide, odd_q2 << bits, odd_q2)
                )[: config.base_bits],
            )
        )
        with m.If(self.advance):
            m.d.sync += [
                word_q2.eq(word),
                even_q2.eq(even),
                odd_q2.eq(odd),
                count_q2.eq(Cat(first, Mux(wide_q1, second, 0))),
                self.work[pe].drain.eq(column_q2.drain),
                self.work[pe].body.eq(
                    Mux(column_q2.drain, word_q2[: config.bias_bits], slice_q2.as_value())
                ),
                self.filled[pe].eq(column_q2.drain | count_q2.any()),
            ]
