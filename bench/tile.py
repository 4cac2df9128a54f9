# SPDX-License-Identifier: BSD-2-Clause
"""How busy the tensor tile is, and what 2:4 saves on it: one layer, by tile, batch and structure.

Cycles come from the simulated RTL and are those of whole runs, with filling and draining. The
engine has one PE, so that the layer runs on the tile whatever its structure.
"""

from dataclasses import dataclass

import numpy as np

from ..host import golden
from ..host.compression.compress import CompressedModel, compress
from ..host.compression.recipe import Recipe
from ..host.console import track
from ..host.device.device import Device, open_device
from ..host.errors import DeviceError
from ..host.network import Layer, Network
from ..host.session import Session
from ..rtl.config import EngineConfig
from ..sim.board import BoardModel, register_board

__all__ = ["CASES", "SIZE", "TilePoint", "measure", "tile_url"]

SIZE = 1024
"""Inputs and outputs of the layer."""
CASES = (
    ((8, 1), ((1, "2:4"), (1, "dense"))),
    ((8, 4), ((1, "2:4"), (4, "2:4"), (64, "2:4"), (4, "dense"))),
)
"""Tiles (rows, columns), and batches and structures to measure on each."""
SEED = 2020


@dataclass(frozen=True)
class TilePoint:
    """One measurement.

    Parameters
    ----------
    tile : str
        Rows x columns; the tile has twice as many multipliers as their product.
    batch : int
        Images; runs of as many as the tile has columns, the last one of what is left.
    structure : str
    cycles : int
        Of all runs together.
    slot_efficiency : float
        Share of multiplier-cycles of the tile that multiplied a stored weight of an image.
    """

    tile: str
    batch: int
    structure: str
    cycles: int
    slot_efficiency: float


def tile_url(rows: int, columns: int) -> str:
    """URL of a simulated board with one PE and a tile of `rows` x `columns`, for large layers."""
    name = f"tile-{rows}x{columns}"
    config = EngineConfig(
        n_pes=1, weight_depth=65536, column_words=256, codebook_depth=256, max_layers=4,
        input_depth=SIZE, output_depth=SIZE, rx_bytes=4096, tile_rows=rows, tile_columns=columns,
        tile_code_bits=8, tile_depth=65536, tile_bias_depth=SIZE,
    )  # fmt: skip
    register_board(name, BoardModel(config=config))
    return f"sim://{name}"


def measure() -> list[TilePoint]:
    """Measure all cases, every output checked against the golden model.

    Raises
    ------
    DeviceError
        The device fails, or its results are not those of the golden model.
    """
    rng = np.random.default_rng(SEED)
    weight = rng.normal(0, 1 / np.sqrt(SIZE), (SIZE, SIZE)).astype(np.float32)
    most = max(batch for _, cases in CASES for batch, _ in cases)
    inputs = rng.uniform(0.2, 1.0, (most, SIZE)).astype(np.float32)
    structures = {structure for _, cases in CASES for _, structure in cases}
    models = {structure: _model(weight, structure, inputs) for structure in sorted(structures)}
    steps = [(tile, *case) for tile, cases in CASES for case in cases]
    points = []
    device: Device | None = None
    try:
        for tile, batch, structure in track(steps, "tiles", len(steps)):
            url = tile_url(*tile)
            if device is None or device.where != url:
                if device is not None:
                    device.close()
                device = open_device(url)
            points.append(_measure_case(device, models[structure], inputs[:batch], tile))
    finally:
        if device is not None:
            device.close()
    return points


def _model(weight: np.ndarray, structure: str, inputs: np.ndarray) -> CompressedModel:
    density = {} if structure == "dense" else {"density": 1.0}
    recipe = Recipe(default={"structure": structure, "codes": 16, **density})
    return compress(Network((Layer("layer", weight),)), recipe, inputs)


def _measure_case(
    device: Device, model: CompressedModel, inputs: np.ndarray, tile: tuple[int, int]
) -> TilePoint:
    session = Session(model, device)
    q = session.quantize(inputs)
    if not np.array_equal(session.run_quantized(q), golden.run(session.network, q)):
        raise DeviceError(
            f"{device.where}: results differ from the golden model, expected them equal; "
            "run gossamer verify"
        )
    stats = session.last_stats
    assert stats is not None
    rows, columns = tile
    return TilePoint(
        tile=f"{rows}x{columns}",
        batch=len(inputs),
        structure=model.layers[0].matrix.structure,
        cycles=stats.cycles,
        slot_efficiency=stats.counters["busy"] / (2 * rows * columns * stats.cycles),
    )
