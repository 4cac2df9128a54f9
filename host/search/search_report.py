# SPDX-License-Identifier: BSD-2-Clause
"""What `compress` says of a recipe that it found: a table, JSON, and a file to edit."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from ..console import WIDTH, note, print_lines, print_table
from ..files import open_atomic
from .search import RETRAIN, SearchResult
from .sensitivity import Candidate

__all__ = ["Goal", "print_search", "recipe_text", "search_document", "write_recipe"]

HIGH_DROP = 1.0
"""Percentage points of accuracy above which retraining is suggested."""

LEGEND = (
    "drop alone: percentage points of accuracy lost if only this layer is changed; smaller would "
    "be: the step down that costs this layer least for what it saves. The choice minimizes the "
    "divergence of class probabilities, which is smoother than the drop."
)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a recipe is searched for.

    Parameters
    ----------
    labels : Path
        Right classes of the calibration samples.
    target_bytes : int, optional
    max_drop : float, optional
        One of the two is given.
    recipe_out : Path, optional
        Where to write the recipe.
    """

    labels: Path
    target_bytes: int | None
    max_drop: float | None
    recipe_out: Path | None

    @property
    def text(self) -> str:
        """The goal in words."""
        if self.target_bytes is not None:
            return f"the least loss of accuracy within {self.target_bytes:,} bytes"
        return f"the smallest file that loses at most {self.max_drop:g} points of accuracy"


def search_document(found: SearchResult, goal: Goal) -> dict[str, Any]:
    """What was found, for JSON; accuracies in percent, drops in percentage points."""
    return {
        "target_bytes": goal.target_bytes,
        "max_drop": goal.max_drop,
        "samples": found.samples,
        "held_out": found.held_out,
        "accuracy": found.accuracy,
        "drop": found.drop,
        "held_out_accuracy": found.held_out_accuracy,
        "held_out_drop": found.held_out_drop,
        "layers": [
            {"layer": one.layer}
            | _candidate(one.chosen)
            | {"smaller": one.smaller and _candidate(one.smaller)}
            for one in found.layers
        ],
        "trials": [{"bytes": one.bytes, "drop": one.drop} for one in found.trail],
        "recipe": {"layers": found.recipe.layers},
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "structure": one.plan.structure,
        "density": one.density,
        "codes": one.plan.codes,
        "bytes": one.bytes,
        "drop": one.drop,
        "damage": one.damage,
    }


def print_search(found: SearchResult, goal: Goal) -> None:
    """What was chosen for each layer and why, and what it costs; doubts on stderr."""
    heads = ["layer", "structure", "density", "codes", "bytes", "drop alone"]
    heads += ["smaller would be", "bytes", "drop alone"]
    body = []
    for one in found.layers:
        chosen, step = one.chosen, one.smaller
        cells: list[object] = ["", "", ""]
        if step is not None:
            what = f"{step.plan.structure} {step.density:.1%} {step.plan.codes}"
            cells = [what, step.bytes, f"{step.drop:.2f}"]
        own = [chosen.plan.structure, f"{chosen.density:.1%}", chosen.plan.codes, chosen.bytes]
        body.append([one.layer, *own, f"{chosen.drop:.2f}", *cells])
    print_table(heads, body, title=f"Recipe for {goal.text}")
    print_lines("", fill(LEGEND, WIDTH), "", *_summary(found), "")
    for doubt in _doubts(found, goal):
        note(f"warning: {doubt}")


def _summary(found: SearchResult) -> Iterator[str]:
    rows = (
        ("chosen with", found.samples, found.accuracy, found.drop),
        ("held out", found.held_out, found.held_out_accuracy, found.held_out_drop),
    )
    for name, samples, accuracy, drop in rows:
        yield (
            f"{name:<11} {samples:>7,} samples: {accuracy:.2f} % right in floats, "
            f"{accuracy - drop:.2f} % compressed, drop {drop:.2f}"
        )
    yield (
        "compressed is the whole file run in integers of 8 bits; the search did not see the labels "
        "held out"
    )


def _doubts(found: SearchResult, goal: Goal) -> Iterator[str]:
    if goal.max_drop is not None and found.held_out_drop > goal.max_drop:
        yield (
            f"the samples held out lose {found.held_out_drop:.2f} points, more than "
            f"{goal.max_drop:g}: more labelled samples would tell better"
        )
    if goal.target_bytes is not None and found.held_out_drop > HIGH_DROP:
        yield f"{found.held_out_drop:.2f} points of accuracy are lost; {RETRAIN}"


def write_recipe(found: SearchResult, goal: Goal) -> None:
    """Write the recipe where the goal says, if it does.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if goal.recipe_out is not None:
        with open_atomic(goal.recipe_out) as stream:
            stream.write(recipe_text(found, goal).encode())


def recipe_text(found: SearchResult, goal: Goal) -> str:
    """The recipe in TOML, with what is known of each layer beside it."""
    lines = [
        f"# Found for {goal.text}, without retraining: {found.bytes:,} bytes.",
        f"# Drop {found.drop:.2f} points on {found.samples:,} samples,",
        f"# {found.held_out_drop:.2f} on {found.held_out:,} held out.",
    ]
    for one in found.layers:
        settings = found.recipe.layers[one.layer]
        lines += ["", f"[layers.{_quoted(one.layer)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in settings.items()]
        lines.append(f"# {one.chosen.bytes:,} bytes, drop alone {one.chosen.drop:.2f} points")
    return "\n".join(lines) + "\n"


def _value(value: str | float) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A basic string of TOML, which is one of JSON but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
