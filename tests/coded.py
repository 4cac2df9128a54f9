# SPDX-License-Identifier: BSD-2-Clause
"""Coded sections made and read bit by bit, apart from the host's and the gateware's own code."""

from dataclasses import dataclass

import numpy as np
from gossamer.rtl.formats import CODE_LENGTHS, CODE_TABLE_WORDS, pack_columns, pack_entries


def canonical(lengths):
    """Bits of each symbol's code, as a string, from its length (0: none)."""
    codes, code, before = {}, 0, 0
    for length, symbol in sorted((n, s) for s, n in enumerate(lengths) if n):
        code <<= length - before
        codes[symbol] = f"{code:0{length}b}"
        code, before = code + 1, length
    return codes


def table_of(gap_lengths, code_lengths, settings=(0, 0, 0), escape=None):
    """Words of the table and symbols; `settings` are its last_row, columns_base, last_column."""
    words, symbols = [], []
    for lengths in (gap_lengths, code_lengths):
        words += np.bincount([n for n in lengths if n], minlength=CODE_LENGTHS + 1)[1:].tolist()
        symbols += [s for _, s in sorted((n, s) for s, n in enumerate(lengths) if n)]
    place = 0xFFFF if escape is None else symbols.index(escape)
    words += [*settings, place]
    assert len(words) == CODE_TABLE_WORDS
    return words, symbols


def coded_bytes(n_entries, bits):
    """A coded section's data: the number of entries, then the bits."""
    bits += "0" * (-len(bits) % 8)
    packed = bytes(int(bits[k : k + 8][::-1], 2) for k in range(0, len(bits), 8))
    return n_entries.to_bytes(2, "little") + packed


def random_lengths(rng, n_symbols, longest=15, deep=False):
    """Lengths of a random complete code: a leaf is split until there are enough (sole: one bit)."""
    leaves = [0]
    while len(leaves) < n_symbols:
        open_leaves = [k for k, n in enumerate(leaves) if n < longest]
        k = max(open_leaves, key=lambda k: leaves[k]) if deep else int(rng.choice(open_leaves))
        leaves[k] += 1
        leaves.append(leaves[k])
    rng.shuffle(leaves)
    return [1] if n_symbols == 1 else leaves


@dataclass(frozen=True)
class Slices:
    """A PE's part of a layer: rows (local) and codes of the entries of each column."""

    rows: int
    columns: list[list[tuple[int, int]]]

    @classmethod
    def random(cls, rng, rows, n_columns, density, codes):
        """Columns whose entries are drawn; some columns are empty, some full."""
        shares = np.clip(rng.normal(density, density / 2, n_columns), 0, 1)
        masks = rng.random((n_columns, rows)) < shares[:, None]
        return cls(
            rows, [[(int(r), int(rng.choice(codes))) for r in np.flatnonzero(m)] for m in masks]
        )

    def symbols(self, width):
        """Gap symbols of `width` bits and codes in turns: (symbol, is a code)."""
        escape, before = (1 << width) - 1, -1
        for k, column in enumerate(self.columns):
            for row, code in column:
                gap = k * self.rows + row - before - 1
                before += gap + 1
                while gap >= escape:
                    yield escape, 0
                    gap -= escape
                yield gap, 0
                yield code, 1

    @property
    def n_entries(self):
        return sum(map(len, self.columns))

    @property
    def longest(self):
        """Entries of the fullest column."""
        return max(map(len, self.columns))

    def words(self, address, columns_base, wide, config):
        """What plain sections write: entries by address, records by address."""
        entries = [entry for column in self.columns for entry in column]
        rows, codes = np.array(entries, dtype=np.int64).reshape(-1, 2).T
        counts = np.array([len(column) for column in self.columns])
        size = 4 if wide else 8
        groups = np.append(counts, [0] * (-len(counts) % size)).reshape(-1, size)
        bases = address + np.cumsum(groups.sum(axis=1)) - groups.sum(axis=1)
        words = pack_entries(rows, codes, config).tolist()
        records = pack_columns(bases, groups, wide, config)
        return dict(enumerate(words, address)), dict(enumerate(records, columns_base))


def code_slices(parts, width, columns_base, config, rng, longest=15):
    """Table, symbols and data of the sections for a layer's parts, coded with random lengths."""
    streams = [list(part.symbols(width)) for part in parts]
    tables = []
    for is_code in (0, 1):
        used = sorted({symbol for stream in streams for symbol, kind in stream if kind == is_code})
        lengths = [0] * 256
        for symbol, length in zip(used, random_lengths(rng, len(used), longest), strict=True):
            lengths[symbol] = length
        tables.append(lengths)
    codes = [canonical(lengths) for lengths in tables]
    escape = (1 << width) - 1
    wide = max(part.longest for part in parts) >> config.count_bits > 0
    settings = parts[0].rows - 1 | wide << 15, columns_base, len(parts[0].columns) - 1
    words, symbols = table_of(*tables, settings, escape if escape in codes[0] else None)
    data = [
        coded_bytes(part.n_entries, "".join(codes[kind][symbol] for symbol, kind in stream))
        for part, stream in zip(parts, streams, strict=True)
    ]
    return words, symbols, data
