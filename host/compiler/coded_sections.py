# SPDX-License-Identifier: BSD-2-Clause
"""Coded sections of an image: a layer's entries as Huffman codes of gaps and of codes.

The engine's loader decodes them (`rtl/huffman.py`, `rtl/slices.py`) into the same words as plain
sections would write, and makes the column records itself, so these are not sent. All PEs share the
layer's two codes; gaps are numbers in symbols of a fixed width, as in `structure`.
"""

from dataclasses import dataclass

import numpy as np

from ...rtl.config import EngineConfig
from ...rtl.formats import CODE_LENGTHS, Section, pack_code_table, section
from ..compression.bits import pack_fields
from ..compression.huffman import canonical_codes, code_lengths
from .quantize import Ints

__all__ = ["MAX_SYMBOL_BITS", "CodedLayer", "LayerCode", "coded_sections", "symbol_counts"]

MAX_SYMBOL_BITS = 8
"""Widest gap symbol: the decoder's memory has room for 256 symbols of each kind."""
SYMBOLS = 256
NO_ESCAPE = 0xFFFF


@dataclass(frozen=True, eq=False)
class CodedLayer:
    """Entries of a layer as its PEs hold them, PE after PE, each in column order.

    Parameters
    ----------
    counts : (PEs,) int64
        Entries of each PE.
    addresses : (PEs,) int64
        Where the first one goes.
    places : (entries,) int64
        ``column * rows + local row``, rising within a PE.
    codes : (entries,) int64
    rows, columns : int
        Local rows of a PE, and columns.
    columns_base : int
        Address of the first column record.
    wide : bool
        Whether counts in the records are wide.
    """

    counts: Ints
    addresses: Ints
    places: Ints
    codes: Ints
    rows: int
    columns: int
    columns_base: int
    wide: bool

    def gaps(self) -> Ints:
        """Places without an entry before each one, (entries,) int64."""
        gaps = np.diff(self.places, prepend=-1) - 1
        starts = (np.cumsum(self.counts) - self.counts)[self.counts > 0]
        gaps[starts] = self.places[starts]
        return gaps


@dataclass(frozen=True, eq=False)
class LayerCode:
    """How a layer's entries are coded.

    Parameters
    ----------
    width : int
        Bits of a gap symbol, 1..`MAX_SYMBOL_BITS`; the one of all ones is the escape.
    gap_lengths : (2**width,) int64
        Bits of each gap symbol's code, 0 if it has none.
    code_lengths : (256,) int64
        The same of the layer's codes.
    """

    width: int
    gap_lengths: Ints
    code_lengths: Ints

    @classmethod
    def best(cls, layer: CodedLayer) -> "LayerCode":
        """The one with the fewest bits."""
        gaps = layer.gaps()
        width = min(range(1, MAX_SYMBOL_BITS + 1), key=lambda width: _gap_bits(gaps, width))
        gap_lengths = code_lengths(symbol_counts(gaps, width))
        return cls(width, gap_lengths, code_lengths(np.bincount(layer.codes, minlength=SYMBOLS)))


def coded_sections(layer: CodedLayer, code: LayerCode, config: EngineConfig) -> list[bytes]:
    """Sections that write a layer's entries and records: its table, its symbols, then PE by PE."""
    values, widths, ends = _fields(layer, code)
    made = [*_tables(layer, code, config)]
    first = start = 0
    for pe, (count, address) in enumerate(zip(layer.counts, layer.addresses, strict=True)):
        first += int(count)
        end = int(ends[first - 1]) if first else 0
        data = int(count).to_bytes(2, "little") + pack_fields(values[start:end], widths[start:end])
        made.append(section(Section.CODED_ENTRIES, pe, int(address), list(data), config))
        start = end
    return made


def _tables(layer: CodedLayer, code: LayerCode, config: EngineConfig) -> tuple[bytes, bytes]:
    """Sections of the table and of the symbols."""
    escapes = np.flatnonzero(_by_length(code.gap_lengths) == (1 << code.width) - 1)
    settings = {
        "last_row": layer.rows - 1,
        "wide_counts": int(layer.wide),
        "columns_base": layer.columns_base,
        "last_column": layer.columns - 1,
        "escape": int(escapes[0]) if len(escapes) else NO_ESCAPE,
    }
    alphabets = code.gap_lengths, code.code_lengths
    counts = [np.bincount(lengths, minlength=CODE_LENGTHS + 1)[1:] for lengths in alphabets]
    words = pack_code_table(counts[0], counts[1], settings)
    symbols = np.concatenate([_by_length(lengths) for lengths in alphabets]).tolist()
    return (
        section(Section.CODE_TABLE, 0, 0, words, config),
        section(Section.CODE_SYMBOLS, 0, 0, symbols, config),
    )


def symbol_counts(gaps: Ints, width: int) -> Ints:
    """How often each symbol of `width` bits occurs."""
    full = (1 << width) - 1
    counts = np.bincount(gaps % full, minlength=full + 1)
    counts[full] = (gaps // full).sum()
    return counts


def _gap_bits(gaps: Ints, width: int) -> int:
    """Bits that gaps take in symbols of `width` bits, their bytes of the symbol table included."""
    counts = symbol_counts(gaps, width)
    return int(counts @ code_lengths(counts)) + 8 * int(np.count_nonzero(counts))


def _by_length(lengths: Ints) -> Ints:
    """Symbols in the order of their codes."""
    order = np.argsort(lengths, kind="stable")
    return order[lengths[order] > 0]


def _fields(layer: CodedLayer, code: LayerCode) -> tuple[Ints, Ints, Ints]:
    """Values and widths of all Huffman codes in their order, and where each entry's end."""
    full = (1 << code.width) - 1
    gaps, codes = layer.gaps(), layer.codes
    gap_codes, own_codes = canonical_codes(code.gap_lengths), canonical_codes(code.code_lengths)
    ends = np.cumsum(gaps // full + 2)
    values = np.full(int(ends[-1]) if len(ends) else 0, gap_codes[full], dtype=np.int64)
    widths = np.full(len(values), code.gap_lengths[full], dtype=np.int64)
    values[ends - 2], widths[ends - 2] = gap_codes[gaps % full], code.gap_lengths[gaps % full]
    values[ends - 1], widths[ends - 1] = own_codes[codes], code.code_lengths[codes]
    return values, widths, ends
