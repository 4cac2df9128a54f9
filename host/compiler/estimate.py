# SPDX-License-Identifier: BSD-2-Clause
"""Estimated cycles of a layer: what its unit has to do, from its structure and a share of nonzeros.

An image is estimated by itself; nothing is simulated, so it takes milliseconds. On the sparse array
the busiest PE and the broadcast race, then every PE drains its rows; the next layer's broadcast
begins meanwhile. Which activations are nonzero is unknown, so the busiest PE's work is the expected
maximum of normal variables, and queues of finite depth add to it. On the tile words count.
"""

from dataclasses import dataclass
from math import ceil, erf, log2, sqrt

import numpy as np
import numpy.typing as npt

from ...rtl.config import EngineConfig

__all__ = [
    "ArrayLoad",
    "Estimate",
    "array_estimate",
    "link_bytes",
    "tile_estimate",
]

STORE_LATENCY = 15
"""Cycles of the pipeline from the scan of the store to the end of a drain."""

MERGE_LATENCY = 25
"""The same for the first output of the layer before, from its PE's drain through the merge tree."""

WORK_LATENCY = 4
"""Cycles of a PE between its drain and the next layer's first entry, if that waits already."""

TILE_LATENCY = 14
"""Cycles of a tile layer beside its words and the drain of its last block: start and pipeline."""

FRAME_BYTES = 9
"""Bytes of a frame on the link beside its payload, flag included."""

INPUT_HEAD, RUN_HEAD, COUNTERS = 3, 2, 32
"""Bytes ahead of inputs, of a RUN, and of results."""

LIMITS = ("work", "imbalance", "broadcast", "drain", "latency")

