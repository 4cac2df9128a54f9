# SPDX-License-Identifier: BSD-2-Clause
"""Errors of golden against floats, and whether the cause that is named is the one built in."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import quantize
from gossamer.host.compression.compress import CompressedModel, compress
from gossamer.host.compression.recipe import Recipe
from gossamer.host.errors import InputError
from gossamer.host.network import Layer, Network
from gossamer.host.report.replay import Replay
from gossamer.host.report.trace import WRONG_DB, trace

SIZES = (30, 24, 16, 5)


@pytest.fixture
def network() -> Network:
    rng = np.random.default_rng(0)
    layers = []
    for k, (n_in, n_out) in enumerate(pairwise(SIZES)):
        weight = rng.normal(0, 0.3, (n_out, n_in))
        activation = "relu" if k < len(SIZES) - 2 else "none"
        layers.append(Layer(f"fc{k + 1}", weight, rng.normal(0, 0.1, n_out), activation))
    return Network(tuple(layers))


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).random((200, SIZES[0])).astype(np.float32)


def with_output(model: CompressedModel, layer: int, **change) -> CompressedModel:
    """The model with another range of one layer's output."""
    layers = list(model.layers)
    layers[layer] = replace(layers[layer], output=replace(layers[layer].output, **change))
    return replace(model, layers=tuple(layers))


def test_figures_are_those_of_golden(network, x):
    model = compress(network, None, x)
    found = trace(model, x)
    integers = quantize(model, activation_bits=8, sum_bits=32)
    outputs = golden.run_layers(integers, integers.input.quantize(x))
    exact = model.to_network().run_layers(x)
    assert [one.tensor for one in found.tensors] == ["input", "fc1", "fc2", "fc3"]
    for one, layer, q, real in zip(found.tensors[1:], integers.layers, outputs, exact, strict=True):
        error = layer.output.dequantize(q) - real
        assert one.max_error == pytest.approx(float(np.abs(error).max()), rel=1e-4)
        assert one.rms_error == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-4)
        power = float(np.mean(real.astype(float) ** 2))
        assert one.sqnr_db == pytest.approx(10 * np.log10(power / np.mean(error**2)), abs=0.01)
        assert one.codebook_bits == layer.codebook_bits
        assert one.step == layer.output.scale
    assert found.images == 200
    assert found.first_wrong is None
    assert found.causes == ()
    assert found.verdict.startswith("no layer goes wrong: the lowest ratio is")
    assert all(one.sqnr_db is not None and one.sqnr_db > 30 for one in found.tensors)


def test_16_bits_err_less(network, x):
    model = compress(network, Recipe(default={"codes": 64}), x)
    fine, coarse = trace(model, x, activation_bits=16), trace(model, x)
    assert fine.tensors[1].rms_error < coarse.tensors[1].rms_error / 4


def test_replay_with_nothing_replaced_is_golden(network, x):
    model = compress(network, Recipe(default={"density": 0.4, "codes": 16}), x - 0.5)
    for bits, sum_bits in ((8, 24), (8, 32), (16, 36)):
        integers = quantize(model, activation_bits=bits, sum_bits=sum_bits)
        outputs = golden.run_layers(integers, integers.input.quantize(x))
        replay = Replay(model, integers, network, x)
        for k, (layer, q) in enumerate(zip(integers.layers, outputs, strict=True)):
            real = layer.output.origin + layer.output.scale * q
            assert replay.error(k + 1, real) == 0


def test_without_rounding_a_layer_is_the_float_layer(network, x):
    first = Network(network.layers[:1])
    grid = np.rint(x * 255) / 255
    model = compress(first, None, grid)
    integers = quantize(model, activation_bits=8, sum_bits=32)
    replay = Replay(model, integers, None, grid.astype(np.float32))
    exact = model.to_network().run(grid).astype(np.float64)
    left = {(one.tensor, one.factor): one.left for one in replay.causes(1, exact)}
    assert left["fc1", "step"] < 0.001  # 16-bit weights leave little
    assert left["fc1", "saturation"] == pytest.approx(1, abs=0.2)
    assert left["fc1", "overflow bound"] == pytest.approx(1, abs=0.1)
    assert set(left) == {(t, f) for t in ("input", "fc1") for f in ("saturation", "step")} | {
        ("fc1", "overflow bound")
    }


