# SPDX-License-Identifier: BSD-2-Clause
"""Fields packed into bytes, vectorized; the first bit of a stream is the lowest of its first byte.

Fields of a fixed width go least significant bit first, those of varying widths, such as Huffman
codes, most significant bit first.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["pack_bits", "pack_fields", "packed_bytes", "unpack_bits"]

Ints = npt.NDArray[np.int64]

WORD_SHIFT = 5
WORD = 1 << WORD_SHIFT

MIRRORS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF))
"""Steps that mirror the bits of a word: how far apart what is swapped stands, and which half."""


def packed_bytes(count: int, width: int) -> int:
    """Bytes that `count` fields of `width` bits take."""
    return -(-count * width // 8)


def pack_bits(values: Ints, width: int) -> bytes:
    """Pack values in 0..2**width - 1; unused bits of the last byte are 0."""
    bits = (values[:, None] >> np.arange(width)) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack_bits(data: bytes, width: int, count: int) -> Ints:
    """Undo `pack_bits`: the first `count` fields, (count,) int64; `data` must hold them."""
    raw = np.frombuffer(data, dtype=np.uint8, count=packed_bytes(count, width))
    bits = np.unpackbits(raw, bitorder="little")[: count * width].reshape(count, width)
    return bits.astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))


def pack_fields(values: Ints, widths: Ints) -> bytes:
    """Pack value i in ``widths[i]`` bits, most significant first; unused bits at the end are 0.

    Parameters
    ----------
    values : (n,) int64
        0..2**width - 1 each.
    widths : (n,) int64
        0..32.
    """
    ends = np.cumsum(widths)
    total = int(ends[-1]) if len(ends) else 0
    low_first = _mirror(values.astype(np.uint64)) >> (WORD - widths).astype(np.uint64)
    starts = ends - widths
    words, shifts = starts >> WORD_SHIFT, (starts & (WORD - 1)).astype(np.uint64)
    firsts = np.flatnonzero(np.diff(words, prepend=-1))
    packed = np.zeros((total >> WORD_SHIFT) + 2, dtype=np.uint64)
    if len(firsts):
        # fields that start in one word reach at most into the next one
        joined = np.bitwise_or.reduceat(low_first << shifts, firsts)
        packed[words[firsts]] |= joined & np.uint64(0xFFFFFFFF)
        packed[words[firsts] + 1] |= joined >> np.uint64(WORD)
    return packed.astype("<u4").tobytes()[: packed_bytes(total, 1)]


def _mirror(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Words of 32 bits with their bits in the opposite order."""
    for distance, half in MIRRORS:
        step, low = np.uint64(distance), np.uint64(half)
        words = (words & low) << step | (words >> step) & low
    return words
