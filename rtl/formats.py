# SPDX-License-Identifier: BSD-2-Clause
"""Every packed record that crosses a border, field by field, with packers.

Gateware derives its layouts from these lists (`rtl/layouts.py`), compiler and driver pack and parse
with the same lists, so that the two cannot disagree. Bit 0 of the first field is bit 0 of the
record; records are stored in whole bytes, least significant first. Nothing here imports amaranth.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .config import EngineConfig

__all__ = [
    "CODE_LENGTHS",
    "CODE_SETTINGS",
    "CODE_SYMBOLS",
    "CODE_TABLE_WORDS",
    "COUNTER_NAMES",
    "IDENTITY",
    "PROTOCOL_VERSION",
    "RECORD_STRIDE",
    "Command",
    "Identity",
    "Section",
    "State",
    "Status",
    "Unit",
    "bytes_per_word",
    "pack_bias",
    "pack_code_table",
    "pack_columns",
    "pack_entries",
    "pack_record",
    "pack_tile_words",
    "program_fields",
    "section",
    "sections_of",
]

PROTOCOL_VERSION = 3


class Section(IntEnum):
    """Kinds of section in an image: which memory the loader writes.

    CODED_ENTRIES is no memory: the loader decodes it into WEIGHTS and COLUMNS.
    """

    WEIGHTS = 1
    COLUMNS = 2
    CODEBOOK = 3
    PROGRAM = 4
    TILE_WEIGHTS = 5
    TILE_BIASES = 6
    CODE_TABLE = 7
    CODE_SYMBOLS = 8
    CODED_ENTRIES = 9


class Unit(IntEnum):
    """What a layer runs on: field `unit` of its program record."""

    SPARSE_ARRAY = 0
    TENSOR_TILE = 1


class Command(IntEnum):
    """Frame types that the host sends; the device answers with the type plus 0x80."""

    HELLO = 1
    STATUS = 2
    LOAD = 3
    COMMIT = 4
    INPUT = 5
    RUN = 6
    ABORT = 7


class Status(IntEnum):
    """First payload byte of every answer."""

    OK = 0
    BUSY = 1
    BAD_STATE = 2
    BAD_OFFSET = 3
    BAD_IMAGE = 4
    UNKNOWN = 5
    BAD_LENGTH = 6
    BAD_ARGUMENT = 7


class State(IntEnum):
    """States of the controller."""

    EMPTY = 0
    LOADING = 1
    CLEARING = 2
    READY = 3
    RUNNING = 4


COUNTER_NAMES = (
    "cycles", "busy", "filler", "imbalance", "queue_full", "starved", "broadcast", "drain",
)  # fmt: skip
"""Counters at the head of every result, u32 little-endian, in this order. Each cycle of each
multiplier is in exactly one of the seven classes, so the classes add up to multipliers x cycles."""

IDENTITY = struct.Struct("<4sHBBBBBBIHHHHHHHHBBBBHHI8s")


@dataclass(frozen=True)
class Identity:
    """What a device says of itself: its config, protocol version, clock in Hz and bitstream id."""

    config: EngineConfig
    clock_hz: int
    bitstream_id: bytes
    protocol: int = PROTOCOL_VERSION

    MAGIC: ClassVar[bytes] = b"GSMR"

    def pack(self) -> bytes:
        """Bytes of the identity ROM (`IDENTITY`, 52 bytes)."""
        c = self.config
        return IDENTITY.pack(
            self.MAGIC, self.protocol, c.activation_bits, c.sum_bits, c.n_pes, c.entry_bits,
            c.count_bits, c.counters | c.spram << 1, c.weight_depth, c.rows_per_pe,
            c.column_words - 1, c.codebook_depth, c.queue_depth, c.max_layers, c.input_depth,
            c.output_depth, c.rx_bytes, c.tile_rows, c.tile_columns, c.tile_code_bits,
            c.decoder_bits, c.tile_depth - 1, c.tile_bias_depth - 1, self.clock_hz,
            self.bitstream_id,
        )  # fmt: skip

    @classmethod
    def unpack(cls, raw: bytes) -> "Identity":
        """Parse an identity ROM.

        Raises
        ------
        ValueError
            Length, magic, protocol version or a parameter is wrong.
        """
        if len(raw) < 6 or raw[:4] != cls.MAGIC:
            raise ValueError(f"identity must start with {cls.MAGIC!r}, not {raw[:4]!r}")
        protocol = int.from_bytes(raw[4:6], "little")
        if protocol != PROTOCOL_VERSION:
            raise ValueError(f"protocol version must be {PROTOCOL_VERSION}, not {protocol}")
        if len(raw) != IDENTITY.size:
            raise ValueError(f"identity must have {IDENTITY.size} bytes, not {len(raw)}")
        (_, _, activation, sums, pes, entry, count, flags, depth, rows, columns, codebook, queue,
         layers, inputs, outputs, rx, tile_rows, tile_columns, tile_code_bits, decoder, tile_depth,
         tile_biases, clock, bitstream_id) = IDENTITY.unpack(raw)  # fmt: skip
        config = EngineConfig(
            n_pes=pes, activation_bits=activation, sum_bits=sums, entry_bits=entry,
            weight_depth=depth, rows_per_pe=rows, column_words=columns + 1, count_bits=count,
            codebook_depth=codebook, queue_depth=queue, max_layers=layers, input_depth=inputs,
            output_depth=outputs, rx_bytes=rx, counters=bool(flags & 1), spram=bool(flags & 2),
            tile_rows=tile_rows, tile_columns=tile_columns, tile_code_bits=tile_code_bits,
            tile_depth=tile_depth + 1, tile_bias_depth=tile_biases + 1, decoder_bits=decoder,
        )  # fmt: skip
        return cls(config, clock, bitstream_id)


def sections_of(config: EngineConfig) -> dict[Section, int]:
    """Kinds of section that an engine takes, and how many memories of the kind it has."""
    kinds = {Section.WEIGHTS: config.n_pes, Section.COLUMNS: config.n_pes}
    kinds |= {Section.CODEBOOK: 1, Section.PROGRAM: 1}
    if config.tile_rows:
        kinds |= {Section.TILE_WEIGHTS: config.tile_rows, Section.TILE_BIASES: 1}
    if config.decoder_bits:
        kinds |= {Section.CODE_TABLE: 1, Section.CODE_SYMBOLS: 1}
        kinds |= {Section.CODED_ENTRIES: config.n_pes}
    return kinds


def bytes_per_word(kind: Section, config: EngineConfig) -> int:
    """Bytes of one word of a section on the link: the memory's width in whole bytes."""
    bits = {
        Section.WEIGHTS: config.entry_bits,
        Section.COLUMNS: config.column_bits,
        Section.CODEBOOK: 16,
        Section.PROGRAM: 16,
        Section.TILE_WEIGHTS: config.tile_word_bits,
        Section.TILE_BIASES: config.bias_bits,
        Section.CODE_TABLE: 16,
        Section.CODE_SYMBOLS: 8,
        Section.CODED_ENTRIES: 8,
    }[kind]
    return -(-bits // 8)


SECTION_HEADER = struct.Struct("<BBHI")


def section(kind: Section, pe: int, address: int, words: list[int], config: EngineConfig) -> bytes:
    """One section of an image: header (kind u8, pe u8, address u16, count u32), then the words.

    `pe` is the row of the tile for TILE_WEIGHTS, and 0 for memories that there is one of
    (`sections_of`). Codebook values go to every PE and to the tile.
    """
    size = bytes_per_word(kind, config)
    body = b"".join(int(word).to_bytes(size, "little") for word in words)
    return SECTION_HEADER.pack(kind, pe, address, len(words)) + body


def pack_entries(
    rows: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], config: EngineConfig
) -> npt.NDArray[np.int64]:
    """Entries of weight memory: local row from bit 0 up, code from the top bit down.

    The code is stored bit-reversed from the top bit down, so that masking alone splits a word:
    no shifter stands in any PE, whatever the layer's widths.
    """
    reversed_codes = np.zeros_like(codes)
    for bit in range(8):
        reversed_codes |= ((codes >> bit) & 1) << (config.entry_bits - 1 - bit)
    return rows | reversed_codes


