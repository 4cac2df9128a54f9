# SPDX-License-Identifier: BSD-2-Clause
"""Memories of the sparse array's PEs, filled layer by layer: first all biases, then the entries."""

import numpy as np

from ..rtl.config import EngineConfig
from ..rtl.formats import Section, pack_bias, pack_columns, pack_entries, section
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
        self._weights: list[list[Ints]] = [[] for _ in range(config.n_pes)]
        self._columns: list[list[int]] = [[] for _ in range(config.n_pes)]
        self._used = np.zeros(config.n_pes, dtype=np.int64)

    def add_biases(self, layer: QuantizedLayer, slots: Ints, n_slots: int) -> int:
        """Append a layer's biases and shifts; slots without a row get 0. Returns the base."""
        config = self._config
        words = np.zeros((n_slots, config.bias_words), dtype=np.int64)
        for slot, bias, shift in zip(slots, layer.bias, layer.shift, strict=True):
            words[slot] = pack_bias(int(bias), int(shift), config)
        by_row = words.reshape(-1, config.n_pes, config.bias_words)
        for pe in range(config.n_pes):
            self._weights[pe].append(by_row[:, pe].reshape(-1))
        base = int(self._used[0])
        self._used += by_row.shape[0] * config.bias_words
        return base

    def add_entries(
        self, layer: QuantizedLayer, slots: Ints, column_slots: Ints, n_columns: int
    ) -> dict[str, int]:
        """Append a layer's entries in column order, and their records.

        Returns
        -------
        dict
            The fields of its program record that say where and how.
        """
        config = self._config
        slot = slots[layer.row_indices]
        pe, local_row = slot % config.n_pes, slot // config.n_pes
        order = np.lexsort((local_row, column_slots[layer.columns()], pe))
        words = pack_entries(local_row[order], layer.codes[order], config)
        counts = slice_counts(layer, slots, column_slots, (config.n_pes, n_columns))
        _, wide = column_words(counts, config)
        base = len(self._columns[0])
        for k, entries in enumerate(np.split(words, np.cumsum(counts.sum(axis=1))[:-1])):
            self._weights[k].append(entries)
            self._columns[k] += _pack_counts(counts[k], int(self._used[k]), wide, config)
        self._used += counts.sum(axis=1)
        return {
            "zero_code": int(layer.zero_code),
            "columns_base": base,
            "wide_counts": int(wide),
            "code_mask": (1 << layer.code_bits) - 1,
        }

    def sections(self) -> list[bytes]:
        """Sections of the image, PE by PE."""
        if not self._columns[0]:
            return []
        config = self._config
        made = []
        for pe in range(config.n_pes):
            words = np.concatenate(self._weights[pe]).tolist()
            made.append(section(Section.WEIGHTS, pe, 0, words, config))
            made.append(section(Section.COLUMNS, pe, 0, self._columns[pe], config))
        return made


def _pack_counts(counts: Ints, base: int, wide: bool, config: EngineConfig) -> list[int]:
    """Column records of one PE whose first entry lies at `base`."""
    group = 4 if wide else 8
    padded = np.zeros(-(-len(counts) // group) * group, dtype=np.int64)
    padded[: len(counts)] = counts
    groups = padded.reshape(-1, group)
    bases = base + np.concatenate(([0], np.cumsum(groups.sum(axis=1))[:-1]))
    return pack_columns(bases, groups, wide, config)
