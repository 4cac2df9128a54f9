# SPDX-License-Identifier: BSD-2-Clause
"""The bench of compression on layers small enough for seconds; bounds as for the large ones."""

import pytest
from gossamer.bench.compress import ALEXNET, Shape, measure


@pytest.fixture(scope="module")
def result():
    notes = []
    shapes = (Shape("a", 800, 600, 0.09, 2.39), Shape("b", 600, 300, 0.25, 5.85))
    found = measure(shapes, (16, 32), notes.append)
    assert len(notes) == 5
    return found


def test_layers_are_near_their_entropy(result):
    assert [(one.layer, one.codes) for one in result.layers] == [
        ("a", 16),
        ("b", 16),
        ("a", 32),
        ("b", 32),
    ]
    for one in result.layers:
        weights = {"a": 800 * 600, "b": 600 * 300}[one.layer]
        assert one.nonzeros == round(weights * {"a": 0.09, "b": 0.25}[one.layer])
        floor = one.position_entropy + one.code_entropy
        assert floor < one.bits_per_nonzero == 8 * one.bytes / one.nonzeros
        assert one.bound_bytes == pytest.approx(1.03 * floor * one.nonzeros / 8 + 2000)
        assert one.bytes <= one.bound_bytes
        assert one.percent_of_fp32 == pytest.approx(100 * one.bytes / (4 * weights))
        assert one.sqnr_db > {16: 23, 32: 28}[one.codes]
    first = result.layers[0]
    assert first.sqnr_db >= 25


def test_no_larger_error_than_scikit_learn(result):
    for one in result.layers:
        assert (one.sklearn_error is None) == (one.codes == 32)
        if one.sklearn_error is not None:
            assert one.error <= one.sklearn_error * (1 + 1e-6)
    assert result.speedup_over_sklearn > 2


def test_time_and_memory(result):
    weights = 4 * (800 * 600 + 600 * 300)
    assert weights < result.peak_bytes < 20 * weights
    assert 0 < result.cpu_seconds
    assert 0 < result.seconds


def test_shapes_are_those_of_the_paper():
    assert [(s.inputs, s.outputs, s.density) for s in ALEXNET] == [
        (9216, 4096, 0.09),
        (4096, 4096, 0.09),
        (4096, 1000, 0.25),
    ]
