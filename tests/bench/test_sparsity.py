# SPDX-License-Identifier: BSD-2-Clause
"""Every pruned weight is a byte and a cycle back; sparse is shown to lose where it does."""

import json
from itertools import pairwise

import pytest
from gossamer.bench import sparsity
from gossamer.bench.sparsity import ACTIVATION_DENSITIES, WEIGHT_DENSITIES, Point
from gossamer.host.cli import app
from typer.testing import CliRunner

KEYS = {
    "structure", "unit", "weight_density", "activation_density", "active_nonzeros", "multipliers",
    "cycles", "dense_cycles", "bytes", "dense_bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict:
    result = CliRunner().invoke(app, ["bench", "sparsity", "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def points(document: dict) -> dict[tuple[float, float], Point]:
    rows = [Point(**row) for row in document["points"] if row["structure"] != "2:4"]
    return {(row.weight_density, row.activation_density): row for row in rows}


@pytest.fixture(scope="module")
def two_of_four(document: dict) -> dict[tuple[str, float], Point]:
    rows = [Point(**row) for row in document["points"] if row["structure"] == "2:4"]
    return {(row.unit, row.activation_density): row for row in rows}


pytestmark = [pytest.mark.cocotb, pytest.mark.xdist_group("default-engine")]


def test_keys_and_points(document: dict) -> None:
    assert set(document) == {"points", "break_even"}
    assert all(set(row) == KEYS for row in document["points"])
    places = [
        (row["structure"], row["unit"], row["weight_density"], row["activation_density"])
        for row in document["points"]
    ]
    rows = [("unstructured", "sparse array", density) for density in WEIGHT_DENSITIES]
    rows += [("2:4", "sparse array", 0.5), ("2:4", "tensor tile", 0.5)]
    assert places == [(*row, activation) for row in rows for activation in ACTIVATION_DENSITIES]


def test_two_of_four_halves_the_cycles_of_dense(two_of_four: dict) -> None:
    for point in two_of_four.values():
        assert point.multipliers == 16
        assert point.cycles - 60 <= 0.51 * point.dense_cycles, point  # start and drain aside
        assert point.bytes < 0.95 * point.dense_bytes  # dense codes the same zeros, in a bit or so
        assert point.bytes < 0.8 * sparsity.SIZE**2  # a byte a weight
    full = two_of_four["tensor tile", 1.0]
    assert full.active_nonzeros == sparsity.SIZE**2 // 2
    assert full.active_nonzeros <= full.multipliers * full.cycles <= 1.02 * full.active_nonzeros
    assert full.cycles < two_of_four["sparse array", 1.0].cycles


def test_array_skips_more_zero_activations_than_the_tile(two_of_four: dict) -> None:
    """The tile skips groups of four that are all zero, the array each zero."""
    array, tile = (two_of_four[unit, 0.2].cycles for unit in ("sparse array", "tensor tile"))
    assert array < tile < two_of_four["tensor tile", 1.0].cycles


def test_bytes_fall_with_the_density_of_weights(points: dict) -> None:
    for higher, lower in pairwise(WEIGHT_DENSITIES):
        assert points[lower, 1.0].bytes < points[higher, 1.0].bytes


def test_cycles_fall_at_every_step(points: dict) -> None:
    for activation in ACTIVATION_DENSITIES:
        for higher, lower in pairwise(WEIGHT_DENSITIES):
            assert points[lower, activation].cycles < points[higher, activation].cycles
    for weight in WEIGHT_DENSITIES:
        for higher, lower in pairwise(ACTIVATION_DENSITIES):
            assert points[weight, lower].cycles < points[weight, higher].cycles


def test_cycles_are_near_the_work(points: dict) -> None:
    for point in points.values():
        if point.active_nonzeros >= 2000:
            work = point.active_nonzeros / point.multipliers
            broadcasts = round(point.activation_density * sparsity.SIZE)
            assert point.cycles <= 1.10 * max(work, broadcasts) + 60, point


def test_dense_is_the_same_layer_on_the_same_engine(points: dict) -> None:
    for point in points.values():
        full = points[1.0, point.activation_density]
        assert point.dense_bytes <= full.dense_bytes <= 1.05 * sparsity.SIZE**2  # coded zeros
        assert abs(point.dense_cycles - full.cycles) <= 0.02 * full.cycles
        assert point.multipliers == 16


def test_break_even_lies_where_the_points_say(document: dict, points: dict) -> None:
    even = document["break_even"]
    assert 0.25 < even["bytes"] < 0.7
    assert even["cycles"] == 1.0
    for density, fewer in ((1.0, False), (0.7, False), (0.25, True), (0.05, True)):
        assert (points[density, 1.0].bytes < points[density, 1.0].dense_bytes) == fewer


def point(density: float, size: int) -> Point:
    return Point("unstructured", "sparse array", density, 1.0, 0, 1, size, 10, size, 10)


def test_break_even_is_interpolated() -> None:
    assert sparsity.break_even([point(1.0, 20), point(0.5, 10)])["bytes"] == pytest.approx(0.5)
    assert sparsity.break_even([point(1.0, 14), point(0.5, 6)])["bytes"] == pytest.approx(0.75)
    assert sparsity.break_even([point(1.0, 9), point(0.5, 6)])["cycles"] == 1.0
    assert sparsity.break_even([point(1.0, 20), point(0.5, 11)])["bytes"] is None
