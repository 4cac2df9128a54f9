# SPDX-License-Identifier: BSD-2-Clause
"""Packed records, bit by bit: what crosses a border is written out here by hand."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import (
    CODE_LENGTHS,
    CODE_TABLE_WORDS,
    COUNTER_NAMES,
    IDENTITY,
    RECORD_STRIDE,
    Identity,
    Section,
    Unit,
    bytes_per_word,
    pack_bias,
    pack_code_table,
    pack_columns,
    pack_entries,
    pack_record,
    pack_tile_words,
    program_fields,
    section,
    sections_of,
)
from rtl_models import SMALL, TILED, TINY

LARGEST = EngineConfig(
    n_pes=64, entry_bits=36, weight_depth=65536, rows_per_pe=1024, column_words=65536,
    count_bits=8, codebook_depth=4096, queue_depth=64, max_layers=64, input_depth=32768,
    output_depth=32768, rx_bytes=4096, counters=False, decoder_bits=4,
)  # fmt: skip
SPRAM = EngineConfig(entry_bits=16, weight_depth=16384, spram=True)
FIELDS = {name: 0 for name, _, _, _ in program_fields(SMALL)}


def bits(value, low, width):
    return value >> low & ((1 << width) - 1)


@pytest.mark.parametrize(
    "config", [SMALL, TINY, LARGEST, SPRAM, TILED], ids="small tiny large spram tiled".split()
)
def test_identity_round_trip(config):
    identity = Identity(config, 48_000_000, b"12345678")
    raw = identity.pack()
    assert len(raw) == IDENTITY.size == 52
    assert raw[:6] == b"GSMR\3\0"
    assert Identity.unpack(raw) == identity


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", r"must start with b'GSMR', not b''"),
        (b"GSMX" + bytes(40), r"must start with b'GSMR', not b'GSMX'"),
        (b"GSMR\1\0" + bytes(46), r"protocol version must be 3, not 1"),
        (b"GSMR\3\0" + bytes(45), r"must have 52 bytes, not 51"),
        (b"GSMR\3\0" + bytes(46), r"n_pes must be in 1\.\.64, not 0"),
    ],
    ids=["empty", "magic", "version", "length", "parameter"],
)
def test_bad_identity(raw, text):
    with pytest.raises(ValueError, match=text):
        Identity.unpack(raw)


@pytest.mark.parametrize("entry_bits", [12, 18, 36])
def test_entries_hold_row_and_reversed_code(entry_bits):
    config = replace(SMALL, entry_bits=entry_bits)
    rows, codes = np.array([0, 15, 5, 9]), np.array([0, 255, 0b110, 1])
    for word, row, code in zip(pack_entries(rows, codes, config), rows, codes, strict=True):
        assert bits(int(word), 0, 4) == row
        from_top = f"{int(word):0{entry_bits}b}"[:8]
        assert int(from_top[::-1], 2) == code
        assert int(word) < 1 << entry_bits


@pytest.mark.parametrize("sum_bits", [24, 32, 36])
def test_bias_and_shift(sum_bits):
    activation_bits = 16 if sum_bits == 36 else 8
    config = replace(SMALL, activation_bits=activation_bits, sum_bits=sum_bits)
    most = (1 << (sum_bits - 2)) - 1
    for bias in (0, 1, -1, most, -most - 1):
        for shift in (0, 1, sum_bits - 1):
            word = pack_bias(bias, shift, config)
            assert 0 <= word < 1 << config.bias_bits <= 1 << config.column_bits
            assert bits(word, 0, sum_bits - 1) == bias % (1 << (sum_bits - 1))
            assert word >> (sum_bits - 1) == shift


def test_tile_words_hold_two_pairs():
    config = replace(TILED, tile_code_bits=5)
    positions = np.array([[[0, 3], [1, 2]]])
    codes = np.array([[[31, 0], [17, 30]]])
    words = pack_tile_words(positions, codes, config)
    assert words.shape == (1, 2)
    first, second = (int(word) for word in words[0])
    assert [bits(first, low, n) for low, n in ((0, 2), (2, 5), (7, 2), (9, 5))] == [0, 31, 3, 0]
    assert [bits(second, low, n) for low, n in ((0, 2), (2, 5), (7, 2), (9, 5))] == [1, 17, 2, 30]
    assert max(first, second) < 1 << config.tile_word_bits == 1 << 14


def test_columns_hold_base_and_counts():
    config = SMALL  # 9 bits of base, counts of 3 or 6 bits
    narrow = np.array([[7, 0, 1, 2, 3, 4, 5, 6], [0] * 8])
    word, empty = pack_columns(np.array([511, 3]), narrow, False, config)
    assert bits(word, 0, 9) == 511
    assert [bits(word, 9 + 3 * k, 3) for k in range(8)] == narrow[0].tolist()
    assert empty == 3
    wide = np.array([[63, 0, 8, 33]])
    (word,) = pack_columns(np.array([0]), wide, True, config)
    assert [bits(word, 9 + 6 * k, 6) for k in range(4)] == wide[0].tolist()
    assert word < 1 << config.column_bits


@pytest.mark.parametrize("wide", [False, True])
def test_base_of_empty_slices_behind_a_full_memory(wide):
    """Base = depth = 2**base_bits must not run into the first count."""
    (word,) = pack_columns(np.array([512]), np.zeros((1, 4 if wide else 8), int), wide, SMALL)
    assert word == 0


@pytest.mark.parametrize("config", [SMALL, TILED], ids=["array", "tile"])
def test_record_fields_do_not_overlap(config):
    taken = {}
    zeros = {name: 0 for name, _, _, _ in program_fields(config)}
    for name, word, low, width in program_fields(config):
        assert word < RECORD_STRIDE
        assert low + width <= 16
        record = pack_record(zeros | {name: 1}, config)
        assert record == [1 << low if k == word else 0 for k in range(RECORD_STRIDE)]
        for bit in range(low, low + width):
            assert taken.setdefault((word, bit), name) == name


def test_record_extremes():
    assert pack_record(FIELDS | {"low": -128, "high": 255}, SMALL)[8:10] == [0x80, 0xFF]
    assert pack_record(FIELDS | {"columns_base": 65535}, SMALL)[3] == 65535
    tile = {name: 0 for name, _, _, _ in program_fields(TILED)}
    assert pack_record(tile | {"unit": Unit.TENSOR_TILE}, TILED)[0] == 1 << 8
    wide = replace(SMALL, activation_bits=16, sum_bits=36)
    assert pack_record(FIELDS | {"low": -32768, "high": 65535}, wide)[8:10] == [0x8000, 0xFFFF]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"last": 2}, "last must fit 1 bits, not 2"),
        ({"low": -129}, "low must fit 8 bits, not -129"),
        ({"high": 256}, "high must fit 8 bits, not 256"),
        ({"last_row": -1}, "last_row must fit 16 bits, not -1"),
        ({"row_mask": None}, "row_mask must fit 16 bits, not None"),
        ({"depth": 1}, r"unknown program fields \['depth'\]"),
    ],
)
def test_bad_record(change, text):
    with pytest.raises(ValueError, match=text):
        pack_record(FIELDS | change, SMALL)


def test_missing_field():
    with pytest.raises(ValueError, match="high must fit 8 bits, not None"):
        pack_record({name: 0 for name in FIELDS if name != "high"}, SMALL)


def test_section_bytes():
    assert section(Section.CODEBOOK, 0, 0x102, [0x0304, 0xFFFF], SMALL) == bytes(
        [3, 0, 2, 1, 2, 0, 0, 0, 4, 3, 255, 255]
    )
    assert section(Section.WEIGHTS, 2, 1, [0x3FFFF], SMALL) == bytes(
        [1, 2, 1, 0, 1, 0, 0, 0, 255, 255, 3]
    )
    assert section(Section.PROGRAM, 0, 0, [], SMALL) == bytes([4] + [0] * 7)


def test_bytes_per_word():
    assert [bytes_per_word(kind, SMALL) for kind in sections_of(SMALL)] == [3, 5, 2, 2]
    assert [bytes_per_word(kind, LARGEST) for kind in sections_of(LARGEST)] == [
        5, 10, 2, 2, 2, 1, 1,
    ]  # fmt: skip
    assert [bytes_per_word(kind, TILED) for kind in Section] == [3, 5, 2, 2, 2, 5, 2, 1, 1]


def test_sections_of():
    assert list(sections_of(SMALL)) == list(Section)[:4]
    assert sections_of(TILED) == {1: 3, 2: 3, 3: 1, 4: 1, 5: 2, 6: 1}
    assert sections_of(replace(SMALL, decoder_bits=1, n_pes=5)) == {
        1: 5, 2: 5, 3: 1, 4: 1, 7: 1, 8: 1, 9: 5,
    }  # fmt: skip


def test_code_table():
    counts = np.arange(CODE_LENGTHS)
    values = {"last_row": 9, "columns_base": 300, "last_column": 783, "escape": 65535}
    for wide in (0, 1):
        words = pack_code_table(counts, counts + 1, values | {"wide_counts": wide})
        assert words == [*range(16), *range(1, 17), 9 | wide << 15, 300, 783, 65535]
        assert len(words) == CODE_TABLE_WORDS


def test_counter_names():
    assert COUNTER_NAMES[0] == "cycles"
    assert len(COUNTER_NAMES) == 8