def pack_bias(bias: int, shift: int, config: EngineConfig) -> int:
    """One row's bias (sum_bits - 1 bits, rounding constant included), then its shift: one word."""
    width = config.sum_bits - 1
    return (bias & ((1 << width) - 1)) | shift << width


def pack_tile_words(
    positions: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], config: EngineConfig
) -> npt.NDArray[np.int64]:
    """Words of the tile's weight memory.

    Parameters
    ----------
    positions, codes : (..., 2) int64
        Place within the group of four inputs, 0..3, and code of the two weights of a word. From
        bit 0 up: position and code of the first, position and code of the second.

    Returns
    -------
    (...) int64
    """
    pairs = positions | codes << 2
    return pairs[..., 0] | pairs[..., 1] << (2 + config.tile_code_bits)


def pack_columns(
    bases: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], wide: bool, config: EngineConfig
) -> list[int]:
    """Column records of one PE: base from bit 0 up, then eight narrow or four wide counts.

    Parameters
    ----------
    bases : (words,) int64
        Address of the first entry of each word's first column, 0..weight_depth.
    counts : (words, 8) or, if `wide`, (words, 4) int64
        Entries per column.
    """
    width = config.wide_count_bits if wide else config.count_bits
    words = []
    for base, row in zip(bases, counts, strict=True):
        word = int(base) % (1 << config.base_bits)  # a full memory's end, before empty slices only
        for k, count in enumerate(row):
            word |= int(count) << (config.base_bits + k * width)
        words.append(word)
    return words


