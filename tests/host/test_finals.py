# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.finals import FINALS, apply_final, n_answers

Y = np.float32([[0, 1, -1, 1], [1000, -1000, 0, 1], [-1000, -1000, -1000, -1000]])


def test_softmax():
    exact = np.exp(Y.astype(np.float64) - Y.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    np.testing.assert_allclose(apply_final("softmax", Y), exact, rtol=1e-6)


def test_sigmoid():
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-Y.astype(np.float64)))
    np.testing.assert_allclose(apply_final("sigmoid", Y), exact, rtol=1e-6)


def test_argmax_takes_the_first_of_the_largest():
    assert apply_final("argmax", Y).tolist() == [[1], [0], [0]]


@pytest.mark.parametrize("final", FINALS)
def test_any_leading_axes(final):
    got = apply_final(final, Y)
    assert got.dtype == np.float32
    assert got.shape == (3, n_answers(final, 4))
    assert np.array_equal(got[0], apply_final(final, Y[0]))
