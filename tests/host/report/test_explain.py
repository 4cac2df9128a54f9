# SPDX-License-Identifier: BSD-2-Clause
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import Recipe
from gossamer.host.compression.structure import prune
from gossamer.host.network import Layer, Network
from gossamer.host.report.explain import FORMS, Engine, explain
from gossamer.rtl.config import EngineConfig

SIZES = (200, 96, 64, 10)


def network(sizes=SIZES, density=0.4, seed=0) -> Network:
    """Random layers of which `density` of the weights are not zero."""
    rng = np.random.default_rng(seed)
    layers = []
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, n_in**-0.5, (n_out, n_in)).astype(np.float32)
        activation = "relu" if k < len(sizes) - 2 else "none"
        layers.append(Layer(f"fc{k + 1}", prune(weight, density=density), None, activation))
    return Network(tuple(layers))


def inputs(n=SIZES[0], share=0.5):
    rng = np.random.default_rng(1)
    return rng.random((300, n)) * (rng.random((300, n)) < share)


def compressed(net, x, **options):
    """A model of at most 15 values per layer, which is quick to make."""
    return compress(net, Recipe(default={"codes": 15, **options}), x)


@pytest.fixture(scope="module")
def pruned():
    """40 % of the weights left, half of the inputs nonzero."""
    return compressed(network(), inputs())


def test_a_pruned_model_needs_no_advice(pruned):
    model = pruned
    found = explain(model)
    assert (found.engine, found.pes, found.misfit) == ("sim", 16, "")
    for one, layer in zip(found.layers[:2], model.layers, strict=False):
        assert one.advice == ""
        assert (one.structure, one.unit, one.limit) == ("unstructured", "array", "work")
        assert one.density == pytest.approx(0.4, abs=0.001)
        assert set(one.forms) == set(FORMS)
        assert one.cycles == pytest.approx(one.forms["unstructured"].cycles, rel=0.1)
        assert one.cycles < 0.6 * one.forms["dense"].cycles
        assert one.bytes == layer.matrix.cost_bytes == one.forms["unstructured"].bytes
        assert 0.6 < one.bytes_below < 0.95
        assert 0.7 < one.cycles_below < 0.95
        assert one.lost_bits.keys() == {32, 36}
    assert found.layers[0].zero_share == model.input.share
    assert found.layers[1].zero_share == model.layers[0].output.share
    assert found.cycles == pytest.approx(sum(one.cycles for one in found.layers))
    assert found.milliseconds == pytest.approx(1e3 * found.cycles / 50e6)


def test_dense_storage_gains_nothing_and_unstructured_would():
    found = explain(compressed(network(), inputs(), structure="dense"))
    first = found.layers[0]
    assert first.cycles == pytest.approx(first.forms["dense"].cycles, rel=0.01)
    assert first.advice.startswith(
        "fc1 (40.0% of the weights left) gains no cycles because it is stored dense: unstructured "
        f"it would take {first.forms['unstructured'].cycles:,.0f} instead of {first.cycles:,.0f}, "
        f"and gain below {first.cycles_below:.0%} of the weights"
    )


def test_broadcast_wins_no_cycles_at_any_density():
    found = explain(compressed(network((400, 10)), inputs(400, 1.0)))
    (one,) = found.layers
    assert (one.limit, one.cycles_below) == ("broadcast", None)
    assert one.cycles == pytest.approx(417, abs=2)
    assert "gains no cycles from zeros, and would at no density: each of its 4" in one.advice
    assert "with 10 rows on 16 PEs none has more than that to do" in one.advice
    few = explain(compressed(network((400, 10)), inputs(400, 0.05)))
    assert "reading its 400 inputs takes 10" in few.layers[0].advice


def test_reasons_of_drain_and_latency():
    wide = explain(compressed(network((4, 900), 0.6), inputs(4, 0.03))).layers[0]
    assert "it waits until each PE has drained its share of 900 rows" in wide.advice
    chain = explain(compressed(network((30, 8, 8, 8)), inputs(30, 1.0))).layers[-1]
    assert chain.limit == "latency"
    assert "the way through the engine takes" in chain.advice


def test_dense_on_the_tile_may_beat_unstructured():
    config = EngineConfig(tile_rows=8, tile_columns=4)
    model = compressed(network(), inputs(share=1.0))
    engine = Engine(name="wide", config=config)
    first = explain(model, engine).layers[0]
    dense, sparse = first.forms["dense"], first.forms["unstructured"]
    assert (dense.unit, sparse.unit, first.unit) == ("tile", "array", "tile")
    assert dense.cycles < sparse.cycles
    below = first.cycles_below
    assert 0.1 < below < 0.35
    assert (
        f"gains no cycles from zeros: dense on the tile takes {dense.cycles:,.0f}, unstructured "
        f"{sparse.cycles:,.0f}; below {below:.0%} of the weights it would gain" in first.advice
    )
    fewer = compressed(network(density=0.8 * below), inputs(share=1.0))
    assert "gains no cycles from zeros" not in explain(fewer, engine).layers[0].advice


def test_2_of_4_on_the_tile(pruned):
    config = EngineConfig(tile_rows=4, tile_columns=4)
    model = compressed(network(density=1.0), inputs(share=1.0), structure="2:4", density=1.0)
    one = explain(model, Engine(config=config)).layers[0]
    assert (one.structure, one.unit) == ("2:4", "tile")
    assert one.forms["2:4"].dropped == 0
    assert one.cycles == pytest.approx(one.forms["2:4"].cycles)
    assert explain(pruned).layers[0].forms["2:4"].dropped > 0


def test_weights_that_are_all_there():
    found = explain(compressed(network(density=1.0), inputs()))
    first = found.layers[0]
    assert first.forms["unstructured"].bytes > first.forms["dense"].bytes
    assert f"it would gain; takes {first.forms['dense'].bytes:,} bytes dense" in first.advice
    assert f"which gains below {first.bytes_below:.0%} of the weights" in first.advice
    assert first.advice.count("of the weights") == 3


def test_weights_that_meet_active_inputs_count():
    # all weights stand at the one input in four that is active
    weight = np.zeros((64, 200), np.float32)
    weight[:, ::4] = np.random.default_rng(2).normal(size=(64, 50))
    x = np.zeros((50, 200))
    x[:, ::4] = np.random.default_rng(3).random((50, 50))
    model = compressed(Network((Layer("a", weight),)), x)
    one = explain(model).layers[0]
    assert one.parts["work"] == pytest.approx(64 * 50 / 16)
    assert one.zero_share == pytest.approx(0.75, abs=0.01)


def test_model_that_does_not_fit_is_explained_all_the_same(pruned):
    small = EngineConfig(n_pes=2, sum_bits=24, weight_depth=64, counters=False)
    found = explain(pruned, Engine(name="tiny", config=small, clock_hz=24_000_000))
    assert "does not fit the engine" in found.misfit
    assert found.layers[0].cycles > 8 * explain(pruned).layers[0].cycles / 1.2
    assert found.layers[0].lost_bits.keys() == {32, 36, 24}
    assert found.layers[0].lost_bits[24] > found.layers[0].lost_bits[32]


def test_link_limits_small_models(pruned):
    found = explain(pruned)
    assert found.limit == "link"
    fast = explain(pruned, Engine(baud=1_000_000_000))
    assert fast.limit == "engine"
    assert fast.link_milliseconds == pytest.approx(found.link_milliseconds / 1000)
