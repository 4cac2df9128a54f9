# SPDX-License-Identifier: BSD-2-Clause
"""What driver and engine make of a bad line: sessions on simulated RTL, each with its own faults.

A run opens a device, loads an image and runs inputs, while faults hit the line; then the line is
good again, and the next call has to be right. Time is simulated, so deadlines cost nothing. A run
that fails is repeated with fewer faults until none can be left out.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ..host import golden
from ..host.console import track
from ..host.device.device import Device
from ..host.errors import GossamerError, InputError
from ..host.session import Session
from ..rtl.tools import Progress
from ..sim.board import SimulatedBoard
from ..sim.faults import Fault, Kind, Phase, plan_faults
from ..sim.faulty_port import FaultyPort, Hang, VirtualClock
from .memory_flips import MEMORIES, StuckBit, find_flips
from .small import CONFIG, SEED, small_network

__all__ = ["Ending", "FaultBench", "Outcome", "Result", "measure", "repeat", "shrink"]

CALL = 5
"""Inputs of one call: three runs."""
RUNS_PER_BIT = 10
"""Runs for each stuck bit of a memory, which takes several."""
MOST_FAILURES = 10
"""Failed runs that are shrunk and shown."""
TIMEOUT = 5.0
DEADLINE = 12 * TIMEOUT
"""Simulated seconds within which a call ends: requests may fail one after the other."""

Ending = Literal["right", "wrong", "hang", "error", "crash"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and the call behind it on a good line.

    Parameters
    ----------
    ending, after : str
        ``"right"``, ``"wrong"`` results, a ``"hang"``, a typed ``"error"``, a ``"crash"``.
    error : str
        Class of what was raised first, or nothing.
    injected : Counter of (Phase, Kind)
    """

    ending: Ending
    after: Ending
    error: str
    injected: Counter[tuple[Phase, Kind]]

    @property
    def failed(self) -> bool:
        """Whether it shows a bug."""
        return self.ending not in ("right", "error") or self.after != "right"


class FaultBench:
    """A board and a model to run on it, again and again.

    Parameters
    ----------
    right_crcs : bool
        Damaged frames get a right CRC, as if neither end checked it.
    progress : callable, optional
        Told when something slow starts: the first use builds the simulation.
    """

    def __init__(self, *, right_crcs: bool = False, progress: Progress | None = None) -> None:
        self._right_crcs = right_crcs
        self._board = SimulatedBoard(CONFIG, progress=progress)
        rng = np.random.default_rng(SEED)
        self._network = small_network(rng)
        low, high = self._network.input.low, self._network.input.high
        self._q = rng.integers(low, high + 1, (2 * CALL, self._network.layers[0].n_cols))
        self._want = golden.run(self._network, self._q)

    def close(self) -> None:
        """Free the board."""
        self._board.close()

    def run(self, faults: Sequence[Fault]) -> Outcome:
        """A session on a board that was just switched on."""
        self._board.reset()
        clock = VirtualClock()
        port = FaultyPort(self._board, clock, faults, right_crcs=self._right_crcs)
        session: Session | None = None

        def call(part: slice) -> bool:
            nonlocal session
            clock.deadline = clock.monotonic() + DEADLINE
            if session is None:
                device = Device(port, "sim", timeout=TIMEOUT, clock=clock)
                session = Session(self._network, device)
            return np.array_equal(session.run_quantized(self._q[part]), self._want[part])

        ending, error = _ending(call, slice(0, CALL))
        port.heal()
        after, later_error = _ending(call, slice(CALL, 2 * CALL))
        return Outcome(ending, after, error or later_error, port.injected)

    def find_flips(
        self, count: int, rng: random.Random
    ) -> tuple[dict[str, dict[str, int]], list[StuckBit]]:
        """`memory_flips.find_flips` on the board."""
        self._board.reset()
        return find_flips(self._board, count, rng)


def _ending(call: Callable[[slice], bool], part: slice) -> tuple[Ending, str]:
    try:
        return ("right" if call(part) else "wrong"), ""
    except Hang:
        return "hang", Hang.__name__
    except GossamerError as error:
        return "error", type(error).__name__
    except Exception as error:  # a bug in the driver, which must not end the measurement
        return "crash", type(error).__name__


