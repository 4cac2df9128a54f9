# SPDX-License-Identifier: BSD-2-Clause
"""Column records: which entries of every PE belong to an activation's column.

Instead of a pointer per column and PE (EIE) a record holds one base for eight columns and a count
for each, so a column and PE costs `count_bits` + `base_bits` / 8 bits. A layer with long slices
uses four counts of twice the width in the same word: a wide count is a pair of narrow fields, so
both kinds share one adder tree.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import Section
from .layouts import WriteBus, WriteSignature, activation_layout, layer_layout

__all__ = ["ColumnRecords"]


class ColumnRecords(wiring.Component):
    """Look up one column for all PEs: first entry and number of entries of each slice.

    **Latency**: `LATENCY` = 3 advances from `slot` to `bases` and `counts`. **Throughput**: one
    column per cycle in which `advance` is high; everything stands still otherwise.
    **Memory**: `column_words` x `n_pes` x `column_bits`, one wide memory for all PEs.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    slot : In
        Column number.
    advance : In(1)
    layer : In(layer_layout)
        The layer of `slot`.
    bases, counts : Out(ArrayLayout)
        Per PE: address of the slice's first entry, and its number of entries.
    filled : Out(n_pes)
        Which slices have entries: known beforehand, because all PEs wait for it together.
    write : In
        Loader's bus.
    """

    LATENCY = 3

    slot: Signal
    advance: Signal
    bases: data.View
    counts: data.View
    filled: Signal
    layer: data.View
    write: WriteBus

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "slot": In(activation_layout(config)["slot"].shape),
                "advance": In(1),
                "layer": In(layer_layout(config)),
                "bases": Out(data.ArrayLayout(config.base_bits, config.n_pes)),
                "counts": Out(data.ArrayLayout(config.wide_count_bits, config.n_pes)),
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
                self.layer.columns_base
                + Mux(self.layer.wide_counts, self.slot >> 2, self.slot >> 3)
            ),
        ]

        wide_q1 = Signal(reset_less=True)
        wide_q2 = Signal(reset_less=True)
        place_q1 = Signal(3, reset_less=True)  # of the column's first narrow field
        with m.If(self.advance):
            m.d.sync += [
                wide_q1.eq(self.layer.wide_counts),
                wide_q2.eq(wide_q1),
                place_q1.eq(Mux(self.layer.wide_counts, self.slot[:2] << 1, self.slot[:3])),
            ]
        for pe in range(config.n_pes):
            word = read_port.data.word_select(pe, width)
            self._locate(m, pe, word, wide_q1, wide_q2, place_q1)
        return m

    def _locate(
        self,
        m: Module,
        pe: int,
        word: Value,
        wide_q1: Signal,
        wide_q2: Signal,
        place_q1: Signal,
    ) -> None:
        config = self._config
        bits = config.count_bits
        base, rest = word[: config.base_bits], word[config.base_bits :]
        fields = [rest[k * bits : (k + 1) * bits] for k in range(8)]
        before = [Mux(place_q1 > k, field, 0) for k, field in enumerate(fields)]
        even = sum(before[2::2], start=before[0])
        odd = sum(before[3::2], start=before[1])
        first = Cat(*fields).word_select(place_q1, bits)
        second = Cat(*fields[1::2]).word_select(place_q1[1:], bits)

        base_q2 = Signal(config.base_bits, name=f"base_q2_{pe}", reset_less=True)
        # Memory answers late in a cycle, so only the first sums are made in the same one.
        even_q2 = Signal(bits + 2, name=f"even_q2_{pe}", reset_less=True)
        odd_q2 = Signal(bits + 2, name=f"odd_q2_{pe}", reset_less=True)
        count_q2 = Signal(config.wide_count_bits, name=f"count_q2_{pe}", reset_less=True)
        with m.If(self.advance):
            m.d.sync += [
                base_q2.eq(base),
                even_q2.eq(even),
                odd_q2.eq(odd),
                count_q2.eq(Cat(first, Mux(wide_q1, second, 0))),
                self.bases[pe].eq(base_q2 + even_q2 + Mux(wide_q2, odd_q2 << bits, odd_q2)),
                self.counts[pe].eq(count_q2),
                self.filled[pe].eq(count_q2.any()),
            ]
