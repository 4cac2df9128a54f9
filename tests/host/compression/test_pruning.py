# SPDX-License-Identifier: BSD-2-Clause
"""What a recipe keeps, per layer and over all layers."""

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.compression.pruning import prune_layers
from gossamer.host.compression.recipe import LayerRecipe, parse_recipe
from gossamer.host.errors import RecipeError
from gossamer.host.network import Layer, Network

RNG = np.random.default_rng(3)
WEIGHTS = [
    (scale * RNG.normal(size=shape)).astype(np.float32)
    for scale, shape in ((1.0, (30, 40)), (0.3, (20, 30)), (3.0, (8, 20)))
]


def network_plan(density):
    return LayerRecipe(density=density, scope="network")


@pytest.mark.parametrize("density", [0.001, 0.1, 0.5, 1.0])
def test_scope_network_keeps_the_largest_of_all(density):
    pruned = prune_layers(WEIGHTS, [network_plan(density)] * 3)
    every = np.sort(np.abs(np.concatenate([w.reshape(-1) for w in WEIGHTS])))[::-1]
    kept = np.concatenate([w[w != 0] for w in pruned])
    assert len(kept) == round(density * len(every))
    assert np.array_equal(np.sort(np.abs(kept))[::-1], every[: len(kept)])
    for weight, one in zip(WEIGHTS, pruned, strict=True):
        assert np.array_equal(one[one != 0], weight[one != 0])


def test_layers_of_their_own_scope_do_not_count():
    plans = [network_plan(0.1), LayerRecipe(density=0.5), network_plan(0.1)]
    first, second, third = prune_layers(WEIGHTS, plans)
    assert np.count_nonzero(second) == 300
    assert np.count_nonzero(first) + np.count_nonzero(third) == 136
    assert np.count_nonzero(third) > 0.3 * third.size


def test_scope_network_after_groups():
    plans = [LayerRecipe(density=0.3, scope="network", structure="1:4"), network_plan(0.3)]
    first, second = prune_layers(WEIGHTS[:2], plans)
    assert (first.reshape(-1, 4) != 0).sum(axis=1).max() == 1
    assert np.count_nonzero(first) + np.count_nonzero(second) == 540


def test_pruning_again_changes_nothing():
    for plans in ([network_plan(0.1)] * 3, [LayerRecipe(density=0.1, structure="2:4")] * 3):
        once = prune_layers(WEIGHTS, plans)
        twice = prune_layers([2 * w for w in once], plans)
        assert all(np.array_equal(2 * a, b) for a, b in zip(once, twice, strict=True))


def test_ties_go_to_the_first_layer():
    ones = [np.ones((2, 2), np.float32)] * 2
    first, second = prune_layers(ones, [network_plan(0.75)] * 2)
    assert (first == 1).all()
    assert np.array_equal(second, [[1, 1], [0, 0]])


def test_compress_takes_the_scope():
    layers = tuple(Layer(f"fc{k}", w) for k, w in enumerate(WEIGHTS, 1))
    recipe = parse_recipe('[default]\ndensity = 0.1\nscope = "network"\n')
    model = compress(Network(layers), recipe, RNG.random((20, 40)))
    expected = prune_layers(WEIGHTS, [network_plan(0.1)] * 3)
    counts = [layer.matrix.nonzeros for layer in model.layers]
    assert counts == [np.count_nonzero(w) for w in expected]
    assert sum(counts) == 196


@pytest.mark.parametrize(
    ("densities", "message"), [((0.1, 0.2), "densities 0.1, 0.2"), ((None, None), "densities none")]
)
def test_scope_network_needs_one_density(densities, message):
    plans = [network_plan(density) for density in densities]
    with pytest.raises(RecipeError, match=message):
        prune_layers(WEIGHTS[:2], plans)


def test_scope_is_checked():
    with pytest.raises(RecipeError, match=r"\[default\] scope is 'all', expected layer or network"):
        parse_recipe('[default]\nscope = "all"\n')
