# SPDX-License-Identifier: BSD-2-Clause
"""Find a recipe: the least loss of accuracy within a size, or the smallest file within a loss.

Every layer is measured by itself (`sensitivity`), then one candidate a layer is chosen so that the
sum of their damages is least for the sum of their bytes (`knapsack`). What is chosen is compressed
and run as a whole (`trials`), and the choice is made again with more or less room until size or
loss are as asked. Nothing is retrained. The same input gives the same recipe; the number of
candidates and of trials is bounded.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compression.compress import CompressedModel, compress
from ..compression.recipe import LayerRecipe, Recipe
from ..errors import TargetError
from ..network import Network, as_samples
from . import knapsack
from .sensitivity import Candidate, Sensitivity
from .trials import Trial, Trials

__all__ = ["LayerChoice", "SearchResult", "search_recipe"]

Track = Callable[[Iterable[Any], str, int], Iterable[Any]]
"""What shows progress: hands on the items; gets what they are and their number beside them."""

HALVINGS = 12
"""Most trials that narrow the size between the smallest and the best candidates."""

CLOSE = 1.002
"""Ratio of two sizes between which no further trial is made."""

RETRAIN = (
    "pruning and retraining the network before it is compressed keeps its accuracy at a fraction "
    "of the size"
)


@dataclass(frozen=True, kw_only=True)
class LayerChoice:
    """What was chosen for a layer, and the cheapest step to a smaller candidate, if there is one.

    That step, of at least a tenth of the bytes, has the least damage per byte that it saves.
    """

    layer: str
    chosen: Candidate
    smaller: Candidate | None


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """A recipe, and how it was found.

    Parameters
    ----------
    recipe : Recipe
    model : CompressedModel
        What the recipe makes of the network and all calibration samples.
    bytes : int
        Size of the model's file.
    layers : tuple of LayerChoice
    trail : tuple of Trial
        In order.
    samples, held_out : int
        Labelled samples that the search used, and those whose labels it did not see.
    accuracy, held_out_accuracy : float
        Percent of these that the network in floats answers rightly.
    drop, held_out_drop : float
        Percentage points less with the model in integers, on an engine with 8-bit activations.
    """

    recipe: Recipe
    model: CompressedModel
    bytes: int
    layers: tuple[LayerChoice, ...]
    trail: tuple[Trial, ...]
    samples: int
    held_out: int
    accuracy: float
    held_out_accuracy: float
    drop: float
    held_out_drop: float


def search_recipe(
    network: Network,
    calibration: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    target_bytes: int | None = None,
    max_drop: float | None = None,
    track: Track | None = None,
) -> SearchResult:
    """Choose structure, density and codes of every layer.

    Parameters
    ----------
    network : Network
        A classifier.
    calibration : (n, n_inputs) array
        Real inputs as the network will see them, but none that it was trained with: it knows the
        answers to those by heart, which hides what compression costs.
    labels : (n,) integers
        Right classes.
    target_bytes : int, optional
        Largest file.
    max_drop : float, optional
        Percentage points of accuracy that may be lost. One of the two is given.
    track : callable, optional
        Shows progress, as `console.track` does.

    Raises
    ------
    InputError
        Samples or labels that cannot be used, or too few.
    TargetError
        No candidate is small or good enough.
    """
    if (target_bytes is None) == (max_drop is None):
        raise ValueError("expected target_bytes or max_drop, and not both")
    x = as_samples("calibration data", calibration, network.n_inputs)
    trials = Trials(network, x, np.asarray(labels))
    table = _Table(trials, track or _silent)
    if target_bytes is not None:
        chosen = _within_size(trials, table, target_bytes)
    else:
        assert max_drop is not None
        chosen = _within_drop(trials, table, max_drop, track or _silent)
    return _result(trials, table, chosen)


def _silent(items: Iterable[Any], _what: str, _total: int) -> Iterable[Any]:
    return items


class _Table:
    """Measured candidates, a row for each layer."""

    def __init__(self, trials: Trials, track: Track) -> None:
        measured = Sensitivity(trials.network, *trials.data())
        self.rows: list[list[Candidate]] = [[] for _ in trials.network.layers]
        for k, one in track(measured.measure(), "measuring layers", measured.most):
            self.rows[k].append(one)
        self.sizes = [np.array([one.bytes for one in row]) for row in self.rows]
        self.damages = [np.array([one.damage for one in row]) for row in self.rows]
        self.drops = [np.array([max(one.drop, 0) + one.damage for one in row]) for row in self.rows]

    def plans(self, choice: tuple[int, ...]) -> tuple[LayerRecipe, ...]:
        """Recipes of the candidates that were chosen, one in each row."""
        return tuple(row[k].plan for row, k in zip(self.rows, choice, strict=True))

    def bytes(self, choice: tuple[int, ...]) -> int:
        """Sum of their bytes, without what is around the layers in a file."""
        return sum(row[k].bytes for row, k in zip(self.rows, choice, strict=True))

    def within(self, room: int, *, by_drops: bool = False) -> tuple[int, ...]:
        """Choose the least damage, or the least drop, in `room` bytes."""
        return knapsack.choose(self.sizes, self.drops if by_drops else self.damages, room)

    def best(self, *, by_drops: bool = False) -> tuple[int, ...]:
        """Choose the least damage, or the least drop, whatever its bytes."""
        return self.within(sum(int(one.max()) for one in self.sizes), by_drops=by_drops)

    def smallest(self) -> tuple[int, ...]:
        """Choose the fewest bytes."""
        return self.within(0)


def _within_size(trials: Trials, table: _Table, target: int) -> tuple[int, ...]:
    """Of the choices that fit by damage and by drop, the one that loses less."""
    smallest = table.smallest()
    least = trials.size(table.plans(smallest))
    if least > target:
        raise TargetError(
            f"the target is a file of {target:,} bytes, the smallest that can be made without "
            f"retraining has {least:,} and loses {trials.run(table.plans(smallest)).drop:.2f} "
            f"percentage points of accuracy; allow more bytes: {RETRAIN}"
        )
    fitting = {}
    for by_drops in (False, True):
        room = target - (least - table.bytes(smallest))
        choice = table.within(room, by_drops=by_drops)
        while (excess := trials.size(table.plans(choice)) - target) > 0:
            choice = table.within(table.bytes(choice) - excess, by_drops=by_drops)
        fitting[choice] = trials.run(table.plans(choice))
    return min(fitting, key=lambda choice: (fitting[choice].drop, fitting[choice].bytes))


def _within_drop(trials: Trials, table: _Table, limit: float, track: Track) -> tuple[int, ...]:
    """The smallest choice that keeps within the limit, by halving the range of sizes."""
    starts = table.best(), table.best(by_drops=True)
    best = min(starts, key=lambda choice: trials.run(table.plans(choice)).drop)
    first = trials.run(table.plans(best))
    if first.drop > limit:
        raise TargetError(
            f"at most {limit:g} percentage points of accuracy may be lost, the best that can be "
            f"made without retraining loses {first.drop:.2f} (of {trials.before:.2f} "
            f"%, in {first.bytes:,} bytes, on {len(trials.seen):,} samples); allow more, or find "
            "what is wrong with `gossamer trace`: it may be the inputs' scaling, or weights or "
            "activations that 8 bits cannot hold without retraining"
        )
    low, high = table.bytes(table.smallest()) - 1, table.bytes(best)
    for _ in track(range(HALVINGS), "trying recipes", HALVINGS):
        room = isqrt(low * high)
        if high <= CLOSE * low:
            break
        choice = table.within(room)
        if trials.run(table.plans(choice)).drop <= limit:
            best, high = choice, table.bytes(choice)
        else:
            low = room
    return best


def _result(trials: Trials, table: _Table, choice: tuple[int, ...]) -> SearchResult:
    names = [layer.name for layer in trials.network.layers]
    trial = trials.run(table.plans(choice))
    recipe = Recipe(
        layers={name: _settings(plan) for name, plan in zip(names, trial.plans, strict=True)}
    )
    model = compress(trials.network, recipe, trials.samples)
    held_out_accuracy = trials.accuracy(trials.held_out)
    return SearchResult(
        recipe=recipe,
        model=model,
        bytes=trial.bytes,
        layers=tuple(
            LayerChoice(layer=name, chosen=row[k], smaller=_step_down(row, row[k]))
            for name, row, k in zip(names, table.rows, choice, strict=True)
        ),
        trail=tuple(trials.trail),
        samples=len(trials.seen),
        held_out=len(trials.held_out),
        accuracy=trials.before,
        held_out_accuracy=held_out_accuracy,
        drop=trial.drop,
        held_out_drop=held_out_accuracy - trials.accuracy(trials.held_out, model),
    )


def _settings(plan: LayerRecipe) -> dict[str, Any]:
    """What a recipe says of a layer: no defaults."""
    chosen = asdict(plan)
    keys = ("structure", "density", "codes")
    return {key: chosen[key] for key in keys if chosen[key] is not None}


def _step_down(row: list[Candidate], chosen: Candidate) -> Candidate | None:
    smaller = [one for one in row if one.bytes <= 0.9 * chosen.bytes]
    return min(
        smaller,
        key=lambda one: (one.damage - chosen.damage) / (chosen.bytes - one.bytes),
        default=None,
    )
