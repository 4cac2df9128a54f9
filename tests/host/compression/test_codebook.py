# SPDX-License-Identifier: BSD-2-Clause
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host.compression.codebook import code_bits, share_weights
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS = {
    "normal": lambda r, n: r.normal(size=n),
    "two hills": lambda r, n: np.concatenate((r.normal(-5, 0.1, n // 2), r.normal(5, 0.1, n // 2))),
    "outliers": lambda r, n: np.concatenate((r.normal(0, 0.01, n - 2), [-100.0, 50.0])),
    "positive": lambda r, n: r.exponential(size=n) + 1e-3,
    "near zero": lambda r, n: r.normal(size=n) * 1e-6,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3, 16, 61, 255, 256])
def test_sharing(kind, k):
    values = KINDS[kind](np.random.default_rng(k), 3000).astype(np.float32)
    codebook, codes = share_weights(values, k, zero_code=False)
    assert len(codebook) == k
    assert codebook.dtype == np.float32
    assert (np.diff(codebook) > 0).all()
    assert np.array_equal(np.unique(codes), np.arange(k)), "a code is empty"
    shared = codebook[codes]
    assert np.array_equal(np.sign(shared), np.sign(values)), "a weight lost its sign"
    again = share_weights(values, k, zero_code=False)
    assert np.array_equal(again[0], codebook)
    assert np.array_equal(again[1], codes)


def test_codes_are_means_and_nearly_nearest():
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    codebook, codes = share_weights(values, 16, zero_code=False)
    means = np.array([values[codes == c].mean(dtype=np.float64) for c in range(16)])
    np.testing.assert_allclose(codebook, means, rtol=1e-6)
    nearest = np.abs(values[:, None] - codebook).min(axis=1)
    error = np.abs(values - codebook[codes])
    assert (error > nearest + 1e-6).mean() < 0.02  # zero, not the middle, parts the signs


def test_more_codes_less_error():
    values = np.random.default_rng(1).standard_t(3, size=20000).astype(np.float32)
    errors = []
    for k in (4, 8, 16, 32, 64, 128, 256):
        codebook, codes = share_weights(values, k, zero_code=False)
        errors.append(float(np.square(codebook[codes] - values).sum()))
    assert all(b < a / 2 for a, b in pairwise(errors)), errors


def test_few_values_pass_unchanged():
    rng = np.random.default_rng(2)
    book = np.array([-128, -127, -1e-30, 0.5, 127], np.float32)
    values = book[rng.integers(5, size=200)]
    codebook, codes = share_weights(values, 5, zero_code=False)
    assert np.array_equal(codebook, book)
    assert np.array_equal(codebook[codes], values)


def test_zero_stays_code_zero():
    rng = np.random.default_rng(3)
    values = rng.normal(size=500).astype(np.float32)
    values[::3] = 0
    codebook, codes = share_weights(values, 16, zero_code=True)
    assert codebook[0] == 0
    assert len(codebook) == 16
    assert np.array_equal(codes == 0, values == 0)
    assert np.array_equal(codebook[codes] == 0, values == 0)


def test_many_codes_are_near_the_least_error_of_normal_values():
    """Panter and Dite: pi * sqrt(3) / (2 * k**2) of the variance for a normal distribution."""
    values = np.random.default_rng(12).normal(size=20000).astype(np.float32)
    for k in (32, 64, 255):
        codebook, codes = share_weights(values, k, zero_code=False)
        error = np.square(codebook[codes] - values).mean() / values.var()
        assert error < 1.25 * np.pi * np.sqrt(3) / (2 * k**2)


def test_corner_counts():
    none, codes = share_weights(np.zeros(0, np.float32), 16, zero_code=False)
    assert none.tolist() == [0]
    assert len(codes) == 0
    zeros, codes = share_weights(np.zeros(4, np.float32), 2, zero_code=True)
    assert zeros.tolist() == [0]
    assert codes.tolist() == [0, 0, 0, 0]
    pair, codes = share_weights(np.array([1, 0, 3], np.float32), 2, zero_code=True)
    assert pair.tolist() == [0, 2]
    assert codes.tolist() == [1, 0, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32).filter(bool), min_size=1, max_size=60),
    st.integers(2, 20),
)
def test_any_values(values, k):
    array = np.array(values, np.float32)
    codebook, codes = share_weights(array, k, zero_code=False)
    assert np.array_equal(np.unique(codes), np.arange(len(codebook)))
    assert len(codebook) <= k
    assert np.array_equal(np.sign(codebook[codes]), np.sign(array))
    if len(np.unique(array)) <= k:
        assert np.array_equal(codebook[codes], array)


@pytest.mark.parametrize(("k", "bits"), [(1, 1), (2, 1), (3, 2), (16, 4), (17, 5), (256, 8)])
def test_code_bits(k, bits):
    assert code_bits(k) == bits
