# SPDX-License-Identifier: BSD-2-Clause
"""Requests and answers over a byte stream that may lose, damage, delay and split anything.

The device answers in order (runs among themselves, all else among themselves) and every request may
be repeated without harm, so an answer that was overtaken is known to be lost and is asked for again
at once; silence is waited out. docs/protocol.md describes the frames.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ...rtl.formats import Command, Status
from ...rtl.frames import FLAG, Frame, FrameDecoder, encode_frame
from ..errors import DeviceError, DeviceTimeout

__all__ = ["PAUSE", "Answer", "Clock", "Link", "Port", "Ticket"]

SILENCES = 8
"""Times that a request is sent into silence, evenly over the timeout."""
ATTEMPTS = 40
"""Times that a request is sent at most, if the timeout is over too."""
HASTE = 0.02
"""Seconds between repeats because of damaged answers; noise must not make a flood."""
OPEN_LIMIT = 64
"""Open requests at most, far below the 256 sequence numbers, so that old answers cannot match."""
SMALLEST_WINDOW = 96
"""Bytes that every engine's receive buffer can take, used until the engine has said more."""
PAUSE = 0.001
"""Seconds of sleep where a port returns nothing without having waited."""

STATUSES = frozenset(int(status) for status in Status)

ADVICE = {
    Status.BUSY: "a run is going on; wait for its results or abort it",
    Status.BAD_STATE: "no image is loaded (was the device reset?); load it again",
    Status.BAD_OFFSET: "a piece of the image is missing; load it again",
    Status.BAD_IMAGE: "the image did not arrive as it was sent; load it again",
    Status.UNKNOWN: "the device does not know it; build bitstream and driver from one version",
    Status.BAD_LENGTH: "the request is too short; build bitstream and driver from one version",
    Status.BAD_ARGUMENT: (
        "the device has no such input slot, image or group; build bitstream and driver from one "
        "version"
    ),
}


class Port(Protocol):
    """What is used of pyserial's interface. `read` may return less than asked for, also nothing."""

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""
        ...

    def read(self, size: int = 1, /) -> bytes:
        """Read up to `size` bytes; waits for the port's timeout at most."""
        ...

    def write(self, data: bytes, /) -> int | None:
        """Write; returns how many bytes were taken (None: all)."""
        ...

    def open(self) -> None:
        """Open again after `close`, with the same settings."""
        ...

    def close(self) -> None:
        """Close; does nothing if that was done."""
        ...


class Clock(Protocol):
    """What tells the time and lets it pass: the module `time`, or one whose time is simulated."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Do nothing for so long."""
        ...


@dataclass(frozen=True)
class Answer:
    """Status and data of an answer."""

    status: Status
    data: bytes = b""


@dataclass(eq=False)
class Ticket:
    """One request on its way: filled in by the link.

    Parameters
    ----------
    frame : Frame
        The request.
    attempts : int
        Times sent so far.
    silences : int
        Times that nothing was heard for long.
    order : int
        Number of the last transmission.
    first_at, sent_at : float
        Time of the first and of the last transmission, by the link's clock.
    answer : Answer, optional
    """

    frame: Frame
    attempts: int = 0
    silences: int = 0
    order: int = 0
    first_at: float = 0.0
    sent_at: float = 0.0
    answer: Answer | None = None

    @property
    def command(self) -> Command:
        """What is asked for."""
        return Command(self.frame.type)

    @property
    def key(self) -> tuple[int, int]:
        """Type and sequence number that its answer bears."""
        return self.frame.type | 0x80, self.frame.seq

    @property
    def size(self) -> int:
        """Bytes that it takes up in the device's receive buffer."""
        return len(self.frame.message)