def test_range_too_narrow(network, x):
    model = compress(network, None, x)
    model = with_output(model, 1, high=model.layers[1].output.high / 10)
    found = trace(model, x)
    assert found.first_wrong == "fc2"
    assert (found.causes[0].tensor, found.causes[0].factor) == ("fc2", "saturation")
    assert found.causes[0].left < 0.1
    assert found.tensors[2].saturated > 0.3
    assert "fc2 is the first that goes wrong" in found.verdict
    assert "of its values lie beyond its range 0.." in found.verdict


def test_range_too_wide(network, x):
    model = with_output(compress(network, None, x), 0, high=500.0)
    found = trace(model, x)
    assert (found.first_wrong, found.causes[0].factor) == ("fc1", "step")
    assert found.causes[0].left < 0.05
    assert "one step of its range 0..500 is 1.96" in found.verdict
    assert "calibrate with typical inputs" in found.verdict


def test_input_beyond_its_range(network, x):
    model = compress(network, None, x)
    found = trace(model, 10 * x)
    assert (found.first_wrong, found.causes[0].factor) == ("input", "saturation")
    assert found.tensors[0].saturated > 0.8


def test_error_that_comes_from_the_layer_before():
    # the second layer takes differences of large equal values: rounding of the first shows there
    minus = Layer("minus", [[1.0, -1.0]], [0.0])
    layers = (Layer("one", [[1.0], [0.99]], [100.0, 100.0]), minus)
    x = np.linspace(0, 1, 100)[:, None]
    found = trace(compress(Network(layers), None, x), x)
    assert found.first_wrong == "minus"
    assert found.causes[0].tensor == "one"
    assert "comes from step at one" in found.verdict


def test_overflow_bound():
    # inputs that are never active have weights so large that the others get hardly a bit
    rng = np.random.default_rng(2)
    weight = rng.choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], (4, 4000))
    weight[:, :400] = 30000
    x = (rng.random((100, 4000)) < 0.5).astype(np.float32)
    x[:, :400] = 0
    model = compress(Network((Layer("wide", weight),)), None, x)
    found = trace(model, x)
    assert (found.first_wrong, found.causes[0].factor) == ("wide", "overflow bound")
    assert found.causes[0].left < 0.1
    bits = found.tensors[1].codebook_bits
    assert bits in range(14, 16)
    assert f"its sums leave its codebook {bits} of 16 bits" in found.verdict


def test_codebook_and_pruning_need_the_original(network, x):
    few = compress(network, Recipe(layers={"fc2": {"codes": 2}}), x)
    found = trace(few, x, network)
    assert (found.first_wrong, found.causes[0].tensor) == ("fc2", "fc2")
    assert found.causes[0].factor == "codebook"
    assert "its weights share 2 values" in found.verdict
    assert trace(few, x).first_wrong is None
    pruned = compress(network, Recipe(layers={"fc1": {"density": 0.3}}), x)
    found = trace(pruned, x, network)
    assert (found.first_wrong, found.causes[0].factor) == ("fc1", "pruning")
    assert "30.0% of its weights are left" in found.verdict


def test_verdict_threshold_is_a_tenth():
    assert WRONG_DB == 20


def test_no_error_and_no_signal():
    model = compress(Network((Layer("a", [[1.0]]),)), None, np.array([[0.0], [1.0]]))
    found = trace(model, np.array([[0.0]]))
    assert found.tensors[0].sqnr_db is None
    assert found.verdict == "no layer goes wrong: integers and floats are equal"


def test_refusals(network, x):
    model = compress(network, None, x)
    with pytest.raises(InputError, match=r"input has shape \(2, 3\), expected \(n, 30\)"):
        trace(model, np.zeros((2, 3)))
    other = Network(network.layers[:2])
    with pytest.raises(InputError, match=r"layers of shapes \[\(24, 30\), \(16, 24\)\], expected"):
        trace(model, x, other)
