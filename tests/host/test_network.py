# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.errors import InputError
from gossamer.host.finals import apply_final
from gossamer.host.network import MAX_WIDTH, Layer, Network, as_samples


def test_layer_owns_plain_float32():
    source = np.arange(12.0).reshape(4, 3).T[::-1]
    layer = Layer("a", source, [[1], [2], [3]], "relu")
    assert layer.weight.dtype == layer.bias.dtype == np.float32
    assert layer.weight.flags.c_contiguous
    assert layer.bias.shape == (3,)
    assert np.array_equal(layer.weight, source)
    with pytest.raises(ValueError, match="read-only"):
        layer.weight[0, 0] = 1
    assert not np.shares_memory(layer.weight, source)


def test_negative_zero_becomes_zero():
    layer = Layer("a", [[-0.0, 1.0]], [-0.0])
    assert not np.signbit(layer.weight).any()
    assert not np.signbit(layer.bias).any()


def test_run_is_the_formula():
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    b1, b2 = rng.normal(size=4), rng.normal(size=2)
    network = Network((Layer("a", w1, b1, "relu"), Layer("b", w2, b2)))
    x = rng.normal(size=(5, 3))
    hidden = np.maximum(x @ w1.T + b1, 0)
    first, second = network.run_layers(x)
    np.testing.assert_allclose(first, hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, hidden @ w2.T + b2, rtol=1e-5, atol=1e-5)
    assert np.array_equal(network.run(x), second)
    assert network.run(x[0]).shape == (1, 2)
    assert (network.n_inputs, network.n_outputs) == (3, 2)


@pytest.mark.parametrize(
    ("weight", "bias", "text"),
    [
        ([[1, np.nan]], None, r"layer 'a': weight is nan at index \[0, 1\] \(1 such values\)"),
        ([[np.inf]], None, r"weight is inf at index \[0, 0\]"),
        ([[1e39]], None, r"weight is 1e\+39 .*expected finite float32"),
        ([[1.0]], [np.nan], "layer 'a': bias is nan"),
        (np.zeros((0, 3)), None, r"weight is empty \(shape \(0, 3\)\)"),
        (np.zeros((3, 0)), None, "weight is empty"),
        ([1.0, 2.0], None, r"weight has shape \(2,\), expected \(rows, cols\)"),
        (np.zeros((2, 3, 1)), None, r"weight has shape \(2, 3, 1\)"),
        ([[1.0, 2.0]], [1.0, 2.0], r"bias has shape \(2,\), expected \(1,\).*transposed"),
        (np.ones((4, 1)), np.ones((2, 2)), r"bias has shape \(2, 2\), expected \(4,\)"),
        ([["a"]], None, "weight has type <U1, expected floats or integers"),
        ([[1j]], None, "weight has type complex128"),
        ([[1], [1, 2]], None, "weight is not a rectangular array"),
        (np.zeros((1, MAX_WIDTH + 1)), None, "expected at most 65536 rows and columns"),
    ],
)
def test_bad_layers(weight, bias, text):
    with pytest.raises(InputError, match=text):
        Layer("a", weight, bias)


def test_unknown_activation():
    with pytest.raises(InputError, match="activation is 'gelu', expected one of none, relu"):
        Layer("a", [[1.0]], None, "gelu")


def test_clip():
    layer = Layer("a", [[1.0]], [0.5], "clip", limits=(0, 6))
    assert layer.run(np.float32([[-3], [1], [9]])).ravel().tolist() == [0, 1.5, 6]
    upper = Layer("a", [[1.0]], None, "clip", limits=(-np.inf, 2))
    assert upper.run(np.float32([[-9], [9]])).ravel().tolist() == [-9, 2]
    for activation, limits, text in (
        ("clip", None, "limits of the output are None, expected two numbers, rising"),
        ("clip", (1, 1), r"are \(1, 1\), expected two numbers, rising"),
        ("clip", (0, np.nan), "expected two numbers, rising"),
        ("relu", (0, 6), r"are \(0, 6\), expected none beside 'relu'"),
    ):
        with pytest.raises(InputError, match=text):
            Layer("a", [[1.0]], None, activation, limits=limits)


def test_declared_ranges():
    layer = Layer("a", [[1.0]], output_range=(0, 2.55), output_levels=255)
    network = Network((layer,), (-1, 1), input_levels=254)
    assert (layer.output_range, layer.output_levels) == ((0, 2.55), 255)
    assert (network.input_range, network.input_levels) == ((-1, 1), 254)
    with pytest.raises(InputError, match=r"layer 'a': output range is \[1, 0\], expected two"):
        Layer("a", [[1.0]], output_range=(1, 0))
    with pytest.raises(InputError, match="output range has 255 steps, expected 0, or a range"):
        Layer("a", [[1.0]], output_levels=255)
    with pytest.raises(InputError, match="input range has -1 steps"):
        Network((layer,), (0, 1), input_levels=-1)


def test_final_step():
    layer = Layer("a", np.eye(3))
    x = np.float32([[1, 3, 2], [900, -900, 900]])
    for final in ("none", "softmax", "argmax", "sigmoid"):
        got = Network((layer,), final=final).run(x)
        assert got.dtype == np.float32
        assert np.array_equal(got, apply_final(final, x))
    with pytest.raises(InputError, match="final step is 'tanh', expected one of none, softmax"):
        Network((layer,), final="tanh")


def test_bad_networks():
    a, b = Layer("a", np.ones((3, 2))), Layer("b", np.ones((1, 4)))
    with pytest.raises(InputError, match="'a' has 3 outputs, but 'b' takes 4 inputs"):
        Network((a, b))
    with pytest.raises(InputError, match="no layers"):
        Network(())
    with pytest.raises(InputError, match="two layers are named 'a'"):
        Network((a, a))
    with pytest.raises(InputError, match=r"input range is \[1, 1\]"):
        Network((a,), (1, 1))
    with pytest.raises(InputError, match="expected two finite numbers, rising"):
        Network((a,), (0, np.inf))


def test_samples():
    assert as_samples("x", [1, 2, 3], 3).shape == (1, 3)
    assert as_samples("x", np.ones((2, 3), np.float16), 3).dtype == np.float32
    with pytest.raises(InputError, match=r"x has shape \(2, 4\), expected \(n, 3\) with n >= 1"):
        as_samples("x", np.ones((2, 4)), 3)
    with pytest.raises(InputError, match="n >= 1"):
        as_samples("x", np.ones((0, 3)), 3)
    with pytest.raises(InputError, match=r"x is nan at index \[1, 0\]"):
        as_samples("x", [[0, 0], [np.nan, 0]], 2)


def test_overflow_is_named():
    network = Network((Layer("a", [[1e30]]), Layer("b", [[1e30]])))
    with pytest.raises(InputError, match="layer 'b': an output is too large for float32"):
        network.run([[1.0]])
