# SPDX-License-Identifier: BSD-2-Clause
"""A weight matrix in a `.gossamer` file: five numbers of the description and four parts of data.

The index says where the codes stand: gaps for unstructured layers, positions for N:M, nothing for
dense ones. Exponents of rows are left out if all are 0.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from .bits import pack_bits, packed_bytes, unpack_bits
from .codebook import code_bits, decode_codes, encode_codes
from .compress import Matrix
from .errors import AGAIN, FormatError
from .network import MAX_WEIGHTS, MAX_WIDTH
from .nm import MAX_GROUP, decode_nm, encode_nm, is_nm, pair_count, parse_nm, position_bits
from .row_exponents import EXPONENT_BITS
from .structure import MAX_GAP_BITS, Places, decode_gaps, encode_gaps

__all__ = ["MatrixParts", "check_limits", "decode_matrix", "encode_matrix"]

DENSE, DENSE_ZEROS, UNSTRUCTURED, NM = range(4)
"""Kinds of the description: structure and zero code."""

EXPONENTS = 4
"""Added to the kind of a matrix whose rows have exponents."""


@dataclass(frozen=True)
class MatrixParts:
    """What a file holds of one matrix.

    `numbers` are kind, entries, codes and two of the index: gap bits and gap bytes, or N and M.
    """

    numbers: list[int]
    index: bytes
    codes: bytes
    codebook: bytes
    exponents: bytes

    @property
    def data(self) -> bytes:
        """All bytes, in the file's order."""
        return self.index + self.codes + self.codebook + self.exponents


def encode_matrix(matrix: Matrix) -> MatrixParts:
    """Encode a matrix."""
    codes, index, numbers = matrix.codes, b"", (0, 0)
    if is_nm(matrix.structure):
        kind, numbers = NM, parse_nm(matrix.structure)
        index, codes = encode_nm(matrix.places, codes, *numbers)
    elif matrix.structure == "unstructured":
        kind = UNSTRUCTURED
        width, index = encode_gaps(matrix.places)
        numbers = width, len(index)
    else:
        kind = DENSE_ZEROS if matrix.zero_code else DENSE
    n_codes = len(matrix.codebook)
    exponents = b""
    if matrix.row_exponents.any():
        kind += EXPONENTS
        exponents = pack_bits(matrix.row_exponents, EXPONENT_BITS)
    return MatrixParts(
        [kind, len(codes), n_codes, *numbers],
        index,
        encode_codes(codes, n_codes),
        matrix.codebook.astype("<f4").tobytes(),
        exponents,
    )


def decode_matrix(
    numbers: list[Any], rows: Any, cols: Any, data: bytes, start: int, where: str
) -> tuple[Matrix, int]:
    """Undo `encode_matrix`; limits and lengths are checked before anything is made.

    Parameters
    ----------
    numbers : list
        As in `MatrixParts`; like `rows` and `cols` not checked yet.
    data : bytes
        Holds the matrix from byte `start` on.

    Returns
    -------
    (Matrix, int)
        The matrix and the first byte behind it.

    Raises
    ------
    FormatError
        A number is out of its limits, `data` is too short, or what it holds is not what
        `encode_matrix` writes; `where` starts the message.
    """
    kind, entries, n_codes, *index_numbers = numbers
    limits = {
        "rows": (rows, 1, MAX_WIDTH),
        "cols": (cols, 1, MAX_WIDTH),
        "kind": (kind, DENSE, NM + EXPONENTS),
        "codes": (n_codes, 1, 256),
    }
    check_limits(limits, where)
    has_exponents, kind = divmod(kind, EXPONENTS)
    check_limits({"weights": (rows * cols, 1, MAX_WEIGHTS)}, where)
    index_bytes, fewest, most = _index_size(kind, index_numbers, rows, cols, len(data), where)
    check_limits({"entries": (entries, fewest, most)}, where)
    exponent_bytes = packed_bytes(rows, EXPONENT_BITS) if has_exponents else 0
    sizes = (index_bytes, packed_bytes(entries, code_bits(n_codes)), 4 * n_codes, exponent_bytes)
    if start + sum(sizes) > len(data):
        raise FormatError(
            f"{where}: needs {sum(sizes)} bytes but {len(data) - start} are left; {AGAIN}"
        )
    ends = accumulate(sizes, initial=start)
    index, packed, book, powers = (data[a:b] for a, b in pairwise(ends))
    codes = decode_codes(packed, n_codes, entries, where)
    if kind == NM:
        n, m = index_numbers
        structure = f"{n}:{m}"
        places, codes = decode_nm(index, codes, n, m, rows, cols, where)
    elif kind == UNSTRUCTURED:
        structure = "unstructured"
        places = decode_gaps(index, index_numbers[0], entries, rows, cols, where)
    else:
        structure, places = "dense", Places.dense(rows, cols)
    codebook = np.frombuffer(book, "<f4").astype(np.float32)
    zero_code = kind in (DENSE_ZEROS, NM)
    if not np.isfinite(codebook).all():
        raise FormatError(f"{where}: a codebook value is not finite; {AGAIN}")
    if zero_code and codebook[0] != 0:
        raise FormatError(f"{where}: code 0 is {codebook[0]}, expected 0; {AGAIN}")
    if kind == NM and not codebook[1:].all():
        raise FormatError(f"{where}: a code beside 0 is 0, expected only code 0 to be; {AGAIN}")
    exponents = unpack_bits(powers, EXPONENT_BITS, rows if has_exponents else 0)
    if has_exponents and not exponents.any():
        raise FormatError(f"{where}: all exponents of rows are 0, expected them left out; {AGAIN}")
    matrix = Matrix(
        structure,
        places,
        codes,
        codebook,
        zero_code,
        exponents if has_exponents else np.zeros(rows, dtype=np.int64),
    )
    return matrix, start + sum(sizes)


def check_limits(limits: dict[str, tuple[Any, int, int]], where: str) -> None:
    """Refuse what is no int or not within its limits; values of `limits`: (found, lowest, highest).

    Raises
    ------
    FormatError
        Names the first one; `where` starts the message.
    """
    for what, (value, low, high) in limits.items():
        if type(value) is not int or not low <= value <= high:
            raise FormatError(f"{where}: {what} is {value!r}, expected {low}..{high}; {AGAIN}")


def _index_size(
    kind: int, numbers: list[Any], rows: int, cols: int, left: int, where: str
) -> tuple[int, int, int]:
    """Bytes of the index, fewest and most entries; checks the two numbers of the index."""
    first, second = numbers
    if kind == NM:
        check_limits({"N": (first, 1, MAX_GROUP - 1)}, where)
        check_limits({"M": (second, first + 1, MAX_GROUP)}, where)
        pairs = pair_count(rows, cols, first, second)
        return packed_bytes(pairs, position_bits(second)), pairs, pairs
    if kind == UNSTRUCTURED:
        limits = {"gap bits": (first, 1, MAX_GAP_BITS), "gap bytes": (second, 0, left)}
        check_limits(limits, where)
        return second, 0, rows * cols
    check_limits({"gap bits": (first, 0, 0), "gap bytes": (second, 0, 0)}, where)
    return 0, rows * cols, rows * cols
