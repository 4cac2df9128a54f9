# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.structure import Places, best_gaps
from gossamer.host.report.break_even import highest_density, unstructured_bits


def test_density_where_a_rising_cost_crosses_a_limit():
    assert highest_density(lambda d: 100 * d, 25, 0.001) == pytest.approx(0.25, abs=1e-5)
    assert highest_density(lambda d: 100 * d, 101, 0.001) == 1.0
    assert highest_density(lambda d: 100 * d, 100, 0.001) == pytest.approx(1.0, abs=1e-5)
    assert highest_density(lambda d: max(30, 100 * d), 30, 0.001) is None
    assert highest_density(lambda d: max(30, 100 * d), 31, 0.001) == pytest.approx(0.31, abs=1e-5)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.4, 0.8, 1.0])
def test_bits_are_those_of_random_places(density):
    rng = np.random.default_rng(0)
    mask = rng.random((300, 400)) < density
    entries = int(mask.sum())
    _, gaps = best_gaps(Places.of_mask(mask), huffman=False)
    measured = entries * 6 + 8 * gaps.bytes_as(huffman=False)
    assert unstructured_bits(float(mask.mean()), mask.size, 6) == pytest.approx(measured, rel=0.01)
