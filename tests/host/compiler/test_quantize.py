# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import quantize, row_bounds
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.network import Layer, Network
from networks import random_network


def make_network(sizes, seed=0, density=0.5, scale=0.3):
    rng = np.random.default_rng(seed)
    layers = []
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(size=(n_out, n_in)) * scale * (rng.random((n_out, n_in)) < density)
        activation = "relu" if k < len(sizes) - 2 else "none"
        layers.append(Layer(f"l{k}", weight, rng.normal(size=n_out) * scale, activation))
    return Network(tuple(layers))


def images(n, width, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, width)) * (rng.random((n, width)) < 0.3)
    x[0, :2] = 1, 255
    return (x / 255).astype(np.float32)


@pytest.mark.parametrize("sum_bits", [24, 32])
@pytest.mark.parametrize("structure", ["dense", "unstructured"])
def test_close_to_the_float_network(sum_bits, structure):
    network = make_network((64, 40, 30, 10))
    x = images(300, 64)
    model = compress(network, parse_recipe(f"[default]\nstructure = '{structure}'"), x)
    integers = quantize(model, activation_bits=8, sum_bits=sum_bits)
    assert integers.warnings == ()
    got = integers.output.dequantize(golden.run(integers, integers.input.quantize(x)))
    expected = model.to_network().run(x)
    error = np.abs(got - expected)
    assert error.max() < 4 * abs(integers.output.scale)
    assert (got.argmax(1) == expected.argmax(1)).mean() > 0.95


