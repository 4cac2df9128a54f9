# SPDX-License-Identifier: BSD-2-Clause
"""Products of limbs are numpy's products of int64, for every width, sign and number of limbs."""

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.errors import CapacityError, InputError
from gossamer.host.limbs import LimbProduct, limb_product
from gossamer.host.triplets import Triplets
from gossamer.rtl.arith import activation_limits

SUM_BITS = {8: 32, 16: 36}


def product(matrix, input_range, bits=8, sum_bits=None):
    sums = sum_bits or SUM_BITS[bits]
    triplets = Triplets.of("m", matrix)
    return limb_product(triplets, input_range, activation_bits=bits, sum_bits=sums)


def run(limbs: LimbProduct, x):
    """Join what golden gives, after checking that no output was clamped at a wrong place."""
    source = limbs.network.input
    q = source.quantize(x)
    assert np.array_equal(q + source.origin, x)
    return limbs.join(golden.run(limbs.network, q))


def extremes(matrix, low, high, rng):
    """Random inputs, and for every row those that make it largest and smallest."""
    x = rng.integers(low, high + 1, (20, matrix.shape[1]))
    most = np.where(matrix > 0, high, low)
    return np.concatenate((x, most, low + high - most))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("low", [0, -128, -5, 1000, -3000])
@pytest.mark.parametrize("largest", [1, 60, 2500])
def test_products_are_exact(bits, low, largest):
    rng = np.random.default_rng(largest + abs(low))
    for density in (0.02, 0.3, 1.0):
        values = np.unique(rng.integers(-largest, largest + 1, 100))
        shape = tuple(rng.integers(1, 14, 2))
        matrix = rng.choice(values, shape) * (rng.random(shape) < density)
        high = low + int(rng.choice([1, 50, 255]))
        x = extremes(matrix, low, high, rng)
        assert np.array_equal(run(product(matrix, (low, high), bits), x), x @ matrix.T)


@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (3, 700), (700, 3), (1, 1)])
def test_shapes(shape):
    rng = np.random.default_rng(3)
    matrix = rng.integers(-20, 21, shape) * (rng.random(shape) < 0.4)
    x = rng.integers(0, 256, (3, shape[1]))
    assert np.array_equal(run(product(matrix, (0, 255)), x), x @ matrix.T)


@pytest.mark.parametrize(
    ("weight", "limbs"),
    [(1, 1), (-1, 1), (2, 2), (256, 2), (257, 2), (258, 3), (32767, 3), (-32768, 3)],
)
@pytest.mark.parametrize("low", [0, -128])
def test_a_row_gets_the_limbs_it_needs(weight, limbs, low):
    made = product(np.array([[weight], [0], [1]]), (low, low + 255))
    assert len(made.network.layers) == limbs
    assert made.rows.tolist() == [0] * (limbs - 1) + [0, 1, 2]
    x = np.arange(low, low + 256)[:, None]
    assert np.array_equal(run(made, x), x * [weight, 0, 1])


@pytest.mark.parametrize(("bits", "reach"), [(8, 1 << 23), (16, 1 << 31)])
def test_the_widest_product(bits, reach):
    """A product of one value less than what fits, then of one more."""
    top = (1 << bits) - 1
    whole, rest = divmod(reach - 1, top)
    row = [32767] * (whole // 32767) + [whole % 32767]
    matrix = np.array([row + [1] * (rest > 0)])
    made = product(matrix[:, : len(row)], (0, top), bits)
    x = np.array([np.zeros(len(row)), np.full(len(row), top)], dtype=np.int64)
    assert run(made, x).tolist() == [[0], [whole * top]]
    with pytest.raises(InputError, match=rf"row 0 of the product spans .* at most {reach:,} with"):
        product(np.array([[*row, 1, 1]]), (0, top), bits)


def test_only_columns_that_are_used_are_handed_on():
    matrix = np.zeros((2, 50), int)
    matrix[0, [7, 30]] = 100
    made = product(matrix, (0, 255))
    assert [(layer.n_cols, layer.n_rows) for layer in made.network.layers] == [(50, 3), (3, 3)]
    x = np.random.default_rng(0).integers(0, 256, (9, 50))
    assert np.array_equal(run(made, x), x @ matrix.T)


def test_a_matrix_of_zeros():
    made = product(np.zeros((2, 3), int), (5, 9))
    assert run(made, np.full((1, 3), 7)).tolist() == [[0, 0]]


def test_integers_fit_the_engine():
    rng = np.random.default_rng(4)
    matrix = rng.integers(-99, 100, (12, 40))
    for low in (0, -128):
        for layer in product(matrix, (low, low + 255)).network.layers:
            assert (layer.low, layer.high) == activation_limits(8, signed=low < 0)
            assert np.abs(layer.codebook).max() <= 1 << 15


def test_what_cannot_be_exact_is_refused():
    with pytest.raises(InputError, match=r"inputs span -1\.\.255, expected at most 255 between"):
        product(np.eye(2, dtype=int), (-1, 255))
    many = np.arange(1, 257)[None]
    assert product(many, (0, 0)).network.layers[0].code_bits == 8
    text = "too many distinct values: 257 with those that hand on and subtract"
    with pytest.raises(InputError, match=text):
        product(np.arange(-128, 129)[None], (0, 1))
    with pytest.raises(
        CapacityError, match=r"can reach 8,421,119, expected less than 8,388,608 .* 24 bits"
    ):
        product(np.array([[32767]]), (0, 255), sum_bits=24)
