# SPDX-License-Identifier: BSD-2-Clause
"""A weight matrix in a `.gossamer` file: a few numbers of the description and parts of data.

The index says where the codes stand: gaps for unstructured layers, positions for N:M, nothing for
dense ones. Index and codes are fields of one width, or Huffman codes behind their table. Exponents
of rows are left out if all are 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import AGAIN, FormatError
from ..network import MAX_WEIGHTS, MAX_WIDTH, Floats
from .bits import pack_bits, packed_bytes, unpack_bits
from .entropy import Coding, Part, decode_part, encode_part, symbol_bits, table_bytes
from .matrix import Matrix
from .nm import (
    MAX_GROUP,
    decode_nm,
    encode_nm,
    is_nm,
    pair_count,
    parse_nm,
    position_symbols,
    symbol_count,
)
from .reader import Reader, check_limits
from .row_exponents import EXPONENT_BITS
from .structure import (
    MAX_CODED_GAP_BITS,
    MAX_GAP_BITS,
    Places,
    best_gaps,
    decode_gaps,
    gap_symbols,
)

__all__ = ["MatrixParts", "decode_matrix", "encode_matrix"]

Ints = npt.NDArray[np.int64]

DENSE, DENSE_ZEROS, UNSTRUCTURED, NM = range(4)
"""Kinds of the description: structure and zero code."""

EXPONENTS, CODED_INDEX, CODED_CODES = 4, 8, 16
"""Added to the kind: rows have exponents; index or codes are Huffman codes."""


MAX_SYMBOLS = 2 * MAX_WEIGHTS
"""Of gaps: with k = 1 each entry and each zero takes one."""

MAX_BYTES = 2 * MAX_SYMBOLS
"""Of Huffman codes of at most 15 bits."""


@dataclass(frozen=True)
class MatrixParts:
    """What a file holds of one matrix.

    `numbers` are kind, codes, those of the index (unstructured: k and symbols; N:M: N and M), then
    bytes of Huffman codes of the index and of the codes, each only if it is coded so.
    """

    numbers: list[int]
    index_table: bytes
    index: bytes
    code_table: bytes
    codes: bytes
    codebook: bytes
    exponents: bytes

    @property
    def data(self) -> bytes:
        """All bytes, in the file's order."""
        coded = self.index_table + self.index + self.code_table + self.codes
        return coded + self.codebook + self.exponents


def encode_matrix(matrix: Matrix) -> MatrixParts:
    """Encode a matrix."""
    coding = matrix.coding
    kind, numbers, symbols, n_symbols, codes = _encode_index(matrix)
    index = encode_part(symbols, n_symbols, huffman=coding.index)
    coded = encode_part(codes, len(matrix.codebook), huffman=coding.codes)
    exponents = b""
    if matrix.row_exponents.any():
        kind += EXPONENTS
        exponents = pack_bits(matrix.row_exponents, EXPONENT_BITS)
    kind += CODED_INDEX * coding.index + CODED_CODES * coding.codes
    numbers = [kind, len(matrix.codebook), *numbers]
    numbers += [len(index.stream)] if coding.index else []
    numbers += [len(coded.stream)] if coding.codes else []
    book = matrix.codebook.astype("<f4").tobytes()
    return MatrixParts(
        numbers, index.table, index.stream, coded.table, coded.stream, book, exponents
    )


def _encode_index(matrix: Matrix) -> tuple[int, tuple[int, ...], Ints, int, Ints]:
    """Kind, numbers, symbols and number of symbols of the index; the codes in its order."""
    if is_nm(matrix.structure):
        n, m = parse_nm(matrix.structure)
        symbols, codes = encode_nm(matrix.places, matrix.codes, n, m)
        return NM, (n, m), symbols, position_symbols(n, m), codes
    if matrix.structure == "unstructured":
        width, _ = best_gaps(matrix.places, huffman=matrix.coding.index)
        symbols = gap_symbols(matrix.places, width)
        return UNSTRUCTURED, (width, len(symbols)), symbols, 1 << width, matrix.codes
    kind = DENSE_ZEROS if matrix.zero_code else DENSE
    return kind, (), np.zeros(0, dtype=np.int64), 1, matrix.codes


@dataclass(frozen=True)
class _Header:
    """Checked numbers of a matrix; sizes of Huffman codes are None where there are none."""

    shape: tuple[int, int]
    structure: int
    has_exponents: bool
    n_codes: int
    index: tuple[int, ...]
    index_bytes: int | None
    code_bytes: int | None

    @property
    def index_alphabet(self) -> int:
        """Number of symbols that the index is made of."""
        if self.structure == NM:
            return position_symbols(*self.index)
        return 1 << self.index[0] if self.structure == UNSTRUCTURED else 1

    @property
    def index_length(self) -> int:
        """Symbols of the index."""
        if self.structure == NM:
            return symbol_count(*self.shape, *self.index)
        return self.index[1] if self.structure == UNSTRUCTURED else 0

    @property
    def coding(self) -> Coding:
        """Which parts are Huffman codes."""
        return Coding(index=self.index_bytes is not None, codes=self.code_bytes is not None)


