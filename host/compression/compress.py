# SPDX-License-Identifier: BSD-2-Clause
"""From a float network and a recipe to a compressed model: what a `.gossamer` file holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import InputError, RecipeError
from ..network import Floats, Layer, Network, as_samples
from . import structure as structure_axis
from .biases import round_biases
from .bits import packed_bytes
from .calibrate import SEARCH_BITS, Method, TensorRange, bound_ranges, calibrate_ranges
from .compensate import Compensation
from .matrix import Matrix
from .nm import check_nm, group_counts, is_nm, parse_nm
from .pruning import prune_layers
from .recipe import LayerRecipe, Recipe
from .structure import Places

__all__ = ["CompressedLayer", "CompressedModel", "assemble", "compress", "share_layer"]

SUGGESTED_DENSITY = 0.1
PAIRS_COST = 1.02
"""Bytes that 2:4 may take, against the smallest structure: a tile runs it at its full rate."""

NO_CALIBRATION = (
    "no calibration data: the outputs of the layers have worst-case ranges, 2 to 50 times too "
    "wide as a rule, so that up to 5 of 8 bits are lost and accuracy with them; compress with "
    "calibration data (--calibrate x.npy)"
)


@dataclass(frozen=True, eq=False)
class CompressedLayer:
    """One layer: `activation` of the matrix times the input plus `bias` (n_rows,) float32.

    `limits` are those of the activation ``clip``. `met` is the share of the nonzero weights whose
    input is not integer 0, in calibration data; 1 without.
    """

    name: str
    matrix: Matrix
    bias: Floats
    activation: str
    output: TensorRange
    limits: tuple[float, float] | None = None
    met: float = 1.0

    @property
    def n_rows(self) -> int:
        """Outputs of the layer."""
        return self.matrix.places.n_rows

    @property
    def n_cols(self) -> int:
        """Inputs of the layer."""
        return self.matrix.places.n_cols


@dataclass(frozen=True, eq=False)
class CompressedModel:
    """Layers in order of evaluation, the input's range, and notes on how they came about.

    `notes` are not stored in a file. `final` is what the host does to the outputs.
    """

    layers: tuple[CompressedLayer, ...]
    input: TensorRange
    notes: tuple[str, ...] = ()
    final: str = "none"

    @property
    def n_inputs(self) -> int:
        """Inputs of the first layer."""
        return self.layers[0].n_cols

    @property
    def n_outputs(self) -> int:
        """Outputs of the last layer."""
        return self.layers[-1].n_rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """What costs accuracy and could be mended."""
        if all(layer.output.source != "bounds" for layer in self.layers):
            return ()
        return (NO_CALIBRATION,)

    def to_network(self) -> Network:
        """The network in floats, with pruned and shared weights."""
        return Network(
            tuple(
                Layer(la.name, la.matrix.weight(), la.bias, la.activation, limits=la.limits)
                for la in self.layers
            ),
            final=self.final,
        )


def compress(
    network: Network, recipe: Recipe | None = None, calibration: npt.ArrayLike | None = None
) -> CompressedModel:
    """Prune, share weights and find ranges.

    Without a recipe nothing is pruned, existing zeros are used, and a layer with more than 256
    distinct weights shares 256. Weights that are already pruned or shared pass unchanged.

    Parameters
    ----------
    network : Network
    recipe : Recipe, optional
    calibration : (n, n_inputs) array, optional
        Real inputs as the network will see them, a thousand or so.

    Raises
    ------
    RecipeError
        The recipe names what the network does not have, or calibrates without data.
    InputError
        No calibration data and no input range, or calibration data that cannot be used; weights
        that are not N:M as the recipe says, while it prunes nothing.
    """
    recipe = recipe or Recipe()
    plans = recipe.for_layers([layer.name for layer in network.layers])
    input_range = recipe.input_range or network.input_range
    if calibration is None and input_range is None:
        raise InputError(
            "the range of the input is not known, expected one of: calibration data "
            "(--calibrate x.npy, or calibration=x), or `range = [lowest, highest]` in the "
            "recipe's [input] or in the model's file"
        )
    methods = [recipe.input_calibration, *(plan.calibration for plan in plans)]
    if calibration is None:
        _refuse_without_data(methods, plans)
    for layer, plan in zip(network.layers, plans, strict=True):
        if is_nm(plan.structure) and not plan.prunes:
            check_nm(layer.weight, *parse_nm(plan.structure), layer.name)
    weights = prune_layers([layer.weight for layer in network.layers], plans)
    if any(plan.fit == "outputs" for plan in plans):
        assert calibration is not None
        x = as_samples("calibration data", calibration, network.n_inputs)
        matrices = _fit_layers(network, weights, plans, x)
    else:
        matrices = [share_layer(w, plan) for w, plan in zip(weights, plans, strict=True)]
    model = assemble(network, matrices, calibration, recipe.input_range, methods)
    if any(plan.prunes for plan in plans):
        return model
    return replace(model, notes=(*model.notes, *_advice(matrices)))


def assemble(
    network: Network,
    matrices: list[Matrix],
    calibration: npt.ArrayLike | None,
    input_range: tuple[float, float] | None = None,
    methods: Sequence[Method | None] | None = None,
) -> CompressedModel:
    """Find ranges for a network whose weights become `matrices`, one per layer.

    Parameters
    ----------
    calibration : (n, n_inputs) array, optional
        Without it the range of the input must be known.
    input_range, methods
        See `calibrate.calibrate_ranges`.
    """
    small = _with_weights(network, matrices)
    if calibration is not None:
        ranges = calibrate_ranges(small, calibration, input_range, methods)
        met = _met_weights(small, calibration, ranges)
    else:
        ranges = bound_ranges(small, input_range)
        met = [1.0] * len(matrices)
    layers = tuple(
        CompressedLayer(
            la.name, matrix, round_biases(la.bias, output), la.activation, output, la.limits, share
        )
        for la, matrix, output, share in zip(network.layers, matrices, ranges[1:], met, strict=True)
    )
    return CompressedModel(layers, ranges[0], network.notes, network.final)


def _with_weights(network: Network, matrices: list[Matrix]) -> Network:
    layers = (
        Layer(
            layer.name,
            matrix.weight(),
            layer.bias,
            layer.activation,
            limits=layer.limits,
            output_range=layer.output_range,
            output_levels=layer.output_levels,
        )
        for layer, matrix in zip(network.layers, matrices, strict=True)
    )
    return replace(network, layers=tuple(layers))


def _met_weights(
    network: Network, samples: npt.ArrayLike, ranges: list[TensorRange]
) -> list[float]:
    """Share of each layer's nonzero weights whose input is not integer 0, in whole percents."""
    x = as_samples("calibration data", samples, network.n_inputs)
    found = []
    for layer, values, one in zip(
        network.layers, [x, *network.run_layers(x)[:-1]], ranges[:-1], strict=True
    ):
        active = (one.quantizer(SEARCH_BITS).quantize(values) != 0).mean(axis=0)
        weights = np.count_nonzero(layer.weight, axis=0)
        found.append(round(100 * float(active @ weights / max(weights.sum(), 1))) / 100)
    return found


