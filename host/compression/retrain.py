# SPDX-License-Identifier: BSD-2-Clause
"""Prune and share the weights of a PyTorch module inside any training loop.

    optimizer = ...                            # before or after the first prune, as you like
    for epoch in range(30):
        prune(module, recipe, step=epoch / 20 if epoch < 20 else 1.0)
        ...                                    # train as ever
    share(module, recipe)
    optimizer = ...                            # a new one: the parameters are codebooks now
    ...                                        # train as ever
    model = compress(from_torch(finish(module)), recipe, calibration)

Both are parametrizations of the weights of ``torch.nn.Linear`` layers, which a recipe names as
``module.named_modules()`` does. `compress` with the same recipe then changes no weight, unless the
recipe has a threshold, or a batch normalization is folded into weights that are shared.

Ref: Han et al., Deep Compression, sections 2 and 3; Zhu and Gupta, To prune, or not to prune,
arXiv:1710.01878, section 3 (the schedule).
"""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ..errors import InputError, RecipeError
from ..importers.extras import import_extra
from ..importers.torch_tensors import to_numpy
from ..network import Floats, Layer
from .codebook import share_weights
from .compress import share_layer
from .nm import is_nm, parse_nm
from .pruning import prune_layers
from .recipe import LayerRecipe, Recipe

__all__ = ["finish", "prune", "share"]


def prune(module: Any, recipe: Recipe, step: float = 1.0) -> None:
    """Prune the smallest weights of the layers as far as a recipe says; call it as often as needed.

    A pruned weight is exactly 0 in every forward pass and gets no gradient. It stays pruned: there
    is no regrowth. The same holds for weights that are zero already and for masks of
    ``torch.nn.utils.prune``, which are replaced. Optimizers may be made before or after, the
    parameters are the same objects.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    recipe : Recipe
        Density, threshold, scope and structure of layers. A structure N:M prunes without a density,
        too.
    step : float
        How much of the pruning is done, 0 to 1. In between the densities are
        ``d + (1 - d) * (1 - step)**3``; thresholds and N of N:M go the same way.

    Raises
    ------
    InputError
        Not a module with linear layers, weights that are not finite, tied, or parametrized by
        others, or a step beyond its limits.
    RecipeError
        The recipe prunes nothing, or names a layer that the module lacks.
    ToolError
        PyTorch is not installed.
    """
    if not 0 <= step <= 1:
        raise InputError(
            f"step is {step}, expected 0 to 1: the share of the pruning that is done, such as "
            "epoch / epochs"
        )
    plans = {name: _as_pruning(plan) for name, plan in _plans(module, recipe).items()}
    if not any(plan.prunes for plan in plans.values()):
        raise RecipeError(
            "recipe: prunes no layer, expected a density, a threshold or a structure N:M"
        )
    layers = _linear_layers(module)
    weights = {name: _weight(name, layer) for name, layer in layers.items()}
    relaxed = [_relax(plan, step) for plan in plans.values()]
    pruned = prune_layers(list(weights.values()), relaxed)
    for (name, layer), kept in zip(layers.items(), pruned, strict=True):
        if plans[name].prunes:
            _set_mask(layer, kept != 0)


def share(module: Any, recipe: Recipe) -> None:
    """Let the weights of each layer share as many values as a recipe says, and train the values.

    The parameter of a layer becomes its codebook, and the gradient of a value is the sum over the
    weights that share it. Zero is not among the values: pruned weights stay exactly 0. Make the
    optimizer afterwards, an older one does not fit the new parameters. Sharing again, e.g. fewer
    values, starts from the weights as they are.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place, and pruned as the recipe says.
    recipe : Recipe
        Codes and structure of layers.

    Raises
    ------
    InputError
        See `prune`.
    RecipeError
        The recipe names a layer that the module lacks, or prunes weights that are there.
    ToolError
        PyTorch is not installed.
    """
    plans = _plans(module, recipe)
    layers = _linear_layers(module)
    weights = [_weight(name, layer) for name, layer in layers.items()]
    pruned = prune_layers(weights, [_as_pruning(plan) for plan in plans.values()])
    for name, weight, kept in zip(layers, weights, pruned, strict=True):
        if not np.array_equal(weight, kept):
            raise RecipeError(
                f"recipe: keeps {np.count_nonzero(kept):,} weights of layer {name!r}, of which "
                f"{np.count_nonzero(weight):,} are not zero; call prune(module, recipe) and train "
                "before share"
            )
    for (name, layer), weight in zip(layers.items(), weights, strict=True):
        _share_layer(layer, weight, plans[name])


def finish(module: Any) -> Any:
    """Make pruned and shared weights plain parameters again, as they are.

    Returns
    -------
    torch.nn.Module
        The same module; optimizers made before do not fit it any more.

    Raises
    ------
    InputError, ToolError
        See `prune`.
    """
    for layer in _linear_layers(module).values():
        _make_plain(layer)
    return module


def _plans(module: Any, recipe: Recipe) -> dict[str, LayerRecipe]:
    names = list(_linear_layers(module))
    return dict(zip(names, recipe.for_layers(names), strict=True))


def _linear_layers(module: Any) -> dict[str, Any]:
    """Linear layers by name, checked."""
    torch = import_extra("torch", "pruning and sharing during training")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"module is a {type(module).__name__}, expected a torch.nn.Module")
    layers = {n: m for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)}
    if not layers:
        raise InputError(
            f"{type(module).__name__} has no torch.nn.Linear inside, expected one or more: weights "
            "that forward uses in functions are not seen"
        )
    owners: dict[int, str] = {}
    for name, layer in layers.items():
        parameter = _parameter(name, layer)
        if id(parameter) in owners:
            raise InputError(
                f"layers {owners[id(parameter)]!r} and {name!r} have the same weight, expected "
                "one each; use one module twice, or give each its own"
            )
        owners[id(parameter)] = name
    return layers


