# SPDX-License-Identifier: BSD-2-Clause
"""Prune and round weights so that a layer's outputs change least, not the weights themselves.

Of weights w that become q, the outputs on calibration inputs X change by ``(w - q) H (w - q)'`` in
squares, ``H = X'X / n``. Columns are settled one after the other: what pruning or rounding takes
from one, those not settled yet make up for as well as they can. With ``inv(H) = U'U``, U upper
triangular, the best correction for an error e of column j is ``-e / U[j, j] * U[j, j + 1:]``, at a
cost of ``(e / U[j, j])**2``, which ranks the weights to prune. Inputs with much power come first,
as long as many columns are left to make up for them. After such a sweep each column in turn takes
the values that are best given all others, some times over; no step is for the worse. All this is
done to prune and, with the places and a codebook known, again to round. In the codebook a weight
counts as much as its input's power.

Ref: Hassibi and Stork, Second order derivatives for network pruning, NIPS 1992; Frantar and
Alistarh, SparseGPT, ICML 2023, section 3; Frantar et al., GPTQ, ICLR 2023, section 3; Behdin et
al., QuantEase, arXiv:2309.01885, section 3.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..network import Floats
from . import structure
from .matrix import Matrix
from .nm import is_nm, parse_nm, select_nm

__all__ = ["Compensation"]

DAMPING = 0.01
"""Of the mean power of an input, added to each: few samples leave H singular."""

DEAD = 1e-9
"""The same for an input that is always 0, whose weights do not matter."""

BLOCK = 32
"""Columns that are settled before the rest of the matrix hears of it, in one product."""

PASSES = 4
"""Over all columns, to improve what was found."""

STEPS = 100
"""Of k-means, at most."""

CHUNK = 4096
"""Samples that are held in float64 at once."""

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Choose = Callable[[Doubles, slice], Mask]
"""Which weights of some columns stay, given their values (rows, columns) when these are due."""

Settle = Callable[[Doubles], Doubles]
"""What weights (rows,) of a column may be, next to what they should."""


class Compensation:
    """What a layer's inputs say about which of its weights can make up for others.

    Parameters
    ----------
    inputs : (n, cols) float32
        Of the layer, at least one sample; columns may be 0 throughout.
    structure : str
        See `LayerRecipe`; groups of N:M are settled as a whole.
    """

    def __init__(self, inputs: Floats, structure: str) -> None:
        self._moments = _moments(inputs)
        self._power = power = _damped(self._moments)
        self._pattern = parse_nm(structure) if is_nm(structure) else None
        self._span = self._pattern[1] if self._pattern else BLOCK
        self._order = _order(np.diag(power), self._pattern[1] if self._pattern else 1)
        backwards = power[np.ix_(self._order[::-1], self._order[::-1])]
        self._factor = np.linalg.inv(np.linalg.cholesky(backwards)[::-1, ::-1])
        self._spread = np.diag(self._factor)

    def error(self, weight: Floats, other: Floats) -> float:
        """Mean squared change of the outputs, summed over them, from weights to others."""
        change = weight.astype(np.float64) - other
        return float(((change @ self._moments) * change).sum())

    def prune(self, weight: Floats, count: int) -> Floats:
        """Keep the `count` weights that matter most to the outputs, and correct them; a copy.

        Parameters
        ----------
        weight : (rows, cols) float32
            Zeros stay zero.
        count : int
            Not more than there are nonzeros, and than fit in the groups of N:M.

        Returns
        -------
        (rows, cols) float32
        """
        if count == np.count_nonzero(weight):
            return weight.copy()
        ordered = weight[:, self._order]

        def scores(values: npt.NDArray[Any], place: slice) -> Floats:
            found = np.where(ordered[:, place] != 0, np.abs(values) / self._spread[place], 0)
            found = found.astype(np.float32)
            return select_nm(found, *self._pattern) if self._pattern else found

        first = structure.prune(scores(ordered, slice(None)), density=count / weight.size)
        stay = np.count_nonzero(first, axis=0)

        def choose(values: Doubles, place: slice) -> Mask:
            """Of the columns that are due as many as at first, by the values they have now."""
            now = scores(values, place)
            return structure.prune(now, density=int(stay[place].sum()) / now.size) != 0

        swept = self._sweep(weight, choose, lambda values: values)
        return self._improve(weight, swept, lambda values: values).astype(np.float32)

    def share(self, weight: Floats, kept: Floats, matrix: Matrix, entropy: str) -> Matrix:
        """Give weights values and codes with which the outputs change least.

        Parameters
        ----------
        weight : (rows, cols) float32
            As they were before they were pruned.
        kept : (rows, cols) float32
            What `prune` made of them.
        matrix : Matrix
            `kept` with shared values: places, exponents of rows, and the codebook to start from.
        entropy : str
            See `LayerRecipe`.

        Returns
        -------
        Matrix
            Of the same structure and places, with as many values or fewer; each is used.
        """
        if not matrix.nonzeros:
            return matrix
        rows, columns = matrix.places.row_indices, matrix.places.columns
        scale = np.ldexp(1.0, -matrix.row_exponents)
        stored = kept[rows, columns] / scale[rows]
        used = stored != 0
        book = _weighted_means(
            stored[used],
            (np.diag(self._moments)[columns] * np.square(scale[rows]))[used],
            matrix.codebook[1:] if matrix.zero_code else matrix.codebook,
        )
        middles = (book[1:] + book[:-1]) / 2

        def settle(values: Doubles) -> Doubles:
            return book[np.searchsorted(middles, values / scale)] * scale

        stays = kept[:, self._order] != 0
        swept = self._sweep(kept, lambda _, place: stays[:, place], settle)
        shared = self._improve(weight, swept, settle)
        stored = shared[rows, columns] / scale[rows]
        if matrix.zero_code:
            book = np.concatenate(([0.0], book[np.isin(book, stored)]))
            codes = np.where(stored == 0, 0, np.searchsorted(book[1:], stored) + 1)
        else:
            book = book[np.isin(book, stored)]
            codes = np.searchsorted(book, stored)
        return replace(matrix, codes=codes, codebook=book.astype(np.float32)).coded(entropy)

    def _sweep(self, weight: Floats, choose: Choose, settle: Settle) -> Doubles:
        """Prune and settle all columns; (rows, cols) in the order in which they were given."""
        values = weight[:, self._order].astype(np.float64)
        stays = np.zeros(values.shape, dtype=bool)
        cols = values.shape[1]
        size = max(BLOCK // self._span, 1) * self._span
        for start in range(0, cols, size):
            stop = min(start + size, cols)
            errors = np.zeros((len(values), stop - start))
            for j in range(start, stop):
                if (j - start) % self._span == 0:
                    due = slice(j, min(j + self._span, cols))
                    stays[:, due] = choose(values[:, due], due)
                settled = np.where(stays[:, j], settle(values[:, j]), 0)
                error = (values[:, j] - settled) / self._spread[j]
                values[:, j] = settled
                values[:, j + 1 : stop] -= np.outer(error, self._factor[j, j + 1 : stop])
                errors[:, j - start] = error
            values[:, stop:] -= errors @ self._factor[start:stop, stop:]
        return values[:, np.argsort(self._order)]

    def _improve(self, weight: Floats, start: Doubles, settle: Settle) -> Doubles:
        """From `start` (rows, cols) to values that are better or as good; its zeros stay."""
        values, stays, power = start.copy(), start != 0, self._power
        pull = (weight - values) @ power
        for _ in range(PASSES):
            for first in range(0, values.shape[1], BLOCK):
                block = slice(first, min(first + BLOCK, values.shape[1]))
                before = values[:, block].copy()
                for j in range(block.start, block.stop):
                    best = settle(values[:, j] + pull[:, j] / power[j, j])
                    best = np.where(stays[:, j], best, 0)
                    change = best - values[:, j]
                    values[:, j] = best
                    pull[:, j : block.stop] -= np.outer(change, power[j, j : block.stop])
                moved = values[:, block] - before
                pull[:, : block.start] -= moved @ power[block, : block.start]
                pull[:, block.stop :] -= moved @ power[block, block.stop :]
        return values


def _weighted_means(values: Doubles, weights: Doubles, start: Floats) -> Doubles:
    """Values to share from k-means steps, each value with a weight; rising, exact in float32.

    Parameters
    ----------
    values, weights : (n,) float64
    start : (k,) float32
        Rising, none of them 0.
    """
    order = np.argsort(values, kind="stable")
    rising, weights = values[order], weights[order]
    sums, counts = (np.concatenate(([0.0], np.cumsum(one))) for one in (rising * weights, weights))
    book = start.astype(np.float64)
    for _ in range(STEPS):
        inner = np.searchsorted(rising, (book[1:] + book[:-1]) / 2)
        edges = np.concatenate(([0], inner, [len(rising)]))
        count = np.diff(counts[edges])
        means = np.divide(np.diff(sums[edges]), count, out=book.copy(), where=count > 0)
        means = means.astype(np.float32).astype(np.float64)
        if (means == 0).any() or (np.diff(means) <= 0).any() or np.array_equal(means, book):
            break
        book = means
    return book


def _moments(inputs: Floats) -> Doubles:
    """``X'X / n``, (cols, cols)."""
    total = np.zeros((inputs.shape[1], inputs.shape[1]))
    for start in range(0, len(inputs), CHUNK):
        part = inputs[start : start + CHUNK].astype(np.float64)
        total += part.T @ part
    return total / len(inputs)


def _damped(moments: Doubles) -> Doubles:
    """Moments that can be inverted."""
    power = np.diag(moments)
    mean = power.mean() or 1.0
    return moments + np.diag(mean * np.where(power > 0, DAMPING, DEAD))


def _order(power: Doubles, group: int) -> Ints:
    """Columns in whole groups, of most power first; a shorter last group stays the last."""
    whole = len(power) // group
    groups = np.argsort(-power[: whole * group].reshape(whole, group).sum(axis=1), kind="stable")
    first = (groups[:, None] * group + np.arange(group)).reshape(-1)
    return np.concatenate((first, np.arange(whole * group, len(power))))
