# SPDX-License-Identifier: BSD-2-Clause
"""How many multiplier cycles EIE's nine layers use on the sparse array: simulated RTL of 64 PEs.

The engine is the ULX3S-85F board's but for its number of PEs and the depths of its memories, which
hold what no small FPGA can. Weights get into them behind the engine's back; inputs and results pass
the link, and every output is compared with the golden model.

Ref: Han et al., "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA 2016.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import geometric_mean

import numpy as np

from ..boards.common import find_board
from ..host import golden
from ..host.compiler.compiler import Image, compile_network
from ..host.console import track
from ..host.device.device import Device
from ..host.errors import DeviceError
from ..rtl.config import EngineConfig
from ..rtl.formats import Unit
from ..rtl.tools import Progress
from ..sim.board import SimulatedBoard
from ..sim.cycle_model import run_cycles
from ..sim.preload import memory_bits, preload, small_image
from .eie_layers import LAYERS, Densities, Work, even, single, uneven

__all__ = ["DEPTHS", "N_SEEDS", "PENDING", "EieResult", "LayerRow", "Run", "eie_config", "measure"]

BOARD = "ulx3s-85f"
DEPTHS = {
    "weight_depth": 65536,
    "rows_per_pe": 256,
    "column_words": 6272,
    "input_depth": 32768,
    "output_depth": 16384,
}
"""Depths of memories that the layers need."""
PENDING = {"n_pes": 64, "count_bits": 5}
"""What the board shall have, too."""
N_SEEDS = 5
SETS: dict[str, Densities] = {"uniform": even, "uneven": uneven}


@dataclass(frozen=True)
class Run:
    """One layer, one seed.

    Parameters
    ----------
    seed : int
    active_nonzeros : int
        Weights whose activation is not zero.
    cycles : int
        From RUN, the input being on the chip, until every PE has drained.
    model_cycles : int
        What the cycle model says (`sim/cycle_model.py`).
    slot_efficiency : float
        Active nonzeros per multiplier and cycle.
    bits_per_nonzero : float
        All memory words that the layer fills, unused bits included: weights, biases, column
        records, a codebook in each PE, program.
    losses : dict
        Multiplier cycles by class, those that were used (``busy``) included; the tile's are not.
    """

    seed: int
    active_nonzeros: int
    cycles: int
    model_cycles: int
    slot_efficiency: float
    bits_per_nonzero: float
    losses: dict[str, int]


@dataclass(frozen=True)
class LayerRow:
    """Means of a layer's runs, and the runs; the fields are those of `Run`."""

    name: str
    active_nonzeros: float
    cycles: float
    slot_efficiency: float
    bits_per_nonzero: float
    losses: dict[str, float]
    runs: list[Run]


@dataclass(frozen=True)
class EieResult:
    """All that is measured.

    Parameters
    ----------
    multipliers : int
        Of the array.
    layers, uneven : list of LayerRow
        With even densities, and with log-normal ones of rows and columns.
    geomean, uneven_geomean : float
        Of the slot efficiencies.
    """

    multipliers: int
    layers: list[LayerRow]
    geomean: float
    uneven: list[LayerRow]
    uneven_geomean: float


def eie_config() -> EngineConfig:
    """Config of the simulated engine."""
    return replace(find_board(BOARD).config, **DEPTHS, **PENDING)


def measure(progress: Progress) -> EieResult:
    """Run all layers of both sets with all seeds.

    Parameters
    ----------
    progress : callable
        Told what goes on.

    Raises
    ------
    DeviceError
        Results are not those of the golden model.
    ToolError
        What builds the simulation is missing or failed.
    """
    config = eie_config()
    with _Engine(config, progress) as engine:
        rows = {
            name: _means([engine.run(work, seed) for work, seed in _works(name, densities)])
            for name, densities in SETS.items()
        }
    means = {
        name: geometric_mean(row.slot_efficiency for row in found) for name, found in rows.items()
    }
    return EieResult(
        multipliers=config.n_pes,
        layers=rows["uniform"],
        geomean=means["uniform"],
        uneven=rows["uneven"],
        uneven_geomean=means["uneven"],
    )


def _works(name: str, densities: Densities) -> Iterator[tuple[Work, int]]:
    """Layers of a set, seed by seed."""
    steps = [(shape, seed) for shape in LAYERS for seed in range(N_SEEDS)]
    for shape, seed in track(steps, f"{name} layers", len(steps)):
        yield single(shape, densities, seed), seed


class _Engine:
    """The simulated engine, into which weights get by the back door."""

    def __init__(self, config: EngineConfig, progress: Callable[[str], None]) -> None:
        self._config = config
        self._board = SimulatedBoard(config, progress=progress)
        self._device = Device(self._board, f"simulated engine with {config.n_pes} PEs")

    def __enter__(self) -> "_Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self._device.close()

    def run(self, work: Work, seed: int) -> tuple[str, Run]:
        """Run a network once; its name and the figures."""
        config = self._config
        image = self._load(work)
        results, stats = self._device.infer(work.q[None])
        outputs = golden.run_layers(work.network, work.q[None])
        if not np.array_equal(results[:, image.output_slots], outputs[-1]):
            raise DeviceError(
                f"{self._device.where}: outputs of {work.name}, seed {seed}, differ from the "
                "golden model, expected them equal; run gossamer cosim"
            )
        active = work.active_nonzeros([work.q, *(vectors[0] for vectors in outputs[:-1])])
        losses = dict(stats.counters)
        losses["starved"] -= (config.multipliers - config.n_pes) * stats.cycles
        return work.name, Run(
            seed=seed,
            active_nonzeros=active,
            cycles=stats.cycles,
            model_cycles=run_cycles(work.network, image, work.q),
            slot_efficiency=active / (config.n_pes * stats.cycles),
            bits_per_nonzero=memory_bits(image) / sum(len(x.codes) for x in work.network.layers),
            losses=losses,
        )

    def _load(self, work: Work) -> Image:
        """Compile without coded sections, and get the image into the engine's memories."""
        plain = compile_network(work.network, replace(self._config, decoder_bits=0))
        image = replace(plain, config=self._config)
        assert all(layer.unit == Unit.SPARSE_ARRAY for layer in image.layers)
        self._device.load(small_image(image))
        preload(self._board, image)
        return image


def _means(found: list[tuple[str, Run]]) -> list[LayerRow]:
    """A row for each layer, in the order in which they came."""
    by_name: dict[str, list[Run]] = {}
    for name, run in found:
        by_name.setdefault(name, []).append(run)
    return [
        LayerRow(
            name=name,
            active_nonzeros=_mean(run.active_nonzeros for run in runs),
            cycles=_mean(run.cycles for run in runs),
            slot_efficiency=_mean(run.slot_efficiency for run in runs),
            bits_per_nonzero=_mean(run.bits_per_nonzero for run in runs),
            losses={kind: _mean(run.losses[kind] for run in runs) for kind in runs[0].losses},
            runs=runs,
        )
        for name, runs in by_name.items()
    ]


def _mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))