def _refuse_without_data(methods: Sequence[Method | None], plans: list[LayerRecipe]) -> None:
    """Refuse keys of a recipe that need calibration data."""
    keys = [f"calibration is {method!r}" for method in methods if method is not None]
    keys += [f"fit is {plan.fit!r}" for plan in plans if plan.fit != "weights"]
    if keys:
        raise RecipeError(
            f"recipe: {keys[0]} but there is no calibration data, expected some (--calibrate "
            "x.npy, or calibration=x); or remove the key"
        )


def _fit_layers(
    network: Network, pruned: list[Floats], plans: list[LayerRecipe], x: Floats
) -> list[Matrix]:
    """Layer by layer, with the inputs (n, cols) that the compressed ones before give.

    `pruned` are the weights as magnitudes have them pruned: as many of them stay.
    """
    matrices = []
    for layer, kept, plan in zip(network.layers, pruned, plans, strict=True):
        matrix = share_layer(kept, plan)
        if plan.fit == "outputs" and not np.array_equal(matrix.weight(), layer.weight):
            matrix = _fit_layer(layer.weight, matrix, plan, x)
        matrices.append(matrix)
        x = Layer(
            layer.name, matrix.weight(), layer.bias, layer.activation, limits=layer.limits
        ).run(x)
    return matrices


def _fit_layer(weight: Floats, plain: Matrix, plan: LayerRecipe, x: Floats) -> Matrix:
    """As many weights as in `plain`, so that the outputs for inputs (n, cols) change least.

    Sweeps take what is best for each column in turn, which is not always the best of all: of the
    matrices on the way that with the least error is taken.
    """
    compensation = Compensation(x, plan.structure)
    kept = compensation.prune(weight, plain.nonzeros)
    corrected = share_layer(kept, plan)
    rounded = compensation.share(weight, kept, corrected, plan.entropy)
    found = (rounded, corrected, plain)
    return min(found, key=lambda one: compensation.error(weight, one.weight()))


def share_layer(weight: Floats, plan: LayerRecipe) -> Matrix:
    """Share values among weights (rows, cols) that are pruned already, in the plan's structure.

    Structures are compared without Huffman codes, as an engine holds them: coded, all structures
    come near the same size, but not near the same cycles. Dense ones, which may be many times as
    large, are made only if they could be smaller: they have at least as many codes.
    """
    if plan.structure != "auto":
        return Matrix.share(weight, plan.structure, plan.codes, plan.entropy)
    best = Matrix.share(weight, "unstructured", plan.codes, "none")
    if best.cost_bytes >= packed_bytes(weight.size, best.code_bits) + 4 * len(best.codebook):
        dense = Matrix.share(weight, "dense", plan.codes, "none")
        best = dense if dense.cost_bytes <= best.cost_bytes else best
    return _prefer_pairs(weight, best, plan.codes).coded(plan.entropy)


def _prefer_pairs(weight: Floats, best: Matrix, codes: int) -> Matrix:
    """2:4 instead of `best` if it holds the weights as well and costs little more."""
    if (group_counts(Places.of_mask(weight != 0), 4) > 2).any():
        return best
    pairs = Matrix.share(weight, "2:4", codes, "none")
    worse = np.array_equal(best.weight(), weight) and not np.array_equal(pairs.weight(), weight)
    return best if worse or pairs.cost_bytes > PAIRS_COST * best.cost_bytes else pairs


def _advice(matrices: list[Matrix]) -> Iterator[str]:
    """What pruning would buy, unless the weights are pruned already."""
    density = sum(m.nonzeros for m in matrices) / sum(m.weight().size for m in matrices)
    if density <= 2 * SUGGESTED_DENSITY:
        return
    now = later = 0
    for matrix in matrices:
        kept = structure_axis.prune(matrix.weight(), density=SUGGESTED_DENSITY)
        pruned = Matrix.share(kept, "unstructured", len(matrix.codebook))
        now += matrix.cost_bytes
        later += min(matrix.cost_bytes, pruned.cost_bytes)
    yield (
        f"nothing was pruned: {density:.0%} of the weights are not zero and take {now:,} bytes; "
        f"pruned to {SUGGESTED_DENSITY:.0%} and retrained they would take about {later:,} bytes "
        f"and {SUGGESTED_DENSITY / density:.0%} of the multiplications"
    )
