# SPDX-License-Identifier: BSD-2-Clause
"""Which weights a recipe keeps: by magnitude, layer by layer or over all layers, and N:M.

The one rule of `compress` and of pruning during training. Zeros stay zero, so that pruning what is
pruned already changes nothing.
"""

from dataclasses import replace

import numpy as np

from ..errors import RecipeError
from ..network import Floats
from . import structure
from .nm import is_nm, parse_nm, select_nm
from .recipe import LayerRecipe

__all__ = ["prune_layers"]


def prune_layers(weights: list[Floats], plans: list[LayerRecipe]) -> list[Floats]:
    """Set to zero what the plans do not keep; copies where there is something to prune.

    Parameters
    ----------
    weights : list of (rows, cols) float32
    plans : list of LayerRecipe
        One for each.

    Raises
    ------
    RecipeError
        Layers of scope ``"network"`` without a density, or with several.
    """
    chosen = [
        select_nm(weight, *parse_nm(plan.structure))
        if plan.prunes and is_nm(plan.structure)
        else weight
        for weight, plan in zip(weights, plans, strict=True)
    ]
    return [
        structure.prune(weight, density=plan.density, threshold=plan.threshold)
        if plan.prunes
        else weight
        for weight, plan in zip(chosen, _resolve_scope(chosen, plans), strict=True)
    ]


def _resolve_scope(weights: list[Floats], plans: list[LayerRecipe]) -> list[LayerRecipe]:
    """The plans with each layer's own density in place of that of the network."""
    members = [k for k, plan in enumerate(plans) if plan.scope == "network"]
    if not members:
        return plans
    densities = {plans[k].density for k in members}
    density = densities.pop()
    if densities or density is None:
        found = sorted({str(plans[k].density or "none") for k in members})
        raise RecipeError(
            f"recipe: the layers of scope 'network' have the densities {', '.join(found)}, "
            "expected one for all; set it in [default], and scope = 'layer' in the tables of "
            "layers that have their own"
        )
    sizes = np.array([weights[k].size for k in members])
    magnitudes = np.concatenate([np.abs(weights[k]).reshape(-1) for k in members])
    order = np.argsort(-magnitudes, kind="stable")[: round(density * len(magnitudes))]
    kept = np.bincount(np.searchsorted(np.cumsum(sizes), order, side="right"), minlength=len(sizes))
    resolved = list(plans)
    for k, count, size in zip(members, kept.tolist(), sizes.tolist(), strict=True):
        resolved[k] = replace(plans[k], density=count / size)
    return resolved
