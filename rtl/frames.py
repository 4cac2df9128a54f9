# SPDX-License-Identifier: BSD-2-Clause
"""Frames of the link on Python bytes: the one definition that gateware and driver are held to.

A frame is ``type, seq, length (u16 LE), payload[length], CRC-32 (u32 LE)``; in it FLAG and ESCAPE
are replaced by ESCAPE and the byte XOR 0x20; a FLAG ends it. docs/protocol.md says what the frames
mean. Nothing here imports amaranth.

Ref: RFC 1662, section 4.2 (stuffing).
"""

import struct
import zlib
from dataclasses import dataclass

__all__ = ["ESCAPE", "FLAG", "OVERHEAD", "Frame", "FrameDecoder", "encode_frame"]

FLAG = 0x7E
"""Ends a frame; appears nowhere else on the line."""

ESCAPE = 0x7D
"""The next byte is to be read XOR 0x20."""

OVERHEAD = 8
"""Bytes of a frame that are not payload, before stuffing and without the FLAG."""

_HEADER = struct.Struct("<BBH")


@dataclass(frozen=True)
class Frame:
    """One frame: type 0..255, sequence number 0..255, payload of at most 65535 bytes."""

    type: int
    seq: int
    payload: bytes = b""

    @property
    def message(self) -> bytes:
        """Header and payload: what the receive buffer holds of the frame."""
        return _HEADER.pack(self.type, self.seq, len(self.payload)) + self.payload


def encode_frame(frame: Frame) -> bytes:
    """Bytes for the line: stuffed, with CRC and closing FLAG."""
    content = frame.message
    content += zlib.crc32(content).to_bytes(4, "little")
    content = content.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e")
    return content + bytes([FLAG])


class FrameDecoder:
    """Cut frames out of bytes that arrive in any pieces; damaged ones are counted and dropped.

    Parameters
    ----------
    max_payload : int
        Longest payload taken; what is longer is dropped while it comes, so that garbage without
        a FLAG cannot grow the buffer.

    Attributes
    ----------
    damaged : int
        Pieces between FLAGs dropped so far: wrong CRC or length, or cut short.
    oversize : int
        Pieces dropped so far because they were too long.
    """

    def __init__(self, max_payload: int = 65535) -> None:
        self._max_payload = max_payload
        self._limit = 2 * (max_payload + OVERHEAD + 1)  # cut here, a piece is too long for certain
        self._piece = bytearray()
        self.damaged = 0
        self.oversize = 0

    @property
    def arriving(self) -> tuple[int, int] | None:
        """Type and seq of the frame that has begun; None without a head, or past its length."""
        head = _unstuff(self._piece[: 2 * _HEADER.size])
        if len(head) < _HEADER.size:
            return None
        kind, seq, length = _HEADER.unpack_from(head)
        return (kind, seq) if len(self._piece) <= 2 * (length + OVERHEAD) else None

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes from the line; return the good frames completed by them, in order."""
        frames = []
        *ended, rest = data.split(bytes([FLAG]))
        for part in ended:
            self._append(part)
            frame = self._finish(_unstuff(self._piece), self._piece.endswith(bytes([ESCAPE])))
            self._piece.clear()
            if frame is not None:
                frames.append(frame)
        self._append(rest)
        return frames

    def _append(self, part: bytes) -> None:
        self._piece += part[: self._limit - len(self._piece)]

    def _finish(self, content: bytes, aborted: bool) -> Frame | None:
        if not content:
            return None
        if len(content) >= _HEADER.size:
            kind, seq, length = _HEADER.unpack_from(content)
            if length > self._max_payload:
                self.oversize += 1
                return None
            whole = len(content) == length + OVERHEAD and not aborted
            if whole and zlib.crc32(content[:-4]) == int.from_bytes(content[-4:], "little"):
                return Frame(kind, seq, content[_HEADER.size : -4])
        self.damaged += 1
        return None


def _unstuff(stuffed: bytes | bytearray) -> bytes:
    first, *rest = bytes(stuffed).split(bytes([ESCAPE]))
    return first + b"".join(bytes([part[0] ^ 0x20]) + part[1:] for part in rest if part)
