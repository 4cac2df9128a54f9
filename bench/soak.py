# SPDX-License-Identifier: BSD-2-Clause
"""Very many inferences in one session on the simulated board: every output right, memory flat."""

import time
from dataclasses import dataclass

import numpy as np

from ..host import golden
from ..host.console import track
from ..host.device.device import Device
from ..host.session import Session
from ..rtl.tools import Progress
from ..sim.board import SimulatedBoard
from .small import CONFIG, SEED, small_network

__all__ = ["Result", "measure"]

CALL = 500
"""Inputs of one call of the session."""
WARM = 0.1
"""Share of the calls after which memory may grow no more."""
MARGIN = 1 << 20
"""Bytes of growth that are the allocator's noise."""


@dataclass(frozen=True)
class Result:
    """What was measured.

    Parameters
    ----------
    inferences, wrong : int
        Inputs, and those with an output that is not golden's.
    repeats : int
        Requests that were sent more than once.
    seconds : float
        On the wall.
    early_bytes, late_bytes : int
        Highest memory of the process after the first tenth, and at the end.
    """

    inferences: int
    wrong: int
    repeats: int
    seconds: float
    early_bytes: int
    late_bytes: int

    @property
    def good(self) -> bool:
        """Whether every output was right, and memory flat."""
        return self.wrong == 0 and self.late_bytes - self.early_bytes <= MARGIN


def measure(inferences: int, *, progress: Progress | None = None) -> Result:
    """Run that many random inputs, each checked against the golden model."""
    import resource  # POSIX only

    def peak() -> int:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    rng = np.random.default_rng(SEED)
    network = small_network(rng)
    board = SimulatedBoard(CONFIG, progress=progress)
    session = Session(network, device := Device(board, "sim"))
    starts = range(0, inferences, CALL)
    wrong = early = 0
    started = time.monotonic()
    for k, start in enumerate(track(starts, "calls", len(starts))):
        shape = min(CALL, inferences - start), network.layers[0].n_cols
        q = rng.integers(network.input.low, network.input.high + 1, shape)
        wrong += int((session.run_quantized(q) != golden.run(network, q)).any(axis=1).sum())
        if k <= WARM * len(starts):
            early = peak()
    seconds = time.monotonic() - started
    board.close()
    return Result(inferences, wrong, device.link.repeats, seconds, early, peak())