def _parameter(name: str, layer: Any) -> Any:
    """What an optimizer sees of a layer's weight."""
    torch = import_extra("torch", "pruning and sharing during training")
    found = layer._parameters.get("weight", layer._parameters.get("weight_orig"))
    if torch.nn.utils.parametrize.is_parametrized(layer, "weight"):
        parametrizations = layer.parametrizations.weight
        if isinstance(parametrizations[0], _kinds()) and len(parametrizations) == 1:
            found = parametrizations.original
    if found is None or isinstance(found, torch.nn.parameter.UninitializedParameter):
        raise InputError(
            f"layer {name!r}: the weight is no plain parameter, expected one; run lazy modules "
            "once, and remove parametrizations of others, such as weight_norm"
        )
    return found


def _weight(name: str, layer: Any) -> Floats:
    """A layer's weight as the forward pass uses it, checked, (rows, cols) float32."""
    mask = getattr(layer, "weight_mask", None)
    tensor = layer.weight if mask is None else layer.weight_orig * mask
    return Layer(name, to_numpy(f"layer {name!r}: weight", tensor)).weight


def _as_pruning(plan: LayerRecipe) -> LayerRecipe:
    """A structure N:M is something to prune for."""
    needs_density = is_nm(plan.structure) and not plan.prunes
    return replace(plan, density=1.0) if needs_density else plan


def _relax(plan: LayerRecipe, step: float) -> LayerRecipe:
    """The plan at a step of the schedule."""
    left = (1 - step) ** 3
    density, threshold, structure = plan.density, plan.threshold, plan.structure
    if density is not None:
        density += (1 - density) * left
    if threshold is not None:
        threshold *= 1 - left
    if is_nm(structure):
        n, m = parse_nm(structure)
        n += math.ceil((m - n) * left)
        structure = f"{n}:{m}" if n < m else "unstructured"
    return replace(plan, density=density, threshold=threshold, structure=structure)


def _set_mask(layer: Any, mask: np.ndarray) -> None:
    torch = import_extra("torch", "prune")
    pruned_kind, _ = _kinds()
    if torch.nn.utils.parametrize.is_parametrized(layer, "weight"):
        own = layer.parametrizations.weight[0]
        if isinstance(own, pruned_kind):
            own.mask.copy_(torch.from_numpy(mask))
            return
    _make_plain(layer)
    kept = torch.from_numpy(mask).to(layer.weight.device)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", pruned_kind(kept))


def _share_layer(layer: Any, weight: Floats, plan: LayerRecipe) -> None:
    torch = import_extra("torch", "share")
    stored_zero = share_layer(weight, plan).zero_code  # which takes one of the codes
    places = np.flatnonzero(weight)
    _, codes = share_weights(weight.reshape(-1)[places], plan.codes - stored_zero, zero_code=False)
    _make_plain(layer)
    old = layer.weight
    old.grad = None  # of another shape
    indices = (torch.from_numpy(array).to(old.device) for array in (places, codes))
    _, shared_kind = _kinds()
    one = shared_kind(*indices, old.shape)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", one)


def _make_plain(layer: Any) -> None:
    """Make a weight a plain parameter with the values that the forward pass uses."""
    torch = import_extra("torch", "finish")
    if torch.nn.utils.parametrize.is_parametrized(layer, "weight"):
        layer.parametrizations.weight.original.grad = None  # of another shape
        own = type(layer)  # copies have the same class, from which removing takes the property
        members = {k: v for k, v in vars(own).items() if k not in ("__dict__", "__weakref__")}
        layer.__class__ = type(own.__name__, own.__bases__, members)
        torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    elif hasattr(layer, "weight_mask"):
        torch.nn.utils.prune.remove(layer, "weight")


@cache
def _kinds() -> tuple[Any, Any]:
    """Classes of the parametrizations of pruned and of shared weights, made when torch is there."""
    torch = import_extra("torch", "pruning and sharing during training")

    class Pruned(torch.nn.Module):
        """Weights where `mask` is true, else exactly 0."""

        def __init__(self, mask: Any) -> None:
            super().__init__()
            self.register_buffer("mask", mask)

        def forward(self, weight: Any) -> Any:
            """The weight, from its parameter of the same shape."""
            return torch.where(self.mask, weight, weight.new_zeros(()))

    class Shared(torch.nn.Module):
        """Value ``codes[i]`` of the codebook at flat place ``places[i]``, else exactly 0."""

        def __init__(self, places: Any, codes: Any, shape: Any) -> None:
            super().__init__()
            self.shape = shape
            self.register_buffer("places", places)
            self.register_buffer("codes", codes)

        def forward(self, codebook: Any) -> Any:
            """The weight, from the codebook."""
            flat = codebook.new_zeros(self.shape.numel())
            return flat.scatter(0, self.places, codebook[self.codes]).view(self.shape)

        def right_inverse(self, weight: Any) -> Any:
            """The codebook: means of weights, which are exact where these are equal already."""
            stored, codes = weight.reshape(-1)[self.places].double(), self.codes
            counts = torch.bincount(codes, minlength=1)
            sums = torch.zeros(len(counts), dtype=stored.dtype, device=stored.device)
            return (sums.index_add(0, codes, stored) / counts.clamp(min=1)).to(weight.dtype)

    return Pruned, Shared