@dataclass
class Result:
    """What all runs came to.

    Parameters
    ----------
    runs, seed : int
    seconds : float
        On the wall.
    injected : dict
        Frames hit, by kind.
    runs_with : dict
        Runs in which a kind hit at least one frame.
    phases : dict
        Frames hit, by phase, then kind.
    recovered : int
        Runs that ended in the right answer.
    errors : dict
        Runs that ended in a typed error, by its class.
    wrong, hangs, crashes : int
        Runs, or calls behind them, that ended so.
    stuck : int
        Runs behind which the next call on a good line failed.
    transient, transient_recovered : int
        Runs in which the device was not reset, and those of them that ended in the right answer.
    failures : list of str
        The faults of failed runs, as few as will do.
    corrupted : dict
        For each memory: bits of it that were stuck, and those that `selftest` found.
    missed : list of str
        Those that it did not find.
    """

    runs: int
    seed: int
    seconds: float = 0.0
    injected: dict[str, int] = field(default_factory=dict)
    runs_with: dict[str, int] = field(default_factory=dict)
    phases: dict[str, dict[str, int]] = field(default_factory=dict)
    recovered: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    wrong: int = 0
    hangs: int = 0
    crashes: int = 0
    stuck: int = 0
    transient: int = 0
    transient_recovered: int = 0
    failures: list[str] = field(default_factory=list)
    corrupted: dict[str, dict[str, int]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every answer was right or a typed error, the next one right, all bits found."""
        return not (self.wrong or self.hangs or self.crashes or self.stuck or self.missed)

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        kinds = Counter[str]()
        for (phase, kind), count in outcome.injected.items():
            self.phases[phase][kind] += count
            self.injected[kind] += count
            kinds[kind] += 1
        for kind in kinds:
            self.runs_with[kind] += 1
        both = (outcome.ending, outcome.after)
        self.recovered += outcome.ending == "right"
        if outcome.ending == "error":
            self.errors[outcome.error] = self.errors.get(outcome.error, 0) + 1
        self.wrong += "wrong" in both
        self.hangs += "hang" in both
        self.crashes += "crash" in both
        self.stuck += outcome.after == "error"
        if not kinds[Kind.RESET]:
            self.transient += 1
            self.transient_recovered += outcome.ending == "right"


def measure(
    runs: int, seed: int, *, right_crcs: bool = False, progress: Progress | None = None
) -> Result:
    """Runs with random faults; run k has the same whatever `runs` is.

    Parameters
    ----------
    runs : int
    seed : int
    right_crcs : bool
        Damaged frames get a right CRC: the control, which has to go wrong.
    progress : callable, optional
        Told when something slow starts.
    """
    bench = FaultBench(right_crcs=right_crcs, progress=progress)
    nothing = dict.fromkeys(map(str, Kind), 0)
    result = Result(runs, seed, injected=dict(nothing), runs_with=dict(nothing))
    result.phases = {str(phase): dict(nothing) for phase in Phase}
    started = time.monotonic()
    for k in track(range(runs), "runs", runs):
        faults = plan_faults(random.Random(f"{seed} {k}"))
        outcome = bench.run(faults)
        result.add(outcome)
        if outcome.failed and len(result.failures) < MOST_FAILURES:
            result.failures.append(" ".join(map(str, shrink(bench, faults))))
    result.seconds = time.monotonic() - started
    if not right_crcs:
        bits = max(len(MEMORIES), runs // RUNS_PER_BIT)
        result.corrupted, missed = bench.find_flips(bits, random.Random(f"{seed} memories"))
        result.missed = list(map(str, missed))
    bench.close()
    return result


def repeat(text: str, *, right_crcs: bool = False, progress: Progress | None = None) -> Outcome:
    """One run with given faults, written with spaces between them as in `Result.failures`.

    Raises
    ------
    InputError
        The text names no faults.
    """
    try:
        faults = [Fault.parse(word) for word in text.split()]
    except ValueError as error:
        raise InputError(f"{text!r}: {error}; copy what gossamer bench faults printed") from error
    bench = FaultBench(right_crcs=right_crcs, progress=progress)
    outcome = bench.run(faults)
    bench.close()
    return outcome


def shrink(bench: FaultBench, faults: Sequence[Fault]) -> list[Fault]:
    """As few of the faults as still make a run fail, and bursts as short."""
    left = list(faults)
    for fault in faults:
        fewer = [other for other in left if other is not fault]
        if bench.run(fewer).failed:
            left = fewer
    for k, fault in enumerate(left):
        short = [*left[:k], replace(fault, frames=1), *left[k + 1 :]]
        if bench.run(short).failed:
            left = short
    return left
