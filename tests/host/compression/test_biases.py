# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.biases import decode_biases, encode_biases, round_biases
from gossamer.host.compression.calibrate import TensorRange
from gossamer.host.compression.reader import Reader
from gossamer.host.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st


def floats(*values):
    return np.array(values, np.float32)


def round_trip(bias):
    numbers, data = encode_biases(bias)
    reader = Reader(data, 0, "t")
    again = decode_biases(numbers, len(bias), reader)
    assert reader.at == len(data)
    assert again.dtype == np.float32
    return again


@pytest.mark.parametrize(
    ("bias", "numbers", "size"),
    [
        ([0, 0, 0], [], 0),
        ([1, -1, 0], [2, 0], 1),
        ([-1, 0, 0], [1, 0], 1),
        ([0.5, 1, -2], [3, 1], 2),
        ([2.0**20, -(2.0**20)], [2, -20], 1),
        ([127, -128], [8, 0], 2),
        ([128, -128], [2, -7], 1),
        ([1, 2.0**-29], [31, 29], 8),
        ([1, 2.0**-30], [32], 8),
        ([2.0**127, 2.0**-149], [32], 8),
        ([2.0**-149], [2, 149], 1),
        ([2.0**127], [2, -127], 1),
        ([-(2.0**127), 2.0**126], [2, -126], 1),
    ],
)
def test_fields_say_biases_exactly(bias, numbers, size):
    found, data = encode_biases(floats(*bias))
    assert (found, len(data)) == (numbers, size)
    assert np.array_equal(round_trip(floats(*bias)), floats(*bias))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_any_biases_come_back(values):
    assert np.array_equal(round_trip(floats(*values)), floats(*values))


@given(st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1), st.integers(-20, 30))
def test_fixed_point_is_never_larger(values, point):
    bias = np.ldexp(np.array(values, np.float64), -point).astype(np.float32)
    assert np.array_equal(round_trip(bias), bias)
    assert len(encode_biases(bias)[1]) <= 2 * len(bias)


def test_rounding_moves_less_than_half_a_step_of_16_bits():
    rng = np.random.default_rng(0)
    for low, high in ((0, 1), (-3, 7.3), (0, 1e-6), (-1e6, 1e6)):
        output = TensorRange(low=low, high=high, origin=0.0, levels=0, source="calibrated")
        bias = (rng.normal(size=300) * (high - low) / 8).astype(np.float32)
        rounded = round_biases(bias, output)
        assert np.abs(rounded - bias).max() <= (high - low) / 2**17
        assert len(encode_biases(rounded)[1]) <= -(-300 * 17 // 8)
        assert np.array_equal(round_biases(rounded, output), rounded)


def test_exact_biases_stay():
    stated = TensorRange(low=0, high=1e6, origin=0.0, levels=0, source="declared")
    grid = TensorRange(low=0, high=255, origin=0.0, levels=255, source="calibrated")
    bias = floats(1 / 3, 0.7, 5e4)
    assert round_biases(bias, stated) is bias
    assert round_biases(bias, grid) is bias
    nothing = floats(0, 0)
    assert round_biases(nothing, TensorRange(low=0.0, high=1.0, origin=0.0)) is nothing


def test_bad_numbers():
    for numbers, data, text in [
        ([0, 0], b"", r"t: bias bits is 0, expected 1\.\.32"),
        ([33], b"", r"t: bias bits is 33, expected 1\.\.32"),
        ([8, 150], bytes(3), r"t: bias point is 150, expected -128\.\.149"),
        ([8, 0], bytes(2), "t: needs 3 bytes of biases but 2 are left"),
        ([32], bytes(11), "t: needs 12 bytes of biases but 11 are left"),
    ]:
        with pytest.raises(FormatError, match=text):
            decode_biases(numbers, 3, Reader(data, 0, "t"))