def decode_matrix(numbers: list[Any], rows: Any, cols: Any, reader: Reader) -> Matrix:
    """Undo `encode_matrix`; limits and lengths are checked before anything is made.

    Parameters
    ----------
    numbers : list
        As in `MatrixParts`; like `rows` and `cols` not checked yet.
    reader : Reader
        Stands at the matrix, and behind it afterwards.

    Raises
    ------
    FormatError
        A number is out of its limits, the data are too short, or what they hold is not what
        `encode_matrix` writes; the reader's `where` starts the message.
    """
    where = reader.where
    head = _parse_numbers(numbers, rows, cols, where)
    symbols = _read_part(reader, "index", head.index_alphabet, head.index_length, head.index_bytes)
    places, entries = None, rows * cols
    if head.structure == UNSTRUCTURED:
        places = decode_gaps(symbols, head.index[0], rows, cols, where)
        entries = len(places.row_indices)
    elif head.structure == NM:
        entries = pair_count(rows, cols, *head.index)
    codes = _read_part(reader, "codes", head.n_codes, entries, head.code_bytes)
    codebook = _read_codebook(reader, head)
    exponents = _read_exponents(reader, rows) if head.has_exponents else np.zeros(rows, np.int64)
    name = "unstructured" if places else "dense"
    if head.structure == NM:
        name = "{}:{}".format(*head.index)
        n, m = head.index
        places, codes = decode_nm(symbols, codes, n, m, rows, cols, where)
    places = places or Places.dense(rows, cols)
    zero_code = head.structure in (DENSE_ZEROS, NM)
    return Matrix(name, places, codes, codebook, zero_code, exponents, head.coding)


def _parse_numbers(numbers: list[Any], rows: Any, cols: Any, where: str) -> _Header:
    kind, n_codes, *others = numbers
    limits = {
        "rows": (rows, 1, MAX_WIDTH),
        "cols": (cols, 1, MAX_WIDTH),
        "kind": (kind, DENSE, NM + EXPONENTS + CODED_INDEX + CODED_CODES),
        "codes": (n_codes, 1, 256),
    }
    check_limits(limits, where)
    check_limits({"weights": (rows * cols, 1, MAX_WEIGHTS)}, where)
    structure, coded_index, coded_codes = kind % 4, kind & CODED_INDEX, kind & CODED_CODES
    if structure < UNSTRUCTURED and coded_index:
        raise FormatError(f"{where}: kind {kind} has a coded index but no index; {AGAIN}")
    n_index = 2 if structure >= UNSTRUCTURED else 0
    expected = n_index + bool(coded_index) + bool(coded_codes)
    if len(others) != expected:
        raise FormatError(
            f"{where}: {len(numbers)} numbers of the matrix, expected {expected + 2}; {AGAIN}"
        )
    index, sizes = others[:n_index], others[n_index:]
    _check_index(structure, index, bool(coded_index), where)
    for size in sizes:
        check_limits({"bytes of Huffman codes": (size, 0, MAX_BYTES)}, where)
    return _Header(
        shape=(rows, cols),
        structure=structure,
        has_exponents=bool(kind & EXPONENTS),
        n_codes=n_codes,
        index=tuple(index),
        index_bytes=sizes[0] if coded_index else None,
        code_bytes=sizes[-1] if coded_codes else None,
    )


def _check_index(structure: int, index: list[Any], coded: bool, where: str) -> None:
    """Check the two numbers of the index, if there are any."""
    if structure == NM:
        check_limits({"N": (index[0], 1, MAX_GROUP - 1)}, where)
        check_limits({"M": (index[1], index[0] + 1, MAX_GROUP)}, where)
    elif structure == UNSTRUCTURED:
        widest = MAX_CODED_GAP_BITS if coded else MAX_GAP_BITS
        limits = {"gap bits": (index[0], 1, widest), "gap symbols": (index[1], 0, MAX_SYMBOLS)}
        check_limits(limits, where)


def _read_part(reader: Reader, what: str, n_symbols: int, count: int, size: int | None) -> Ints:
    """Symbols of a part; `size` bytes of Huffman codes, or None for fields of one width."""
    table = b"" if size is None else reader.take(table_bytes(n_symbols), f"{what} table")
    plain = packed_bytes(count, symbol_bits(n_symbols))
    part = Part(table, reader.take(plain if size is None else size, what))
    place = f"{reader.where}: {what}"
    return decode_part(part, n_symbols, count, place, huffman=size is not None)


def _read_codebook(reader: Reader, head: _Header) -> Floats:
    where = reader.where
    codebook = np.frombuffer(reader.take(4 * head.n_codes, "codebook"), "<f4").astype(np.float32)
    if not np.isfinite(codebook).all():
        raise FormatError(f"{where}: a codebook value is not finite; {AGAIN}")
    if head.structure in (DENSE_ZEROS, NM) and codebook[0] != 0:
        raise FormatError(f"{where}: code 0 is {codebook[0]}, expected 0; {AGAIN}")
    if head.structure == NM and not codebook[1:].all():
        raise FormatError(f"{where}: a code beside 0 is 0, expected only code 0 to be; {AGAIN}")
    return codebook


def _read_exponents(reader: Reader, rows: int) -> Ints:
    powers = reader.take(packed_bytes(rows, EXPONENT_BITS), "exponents")
    exponents = unpack_bits(powers, EXPONENT_BITS, rows)
    if not exponents.any():
        raise FormatError(
            f"{reader.where}: all exponents of rows are 0, expected them left out; {AGAIN}"
        )
    return exponents
