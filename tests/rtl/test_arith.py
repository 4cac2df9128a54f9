# SPDX-License-Identifier: BSD-2-Clause
"""Arithmetic against exact fractions and hand-made cases."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from gossamer.rtl.arith import activation_limits, requantize, sum_bounds


def test_limits():
    assert activation_limits(8, True) == (-128, 127)
    assert activation_limits(8, False) == (0, 255)
    assert activation_limits(16, True) == (-32768, 32767)


@pytest.mark.parametrize(
    ("total", "bias", "shift", "want"),
    [
        (0, 0, 0, 0),
        (3, 1, 1, 2),  # 1.5 goes up
        (-3, 1, 1, -1),  # so does -1.5
        (-5, 1, 1, -2),
        (-1, 0, 31, -1),
        (1 << 30, 0, 31, 0),
        (127, 0, 0, 127),
        (128, 0, 0, 127),
        (-128, 0, 0, -128),
        (-129, 0, 0, -128),
        (2**31 - 1, 2**30, 0, 127),
        (-(2**31), -(2**30), 0, -128),
    ],
)
def test_requantize(total, bias, shift, want):
    values = (np.array([value], dtype=np.int64) for value in (total, bias, shift))
    got = requantize(*values, -128, 127)
    assert got.tolist() == [want]
    assert got.dtype == np.int64


def test_requantize_is_rounding_of_the_exact_quotient():
    """With the rounding constant in the bias: floor(x / 2**shift + 1/2), clamped."""
    rng = random.Random(1)
    for _ in range(2000):
        shift = rng.randrange(32)
        total, bias = (rng.randrange(-(2**31), 2**31) >> rng.randrange(32) for _ in range(2))
        constant = 1 << (shift - 1) if shift else 0
        exact = math.floor(Fraction(total + bias, 1 << shift) + (Fraction(1, 2) if shift else 0))
        arguments = (np.array([v], dtype=np.int64) for v in (total, bias + constant, shift))
        want = min(max(exact, 0), 255)
        assert requantize(*arguments, 0, 255).tolist() == [want], (total, bias, shift)


def test_requantize_broadcasts_rows():
    sums = np.arange(6, dtype=np.int64).reshape(2, 3) * 10
    got = requantize(sums, np.array([0, 5, -100]), np.array([0, 1, 0]), -50, 40)
    assert got.tolist() == [[0, 7, -50], [30, 22, -50]]


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255), (-3, 0), (0, 0)])
@pytest.mark.parametrize("bias", [-7, 0, 9])
def test_bounds_hold_for_every_subset_and_order(low, high, bias):
    """Brute force: weights on the limits of the input, any subset, bias first, last or never."""
    weights = (5, -3, 7, -11)
    positive = sum(w for w in weights if w > 0)
    negative = -sum(w for w in weights if w < 0)
    least, most = sum_bounds(positive, negative, bias, low, high)
    reached = set()
    for chosen in itertools.product((0, low, high), repeat=len(weights)):
        total = sum(w * q for w, q in zip(weights, chosen, strict=True))
        reached |= {total, total + bias}
    assert min(reached) == least
    assert max(reached) == most


def test_bounds_of_nothing():
    assert sum_bounds(0, 0, 0, -128, 127) == (0, 0)
    assert sum_bounds(0, 0, -4, -128, 127) == (-4, 0)


def test_bounds_are_exact_integers():
    """Python ints: nothing wraps, however large."""
    least, most = sum_bounds(2**70, 2**71, 1, -128, 255)
    assert most == 255 * 2**70 + 128 * 2**71 + 1
    assert least == -255 * 2**71 - 128 * 2**70