@pytest.mark.parametrize("sum_bits", [24, 32])
def test_every_sum_fits(sum_bits):
    model = compress(make_network((500, 300, 10), scale=3.0), None, images(50, 500))
    limit = 1 << (sum_bits - 1)
    for layer in quantize(model, activation_bits=8, sum_bits=sum_bits).layers:
        bounds = row_bounds(layer)
        assert all(-limit <= least and most < limit for least, most in bounds)
        assert (np.abs(layer.bias) < limit // 2).all()
        worst = np.where(layer.weights() > 0, layer.input.high, layer.input.low)
        top = (layer.weights() * worst).sum(axis=1) + np.maximum(layer.bias, 0)
        assert top.tolist() == [most for _, most in bounds]


def test_one_layer_by_hand():
    network = Network((Layer("a", [[1.0, -0.5]], [0.25], "none"),))
    x = np.array([[0, 255], [255, 0], [255, 255], [0, 0]]) / 255
    model = compress(network, None, x)
    (layer,) = quantize(model, activation_bits=8, sum_bits=32).layers
    shift = int(layer.shift[0])
    scale = 1 / 255 / layer.output.scale * 2**shift
    assert layer.weights().tolist() == [[round(scale), round(-0.5 * scale)]]
    assert layer.codebook_bits == 16
    assert layer.bias[0] == round(0.25 / layer.output.scale * 2**shift) + 2 ** (shift - 1)
    q = golden.run(quantize(model, activation_bits=8, sum_bits=32), np.array([[0, 0], [255, 0]]))
    assert q[:, 0].tolist() == [round(0.25 / layer.output.scale), 127]


@pytest.mark.parametrize("limits", [(0, 6), (-1.5, 0.75), (0.5, 2), (-np.inf, 1), (-2, np.inf)])
@pytest.mark.parametrize("calibrated", [True, False])
def test_clip_is_a_clamp(limits, calibrated):
    weight = np.random.default_rng(4).normal(size=(20, 30))
    layer = Layer("a", weight, None, "clip", limits=limits)
    network = Network((layer, Layer("b", np.eye(20))), (-2, 2))
    x = np.random.default_rng(5).uniform(-2, 2, (200, 30))
    model = compress(network, None, x if calibrated else None)
    integers = quantize(model, activation_bits=8, sum_bits=32)
    q, _ = golden.run_layers(integers, integers.input.quantize(x))
    got, expected = integers.layers[0].output.dequantize(q), network.run_layers(x)[0]
    step = abs(integers.layers[0].output.scale)
    assert got.min() >= limits[0] - step / 2
    assert got.max() <= limits[1] + step / 2
    assert np.abs(got - expected).mean() < step
    assert model.layers[0].output.low >= limits[0]
    assert model.layers[0].output.high <= limits[1]


def test_normalized_inputs_give_the_same_integers():
    network = make_network((50, 20, 5), seed=3, density=0.2)
    x = images(200, 50)
    mean, std = np.float32(0.1307), np.float32(0.3081)
    first = network.layers[0]
    bias = first.bias + float(mean) * first.weight.sum(axis=1, dtype=np.float64)
    folded = Layer(first.name, first.weight * std, bias, first.activation)
    normalized = (x - mean) / std
    raw = quantize(compress(network, None, x), activation_bits=8, sum_bits=32)
    other = quantize(
        compress(Network((folded, *network.layers[1:])), None, normalized),
        activation_bits=8,
        sum_bits=32,
    )
    assert np.array_equal(raw.input.quantize(x), other.input.quantize(normalized))
    difference = golden.run(raw, raw.input.quantize(x)) - golden.run(
        other, other.input.quantize(normalized)
    )
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 0.02


def test_relu_is_a_clamp_at_real_zero():
    # the commonest hidden value is -3, saturated low; real 0 is not integer 0
    weight = np.array([[1.0], [-1.0], [1.0]])
    network = Network((Layer("a", weight, [0.5, 0.0, 2.0], "relu"),))
    x = np.linspace(-1, 1, 101)[:, None]
    integers = quantize(compress(network, None, x), activation_bits=8, sum_bits=32)
    (layer,) = integers.layers
    out = integers.output.dequantize(golden.run(integers, integers.input.quantize(x)))
    assert out.min() == 0.0
    assert layer.low == integers.output.quantize(0.0)
    np.testing.assert_allclose(out, network.run(x), atol=2 * integers.output.scale)


def test_white_background_counts_downwards():
    network = make_network((40, 12, 4), seed=5)
    x = 1 - images(300, 40)
    model = compress(network, None, x)
    integers = quantize(model, activation_bits=8, sum_bits=32)
    assert integers.input.scale < 0
    q = integers.input.quantize(x)
    assert (q == 0).mean() > 0.6
    got = integers.output.dequantize(golden.run(integers, q))
    assert np.abs(got - network.run(x)).max() < 4 * abs(integers.output.scale)


def narrowed(bias, sum_bits, weight=((0.0, 0.0), (0.5, -1.0), (0.01, 0.02))):
    """Integers of one layer whose output is clipped to 0..0.03, and its float layer."""
    network = Network((Layer("a", weight, bias, "none"),))
    model = compress(network, parse_recipe("[input]\nrange = [0, 1]"))
    output = replace(model.layers[0].output, low=0.0, high=0.03, origin=0.0)
    model = replace(model, layers=(replace(model.layers[0], output=output),))
    return quantize(model, activation_bits=8, sum_bits=sum_bits), network


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_are_always_saturated_cost_the_others_nothing(sign):
    far, network = narrowed([sign * 1e6, sign * 1e5, 0.0], 24)
    near, _ = narrowed([sign * 0.1, sign * 2.0, 0.0], 24)
    assert far.warnings == near.warnings
    assert far.layers[0].shift.tolist() == near.layers[0].shift.tolist()
    q = np.array([[0, 0], [255, 0], [0, 255], [255, 255], [7, 99]])
    out = golden.run(far, q)
    assert (out[:, :2] == (255 if sign > 0 else 0)).all()
    expected = far.output.quantize(network.run(far.input.dequantize(q)))
    assert np.abs(out - expected).max() <= 1


def test_lost_codebook_bits_are_reported():
    rng = np.random.default_rng(6)
    weight = np.abs(rng.normal(size=(4, 60000))) + 0.5
    network = Network((Layer("wide", weight),))
    model = compress(network, parse_recipe("[input]\nrange = [0, 1]\n[default]\ncodes = 16"))
    assert not any("sums" in w for w in quantize(model, activation_bits=8, sum_bits=32).warnings)
    narrow = quantize(model, activation_bits=8, sum_bits=24)
    bits = narrow.layers[0].codebook_bits
    assert bits < 8
    assert (
        f"layer 'wide': sums of 24 bits leave its codebook {bits} of 16 bits"
        in (narrow.warnings[-1])
    )


def test_outputs_far_smaller_than_weights_lose_bits_and_say_so():
    network = Network((Layer("a", [[1000.0, -1000.0]]), Layer("b", [[1.0]])))
    model = compress(network, parse_recipe("[input]\nrange = [0, 1]"))
    tiny = replace(model.layers[0].output, low=-1e-6, high=1e-6)
    layers = (replace(model.layers[0], output=tiny), model.layers[1])
    integers = quantize(replace(model, layers=layers), activation_bits=8, sum_bits=32)
    assert any("the outputs lose" in text for text in integers.warnings)
    assert abs(integers.layers[0].codebook).max() > 1 << 14


def test_no_calibration_is_a_warning():
    model = compress(make_network((8, 4)), parse_recipe("[input]\nrange = [0, 1]"))
    assert "no calibration data" in quantize(model, activation_bits=8, sum_bits=32).warnings[0]


def test_extreme_shapes():
    for sizes in [(1, 1), (1, 9), (9, 1), (3, 5, 1, 2)]:
        network = make_network(sizes, density=1.0)
        x = np.random.default_rng(7).random((20, sizes[0]))
        integers = quantize(compress(network, None, x), activation_bits=8, sum_bits=24)
        out = golden.run(integers, integers.input.quantize(x))
        got = integers.output.dequantize(out)
        assert np.abs(got - network.run(x)).max() < 6 * abs(integers.output.scale)


def test_all_zero_layers():
    network = Network((Layer("a", np.zeros((3, 4)), [1, 2, -3], "relu"), Layer("b", np.eye(3))))
    x = np.random.default_rng(8).random((10, 4))
    integers = quantize(compress(network, None, x), activation_bits=8, sum_bits=32)
    got = integers.output.dequantize(golden.run(integers, integers.input.quantize(x)))
    np.testing.assert_allclose(got, network.run(x), atol=integers.output.scale)
    assert integers.warnings == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"structure": "4:2"}, "structure must be dense, unstructured or N:M"),
        ({"structure": "2:4"}, "2:4 must have zero_code, and no entry may have code 0"),
        ({"codebook": np.array([1 << 15])}, "codebook values must fit 16 bits"),
        ({"code_bits": 9}, r"code_bits must be in 1\.\.8"),
        ({"code_bits": 1}, r"codebook must have 1\.\.2\*\*code_bits values"),
        ({"zero_code": True}, "code 0 must be 0"),
        ({"bias": np.zeros(3, np.int64)}, "bias must have n_rows values"),
        ({"shift": np.full(5, -1)}, "shift must have n_rows values, none negative"),
        ({"n_rows": 2}, "row_indices must lie in"),
        ({"n_cols": 5}, "column_starts must rise"),
        ({"low": 300}, "clamp must rise"),
    ],
)
def test_layer_checks(change, text):
    layer = random_network(np.random.default_rng(9), (4, 5), weight_density=0.9).layers[0]
    with pytest.raises(ValueError, match=text):
        replace(layer, **change)


