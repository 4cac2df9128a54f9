# SPDX-License-Identifier: BSD-2-Clause
"""Estimated cycles against those of simulated RTL."""

from itertools import pairwise

import numpy as np
import pytest
from gossamer.bench.sparsity import ACTIVATION_DENSITIES, SIZE, WEIGHT_DENSITIES
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import Recipe
from gossamer.host.compression.structure import prune
from gossamer.host.device.device import open_device
from gossamer.host.network import Layer, Network
from gossamer.host.report.explain import explain
from gossamer.host.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.cocotb, pytest.mark.xdist_group("default-engine")]

IMAGES = 8


def network(sizes, density):
    rng = np.random.default_rng(4)
    layers = []
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, n_in**-0.5, (n_out, n_in)).astype(np.float32)
        activation = "relu" if k < len(sizes) - 2 else "none"
        bias = rng.normal(0, 0.1, n_out)
        layers.append(Layer(f"fc{k + 1}", prune(weight, density=density), bias, activation))
    return Network(tuple(layers))


def inputs(n, share):
    rng = np.random.default_rng(5)
    return (rng.random((IMAGES, n)) * (rng.random((IMAGES, n)) < share)).astype(np.float32)


def measured(device, model, x, batch=1):
    """Cycles of the engine per image, in runs of `batch` images, each run by itself."""
    session = Session(model, device)
    cycles = []
    for start in range(0, len(x), batch):
        session.run(x[start : start + batch])
        assert session.last_stats is not None
        cycles.append(session.last_stats.cycles)
    return sum(cycles) / len(x)


@pytest.fixture(scope="module")
def array():
    with open_device("sim") as device:
        yield device


@pytest.mark.parametrize("structure", ["unstructured", "dense"])
@pytest.mark.parametrize("weights", WEIGHT_DENSITIES)
@pytest.mark.parametrize("activations", ACTIVATION_DENSITIES)
def test_points_of_the_sparsity_bench(array, structure, weights, activations):
    x = inputs(SIZE, activations)
    recipe = Recipe(default={"structure": structure, "codes": 64})
    model = compress(network((SIZE, SIZE), weights), recipe, x)
    assert explain(model).cycles == pytest.approx(measured(array, model, x), rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "density", "share"),
    [
        ((784, 300, 100, 10), 0.09, 0.2),
        ((784, 300, 100, 10), 0.4, 0.2),
        ((784, 300, 100, 10), 1.0, 0.2),
        ((64, 128, 64, 10), 0.3, 1.0),
        ((256, 256, 256), 0.1, 1.0),
        ((100, 512, 512), 0.02, 1.0),
        ((100, 512, 16), 0.02, 1.0),
        ((128, 16, 16, 16, 16), 0.5, 1.0),
        ((400, 10), 0.4, 1.0),
    ],
)
def test_networks_on_the_array(array, sizes, density, share):
    x = inputs(sizes[0], share)
    model = compress(network(sizes, density), Recipe(default={"codes": 64}), x)
    assert explain(model).cycles == pytest.approx(measured(array, model, x), rel=0.1)
