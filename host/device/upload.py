# SPDX-License-Identifier: BSD-2-Clause
"""Status of a device, and images on their way into it."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ...rtl.formats import Command, State, Status
from ..errors import DeviceError
from .link import Link

__all__ = ["LINK_FLAGS", "DeviceStatus", "commit", "read_status", "send_image"]

LINK_FLAGS = ("frame", "framing", "overrun")
"""Link errors the device has seen: damaged frame; UART framing error; overrun or oversize."""

STUCK_LIMIT = 8
"""Times that an image may be continued from one place without getting further."""


@dataclass(frozen=True)
class DeviceStatus:
    """State, link errors since last asked (names of `LINK_FLAGS`), and image bytes taken so far."""

    state: State
    flags: tuple[str, ...]
    loaded: int


def read_status(link: Link) -> DeviceStatus:
    """Ask for the status, in any state; that clears the link flags.

    Raises
    ------
    DeviceError
        The answer makes no sense, or none comes.
    """
    data = link.request(Command.STATUS)
    if len(data) != 6 or data[0] not in set(State):
        raise link.nonsense(Command.STATUS, data, "a state, flags and a count")
    flags = tuple(name for bit, name in enumerate(LINK_FLAGS) if data[1] >> bit & 1)
    return DeviceStatus(State(data[0]), flags, int.from_bytes(data[2:], "little"))


def commit(link: Link, data: bytes) -> bool:
    """Make the image that was sent the current one; False if the device holds another one.

    Raises
    ------
    DeviceError
        The device refuses for another reason, or does not answer.
    """
    payload = len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little")
    answer = link.wait(link.submit(Command.COMMIT, payload))
    if answer.status not in (Status.OK, Status.BAD_IMAGE):
        raise link.refusal(Command.COMMIT, answer.status)
    return answer.status == Status.OK


def send_image(link: Link, data: bytes) -> None:
    """Send an image; where a piece got lost, go on from the last byte the device has taken.

    Raises
    ------
    DeviceError
        The device refuses, takes nothing more, or does not answer.
    """
    size = link.piece_bytes(head=4)
    # The piece at 0 starts anew whenever it comes, so no other may be on its way with it.
    link.request(Command.LOAD, bytes(4) + data[:size])
    offset, stuck = min(size, len(data)), 0
    while offset < len(data):
        whole = _send_pieces(link, data, offset, size)
        taken = len(data) if whole else read_status(link).loaded
        stuck = 0 if taken > offset else stuck + 1
        if stuck == STUCK_LIMIT or taken > len(data):
            raise DeviceError(
                f"{link.where}: the device has taken {taken} bytes of the image, expected more "
                f"than {offset} of {len(data)}; check the link and load again"
            )
        offset = taken


def _send_pieces(link: Link, data: bytes, offset: int, size: int) -> bool:
    """Send the rest of an image; False as soon as the device misses a piece."""
    whole = True

    def requests() -> Iterator[tuple[Command, bytes]]:
        for at in range(offset, len(data), size):
            if whole:
                yield Command.LOAD, at.to_bytes(4, "little") + data[at : at + size]

    for answer in link.pipeline(requests()):
        if answer.status not in (Status.OK, Status.BAD_OFFSET):
            raise link.refusal(Command.LOAD, answer.status)
        whole = whole and answer.status == Status.OK
    return whole