IMBALANCED = 0.2
"""Share of the busiest PE's work beyond the mean from which imbalance is the limit."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """Cycles of one layer for one image, and where they go.

    Parameters
    ----------
    cycles : float
    parts : dict
        ``"work"`` of the mean PE, ``"imbalance"`` of the busiest beyond that, ``"broadcast"``,
        ``"drain"`` and ``"latency"``, each by itself: they overlap.
    limit : str
        Which of them the layer waits for.
    """

    cycles: float
    parts: dict[str, float]
    limit: str


@dataclass(frozen=True, eq=False)
class ArrayLoad:
    """What the PEs of a sparse array have to do for a layer.

    Parameters
    ----------
    entries : (n_pes,) float64
        Entries of each PE.
    squares : (n_pes,) float64
        Sum over the columns of its squared entries per column.
    n_columns : int
        Inputs of the layer.
    rows_per_pe : int
        Rows that each PE drains.
    """

    entries: Doubles
    squares: Doubles
    n_columns: int
    rows_per_pe: int

    @classmethod
    def of_counts(cls, counts: npt.NDArray[np.int64], rows_per_pe: int) -> "ArrayLoad":
        """From the entries of each PE and column, (n_pes, n_columns)."""
        real = counts.astype(np.float64)
        return cls(real.sum(axis=1), np.square(real).sum(axis=1), counts.shape[1], rows_per_pe)

    @classmethod
    def of_density(cls, n_rows: int, n_cols: int, density: float, n_pes: int) -> "ArrayLoad":
        """Rows dealt in turn, every weight there with the same chance."""
        rows = np.array([len(range(pe, n_rows, n_pes)) for pe in range(n_pes)], dtype=np.float64)
        mean = rows * density
        squares = np.square(mean) + mean * (1 - density)
        return cls(mean * n_cols, squares * n_cols, n_cols, ceil(n_rows / n_pes))


def array_estimate(
    load: ArrayLoad,
    active: float,
    met: float,
    config: EngineConfig,
    before: Estimate | None = None,
) -> Estimate:
    """Estimate a layer on the sparse array.

    Parameters
    ----------
    load : ArrayLoad
    active : float
        Share of the layer's inputs that are nonzero, 0..1.
    met : float
        Share of its entries whose input is nonzero, 0..1.
    config : EngineConfig
    before : Estimate, optional
        Of the layer whose outputs come straight from the merge tree; without it the inputs are
        scanned from the store, in words of four.
    """
    columns = load.n_columns
    means = load.entries * met
    spread = load.squares - np.square(load.entries) / columns
    deviations = np.sqrt(np.maximum(spread * met * (1 - met), 0))
    busiest = _expected_maximum(means, deviations) * _queue_loss(load, config)
    drain = float(load.rows_per_pe)
    inputs = active * columns
    if before is None:
        broadcast = columns / 4 * (4 * active + (1 - active) ** 4)
        latency = float(STORE_LATENCY)
        cycles = max(broadcast, busiest) + latency + drain
    else:
        broadcast = inputs
        # what is broadcast while the layer before drains waits in the queues
        filled = (1 - np.exp(-load.entries.max() / columns)) if columns else 1.0
        room = config.queue_depth / max(float(filled), 1e-9)
        ahead = min(before.parts["drain"] + before.parts["imbalance"] / 2, room, broadcast)
        latency = max(MERGE_LATENCY - before.parts["drain"], float(WORK_LATENCY))
        late = broadcast - ahead + MERGE_LATENCY
        cycles = max(late, busiest + WORK_LATENCY) + drain
    mean = float(means.mean())
    parts = {
        "work": mean,
        "imbalance": busiest - mean,
        "broadcast": float(broadcast),
        "drain": drain,
        "latency": latency,
    }
    return Estimate(float(cycles), parts, _limit(parts))


def tile_estimate(
    n_rows: int, n_cols: int, passes: int, active: float, config: EngineConfig
) -> Estimate:
    """Estimate a layer on the tensor tile, per image of a full run.

    Parameters
    ----------
    n_rows, n_cols : int
    passes : int
        Words per row and group of four inputs: 1 for 2:4, 2 for dense.
    active : float
        Share of the layer's inputs that are nonzero.
    config : EngineConfig
        With a tile.
    """
    groups = -(-n_cols // 4)
    blocks = -(-n_rows // config.tile_rows)
    listed = max(1.0, groups * (1 - (1 - active) ** (4 * config.batch)))
    block = max(listed * passes, float(config.tile_rows))
    words = groups * passes + (blocks - 1) * block
    latency = float(TILE_LATENCY + config.tile_rows)
    cycles = (words + latency) / config.batch
    parts = {
        "work": words / config.batch,
        "imbalance": 0.0,
        "broadcast": 0.0,
        "drain": 0.0,
        "latency": latency / config.batch,
    }
    return Estimate(cycles, parts, _limit(parts))


def link_bytes(n_inputs: int, result_slots: int, config: EngineConfig) -> int:
    """Bytes on the link for one image: its input, the request to run it, and the results."""
    payload = n_inputs * config.activation_bytes
    frames = -(-payload // (config.max_payload - INPUT_HEAD))
    sent = payload + frames * (FRAME_BYTES + INPUT_HEAD) + FRAME_BYTES + RUN_HEAD
    return sent + result_slots * config.activation_bytes + COUNTERS + FRAME_BYTES


def _limit(parts: dict[str, float]) -> str:
    busiest = parts["work"] + parts["imbalance"]
    longest = max(busiest, parts["broadcast"], parts["drain"], parts["latency"])
    if longest == busiest:
        return "imbalance" if parts["imbalance"] > IMBALANCED * busiest else "work"
    return next(name for name in ("broadcast", "drain", "latency") if parts[name] == longest)


def _queue_loss(load: ArrayLoad, config: EngineConfig) -> float:
    """How much longer the busiest PE takes because full queues of others hold up its slices.

    Grows with the spread of slices and the number of PEs, falls with the depth of a queue; the
    factor was found on simulated RTL.
    """
    total = float(load.entries.sum())
    if total == 0 or config.n_pes == 1:
        return 1.0
    mean = total / load.n_columns / config.n_pes
    square = float(load.squares.sum()) / load.n_columns / config.n_pes
    relative = max(square / mean**2 - 1, 0.0)
    crowd = sqrt(2 * log2(config.n_pes)) / 1.6
    return 1 + min(crowd * relative / (2 * config.queue_depth), 0.25)


def _expected_maximum(means: Doubles, deviations: Doubles) -> float:
    """Expected maximum of independent normal variables."""
    if not deviations.any():
        return float(means.max())
    low, high = float(means.max()), float((means + 5 * deviations).max())
    low = min(low, float((means - 5 * deviations).max()))
    x = np.linspace(low, high, 200)
    below = np.ones(len(x))
    for mean, deviation in zip(means, deviations, strict=True):
        z = (x - mean) / max(deviation, 1e-9)
        below *= [0.5 * (1 + erf(value / sqrt(2))) for value in z]
    return low + float((1 - below).sum() * (x[1] - x[0]))