def nm_layer(mask, structure="2:4", **change):
    """A layer whose entries stand where `mask` is true, all with code 1."""
    mask = np.asarray(mask, bool)
    columns, rows = np.nonzero(mask.T)
    layer = random_network(np.random.default_rng(9), mask.shape[::-1], weight_density=0.9).layers[0]
    fields = {
        "structure": structure,
        "column_starts": np.searchsorted(columns, np.arange(mask.shape[1] + 1)),
        "row_indices": rows,
        "codes": np.ones(len(rows), np.int64),
        "codebook": np.array([0, 7]),
        "zero_code": True,
    }
    return replace(layer, **(fields | change))


def test_nm_layers():
    good = [[1, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert nm_layer(good).weights().tolist() == [[7, 0, 0, 7, 7, 7], [0, 0, 7, 7, 0, 0]]
    with pytest.raises(ValueError, match="'layer0': 2:4 must have at most 2 entries in each group"):
        nm_layer([[0] * 6, [0, 1, 1, 1, 0, 0]])
    assert nm_layer([[0] * 6, [0, 1, 1, 1, 0, 0]], "3:5").structure == "3:5"
    with pytest.raises(ValueError, match="no entry may have code 0"):
        nm_layer(good, codes=np.array([0, 1, 1, 1, 1, 1]))
    with pytest.raises(ValueError, match="2:4 must have zero_code"):
        nm_layer(good, zero_code=False)


@pytest.mark.parametrize("structure", ["2:4", "1:4", "3:5", "8:16"])
@pytest.mark.parametrize("sum_bits", [24, 32])
def test_nm_and_unstructured_are_the_same_integers(structure, sum_bits):
    """What a layer is lowered to where no unit knows its structure."""
    network = make_network((37, 18, 6), density=1.0)
    x = np.random.default_rng(10).random((40, 37))
    text = f"[default]\nstructure = '{structure}'\ndensity = 1.0\ncodes = 16"
    small = compress(network, parse_recipe(text), x).to_network()  # its biases are rounded
    pruned, plain = (
        compress(small, parse_recipe(f"[default]\nstructure='{kind}'"), x)
        for kind in (structure, "unstructured")
    )
    one, two = (quantize(m, activation_bits=8, sum_bits=sum_bits) for m in (pruned, plain))
    for a, b in zip(one.layers, two.layers, strict=True):
        assert (a.structure, b.structure) == (structure, "unstructured")
        assert (a.zero_code, b.zero_code) == (True, False)
        assert np.array_equal(a.weights(), b.weights())
        assert np.array_equal(a.bias, b.bias)
        assert np.array_equal(a.shift, b.shift)
    q = one.input.quantize(x)
    assert np.array_equal(golden.run(one, q), golden.run(two, q))
    got = one.output.dequantize(golden.run(one, q))
    assert np.abs(got - pruned.to_network().run(x)).max() < 8 * abs(one.output.scale)
