# SPDX-License-Identifier: BSD-2-Clause
"""Axis 3 of a compressed matrix: canonical Huffman codes of at most 15 bits.

Codes rise with (length, symbol), so the lengths alone describe a code; the hardware decodes
with a table of 15 first codes. The package-merge algorithm gives the best code of bounded length.
A code's most significant bit goes first; the first bit of a stream is the lowest of its first byte.

Ref: Larmore and Hirschberg, A fast algorithm for optimal length-limited Huffman codes, J. ACM 37,
1990; RFC 1951, section 3.2.2 (canonical codes).
"""

import numpy as np
import numpy.typing as npt
from bitarray import bitarray
from bitarray.util import canonical_decode

from ..errors import AGAIN, FormatError
from .bits import pack_fields, packed_bytes

__all__ = ["MAX_LENGTH", "canonical_codes", "check_lengths", "code_lengths", "decode", "encode"]

MAX_LENGTH = 15
"""Bits of the longest code."""

Ints = npt.NDArray[np.int64]


def code_lengths(counts: Ints, limit: int = MAX_LENGTH) -> Ints:
    """Lengths of the codes with the fewest bits in all, none longer than `limit`.

    Parameters
    ----------
    counts : (n,) int64
        How often each symbol occurs.
    limit : int

    Returns
    -------
    (n,) int64
        0 for a symbol that does not occur; 1 for one that is alone.

    Raises
    ------
    ValueError
        More symbols occur than codes of `limit` bits exist.
    """
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    lengths = np.zeros(len(counts), dtype=np.int64)
    if len(order) < 2:
        lengths[order] = 1
        return lengths
    if len(order) > 1 << limit:
        raise ValueError(f"symbols must be at most {1 << limit}, not {len(order)}")
    take = 2 * len(order) - 2
    for is_leaf in reversed(_package_merge(counts[order], limit)):
        leaves = int(np.count_nonzero(is_leaf[:take]))
        lengths[order[:leaves]] += 1
        take = 2 * (take - leaves)
    return lengths


def _package_merge(leaves: Ints, limit: int) -> list[npt.NDArray[np.bool_]]:
    """Which items are leaves, not packages of two, on each of `limit` levels, lightest first."""
    packages = np.zeros(0, dtype=np.int64)
    levels = []
    for _ in range(limit):
        items = np.concatenate((leaves, packages))
        order = np.argsort(items, kind="stable")
        levels.append(order < len(leaves))
        items = items[order]
        pairs = len(items) // 2
        packages = items[: 2 * pairs : 2] + items[1 : 2 * pairs : 2]
    return levels


def canonical_codes(lengths: Ints) -> Ints:
    """Code of each symbol, (n,) int64; 0 where the length is 0.

    The shortest length starts with code 0; codes of one length rise with the symbol; the first
    code of the next length is twice the code behind the last one.
    """
    order = _by_length(lengths)
    rising = lengths[order]
    spans = 1 << (MAX_LENGTH - rising)
    codes = np.zeros(len(lengths), dtype=np.int64)
    codes[order] = (np.cumsum(spans) - spans) >> (MAX_LENGTH - rising)
    return codes


def _by_length(lengths: Ints) -> Ints:
    """Symbols that have a code, by rising (length, symbol)."""
    order = np.argsort(lengths, kind="stable")
    return order[lengths[order] > 0]


def check_lengths(lengths: Ints, where: str) -> None:
    """Refuse lengths that are not those of a complete code, a sole symbol's, or none.

    Raises
    ------
    FormatError
        A length is out of 0..15, or codes are missing or too many; `where` starts the message.
    """
    if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= MAX_LENGTH:
        raise FormatError(
            f"{where}: code lengths are {lengths.min()}..{lengths.max()}, expected "
            f"0..{MAX_LENGTH}; {AGAIN}"
        )
    used = lengths[lengths > 0]
    if len(used) == 0 or (len(used) == 1 and used[0] == 1):
        return
    taken = int((1 << (MAX_LENGTH - used)).sum())
    if taken != 1 << MAX_LENGTH:
        amount = "more than" if taken > 1 << MAX_LENGTH else "only"
        raise FormatError(
            f"{where}: the code lengths take {amount} {taken / (1 << MAX_LENGTH):.5g} of all "
            f"codes, expected exactly 1; {AGAIN}"
        )


def encode(symbols: Ints, lengths: Ints) -> bytes:
    """Codes of the symbols (n,) one after the other; unused bits of the last byte are 0."""
    return pack_fields(canonical_codes(lengths)[symbols], lengths[symbols])


def decode(data: bytes, lengths: Ints, n: int, where: str) -> Ints:
    """Undo `encode`; nothing larger than `data` calls for is allocated.

    Parameters
    ----------
    data : bytes
        Exactly `n` codes and unused bits.
    lengths : (symbols,) int64

    Returns
    -------
    (n,) int64

    Raises
    ------
    FormatError
        The lengths are not those of a code, or `data` is too short, too long, holds what is no
        code, or has unused bits that are not 0; `where` starts the message.
    """
    check_lengths(lengths, where)
    if n > 8 * len(data):
        raise FormatError(f"{where}: {len(data)} bytes, too short for {n} codes; {AGAIN}")
    bits = bitarray(data, endian="little")
    order = _by_length(lengths)
    numbers = np.bincount(lengths[order], minlength=2).tolist()
    try:
        decoder = canonical_decode(bits, numbers, order.tolist())
        symbols = np.fromiter(decoder, dtype=np.int64, count=n)
    except ValueError:
        raise FormatError(
            f"{where}: {len(data)} bytes are cut off or hold what is no code, expected {n} codes; "
            f"{AGAIN}"
        ) from None
    used = int(lengths[symbols].sum())
    if packed_bytes(used, 1) != len(data) or bits[used:].any():
        raise FormatError(
            f"{where}: {len(data)} bytes for {n} codes of {used} bits, expected "
            f"{packed_bytes(used, 1)} with 0 in the bits left over; {AGAIN}"
        )
    return symbols