CODE_LENGTHS = 16
"""Lengths of codes that a table has counts for, from 1 up."""


def pack_code_table(
    gap_counts: npt.NDArray[np.int64], code_counts: npt.NDArray[np.int64], values: dict[str, int]
) -> list[int]:
    """Words of CODE_TABLE: how a layer's slices are coded.

    Parameters
    ----------
    gap_counts, code_counts : (CODE_LENGTHS,) int64
        Symbols of each length, from 1 up.
    values : dict
        `CODE_SETTINGS` by name; `wide_counts` 0 or 1.
    """
    settings = [values[name] for name in CODE_SETTINGS]
    settings[0] |= values["wide_counts"] << 15
    return [*gap_counts.tolist(), *code_counts.tolist(), *settings]


CODE_SETTINGS = ("last_row", "columns_base", "last_column", "escape")
"""Words behind the counts of a code table: rows per PE - 1, and in bit 15 wide_counts; address of
the first column record; number of columns - 1; place of the escape symbol among the gaps (0xFFFF
if it has no code)."""

CODE_TABLE_WORDS = 2 * CODE_LENGTHS + len(CODE_SETTINGS)
CODE_SYMBOLS = 512
"""Symbols of both alphabets together, in the order of their codes, those of the gaps first."""


def program_fields(config: EngineConfig) -> list[tuple[str, int, int, int]]:
    """Fields of a program record: (name, 16-bit word, lowest bit, width)."""
    fields = [
        ("last", 0, 0, 1),  # results leave after this layer
        ("keep_zeros", 0, 1, 1),  # the drain emits zeros too
        ("wide_counts", 0, 2, 1),  # column records hold 4 wide counts, not 8 narrow ones
        ("zero_code", 0, 3, 1),  # code 0 stands for a zero weight (counted as filler)
        ("signed_in", 0, 4, 1),  # the layer's input is signed
        ("signed_out", 0, 5, 1),  # the layer's output is signed
        ("from_merge", 0, 6, 1),  # source: the layer before, straight from the merge tree
        ("last_input", 1, 0, 16),  # number of inputs - 1 (not from_merge)
        ("last_row", 2, 0, 16),  # rows per PE - 1
        ("columns_base", 3, 0, 16),  # word address in the column records
        ("codebook_base", 4, 0, 16),  # a multiple of 2**code_bits
        ("bias_base", 5, 0, 16),  # word address of the first row's bias in the column records
        ("code_mask", 6, 0, 16),  # 2**code_bits - 1
        ("row_mask", 7, 0, 16),  # 2**row_bits - 1
        ("low", 8, 0, config.activation_bits),  # clamp
        ("high", 9, 0, config.activation_bits),
    ]
    if config.tile_rows:
        fields += [
            ("two_pass", 0, 7, 1),  # tile: two words per group of inputs, not one
            ("unit", 0, 8, 4),  # `Unit`
            ("from_bank", 0, 12, 1),  # source: 0 the input slot, 1 a bank
            ("source_bank", 0, 13, 1),
            ("to_bank", 0, 14, 1),  # outputs go to a bank
            ("target_bank", 0, 15, 1),
            ("tile_base", 10, 0, 16),  # word address in the tile's weights
            ("tile_bias_base", 11, 0, 16),  # address of the first row's bias
            ("last_block", 12, 0, 16),  # ceil(rows / tile_rows) - 1
        ]
    return fields


RECORD_STRIDE = 16
"""Program memory words per record (10 are used, 13 with a tile)."""


def pack_record(values: dict[str, int], config: EngineConfig) -> list[int]:
    """Program record as 16-bit words.

    Raises
    ------
    ValueError
        A field is missing, unknown, or does not fit.
    """
    words = [0] * RECORD_STRIDE
    left = dict(values)
    for name, word, low, width in program_fields(config):
        value = left.pop(name, None)
        signed_field = name in ("low", "high")
        if value is None or not (-(1 << width - 1) if signed_field else 0) <= value < 1 << width:
            raise ValueError(f"{name} must fit {width} bits, not {value!r}")
        words[word] |= (value & ((1 << width) - 1)) << low
    if left:
        raise ValueError(f"unknown program fields {sorted(left)}")
    return words
