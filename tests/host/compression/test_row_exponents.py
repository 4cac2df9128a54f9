# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import quantize, row_bounds
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.compression.row_exponents import MAX_EXPONENT, share_rows
from gossamer.host.network import Layer, Network


def share(weight, max_codes):
    """Shared weights (rows, cols) of a matrix without zeros, and the rows' exponents."""
    n_rows, n_cols = weight.shape
    rows = np.repeat(np.arange(n_rows), n_cols)
    values = weight.reshape(-1).astype(np.float32)
    book, codes, exponents = share_rows(values, rows, n_rows, max_codes, zero_code=False)
    assert len(book) <= max_codes
    return np.ldexp(book[codes], -exponents[rows]).reshape(weight.shape), exponents


def row_errors(weight, shared):
    return np.square(shared - weight).sum(axis=1) / np.square(weight).sum(axis=1)


def test_scales_of_powers_of_two_are_exact():
    rng = np.random.default_rng(0)
    integers = rng.integers(1, 128, (20, 300)) * rng.choice([-1, 1], (20, 300))
    integers[:, 0] = 127
    powers = rng.integers(0, 6, 20)
    powers[0] = 0
    weight = np.ldexp(integers / 127, -powers[:, None]).astype(np.float32)
    assert len(np.unique(weight)) > 256
    shared, exponents = share(weight, 256)
    assert np.array_equal(shared, weight)
    assert np.array_equal(exponents, powers)


def test_scales_of_any_kind_err_evenly():
    rng = np.random.default_rng(1)
    scales = np.geomspace(1, 1 / 100, 30)[:, None]
    weight = (rng.normal(size=(30, 200)) * scales).astype(np.float32)
    shared, exponents = share(weight, 16)
    errors = row_errors(weight, shared)
    assert errors.max() < 0.06
    assert exponents.max() in (6, MAX_EXPONENT)
    assert ((shared > 0) == (weight > 0)).all()


def test_rows_of_like_magnitude_have_no_exponents():
    weight = np.random.default_rng(2).normal(size=(40, 100)).astype(np.float32)
    assert not share(weight, 64)[1].any()


def test_few_values_pass_unchanged_and_magnitudes_are_limited():
    few = np.array([[1.0, 2.0], [0.001, 0.002]], np.float32)
    shared, exponents = share(few, 4)
    assert np.array_equal(shared, few)
    assert not exponents.any()
    rng = np.random.default_rng(3)
    far = rng.normal(size=(3, 50)) * np.array([[1.0], [1e-5], [1e-3]])
    assert share(far, 8)[1].max() == MAX_EXPONENT
    nothing = share_rows(np.zeros(0, np.float32), np.zeros(0, np.int64), 3, 8, zero_code=False)
    assert nothing[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("bits", "sum_bits"), [(8, 24), (8, 32), (16, 36)])
def test_integers_of_a_layer_with_exponents(bits, sum_bits):
    rng = np.random.default_rng(4)
    scales = np.geomspace(1, 1 / 60, 24)[:, None]
    hidden = Layer("a", rng.normal(size=(24, 50)) * scales, rng.normal(size=24) * scales[:, 0])
    back = Layer("b", rng.normal(size=(6, 24)) / scales.T, rng.normal(size=6))
    network = Network((hidden, back))
    x = rng.random((400, 50)) + 0.25
    model = compress(network, parse_recipe("[default]\ncodes = 32\ncalibration = 'minmax'"), x)
    matrix = model.layers[0].matrix
    integers = quantize(model, activation_bits=bits, sum_bits=sum_bits)
    layer = integers.layers[0]
    assert np.array_equal(layer.shift - layer.shift.min(), matrix.row_exponents)
    assert matrix.row_exponents.any()
    limit = 1 << (sum_bits - 1)
    assert all(-limit <= least <= most < limit for least, most in row_bounds(layer))
    got = layer.output.dequantize(golden.run_layers(integers, integers.input.quantize(x))[0])
    exact = model.to_network().run_layers(x)[0]
    assert np.abs(got - exact).max() < 3 * layer.output.scale
    # real weights stand behind every row's integers
    real = layer.weights() * (layer.output.scale / layer.input.scale)
    real = np.ldexp(real, -layer.shift[:, None])
    weight = matrix.weight()
    step = 2.0 ** (1 - layer.codebook_bits) * np.abs(matrix.codebook).max()
    errors = np.abs(real - weight).max(axis=1)
    assert (errors <= np.ldexp(step, -matrix.row_exponents)).all()
