# SPDX-License-Identifier: BSD-2-Clause
"""Bits of the simulated board's memories that are stuck, and whether `selftest` finds them."""

import random
import re
from collections import Counter
from dataclasses import dataclass

from ..host.compiler.compiler import Image
from ..host.console import track
from ..host.device.device import Device
from ..host.device.selftest import selftest
from ..rtl.config import EngineConfig, ceil_log2
from ..sim.board import SimulatedBoard

__all__ = ["MEMORIES", "StuckBit", "StuckDevice", "find_flips", "plan_bit"]

MEMORIES = ("biases", "weights", "codebook")
"""Biases lie at the beginning of the column records."""

_NAMES = {
    "biases": re.compile(r"(?:^|\.)columns\.records$"),
    "weights": re.compile(r"(?:^|\.)pe_?\d+\.(?:.*\.)?weights\.words$"),
    "codebook": re.compile(r"(?:^|\.)pe_?\d+\.(?:.*\.)?codebook\.values$"),
}


@dataclass(frozen=True)
class StuckBit:
    """One bit of a memory of a PE, by hierarchical name, and the value that it always has."""

    memory: str
    address: int
    bit: int
    value: int


class StuckDevice(Device):
    """A device one of whose memory bits is stuck: whatever is loaded, it has its value again."""

    board: SimulatedBoard
    stuck: StuckBit | None = None

    def __init__(self, board: SimulatedBoard) -> None:
        self.board = board
        super().__init__(board, "sim")

    def load(self, image: Image) -> bool:
        """Load, then force the bit."""
        sent = super().load(image)
        if self.stuck is not None:
            at, mask = self.stuck, 1 << self.stuck.bit
            word = self.board.peek(at.memory, at.address) & ~mask
            self.board.poke(at.memory, at.address, word | mask * at.value)
        return sent


def plan_bit(board: SimulatedBoard, kind: str, rng: random.Random) -> StuckBit:
    """A random bit of one of `MEMORIES`, among those that some image uses."""
    config = board.identity.config
    name = rng.choice(sorted(name for name in board.memories if _NAMES[kind].search(name)))
    depth = board.memories[name].depth
    if kind == "codebook":
        bits = list(range(16))
    elif kind == "biases":
        depth = config.rows_per_pe
        first = rng.randrange(config.n_pes) * config.column_bits
        bits = list(range(first, first + config.bias_bits))
    else:
        bits = _entry_bits(config)
    return StuckBit(name, rng.randrange(depth), rng.choice(bits), rng.randrange(2))


def _entry_bits(config: EngineConfig) -> list[int]:
    """Bits of an entry that rows and the widest codes take."""
    code_bits = min(8, ceil_log2(config.codebook_depth))
    free = range(config.row_bits, max(config.row_bits, config.entry_bits - code_bits))
    return [bit for bit in range(config.entry_bits) if bit not in free]


def find_flips(
    board: SimulatedBoard, count: int, rng: random.Random
) -> tuple[dict[str, dict[str, int]], list[StuckBit]]:
    """Have `selftest` look for stuck bits, one at a time.

    Returns
    -------
    dict, list of StuckBit
        For each memory how many were planted and how many found; those that were not.
    """
    planted, found, missed = Counter[str](), Counter[str](), list[StuckBit]()
    device = StuckDevice(board)
    for k in track(range(count), "stuck bits", count):
        kind = MEMORIES[k % len(MEMORIES)]
        device.stuck = plan_bit(board, kind, rng)
        planted[kind] += 1
        if any(finding.wrong for finding in selftest(device, lambda items, *_: iter(items))):
            found[kind] += 1
        else:
            missed.append(device.stuck)
    return {kind: {"planted": planted[kind], "found": found[kind]} for kind in MEMORIES}, missed
