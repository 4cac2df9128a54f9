# SPDX-License-Identifier: BSD-2-Clause
"""Slices of one PE from gaps and codes: entries for its weight memory, and their column records.

A place of a PE's part of a layer is column x rows + row, so gaps run on across columns, and records
need not be sent at all: the entries say how many each column has.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .formats import CODE_SETTINGS
from .layouts import symbol_layout

__all__ = ["SliceWriter"]


class SliceWriter(wiring.Component):
    """Count rows and columns, write one section's entries and records after each reset.

    **Latency**: a word is written in the cycle after the item or column that completes it.
    **Throughput**: an item per cycle, but for one cycle per column that ends; `i.ready` is low
    then. Behind the last entry, one cycle for each column that is left.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of symbol_layout)
    set, number, setting : In
        Settings of the layer (`formats.CODE_SETTINGS`), before the first item.
    empty : In(1)
        There are no entries (pulse).
    address : In(16)
        Of the next entry: counted up in the cycle after `entry`.
    entry, entry_word : Out
        Write an entry (pulse).
    record, record_address, record_word : Out
        Write a column record (pulse).
    done : Out(1)
        All words are written.
    error : Out(1)
        An entry beyond the last column, or more entries in a column than its count holds (pulse;
        the entry is not written).
    """

    i: stream.Interface
    set: Signal
    number: Signal
    setting: Signal
    empty: Signal
    address: Signal
    entry: Signal
    entry_word: Signal
    record: Signal
    record_address: Signal
    record_word: Signal
    done: Signal
    error: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(symbol_layout)),
                "set": In(1),
                "number": In(range(len(CODE_SETTINGS))),
                "setting": In(16),
                "empty": In(1),
                "address": In(16),
                "entry": Out(1),
                "entry_word": Out(config.entry_bits),
                "record": Out(1),
                "record_address": Out(ceil_log2(config.column_words)),
                "record_word": Out(config.column_bits),
                "done": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Leave a column per cycle while the row lies beyond the last one, else take an item."""
        m = Module()
        config = self._config
        width = config.count_bits
        last_row, wide = Signal(config.row_bits), Signal()
        columns_left = Signal(config.slot_bits)
        row = Signal(range((1 << config.row_bits) + 256))  # of the next place
        count = Signal(config.wide_count_bits)
        fields = [Signal(width, name=f"field_{k}") for k in range(8)]
        base = Signal(config.base_bits)
        place = Signal(3)  # of the column's first narrow field
        beyond, closing = Signal(), Signal()
        step, last_of_word = Signal(), Signal()
        take = self.i.valid & self.i.ready

        with m.If(self.set):
            m.d.sync += base.eq(self.address)
            with m.Switch(self.number):
                with m.Case(CODE_SETTINGS.index("last_row")):
                    m.d.sync += [last_row.eq(self.setting), wide.eq(self.setting[15])]
                with m.Case(CODE_SETTINGS.index("columns_base")):
                    m.d.sync += self.record_address.eq(self.setting)
                with m.Case(CODE_SETTINGS.index("last_column")):
                    m.d.sync += columns_left.eq(self.setting)
        with m.If(self.empty | (take & self.i.p.last)):
            m.d.sync += closing.eq(1)

        past = row > last_row
        full = count[:width].all() & (~wide | count[width:].all())
        wrong = (take & self.i.p.code & (beyond | full)) | (past & beyond & ~closing)
        m.d.comb += [
            self.done.eq(closing & beyond & (place == 0) & ~self.record),
            step.eq(Mux(closing, ~(beyond & (place == 0)), past)),
            last_of_word.eq(place[1:].all() & (wide | place[0])),
            self.i.ready.eq(~past & ~closing),
            self.error.eq(wrong),
            self.record_word.eq(Cat(base, *fields)),
        ]
        m.d.sync += [self.entry.eq(0), self.record.eq(step & last_of_word)]
        with m.If(take):
            m.d.sync += row.eq(row + Mux(self.i.p.code, 1, self.i.p.value))
        with m.Elif(step):
            m.d.sync += row.eq(row - last_row - 1)
        with m.If(take & self.i.p.code):
            code = Cat(*reversed(list(self.i.p.value)))
            m.d.sync += [
                self.entry.eq(~wrong),
                self.entry_word.eq(row | code << (config.entry_bits - 8)),
                count.eq(count + 1),
            ]
        with m.If(step):
            m.d.sync += [
                count.eq(0),
                place.eq(place + Mux(wide, 2, 1)),
                columns_left.eq(columns_left - 1),
            ]
            with m.If(columns_left == 0):
                m.d.sync += beyond.eq(1)
            for k, field in enumerate(fields):
                here = (place[1:] == k >> 1) & (wide | (place[0] == k & 1))
                with m.If(here):
                    m.d.sync += field.eq(
                        Mux(wide, count[width:], count[:width]) if k & 1 else count
                    )
        with m.If(self.record):
            m.d.sync += [self.record_address.eq(self.record_address + 1), base.eq(self.address)]
        return m
