# SPDX-License-Identifier: BSD-2-Clause
"""Recipes: what to do to each layer, in TOML.

[input]
range = [0.0, 1.0]     # of the real inputs; or, with calibration data: calibration = "minmax"

[default]              # for layers that say nothing else
codes = 32             # distinct weights, 2..256
entropy = "auto"       # Huffman codes in the file where they are shorter; or "none", "huffman"
calibration = 99.9     # range of the outputs: "error", "minmax" or a percentile

[layers.fc1]
structure = "unstructured"   # or "dense", N:M such as "2:4", or "auto": the smallest that fits
density = 0.1                # or: threshold = 0.02; with scope = "network", of all such layers

[layers.fc2]
structure = "2:4"            # at most 2 nonzeros in each 4 inputs of a row: the weights are so
density = 1.0                # already, or a density or threshold has them pruned to it first
fit = "outputs"              # what is to change least: "weights" one by one, or the layer's outputs
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RecipeError
from .calibrate import METHODS, Method
from .entropy import ENTROPIES
from .nm import MAX_GROUP, is_nm
from .structure import STRUCTURES

__all__ = ["LayerRecipe", "Recipe", "load_recipe", "parse_recipe"]

LAYER_KEYS = (
    "calibration", "codes", "density", "entropy", "fit", "scope", "structure", "threshold",
)  # fmt: skip
FITS = ("weights", "outputs")
SCOPES = ("layer", "network")

METHOD_RULE = f"{', '.join(METHODS)} or a percentile above 50, at most 100"


@dataclass(frozen=True, kw_only=True)
class LayerRecipe:
    """What to do to one layer; without arguments: prune nothing, share up to 256 values.

    Parameters
    ----------
    structure : str
        ``"dense"``, ``"unstructured"``, N:M such as ``"2:4"``, or ``"auto"``: the one with the
        fewest bytes, 2:4 among them if the weights are so and it costs at most 2 % more.
    density : float, optional
        Share of weights to keep, above 0, at most 1, of all places; after the N largest of each
        group were kept, if the structure is N:M. 1.0 prunes for the structure only.
    threshold : float, optional
        Magnitude below which weights are pruned.
    scope : str
        What `density` is a share of: ``"layer"``, or ``"network"``, all layers of this scope
        together, of which the largest weights are kept wherever they are.
    codes : int
        Distinct weights, 2..256; the zero of a dense or N:M layer is one of them.
    entropy : str
        How a file holds codes and their places: ``"none"``, ``"huffman"``, or ``"auto"``, for
        either of the two what takes fewer bytes.
    calibration : Method, optional
        How the range of the layer's output follows from calibration data, instead of from what
        the network states or by default.
    fit : str
        What pruning and sharing keep near the original: ``"weights"``, each by itself, or
        ``"outputs"`` of the layer for calibration data, see `compensate`. The number of weights
        kept is the same, and of scope ``"network"`` their number in each layer.
    """

    structure: str = "auto"
    density: float | None = None
    threshold: float | None = None
    scope: str = "layer"
    codes: int = 256
    entropy: str = "auto"
    calibration: Method | None = None
    fit: str = "weights"

    @property
    def prunes(self) -> bool:
        """Whether weights may be set to zero."""
        return self.density is not None or self.threshold is not None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked recipe: settings of `LayerRecipe` as given, for all layers and per layer."""

    default: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    input_range: tuple[float, float] | None = None
    input_calibration: Method | None = None

    def for_layers(self, names: list[str]) -> list[LayerRecipe]:
        """The recipe of each named layer.

        Raises
        ------
        RecipeError
            A table names no layer, or every layer overrides a default.
        """
        for name in self.layers:
            if name not in names:
                raise RecipeError(
                    f"recipe: [layers.{name}] names no layer, the layers are {', '.join(names)}"
                )
        for key in self.default:
            if all(self._overrides(name, key) for name in names):
                raise RecipeError(
                    f"recipe: [default] {key} is unused because every layer has its own; remove it"
                )
        return [self._merge(name) for name in names]

    def _overrides(self, name: str, key: str) -> bool:
        own = self.layers.get(name, {})
        pair = ("density", "threshold")
        return key in own or (key in pair and any(other in own for other in pair))

    def _merge(self, name: str) -> LayerRecipe:
        inherited = {k: v for k, v in self.default.items() if not self._overrides(name, k)}
        return LayerRecipe(**inherited, **self.layers.get(name, {}))


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe from a file.

    Raises
    ------
    RecipeError
        The file cannot be read or is not a valid recipe.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot read the recipe: {error}") from None
    return parse_recipe(text, str(path))


