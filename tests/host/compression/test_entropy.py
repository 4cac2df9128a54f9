# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.entropy import (
    Part,
    SymbolCounts,
    decode_part,
    encode_part,
    is_shorter,
    symbol_bits,
    table_bytes,
)
from gossamer.host.errors import FormatError
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.data())
def test_sizes_are_known_from_counts(n_symbols, data):
    symbols = np.array(data.draw(st.lists(st.integers(0, n_symbols - 1))), np.int64)
    counts = SymbolCounts(np.bincount(symbols, minlength=n_symbols))
    for huffman in (False, True):
        part = encode_part(symbols, n_symbols, huffman=huffman)
        assert len(part.table) == (table_bytes(n_symbols) if huffman else 0)
        assert len(part.table + part.stream) == counts.bytes_as(huffman=huffman)
        again = decode_part(part, n_symbols, len(symbols), "t", huffman=huffman)
        assert np.array_equal(again, symbols)


def test_entropy_is_the_floor():
    counts = SymbolCounts(np.array([8, 4, 2, 1, 1, 0]))
    assert counts.floor_bits == pytest.approx(8 + 8 + 6 + 4 + 4)
    assert counts.bytes_as(huffman=True) == 4 + 3
    assert counts.bytes_as(huffman=False) == 6
    assert SymbolCounts(np.zeros(3, np.int64)).floor_bits == 0


def test_choices():
    even, skewed = SymbolCounts(np.full(16, 9)), SymbolCounts(np.array([900, 1, 1, 1]))
    assert not is_shorter(even.bytes_as, "auto")
    assert is_shorter(skewed.bytes_as, "auto")
    assert is_shorter(even.bytes_as, "huffman")
    assert not is_shorter(skewed.bytes_as, "none")


def test_widths():
    assert [symbol_bits(n) for n in (1, 2, 3, 16, 17, 256)] == [1, 1, 2, 4, 5, 8]
    assert [table_bytes(n) for n in (1, 2, 3, 16)] == [1, 1, 2, 8]


def test_damaged_parts():
    with pytest.raises(FormatError, match="here: 3 bytes, expected 2"):
        decode_part(Part(b"", b"abc"), 16, 4, "here", huffman=False)
    with pytest.raises(FormatError, match="here: 15 found, expected symbols below 9"):
        decode_part(Part(b"", b"\xff"), 9, 2, "here", huffman=False)
    with pytest.raises(FormatError, match=r"here: the code lengths take only 0\.25"):
        decode_part(Part(b"\x02", b"\0"), 2, 2, "here", huffman=True)
