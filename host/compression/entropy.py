# SPDX-License-Identifier: BSD-2-Clause
"""Axis 3 of a compressed matrix: symbols in fields of one width, or as Huffman codes with a table.

A part of a matrix (the index, the codes) is a list of symbols 0..n-1. Its table holds the length of
each symbol's code in four bits, so that the choice that is smaller is known from counts alone.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...rtl.config import ceil_log2
from ..errors import AGAIN, FormatError
from .bits import pack_bits, packed_bytes, unpack_bits
from .huffman import code_lengths, decode, encode

__all__ = [
    "ENTROPIES",
    "PLAIN",
    "Coding",
    "Part",
    "SymbolCounts",
    "decode_part",
    "encode_part",
    "is_shorter",
    "symbol_bits",
    "table_bytes",
]

ENTROPIES = ("auto", "none", "huffman")
"""What a recipe may ask for; ``auto`` is the smaller one, part by part."""

LENGTH_BITS = 4
"""Bits of a code's length in a table."""

OTHER_DIGITS = 4
"""By how much a coded part can lengthen its layer's description, beside the number of its bytes."""

Ints = npt.NDArray[np.int64]


class SizeOf(Protocol):
    """Bytes of a part, coded in one of the two ways."""

    def __call__(self, *, huffman: bool) -> int: ...


@dataclass(frozen=True)
class Coding:
    """Which parts of a matrix are Huffman codes."""

    index: bool
    codes: bool


PLAIN = Coding(index=False, codes=False)


@dataclass(frozen=True)
class Part:
    """Symbols as a file holds them; the table is empty if they are fields of one width."""

    table: bytes
    stream: bytes


@dataclass(frozen=True, eq=False)
class SymbolCounts:
    """How often each symbol of a part occurs, (n,) int64: enough for its size either way."""

    counts: Ints

    def bytes_as(self, *, huffman: bool) -> int:
        """Bytes as fields of one width, or as Huffman codes with their table."""
        if not huffman:
            return packed_bytes(int(self.counts.sum()), symbol_bits(len(self.counts)))
        bits = int(self.counts @ code_lengths(self.counts))
        return table_bytes(len(self.counts)) + packed_bytes(bits, 1)

    @property
    def floor_bits(self) -> float:
        """Entropy of all symbols: no code that takes symbol by symbol needs fewer bits."""
        found = self.counts[self.counts > 0]
        return float(found @ np.log2(found.sum() / found)) if len(found) else 0.0


def symbol_bits(n_symbols: int) -> int:
    """Bits of a field that holds any of `n_symbols` symbols, at least 1."""
    return max(1, ceil_log2(n_symbols))


def table_bytes(n_symbols: int) -> int:
    """Bytes of the table of a Huffman code."""
    return packed_bytes(n_symbols, LENGTH_BITS)


def is_shorter(size: SizeOf, entropy: str) -> bool:
    """Whether a part of that size becomes Huffman codes under the recipe's `entropy`."""
    if entropy == "auto":
        coded = size(huffman=True)
        return coded + len(str(coded)) + OTHER_DIGITS < size(huffman=False)
    return entropy == "huffman"


def encode_part(symbols: Ints, n_symbols: int, *, huffman: bool) -> Part:
    """Encode symbols (n,) int64 in 0..n_symbols - 1."""
    if not huffman:
        return Part(b"", pack_bits(symbols, symbol_bits(n_symbols)))
    lengths = code_lengths(np.bincount(symbols, minlength=n_symbols))
    return Part(pack_bits(lengths, LENGTH_BITS), encode(symbols, lengths))


def decode_part(part: Part, n_symbols: int, count: int, where: str, *, huffman: bool) -> Ints:
    """Undo `encode_part`: `count` symbols, (count,) int64.

    Raises
    ------
    FormatError
        The part is too short or too long, or not what `encode_part` writes; `where` starts the
        message, such as ``"layer 'a': index"``.
    """
    if huffman:
        lengths = unpack_bits(part.table, LENGTH_BITS, n_symbols)
        return decode(part.stream, lengths, count, where)
    width = symbol_bits(n_symbols)
    expected = packed_bytes(count, width)
    if len(part.stream) != expected:
        raise FormatError(f"{where}: {len(part.stream)} bytes, expected {expected}; {AGAIN}")
    symbols = unpack_bits(part.stream, width, count)
    if count and symbols.max() >= n_symbols:
        raise FormatError(
            f"{where}: {symbols.max()} found, expected symbols below {n_symbols}; {AGAIN}"
        )
    return symbols
