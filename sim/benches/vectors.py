# SPDX-License-Identifier: BSD-2-Clause
"""Networks, images and bus words for benches; made by the same host code that users run."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ...host.compiler.compiler import Image
from ...host.compiler.quantize import Ints, QuantizedNetwork, quantize
from ...host.compression.compress import compress
from ...host.compression.recipe import Recipe
from ...host.network import Layer, Network
from ...rtl.config import EngineConfig
from ...rtl.formats import SECTION_HEADER, Section, bytes_per_word, program_fields

__all__ = ["bus_words", "pack_layer", "random_inputs", "random_network"]


def random_network(
    seed: int, sizes: tuple[int, ...], *, density: float, codes: int, config: EngineConfig
) -> QuantizedNetwork:
    """A ReLU network of normal weights, pruned to `density`, in the engine's integers."""
    rng = np.random.default_rng(seed)
    layers = []
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, 1 / np.sqrt(n_in * density), (n_out, n_in))
        activation = "relu" if k < len(sizes) - 2 else "none"
        layers.append(Layer(f"layer{k}", weight, rng.normal(0, 0.2, n_out), activation))
    recipe = Recipe(default={"density": density, "codes": codes, "structure": "unstructured"})
    model = compress(Network(tuple(layers)), recipe, rng.normal(0, 1, (64, sizes[0])))
    return quantize(model, activation_bits=config.activation_bits, sum_bits=config.sum_bits)


def random_inputs(seed: int, network: QuantizedNetwork, n: int, density: float) -> Ints:
    """Inputs (n, n_inputs) int64 in the network's limits, about `density` of them nonzero."""
    rng = np.random.default_rng(seed)
    shape = (n, network.layers[0].n_cols)
    values = rng.integers(network.input.low, network.input.high + 1, shape)
    return np.where(rng.random(shape) < density, values, 0)


def bus_words(image: Image) -> Iterator[tuple[Section, int, int, int]]:
    """Words of an image of plain sections as the loader writes them: kind, PE, address, word."""
    at = 0
    while at < len(image.data):
        kind, pe, address, count = SECTION_HEADER.unpack_from(image.data, at)
        at += SECTION_HEADER.size
        size = bytes_per_word(Section(kind), image.config)
        for k in range(count):
            word = int.from_bytes(image.data[at : at + size], "little")
            yield Section(kind), pe, address + k, word
            at += size


def pack_layer(record: dict[str, int], config: EngineConfig) -> int:
    """Bits of a layer's parameters as `layouts.layer_layout` has them."""
    bits, at = 0, 0
    for name, _, _, width in program_fields(config):
        bits |= (record[name] & ((1 << width) - 1)) << at
        at += width
    return bits
