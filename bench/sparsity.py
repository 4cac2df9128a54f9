# SPDX-License-Identifier: BSD-2-Clause
"""What a pruned weight and a zero activation buy: one layer at falling densities, beside dense.

The layer's random weights are pruned by magnitude, so every density's nonzeros are among those of
the density before, and so are the nonzero activations; cycles come from the simulated RTL. Pruned
to 2:4 it runs on the array and on a tile that has as many multipliers.
"""

from dataclasses import dataclass

import numpy as np

from ..host import golden
from ..host.compression.compress import CompressedModel, compress
from ..host.compression.recipe import Recipe
from ..host.console import track
from ..host.device.device import Device, open_device
from ..host.errors import DeviceError
from ..host.network import Floats, Layer, Network
from ..host.report.report import size_rows
from ..host.session import Session
from .tile import tile_url

__all__ = ["ACTIVATION_DENSITIES", "SIZE", "WEIGHT_DENSITIES", "Point", "break_even", "measure"]

SIZE = 256
"""Inputs and outputs of the layer."""
WEIGHT_DENSITIES = (1.0, 0.7, 0.5, 0.25, 0.1, 0.05)
ACTIVATION_DENSITIES = (1.0, 0.5, 0.2)
TILE = (8, 1)
"""Rows and columns of the tile, which has 16 multipliers as the array has."""
SEED = 2016


@dataclass(frozen=True)
class Point:
    """One measurement.

    Parameters
    ----------
    structure : str
        Of the pruned layer; the `dense_` fields are the layer stored dense, on the same unit.
    unit : str
        ``"sparse array"`` or ``"tensor tile"``.
    weight_density, activation_density : float
        Shares of nonzeros.
    active_nonzeros : int
        Nonzero weights whose activation is not zero.
    multipliers : int
        Of the unit.
    cycles, dense_cycles : int
        Of one input, on simulated RTL.
    bytes, dense_bytes : int
        Of the layer in a `.gossamer` file.
    """

    structure: str
    unit: str
    weight_density: float
    activation_density: float
    active_nonzeros: int
    multipliers: int
    cycles: int
    dense_cycles: int
    bytes: int
    dense_bytes: int


def measure() -> list[Point]:
    """Measure all combinations of densities on the array, and 2:4 on array and tile.

    Raises
    ------
    DeviceError
        The device fails, or its results are not those of the golden model.
    """
    rng = np.random.default_rng(SEED)
    weight = rng.normal(0, 1 / np.sqrt(SIZE), (SIZE, SIZE)).astype(np.float32)
    values = rng.uniform(0.2, 1.0, SIZE)
    order = rng.permutation(SIZE)
    inputs = np.zeros((len(ACTIVATION_DENSITIES), SIZE), dtype=np.float32)
    for row, density in zip(inputs, ACTIVATION_DENSITIES, strict=True):
        chosen = order[: round(density * SIZE)]
        row[chosen] = values[chosen]
    points = []
    with open_device("sim") as device:
        for density in track(WEIGHT_DENSITIES, "densities", len(WEIGHT_DENSITIES)):
            points += _measure_density(device, weight, inputs, density, "unstructured")
        points += _measure_density(device, weight, inputs, 0.5, "2:4")
    with open_device(tile_url(*TILE)) as device:
        points += _measure_density(device, weight, inputs, 0.5, "2:4")
    return points


def _measure_density(
    device: Device, weight: Floats, inputs: Floats, density: float, structure: str
) -> list[Point]:
    sparse = _model(weight, density, structure, inputs)
    dense = _model(weight, density, "dense", inputs)
    cycles, dense_cycles = _cycles(device, sparse, inputs), _cycles(device, dense, inputs)
    size, dense_size = size_rows(sparse)[0]["ours"], size_rows(dense)[0]["ours"]
    nonzeros = sparse.layers[0].matrix.weight() != 0
    config = device.identity.config
    tile = config.tile_rows > 0
    return [
        Point(
            structure=sparse.layers[0].matrix.structure,
            unit="tensor tile" if tile else "sparse array",
            weight_density=density,
            activation_density=activation_density,
            active_nonzeros=int(nonzeros[:, row != 0].sum()),
            multipliers=config.multipliers - config.n_pes if tile else config.n_pes,
            cycles=cycles[k],
            dense_cycles=dense_cycles[k],
            bytes=size,
            dense_bytes=dense_size,
        )
        for k, (activation_density, row) in enumerate(
            zip(ACTIVATION_DENSITIES, inputs, strict=True)
        )
    ]


def _model(weight: Floats, density: float, structure: str, inputs: Floats) -> CompressedModel:
    recipe = Recipe(default={"structure": structure, "density": density})
    return compress(Network((Layer("layer", weight),)), recipe, inputs)


def _cycles(device: Device, model: CompressedModel, inputs: Floats) -> list[int]:
    """Cycles of each input, results checked against the golden model."""
    session = Session(model, device)
    counts = []
    for row in inputs:
        q = session.quantize(row)
        if not np.array_equal(session.run_quantized(q), golden.run(session.network, q[None])[0]):
            raise DeviceError(
                f"{device.where}: results differ from the golden model, expected them equal; "
                "run gossamer verify"
            )
        assert session.last_stats is not None
        counts.append(session.last_stats.cycles)
    return counts


def break_even(points: list[Point]) -> dict[str, float | None]:
    """Weight density below which the pruned layer takes fewer bytes and fewer cycles than dense.

    Interpolated between the measured densities, cycles at the first activation density; None if
    dense wins everywhere.
    """
    first = [
        point
        for point in points
        if point.activation_density == ACTIVATION_DENSITIES[0] and point.structure == "unstructured"
    ]
    return {
        "bytes": _crossing([(p.weight_density, p.bytes - p.dense_bytes) for p in first]),
        "cycles": _crossing([(p.weight_density, p.cycles - p.dense_cycles) for p in first]),
    }


def _crossing(rows: list[tuple[float, int]]) -> float | None:
    """Density where the excess over dense falls below 0, going down from the highest density."""
    density, excess = rows[0]
    if excess <= 0:
        return density
    for lower, next_excess in rows[1:]:
        if next_excess <= 0:
            return density - (density - lower) * excess / (excess - next_excess)
        density, excess = lower, next_excess
    return None
