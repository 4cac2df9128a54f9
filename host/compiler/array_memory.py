# SPDX-License-Identifier: BSD-2-Clause
"""Memories of the sparse array's PEs, filled layer by layer.

Column records hold all layers' biases first, then a layer's records after the other's.
"""

import numpy as np

from ...rtl.config import EngineConfig
from ...rtl.formats import (
    Section,
    bytes_per_word,
    pack_bias,
    pack_columns,
    pack_entries,
    section,
)
from .coded_sections import CodedLayer, LayerCode, coded_sections
from .quantize import Ints, QuantizedLayer

__all__ = ["ArrayMemory", "column_words", "slice_counts"]


def slice_counts(
    layer: QuantizedLayer, slots: Ints, column_slots: Ints, shape: tuple[int, int]
) -> Ints:
    """Entries of each PE in each column.

    Parameters
    ----------
    layer : QuantizedLayer
    slots : (n_rows,) int64
        Slot of each row.
    column_slots : (n_cols,) int64
        Slot of each input.
    shape : (int, int)
        PEs, and slots of the source.

    Returns
    -------
    (PEs, slots) int64
    """
    n_pes, n_columns = shape
    pe = slots[layer.row_indices] % n_pes
    flat = pe * n_columns + column_slots[layer.columns()]
    return np.bincount(flat, minlength=n_pes * n_columns).reshape(shape)


def column_words(counts: Ints, config: EngineConfig) -> tuple[int, bool]:
    """Words of column records that a layer takes, and whether their counts are wide."""
    wide = bool(counts.max() >= 1 << config.count_bits)
    return -(-counts.shape[1] // (4 if wide else 8)), wide


class ArrayMemory:
    """Weight memories and column records of all PEs."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._words = {
            kind: [_Words() for _ in range(config.n_pes)]
            for kind in (Section.WEIGHTS, Section.COLUMNS)
        }
        self._coded: list[bytes] = []
        self._used = np.zeros(config.n_pes, dtype=np.int64)
        self._records = 0

    def add_biases(self, layer: QuantizedLayer, slots: Ints, n_slots: int) -> int:
        """Append a layer's biases and shifts; slots without a row get 0. Returns the base."""
        config = self._config
        words = [0] * n_slots
        for slot, bias, shift in zip(slots, layer.bias, layer.shift, strict=True):
            words[slot] = pack_bias(int(bias), int(shift), config)
        base = self._records
        for pe, memory in enumerate(self._words[Section.COLUMNS]):
            memory.add(base, words[pe :: config.n_pes])
        self._records += n_slots // config.n_pes
        return base

    def add_entries(
        self, layer: QuantizedLayer, slots: Ints, column_slots: Ints, n_columns: int
    ) -> dict[str, int]:
        """Append a layer's entries in column order, and their records, coded if that is shorter.

        Returns
        -------
        dict
            The fields of its program record that say where and how.
        """
        config = self._config
        slot = slots[layer.row_indices]
        pe, local_row = slot % config.n_pes, slot // config.n_pes
        column = column_slots[layer.columns()]
        order = np.lexsort((local_row, column, pe))
        counts = slice_counts(layer, slots, column_slots, (config.n_pes, n_columns))
        rows = int(slots.max()) // config.n_pes + 1
        entries = CodedLayer(
            counts=counts.sum(axis=1),
            addresses=self._used.copy(),
            places=(column * rows + local_row)[order],
            codes=layer.codes[order],
            rows=rows,
            columns=n_columns,
            columns_base=self._records,
            wide=column_words(counts, config)[1],
        )
        n_records = self._add_shorter(entries, counts)
        self._used += entries.counts
        self._records += n_records
        return {
            "zero_code": int(layer.zero_code),
            "columns_base": entries.columns_base,
            "wide_counts": int(entries.wide),
            "code_mask": (1 << layer.code_bits) - 1,
        }

    def _add_shorter(self, layer: CodedLayer, counts: Ints) -> int:
        """Append a layer, coded or plain; return its number of records."""
        config = self._config
        n_records = column_words(counts, config)[0]
        size = len(layer.codes) * bytes_per_word(Section.WEIGHTS, config)
        size += config.n_pes * n_records * bytes_per_word(Section.COLUMNS, config)
        if config.decoder_bits and len(layer.codes):
            coded = coded_sections(layer, LayerCode.best(layer), config)
            if sum(map(len, coded)) < size:
                self._coded += coded
                return n_records
        words = pack_entries(layer.places % layer.rows, layer.codes, config)
        for pe, entries in enumerate(np.split(words, np.cumsum(layer.counts)[:-1])):
            address = int(layer.addresses[pe])
            records = _pack_counts(counts[pe], address, layer.wide, config)
            self._words[Section.WEIGHTS][pe].add(address, entries.tolist())
            self._words[Section.COLUMNS][pe].add(layer.columns_base, records)
        return n_records

    def sections(self) -> list[bytes]:
        """Sections of the image: the plain ones PE by PE, then the coded ones layer by layer."""
        plain = [
            section(kind, pe, address, words, self._config)
            for pe in range(self._config.n_pes)
            for kind, memories in self._words.items()
            for address, words in memories[pe].runs
        ]
        return plain + self._coded


class _Words:
    """Words of one memory that are sent as they are, in runs without a gap."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, list[int]]] = []

    def add(self, address: int, words: list[int]) -> None:
        """Append words from an address on, which rises."""
        if not words:
            return
        if self.runs and self.runs[-1][0] + len(self.runs[-1][1]) == address:
            self.runs[-1][1].extend(words)
        else:
            self.runs.append((address, words))


def _pack_counts(counts: Ints, base: int, wide: bool, config: EngineConfig) -> list[int]:
    """Column records of one PE whose first entry lies at `base`."""
    group = 4 if wide else 8
    padded = np.zeros(-(-len(counts) // group) * group, dtype=np.int64)
    padded[: len(counts)] = counts
    groups = padded.reshape(-1, group)
    bases = base + np.concatenate(([0], np.cumsum(groups.sum(axis=1))[:-1]))
    return pack_columns(bases, groups, wide, config)
