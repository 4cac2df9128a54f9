# SPDX-License-Identifier: BSD-2-Clause
"""A port with faults between driver and simulated board, in simulated time: nothing sleeps.

It works on whole frames, which it cuts at FLAGs, and counts what it does.
"""

import random
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .board import SimulatedBoard
from .faults import Fault, Kind, Phase, harm, phase_of, repair

__all__ = ["FaultyPort", "Hang", "VirtualClock"]

POLL_SECONDS = 0.05
"""Time that a read without data takes, as at a serial port."""
BYTE_SECONDS = 1e-5
"""Time that a byte takes, as at 1 Mbaud."""

_FRAME = re.compile(rb"\x7e*[^\x7e]+\x7e")


class Hang(Exception):
    """A call waited beyond its deadline: the driver has failed."""


class VirtualClock:
    """Time that passes only when somebody waits; `deadline` makes waiting longer than that fail."""

    def __init__(self) -> None:
        self._now = 0.0
        self.deadline = float("inf")

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._now

    def sleep(self, seconds: float, /) -> None:
        """Let time pass.

        Raises
        ------
        Hang
            The deadline is over.
        """
        self._now += seconds
        if self._now > self.deadline:
            raise Hang(f"still waiting {self._now - self.deadline:.3f} s after the deadline")


@dataclass
class Way:
    """One direction: what has begun to come, frames that are held back, frames on their way."""

    begun: bytearray = field(default_factory=bytearray)
    held: list[tuple[int, bytes]] = field(default_factory=list)
    moving: deque[tuple[float, bytes]] = field(default_factory=deque)

    def cut(self, data: bytes) -> list[bytes]:
        """Whole frames among what has come, with the FLAGs in front of them."""
        self.begun += data
        frames = _FRAME.findall(self.begun)
        del self.begun[: sum(map(len, frames))]
        return frames

    def post(self, frame: bytes, at: float, behind: int) -> None:
        """Send a frame on its way; at the earliest at `at` and when `behind` others have passed."""
        if behind:
            self.held.append((behind, frame))
            return
        self.moving.append((max(at, self.moving[-1][0] if self.moving else 0.0), frame))
        waiting, self.held = self.held, []
        for left, other in waiting:
            self.post(other, at, left - 1)

    def take(self, now: float) -> bytes:
        """Bytes that have arrived."""
        data = b""
        while self.moving and self.moving[0][0] <= now:
            data += self.moving.popleft()[1]
        return data

    def release(self, now: float) -> None:
        """Nothing more comes that could overtake what is held back."""
        while self.held:
            self.post(self.held.pop(0)[1], now, 0)

    def clear(self) -> None:
        """Lose everything."""
        for part in (self.begun, self.held, self.moving):
            part.clear()


class FaultyPort:
    """A port that leads to a simulated board over a line with faults.

    Parameters
    ----------
    board : SimulatedBoard
        Its timeout counts for nothing: what it has to say comes within `board.SLICE_CYCLES`. The
        port does not close it.
    clock : VirtualClock
        Of the driver, too.
    faults : sequence of Fault
        What goes wrong.
    right_crcs : bool
        Give damaged frames a right CRC, as if neither end checked it.

    Attributes
    ----------
    injected : Counter of (Phase, Kind)
        Frames hit so far.
    """

    def __init__(
        self,
        board: SimulatedBoard,
        clock: VirtualClock,
        faults: Sequence[Fault] = (),
        *,
        right_crcs: bool = False,
    ) -> None:
        self._board = board
        self._clock = clock
        self._faults = tuple(faults)
        self._right_crcs = right_crcs
        self._down, self._up = Way(), Way()
        self._inbox = bytearray()
        self._phase = Phase.HANDSHAKE
        self._seen: Counter[Phase] = Counter()
        self._stalled_until = 0.0
        self._idle = False  # the board has been heard out, and nothing was asked since
        self.injected: Counter[tuple[Phase, Kind]] = Counter()

    def heal(self) -> None:
        """No more faults from now on; what has been held back arrives."""
        self._faults = ()
        self._stalled_until = 0.0

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""
        return len(self._inbox)

    def write(self, data: bytes, /) -> int:
        """Take bytes for the board, all or none."""
        if self._clock.monotonic() < self._stalled_until:
            return 0
        self._clock.sleep(len(data) * BYTE_SECONDS)
        self._pass(self._down, self._down.cut(data))
        return len(data)

    def read(self, size: int = 1, /) -> bytes:
        """Up to `size` bytes; without any, some time passes."""
        if self._clock.monotonic() < self._stalled_until:
            self._clock.sleep(POLL_SECONDS)
            return b""
        if not self._inbox:
            self._exchange()
        if not self._inbox:
            self._clock.sleep(POLL_SECONDS)
            for way in (self._down, self._up):
                way.release(self._clock.monotonic())
            self._exchange()
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        self._clock.sleep(len(data) * BYTE_SECONDS)
        return data

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the board may serve another port."""

    def _exchange(self) -> None:
        """Let the board have what has arrived there, and take what it says."""
        asked = self._down.take(self._clock.monotonic())
        self._board.write(asked)
        said = b""
        if asked or not self._idle:
            said = self._board.read(self._board.in_waiting)
            self._idle = not said
        self._pass(self._up, self._up.cut(said))
        self._inbox += self._up.take(self._clock.monotonic())

    def _pass(self, way: Way, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._strike(way, frame)

    def _strike(self, way: Way, frame: bytes) -> None:
        """Send a frame on its way, with all that is planned for it."""
        self._phase = phase_of(frame) or self._phase
        number = self._seen[self._phase]
        self._seen[self._phase] += 1
        now, behind = self._clock.monotonic(), 0
        at, data = now, frame
        for fault in self._faults:
            if fault.phase != self._phase or not 0 <= number - fault.at < fault.frames:
                continue
            self.injected[self._phase, fault.kind] += 1
            if fault.kind == Kind.RESET:
                self._reset(fault)
                return
            if fault.kind == Kind.DELAY:
                at += fault.size / 100
            elif fault.kind == Kind.STALL:
                self._stalled_until = now + fault.size / 100
            elif fault.kind == Kind.REORDER:
                behind = fault.size
            else:
                data = harm(data, fault, random.Random(f"{fault.seed} {number}"))
        if self._right_crcs and data != frame:
            data = repair(data)
        way.post(data, at, behind)

    def _reset(self, fault: Fault) -> None:
        self._board.reset()
        self._idle = False
        for way in (self._down, self._up):
            way.clear()
        self._inbox[:] = random.Random(fault.seed).randbytes(fault.size)