def parse_recipe(text: str, where: str = "recipe") -> Recipe:
    """Check a recipe in TOML; `where` starts the messages.

    Raises
    ------
    RecipeError
        Not TOML, an unknown key, or a value of the wrong kind or out of range.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{where}: not valid TOML: {error}") from None
    _check_keys(where, "", tables, ("default", "input", "layers"))
    layers = _table(where, "layers", tables.get("layers", {}))
    source = _table(where, "input", tables.get("input", {}))
    _check_keys(where, "[input] ", source, ("calibration", "range"))
    if len(source) == 2:
        raise RecipeError(f"{where}: [input] has calibration and range, expected one of them")
    if "calibration" in source and not _is_method(source["calibration"]):
        found = source["calibration"]
        raise RecipeError(f"{where}: [input] calibration is {found!r}, expected {METHOD_RULE}")
    return Recipe(
        default=_layer_table(where, "default", tables.get("default", {})),
        layers={name: _layer_table(where, f"layers.{name}", t) for name, t in layers.items()},
        input_range=_range(where, source["range"]) if "range" in source else None,
        input_calibration=source.get("calibration"),
    )


def _table(where: str, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: {name} is {value!r}, expected a table [{name}]")
    return value


def _check_keys(where: str, prefix: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise RecipeError(
                f"{where}: {prefix}{key} is not a known key, expected {', '.join(known)}"
            )


def _layer_table(where: str, name: str, value: object) -> dict[str, Any]:
    table = _table(where, name, value)
    _check_keys(where, f"[{name}] ", table, LAYER_KEYS)
    place = f"{where}: [{name}]"
    if "density" in table and "threshold" in table:
        raise RecipeError(f"{place} has density and threshold, expected at most one of them")
    rules = {
        "structure": (
            lambda v: isinstance(v, str) and (v in ("auto", *STRUCTURES) or is_nm(v)),
            f"auto, {', '.join(STRUCTURES)} or N:M with 1 <= N < M <= {MAX_GROUP}, such as 2:4",
        ),
        "density": (lambda v: _is_number(v) and 0 < v <= 1, "a number above 0, at most 1"),
        "fit": (lambda v: v in FITS, " or ".join(FITS)),
        "scope": (lambda v: v in SCOPES, " or ".join(SCOPES)),
        "threshold": (lambda v: _is_number(v) and 0 <= v < float("inf"), "a number, 0 or above"),
        "codes": (lambda v: type(v) is int and 2 <= v <= 256, "a whole number in 2..256"),
        "entropy": (lambda v: v in ENTROPIES, f"one of {', '.join(ENTROPIES)}"),
        "calibration": (_is_method, METHOD_RULE),
    }
    for key, setting in table.items():
        holds, expected = rules[key]
        if not holds(setting):
            raise RecipeError(f"{place} {key} is {setting!r}, expected {expected}")
    return table


def _range(where: str, value: object) -> tuple[float, float]:
    if isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value):
        low, high = float(value[0]), float(value[1])
        if float("-inf") < low < high < float("inf"):
            return low, high
    raise RecipeError(
        f"{where}: [input] range is {value!r}, expected two finite numbers, [lowest, highest]"
    )


def _is_method(value: object) -> bool:
    return value in METHODS or (_is_number(value) and 50 < float(str(value)) <= 100)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
