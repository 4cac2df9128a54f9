# SPDX-License-Identifier: BSD-2-Clause
"""A chain of operators, folded into layers one operator after the other.

Scales and offsets per feature go into the weights before them or, behind an activation, into those
after them. What finds no weights gets a layer whose matrix is diagonal. All of it is exact but for
the rounding of float64.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..network import MAX_WEIGHTS, Layer, Network

__all__ = ["Chain", "Grid"]

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Values that a quantized tensor can take: `levels` even steps from `low` to `high`."""

    low: float
    high: float
    levels: int


@dataclass
class _Draft:
    """A layer that later operators may still change."""

    name: str
    weight: Doubles
    bias: Doubles
    low: float = -np.inf
    high: float = np.inf
    grid: Grid | None = None

    @property
    def is_open(self) -> bool:
        """Whether its outputs are still plain sums."""
        return self.grid is None and math.isinf(self.low) and math.isinf(self.high)

    def clamp(self, low: float, high: float) -> None:
        self.low, self.high = (min(max(end, low), high) for end in (self.low, self.high))
        if self.low == self.high:
            raise InputError(
                f"outputs of layer {self.name!r} are all {self.low:g}, expected limits that leave "
                "a range; check the limits of the operators after it"
            )

    def finish(self) -> Layer:
        grid = self.grid
        if grid is not None:  # a quantized tensor saturates
            self.clamp(grid.low, grid.high)
        limits = (self.low, self.high)
        plain = {(-np.inf, np.inf): "none", (0.0, np.inf): "relu"}
        return Layer(
            self.name,
            self.weight,
            self.bias,
            plain.get(limits, "clip"),
            limits=None if limits in plain else limits,
            output_range=None if grid is None else (grid.low, grid.high),
            output_levels=0 if grid is None else grid.levels,
        )


