# SPDX-License-Identifier: BSD-2-Clause
"""Faults of a line: what can go wrong, when, and what it makes of a frame; random plans of them.

A fault names a frame by what it is for and its number, "the third frame of loading", so the same
plan always does the same harm.
"""

import random
import re
from dataclasses import dataclass
from enum import StrEnum

from ..rtl.formats import Command
from ..rtl.frames import ESCAPE, FLAG, OVERHEAD, Frame, encode_frame

__all__ = ["Fault", "Kind", "Phase", "harm", "phase_of", "plan_faults", "repair"]


class Kind(StrEnum):
    """What goes wrong. `Fault.size` counts bytes, but where it says otherwise."""

    DROP = "drop"  # bytes get lost
    FLIP = "flip"  # a bit of each byte changes
    DUPLICATE = "duplicate"  # bytes come twice; many: the whole frame
    DELAY = "delay"  # the frame and all behind it come later; hundredths of a second
    REORDER = "reorder"  # so many frames overtake it
    TRUNCATE = "truncate"  # the frame's end gets lost, its FLAG first
    STALL = "stall"  # the port takes and gives nothing; hundredths of a second
    RESET = "reset"  # the device loses power, and says so many bytes when it is back
    GARBAGE = "garbage"  # random bytes ahead of the frame


class Phase(StrEnum):
    """What the line is used for."""

    HANDSHAKE = "handshake"  # HELLO, ABORT and their answers
    LOAD = "load"  # LOAD, COMMIT and their answers
    INPUT = "input"  # INPUT and its answer
    RUN = "run"  # RUN
    OUTPUT = "output"  # its answer


_PHASES: dict[int, Phase] = {
    Command.HELLO: Phase.HANDSHAKE,
    Command.ABORT: Phase.HANDSHAKE,
    Command.LOAD: Phase.LOAD,
    Command.COMMIT: Phase.LOAD,
    Command.INPUT: Phase.INPUT,
    Command.RUN: Phase.RUN,
}

WHOLE = 1000
"""Bytes beyond every frame of a small engine."""
SIZES = {
    Kind.DROP: (1, 2, 8, WHOLE),
    Kind.FLIP: (1, 2, 8, WHOLE),
    Kind.DUPLICATE: (1, 2, 8, WHOLE, WHOLE),
    Kind.DELAY: (1, 5, 20, 60),
    Kind.REORDER: (1, 2, 3),
    Kind.TRUNCATE: (1, 2, 8, WHOLE),
    Kind.STALL: (1, 5, 20, 60),
    Kind.RESET: (0, 20),
    Kind.GARBAGE: (1, 8, 50, WHOLE),
}
FRAMES = {Phase.HANDSHAKE: 4, Phase.LOAD: 40, Phase.INPUT: 16, Phase.RUN: 4, Phase.OUTPUT: 4}
"""How many frames of a phase a plan chooses from."""
BURSTS = (1, 1, 1, 2, 5)
"""Frames in a row that one fault hits."""
MEAN_FAULTS = 5
"""Faults that a plan holds on average, one at least."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Parameters
    ----------
    kind : Kind
    phase : Phase
    at : int
        The first frame that it hits: its number in the phase, both ways counted.
    frames : int
        How many frames of the phase in a row; more than one is a burst.
    size : int
        How much of it; see `Kind`.
    seed : int
        Where in the frame, which bits.
    """

    kind: Kind
    phase: Phase
    at: int
    frames: int
    size: int
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.phase}:{self.at}:{self.frames}:{self.size}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault that `str` has written.

        Raises
        ------
        ValueError
            The text is no fault.
        """
        kind, phase, *numbers = text.split(":")
        if len(numbers) != 4:
            raise ValueError(f"a fault is kind:phase:at:frames:size:seed, not {text!r}")
        return cls(Kind(kind), Phase(phase), *map(int, numbers))


def plan_faults(rng: random.Random) -> list[Fault]:
    """A random plan: every kind, phase and place is as likely as another."""
    faults = []
    for _ in range(1 + rng.randrange(2 * MEAN_FAULTS - 1)):
        kind, phase = rng.choice(list(Kind)), rng.choice(list(Phase))
        at, frames = rng.randrange(FRAMES[phase]), rng.choice(BURSTS)
        size, seed = rng.choice(SIZES[kind]), rng.randrange(1000)
        faults.append(Fault(kind, phase, at, 1 if kind == Kind.RESET else frames, size, seed))
    return faults


def phase_of(frame: bytes) -> Phase | None:
    """Phase of a frame; None: that of the one before it, as of STATUS."""
    kind = next(iter(_unstuff(frame.strip(bytes([FLAG])))), 0)
    return Phase.OUTPUT if kind == Command.RUN | 0x80 else _PHASES.get(kind & 0x7F)


def harm(data: bytes, fault: Fault, rng: random.Random) -> bytes:
    """What arrives of a frame."""
    if fault.kind == Kind.GARBAGE:
        return rng.randbytes(fault.size) + data
    size = min(fault.size, len(data))
    start = rng.randrange(len(data) - size + 1)
    head, hit, tail = data[:start], data[start : start + size], data[start + size :]
    if fault.kind == Kind.DROP:
        return head + tail
    if fault.kind == Kind.FLIP:
        return head + bytes(byte ^ 1 << rng.randrange(8) for byte in hit) + tail
    if fault.kind == Kind.DUPLICATE:
        return head + hit + hit + tail
    assert fault.kind == Kind.TRUNCATE
    return data[: len(data) - size]


def repair(data: bytes) -> bytes:
    """The same with a right CRC in each frame whose length is right."""
    *pieces, rest = data.split(bytes([FLAG]))
    repaired = b""
    for piece in pieces:
        content = _unstuff(piece)
        size = len(content) - OVERHEAD
        if size >= 0 and int.from_bytes(content[2:4], "little") == size:
            repaired += encode_frame(Frame(content[0], content[1], content[4:-4]))
        else:
            repaired += piece + bytes([FLAG])
    return repaired + rest


def _unstuff(piece: bytes) -> bytes:
    return re.sub(
        rb"(?s)" + re.escape(bytes([ESCAPE])) + rb"(.?)",
        lambda found: bytes(byte ^ 0x20 for byte in found[1]),
        piece,
    )
