# SPDX-License-Identifier: BSD-2-Clause
"""K-means in one dimension: clusters are runs of the sorted values, so sums of runs say it all.

With running sums a step costs two look-ups per cluster, whatever the number of values. Of two
starts the one with the least error is kept: even steps between the extremes, as in the paper, and
the exact best runs of some hundred cells, by dynamic programming, which ends within some tenths of
a percent of the least error. No cluster holds values of both signs. An empty one is moved to where
the error is largest.

Ref: Han et al., Deep Compression, section 3; Panter and Dite, Quantization distortion in
pulse-count modulation, Proc. IRE 39, 1951; Wang and Song, Ckmeans.1d.dp, The R Journal 3, 2011.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["Clusters", "SortedValues", "cluster"]

MAX_STEPS = 1000
REACHES = (256, 64, 16, 4, 1)
"""Times that a step is longer than one of k-means, as tried in turn."""
QUANTILES = 4096
CELLS_PER_CLUSTER = 8
MAX_CELLS = 512
MIN_REACH = 64

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SortedValues:
    """Values (n,) float64, rising, with running sums of them and of their squares."""

    def __init__(self, x: Doubles) -> None:
        self.x = x
        self.sums, self.squares = np.zeros((2, len(x) + 1))
        np.cumsum(x, out=self.sums[1:])
        np.cumsum(np.square(x), out=self.squares[1:])
        self.sign_edge = int(np.searchsorted(x, 0.0))

    def means(self, edges: Ints) -> Doubles:
        """Mean of each run between edges (k + 1,); never beyond its values, whatever was rounded.

        Running sums cannot resolve runs of values far below those before them.
        """
        means = np.diff(self.sums[edges]) / np.diff(edges)
        return np.clip(means, self.x[edges[:-1]], self.x[edges[1:] - 1])

    def errors(self, edges: Ints) -> Doubles:
        """Squared error of each run against its mean, (k,)."""
        squares, sums = np.diff(self.squares[edges]), np.diff(self.sums[edges])
        return np.maximum(squares - np.square(sums) / np.diff(edges), 0)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Runs of sorted values: edges (k + 1,) int64, where the steps began, and their number."""

    edges: Ints
    start: Doubles
    steps: int


def cluster(values: SortedValues, k: int) -> Clusters:
    """The best k runs that were found, none empty; there must be k distinct values, none 0."""
    found = [_k_means(values, start) for start in _starts(values, k)]
    return min(found, key=lambda one: float(values.errors(one.edges).sum()))


def _starts(values: SortedValues, k: int) -> Iterator[Doubles]:
    """Centroids (k,) to start from, rising, with both signs if the values have both."""
    yield np.linspace(values.x[0], values.x[-1], k)
    cells = _cells(values, min(CELLS_PER_CLUSTER * k, MAX_CELLS))
    if len(cells) > k:
        yield values.means(_best_runs(values, cells, k))


