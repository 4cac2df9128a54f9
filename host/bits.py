# SPDX-License-Identifier: BSD-2-Clause
"""Fields of a fixed width packed into bytes, least significant bit first, vectorized."""

import numpy as np
import numpy.typing as npt

__all__ = ["pack_bits", "packed_bytes", "unpack_bits"]


def packed_bytes(count: int, width: int) -> int:
    """Bytes that `count` fields of `width` bits take."""
    return -(-count * width // 8)


def pack_bits(values: npt.NDArray[np.int64], width: int) -> bytes:
    """Pack values in 0..2**width - 1; unused bits of the last byte are 0."""
    bits = (values[:, None] >> np.arange(width)) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack_bits(data: bytes, width: int, count: int) -> npt.NDArray[np.int64]:
    """Undo `pack_bits`: the first `count` fields, (count,) int64; `data` must hold them."""
    raw = np.frombuffer(data, dtype=np.uint8, count=packed_bytes(count, width))
    bits = np.unpackbits(raw, bitorder="little")[: count * width].reshape(count, width)
    return bits.astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))