class Link:
    """Requests over a port, several at a time as far as the device's buffer allows.

    Parameters
    ----------
    port : Port
        Open; its own read timeout should be short (some 50 ms). The link never closes it.
    where : str
        Name of the device in messages.
    timeout : float
        Seconds of silence after which a request fails.
    clock : Clock
        What all waiting goes by.

    Attributes
    ----------
    where, timeout, clock
        As above; the timeout may be changed.
    window : int
        Bytes of unanswered requests, with 4 header bytes each, that the device can hold.
    repeats, strays : int
        Requests sent again, and answers that nobody waited for (late or double).
    seconds : float
        Time spent in the port, sending or waiting.
    """

    def __init__(
        self, port: Port, where: str, *, timeout: float = 5.0, clock: Clock = time
    ) -> None:
        self._port = port
        self.where = where
        self.timeout = timeout
        self.clock = clock
        self._open: dict[tuple[int, int], Ticket] = {}
        self._decoder = FrameDecoder()
        self._seq = itertools.cycle(range(256))
        self._orders = itertools.count(1)
        self._heard_at = 0.0
        self._noise = b""
        self._in_step = False
        self.window = SMALLEST_WINDOW
        self.repeats = 0
        self.strays = 0
        self.seconds = 0.0

    @property
    def damaged(self) -> int:
        """Pieces received that were no good frame: noise, cut or damaged answers."""
        return self._decoder.damaged + self._decoder.oversize

    def piece_bytes(self, head: int) -> int:
        """Most data bytes behind `head` bytes of arguments, a multiple of 4.

        Two requests of that size fit the window: one is on its way while one is being answered.
        """
        return self.window // 2 - 4 - head & -4

    def request(self, command: Command, payload: bytes = b"") -> bytes:
        """Send a request, wait for its answer and return the answer's data.

        Raises
        ------
        DeviceError
            The device refuses, or the connection broke.
        DeviceTimeout
            It does not answer.
        """
        answer = self.wait(self.submit(command, payload))
        if answer.status != Status.OK:
            raise self.refusal(command, answer.status)
        return answer.data

    def pipeline(self, requests: Iterable[tuple[Command, bytes]]) -> Iterator[Answer]:
        """Send requests as fast as the window allows; yield their answers in the same order.

        Requests are taken from the iterable only when they can be sent.
        """
        tickets: deque[Ticket] = deque()
        for command, payload in requests:
            tickets.append(self.submit(command, payload))
            while tickets and tickets[0].answer is not None:
                yield self.wait(tickets.popleft())
        while tickets:
            yield self.wait(tickets.popleft())

    def submit(self, command: Command, payload: bytes = b"") -> Ticket:
        """Send a request as soon as the window has room for it, without waiting for its answer."""
        ticket = Ticket(Frame(command, 0, payload))
        while self._open and (
            len(self._open) >= OPEN_LIMIT
            or ticket.size + sum(other.size for other in self._open.values()) > self.window
        ):
            self._pump()
        seq = next(self._seq)
        while any(seq == other for _, other in self._open):
            seq = next(self._seq)
        ticket.frame = Frame(command, seq, payload)
        self._open[ticket.key] = ticket
        self._send(ticket)
        return ticket

    def wait(self, ticket: Ticket, meanwhile: Callable[[], object] | None = None) -> Answer:
        """Answer to a submitted request; repeats what got lost meanwhile.

        `meanwhile` is called whenever something may have arrived.
        """
        while ticket.answer is None:
            if self._open.get(ticket.key) is not ticket:
                raise DeviceError(
                    f"{self.where}: {ticket.command.name} was given up before its answer came "
                    "(another call has taken over the device); ask again"
                )
            self._pump()
            if meanwhile is not None:
                meanwhile()
        return ticket.answer

    def forget(self) -> None:
        """Give up all open requests; late answers to them will be skipped."""
        self._open.clear()
        self._in_step = False

    def refusal(self, command: Command, status: Status) -> DeviceError:
        """The error for an answer whose status is not OK."""
        return DeviceError(
            f"{self.where}: {command.name} was refused with status {status.name}, expected OK; "
            f"{ADVICE[status]}"
        )

    def nonsense(self, command: Command, data: bytes, expected: str) -> DeviceError:
        """The error for an answer whose data makes no sense."""
        return DeviceError(
            f"{self.where}: {command.name} was answered with {len(data)} bytes "
            f"({data[:8].hex(' ')}), expected {expected}; build bitstream and driver from one "
            "version"
        )

    def _send(self, ticket: Ticket) -> None:
        data = encode_frame(ticket.frame)
        if not self._in_step:  # ends whatever the device has read so far
            data = bytes([FLAG]) + data
        self._in_step = False  # until all of it is written: Ctrl-C may come in between
        ticket.attempts += 1
        ticket.order = next(self._orders)
        self._write(data)
        self._in_step = True
        ticket.sent_at = self.clock.monotonic()
        ticket.first_at = ticket.first_at or ticket.sent_at

    def _write(self, data: bytes) -> None:
        started = self.clock.monotonic()
        try:
            while data:
                taken = self._port.write(data)
                data = data[len(data) if taken is None else taken :]
                if data and not taken:
                    self._check_write_deadline(started, len(data))
        except OSError as error:  # also pyserial's own SerialException
            raise self._broken(error) from error
        finally:
            self.seconds += self.clock.monotonic() - started

    def _check_write_deadline(self, started: float, left: int) -> None:
        if self.clock.monotonic() - started > self.timeout:
            self.forget()
            raise DeviceTimeout(
                f"{self.where}: the port took no data for {self.timeout:g} s, expected it to take "
                f"{left} more bytes; check the cable and flow control"
            )
        self.clock.sleep(PAUSE)

    def _broken(self, error: Exception) -> DeviceError:
        self.forget()
        return DeviceError(
            f"{self.where}: the connection broke ({error}); check the cable, then reconnect"
        )

    def _pump(self) -> None:
        """Read once, hand out answers, repeat what is lost, fail what is overdue."""
        damaged = self.damaged
        data = self._read()
        frames = self._decoder.feed(data)
        for frame in frames:
            self._take(frame)
        if data and not frames:
            self._noise = (self._noise + data)[-16:]
        now = self.clock.monotonic()
        if data and self._decoder.arriving in self._open:  # a long answer takes its time
            self._heard_at = now
        if self.damaged != damaged and self._open:  # likely the answer that is due next
            oldest = min(self._open.values(), key=lambda ticket: ticket.order)
            if now - oldest.sent_at > HASTE:
                self._repeat(oldest)
        for ticket in list(self._open.values()):
            if now - max(ticket.sent_at, self._heard_at) > self.timeout / SILENCES:
                ticket.silences += 1
                self._repeat(ticket)

    def _read(self) -> bytes:
        started = self.clock.monotonic()
        try:
            data = self._port.read(1)
            if data:
                waiting = self._port.in_waiting
                data += self._port.read(waiting) if waiting else b""
        except OSError as error:  # also pyserial's own SerialException
            raise self._broken(error) from error
        if not data and self.clock.monotonic() - started < PAUSE:
            self.clock.sleep(PAUSE)
        self.seconds += self.clock.monotonic() - started
        return data

    def _take(self, frame: Frame) -> None:
        ticket = self._open.pop((frame.type, frame.seq), None)
        if ticket is None:
            self.strays += 1
            return
        status = frame.payload[0] if frame.payload else None
        if status is None or status not in STATUSES:
            self.forget()
            raise DeviceError(
                f"{self.where}: {ticket.command.name} was answered with status {status}, expected "
                f"0..{max(Status)}; build bitstream and driver from one version"
            )
        ticket.answer = Answer(Status(status), frame.payload[1:])
        self._heard_at = self.clock.monotonic()
        self._noise = b""
        is_run = ticket.command == Command.RUN and ticket.answer.status == Status.OK
        if is_run or ticket.command != Command.RUN:
            for other in list(self._open.values()):
                same_order = (other.command == Command.RUN) == is_run
                if same_order and other.order < ticket.order:
                    self._repeat(other)

    def _repeat(self, ticket: Ticket) -> None:
        overdue = self.clock.monotonic() - ticket.first_at > self.timeout
        if ticket.silences >= SILENCES or (overdue and ticket.attempts >= ATTEMPTS):
            got = f"noise ending in {self._noise.hex(' ')}" if self._noise else "nothing"
            self.forget()
            raise DeviceTimeout(
                f"{self.where}: no answer within {self.timeout:g} s and {ticket.attempts} "
                f"attempts: expected an answer to {ticket.command.name} {ticket.frame.seq}, got "
                f"{got}; check that the device is powered, configured and at the same baud rate"
            )
        self.repeats += 1
        self._in_step = False
        self._send(ticket)
