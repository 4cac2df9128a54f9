# SPDX-License-Identifier: BSD-2-Clause
"""A small engine and a network for it, for very many runs on simulated RTL."""

import itertools

import numpy as np

from ..host.compiler.quantize import QuantizedNetwork, quantize
from ..host.compression.compress import compress
from ..host.compression.recipe import Recipe
from ..host.network import Layer, Network
from ..rtl.config import EngineConfig

__all__ = ["CONFIG", "SEED", "small_network"]

CONFIG = EngineConfig(
    n_pes=2, weight_depth=256, rows_per_pe=16, column_words=32, codebook_depth=64, max_layers=4,
    input_depth=64, output_depth=32, rx_bytes=128, tile_rows=1, tile_columns=2, tile_depth=64,
    tile_bias_depth=16,
)  # fmt: skip
"""A small engine with both units, two images a run and short frames."""
SIZES = (60, 20, 12)
"""Inputs and outputs of the network's layers."""
SEED = 1953


def small_network(rng: np.random.Generator) -> QuantizedNetwork:
    """A random network whose first layer runs on the array, and whose second one on the tile."""
    layers = []
    for k, (columns, rows) in enumerate(itertools.pairwise(SIZES)):
        weight = rng.normal(0, 1 / np.sqrt(columns), (rows, columns)).astype(np.float32)
        bias = rng.normal(0, 0.1, rows).astype(np.float32)
        layers.append(Layer(f"layer{k}", weight, bias, "relu" if rows != SIZES[-1] else "none"))
    recipe = Recipe(
        default={"structure": "unstructured", "density": 0.3, "codes": 16},
        layers={"layer1": {"structure": "2:4", "density": 1.0}},
    )
    samples = rng.uniform(-1, 1, (64, SIZES[0])).astype(np.float32)
    model = compress(Network(tuple(layers)), recipe, samples)
    return quantize(model, activation_bits=CONFIG.activation_bits, sum_bits=CONFIG.sum_bits)