class Chain:
    """The network as far as it has been read.

    Parameters
    ----------
    shape : tuple of int, optional
        Shape of one sample, without the batch; None if it is not known.

    Attributes
    ----------
    shape : tuple of int, optional
        Shape of one sample after the operators so far.
    final : str
        One of `finals.FINALS`.
    input : Grid, optional
        What the input can be, if it is quantized.
    notes : list of str
    """

    def __init__(self, shape: tuple[int, ...] | None) -> None:
        self.shape = shape
        self.final = "none"
        self.input: Grid | None = None
        self.notes: list[str] = []
        self._drafts: list[_Draft] = []
        self._scale = np.ones(())
        self._offset = np.zeros(())

    @property
    def width(self) -> int | None:
        """Features of one sample."""
        return None if self.shape is None else math.prod(self.shape)

    @property
    def last_limits(self) -> tuple[float, float]:
        """Between which values the tensor lies for sure."""
        if not self._drafts or self._is_pending:
            return -np.inf, np.inf
        draft = self._drafts[-1]
        grid = draft.grid or Grid(-np.inf, np.inf, 0)
        return max(draft.low, grid.low), min(draft.high, grid.high)

    def linear(self, name: str, weight: npt.ArrayLike, bias: npt.ArrayLike = 0.0) -> None:
        """Multiply by `weight` (rows, cols) and add `bias`, (rows,) or a number."""
        matrix = np.asarray(weight, dtype=np.float64)
        rows, cols = matrix.shape
        if self.shape is not None and (self.width != cols or self.shape[-1:] != (cols,)):
            raise InputError(
                f"weights take {cols} inputs, but a sample has shape {self.shape}; "
                "expected one vector of features per sample, flatten it before"
            )
        vector = np.asarray(bias, dtype=np.float64).reshape(-1)
        if vector.size not in (1, rows):
            raise InputError(f"bias has {vector.size} values, expected {rows}, one per output")
        offset = matrix @ np.broadcast_to(self._offset.reshape(-1), cols)
        vector = np.broadcast_to(vector, rows) + offset
        scaled = matrix * self._scale.reshape(-1)
        self._drafts.append(_Draft(self._unique(name), scaled, vector))
        self._scale, self._offset = np.ones(()), np.zeros(())
        self.shape = (rows,) if self.shape is None else (*self.shape[:-1], rows)

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Give a sample another shape, its features in the same order."""
        if self.width not in (None, math.prod(shape)):
            raise InputError(
                f"a sample of shape {self.shape} cannot become {shape}, expected "
                f"{self.width} features"
            )
        self.shape = shape
        self._scale, self._offset = (
            v.reshape(shape) if v.ndim else v for v in (self._scale, self._offset)
        )

    def affine(self, scale: npt.ArrayLike, offset: npt.ArrayLike) -> None:
        """Multiply by `scale`, then add `offset`; both broadcast to the shape of a sample."""
        a, b = (self._per_sample(values) for values in (scale, offset))
        if self._drafts and self._drafts[-1].is_open:
            draft = self._drafts[-1]
            a, b = (np.broadcast_to(v.reshape(-1), draft.bias.shape) for v in (a, b))
            draft.weight = draft.weight * a[:, None]
            draft.bias = draft.bias * a + b
        else:
            self._scale, self._offset = self._scale * a, self._offset * a + b

    def clamp(self, name: str, low: float, high: float) -> None:
        """Limit the values; `name` is for a layer, should it need one of its own."""
        if self._is_pending or not self._drafts:
            self._add_diagonal(name)
        draft = self._drafts[-1]
        if draft.grid is not None:
            draft.clamp(draft.grid.low, draft.grid.high)
        draft.clamp(low, high)

    def declare(self, name: str, grid: Grid) -> None:
        """Round to a grid and saturate at its ends."""
        if not self._drafts and not self._is_pending and self.input in (None, grid):
            self.input = grid
            return
        if self._is_pending or not self._drafts:
            self._add_diagonal(name)
        draft = self._drafts[-1]
        if draft.grid is not None:
            draft.clamp(draft.grid.low, draft.grid.high)
        draft.grid = grid

    def end(self, name: str, final: str) -> None:
        """Let the host do the final step; `name` is for a last layer, should it need one."""
        if self._is_pending or not self._drafts:
            self._add_diagonal(name)
        self.final = final

    def finish(self) -> Network:
        """The network."""
        if self._is_pending or not self._drafts:
            self._add_diagonal("output")
        layers = tuple(draft.finish() for draft in self._drafts)
        grid = self.input
        return Network(
            layers,
            None if grid is None else (grid.low, grid.high),
            tuple(self.notes),
            0 if grid is None else grid.levels,
            self.final,
        )

    @property
    def _is_pending(self) -> bool:
        return bool((self._scale != 1).any() or self._offset.any())

    def _per_sample(self, values: npt.ArrayLike) -> Doubles:
        array = np.asarray(values, dtype=np.float64)
        if self.shape is None and array.ndim:
            self.shape = array.shape
        try:
            shape = np.broadcast_shapes(self.shape or (), array.shape)
        except ValueError:
            shape = None
        if array.ndim and shape != self.shape:
            raise InputError(
                f"a constant has shape {array.shape}, expected one that broadcasts to that of a "
                f"sample, {self.shape}"
            )
        return np.broadcast_to(array, shape) if array.ndim and shape else array

    def _add_diagonal(self, name: str) -> None:
        width = self.width
        if width is None or width * width > MAX_WEIGHTS:
            raise InputError(
                f"an operator acts on {width or 'an unknown number of'} features without weights "
                f"before it, which takes a square matrix; expected at most "
                f"{math.isqrt(MAX_WEIGHTS)} features, so start with a fully connected layer"
            )
        grid = None if self._drafts or self._is_pending else self.input
        a, b = (np.broadcast_to(v.reshape(-1), width) for v in (self._scale, self._offset))
        self._drafts.append(_Draft(self._unique(name), np.diag(a), np.array(b), grid=grid))
        self._scale, self._offset = np.ones(()), np.zeros(())

    def _unique(self, name: str) -> str:
        taken = {draft.name for draft in self._drafts}
        unique, k = name, 2
        while unique in taken:
            unique, k = f"{name}_{k}", k + 1
        return unique
