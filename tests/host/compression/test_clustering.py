# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression import clustering
from gossamer.host.compression.clustering import SortedValues, cluster

KINDS = {
    "exponential": lambda r, n: r.exponential(size=n) + 2.4,
    "hills": lambda r, n: np.concatenate([r.normal(9 * m, 0.1 * 2.0**m, n // 6) for m in range(6)]),
    "far values": lambda r, n: np.concatenate((r.normal(0, 0.01, n - 2), [-100.0, 50.0])),
    "both signs": lambda r, n: r.laplace(size=n),
    "even": lambda r, n: r.random(n) - 0.7,
}


def least_error(x, k):
    """Squared error of the best k runs of rising values, none of both signs: all are tried."""
    n = len(x)
    sums, squares = (np.concatenate(([0], np.cumsum(v))) for v in (x, x * x))
    count = np.arange(n + 1) - np.arange(n + 1)[:, None]
    cost = np.full((n + 1, n + 1), np.inf)
    a, b = np.nonzero(count > 0)
    cost[a, b] = squares[b] - squares[a] - (sums[b] - sums[a]) ** 2 / count[a, b]
    edge = np.searchsorted(x, 0)
    cost[:edge, edge + 1 :] = np.inf
    total = cost[0]
    for _ in range(k - 1):
        total = (total[:, None] + cost).min(axis=0)
    return total[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3, 8, 16, 40])
def test_error_is_near_the_least(kind, k):
    x = np.sort(KINDS[kind](np.random.default_rng(k), 420))
    values = SortedValues(x)
    found = cluster(values, k)
    runs = np.split(x, found.edges[1:-1])
    assert len(runs) == k
    assert all(len(run) and (run[0] > 0) == (run[-1] > 0) for run in runs)
    error = sum(float(np.square(run - run.mean()).sum()) for run in runs)
    assert error == pytest.approx(values.errors(found.edges).sum(), rel=1e-6, abs=1e-6)
    assert error <= 1.02 * least_error(x, k)


def test_steps_end_where_no_value_is_nearer_to_another_mean():
    x = np.sort(np.random.default_rng(1).exponential(size=50_000) + 1)
    values = SortedValues(x)
    found = cluster(values, 16)
    means = values.means(found.edges)
    nearest = np.abs(x[:, None] - means).argmin(axis=1)
    assert np.array_equal(nearest, np.repeat(np.arange(16), np.diff(found.edges)))
    assert 1 < found.steps < 1000
    assert len(found.start) == 16


def test_as_many_clusters_as_values():
    x = np.array([-3.0, -1.0, 1e-20, 2.0, 1e20])
    assert cluster(SortedValues(x), 5).edges.tolist() == [0, 1, 2, 3, 4, 5]


def test_values_far_apart_keep_their_signs():
    x = np.array([-(2.0**100), -(2.0**-100), -(2.0**-101), 2.0**-101, 2.0**-100, 2.0**99, 2.0**100])
    for k in range(2, 8):
        edges = cluster(SortedValues(x), k).edges
        assert 3 in edges
        assert len(edges) == k + 1


def test_longer_steps_get_nearer_than_k_means_alone(monkeypatch):
    """K-means ends short of the best edges where none moves by a whole value any more."""
    x = np.sort(np.random.default_rng(0).laplace(size=200_000).astype(np.float32))
    values = SortedValues(x.astype(np.float64))
    with monkeypatch.context() as patch:
        patch.setattr(clustering, "REACHES", ())
        plain = cluster(values, 16)
    longer = cluster(values, 16)
    errors = [float(values.errors(found.edges).sum()) for found in (plain, longer)]
    assert errors[1] < errors[0]
    assert longer.steps > plain.steps