def _cells(values: SortedValues, count: int) -> Ints:
    """Edges of about `count` cells, each of one sign.

    Half of them are as dense as the cube root of the values' density, as the best clusters are, if
    many; half hold equally many values, so that far values do not take all.
    """
    x = values.x
    levels = x[np.linspace(0, len(x) - 1, min(len(x), QUANTILES + 1)).astype(np.int64)]
    widths = np.diff(levels) ** (2 / 3)
    for _ in range(2):  # a wide gap beside a far value holds nothing to tell apart
        widths = np.minimum(widths, 4 / count * widths.sum())
    scale = np.concatenate(([0.0], np.cumsum(widths)))
    steps = np.arange(1, count // 2) / (count // 2)
    even = x[(steps * len(x)).astype(np.int64)]
    bounds = np.concatenate((np.interp(steps * scale[-1], scale, levels), even))
    return np.unique(np.concatenate(([0, values.sign_edge, len(x)], np.searchsorted(x, bounds))))


def _best_runs(values: SortedValues, cells: Ints, k: int) -> Ints:
    """Edges of the k runs of whole cells with the least error; cells has at least k + 1 edges.

    No run takes more cells than `reach`, several times what it does on average.
    """
    reach = min(max(MIN_REACH, 8 * len(cells) // k), len(cells) - 1)
    ends = np.arange(len(cells))[:, None]
    first = ends - reach + np.arange(reach)
    a, b = cells[np.maximum(first, 0)], cells[ends]
    counts = np.maximum(b - a, 1)
    costs = values.squares[b] - values.squares[a]
    costs -= np.square(values.sums[b] - values.sums[a]) / counts
    costs[(first < 0) | ((a < values.sign_edge) & (b > values.sign_edge))] = np.inf
    total, back = np.where(ends[:, 0] == 0, 0.0, np.inf), []
    for _ in range(k):
        before = np.concatenate((np.full(reach, np.inf), total))
        sums = sliding_window_view(before, reach)[:-1] + costs
        best = np.argmin(sums, axis=1)
        total = sums[ends[:, 0], best]
        back.append(first[ends[:, 0], best])
    at = [len(cells) - 1]
    for came_from in reversed(back):
        at.append(int(came_from[at[-1]]))
    return cells[at[::-1]]


def _k_means(values: SortedValues, start: Doubles) -> Clusters:
    k, x, centroids = len(start), values.x, start
    edges, steps = np.zeros(0, dtype=np.int64), 0
    while steps < MAX_STEPS:
        steps += 1
        inner = np.searchsorted(x, (centroids[1:] + centroids[:-1]) / 2)
        first_positive = int(np.searchsorted(centroids, 0.0))
        if 0 < first_positive < k:
            inner[first_positive - 1] = values.sign_edge
        before, edges = edges, np.concatenate(([0], inner, [len(x)]))
        if not (np.diff(edges) > 0).all():
            edges = _fill_empty(edges, values)
        if np.array_equal(edges, before):
            break
        centroids = values.means(edges)
    edges, more = _go_on(values, edges)
    return Clusters(edges, start, steps + more)


def _go_on(values: SortedValues, edges: Ints) -> tuple[Ints, int]:
    """Go on in longer steps while the error falls; the edges, and how many steps were taken.

    A step of k-means covers part of the way to the best edges. Among many values it ends where that
    part is less than from one value to the next, which is short of the end.
    """
    x, steps = values.x, 0
    error = float(values.errors(edges).sum())
    while steps < MAX_STEPS:
        means, inner = values.means(edges), edges[1:-1]
        now = (x[inner - 1] + x[inner]) / 2
        wanted = (means[1:] + means[:-1]) / 2
        for reach in REACHES:
            moved = np.searchsorted(x, now + reach * (wanted - now))
            moved = np.where(inner == values.sign_edge, inner, moved)
            longer = np.concatenate((edges[:1], moved, edges[-1:]))
            if (np.diff(longer) <= 0).any() or not _of_one_sign(values, longer):
                continue
            new = float(values.errors(longer).sum())
            if new < error:
                edges, error, steps = longer, new, steps + 1
                break
        else:
            break
    return edges, steps


def _of_one_sign(values: SortedValues, edges: Ints) -> bool:
    return values.sign_edge in edges or values.sign_edge in (0, len(values.x))


def _fill_empty(edges: Ints, values: SortedValues) -> Ints:
    """Drop empty runs and halve the range of the runs of the largest squared error instead."""
    k, x = len(edges) - 1, values.x
    edges = np.unique(edges)
    while len(edges) <= k:
        low, high = x[edges[:-1]], x[edges[1:] - 1]
        run = int(np.argmax(np.where(low < high, values.errors(edges), -1.0)))
        edges = np.insert(edges, run + 1, np.searchsorted(x, (low[run] + high[run]) / 2))
    return edges
