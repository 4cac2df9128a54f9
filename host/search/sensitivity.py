# SPDX-License-Identifier: BSD-2-Clause
"""How much of a network's answers each way of storing a layer costs, one layer at a time.

A candidate is measured in floats with every other layer untouched: its bytes in a file, the drop
of accuracy, and the damage, which is the mean divergence of the class probabilities from those of
the untouched network. Damage is never negative, changes smoothly where
accuracy moves in steps, and nearly adds up over layers, so that it can be minimized.

Ref: Kullback and Leibler, On information and sufficiency, 1951 (the divergence).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compression.compress import share_layer
from ..compression.matrix import Matrix
from ..compression.pruning import prune_layers
from ..compression.recipe import LayerRecipe
from ..network import Floats, Layer, Network, activate

__all__ = ["CODES", "Candidate", "Sensitivity"]

CODES = (256, 128, 64, 32, 16, 8, 4)
"""Distinct weights that are tried."""

HALVINGS = 4
"""How often the density of a layer is halved, in steps of a square root of two."""

STEPS = 2 * HALVINGS
PAIRS = "2:4"

PER_LAYER = len(CODES) * (STEPS + 3)
"""Most candidates of a layer."""

MOST_WORK = 10**12
"""Multiplications of all candidates; fewer samples are used if it would be more."""

FEWEST_SAMPLES, MOST_SAMPLES = 200, 2000

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to store a layer.

    Parameters
    ----------
    plan : LayerRecipe
        Structure, density (None: as the weights are) and codes.
    density : float
        Share of the weights that are left.
    bytes : int
        In a file, without biases and the layer's line of the description.
    drop : float
        Percentage points of accuracy lost if only this layer is changed.
    damage : float
        Divergence of the class probabilities, 0 or more.
    """

    plan: LayerRecipe
    density: float
    bytes: int
    drop: float
    damage: float


class Sensitivity:
    """A network with samples, ready to have one layer at a time replaced.

    Parameters
    ----------
    network : Network
    samples : (n, n_inputs) float32
        Some are left out if there are many, or much to do.
    labels : (n,) int64
        Right classes.
    """

    def __init__(self, network: Network, samples: Floats, labels: npt.NDArray[np.int64]) -> None:
        count = _affordable(network)
        self._network = network
        self._labels = labels[:count]
        x = samples[:count]
        self._values = [x, *network.run_layers(x)]
        self._logs = _log_softmax(self._values[-1])
        self._right = self._share_right(self._values[-1])

    @property
    def most(self) -> int:
        """Most candidates that `measure` yields."""
        return len(self._network.layers) * PER_LAYER

    def measure(self) -> Iterator[tuple[int, Candidate]]:
        """Each layer's number with each of its candidates; none that would repeat another."""
        for index, layer in enumerate(self._network.layers):
            for plan in _plans(layer):
                (weight,) = prune_layers([layer.weight], [plan])
                most = _exact_codes(weight, plan)
                for codes in (most, *(one for one in CODES if one < most)):
                    yield index, self._measure(index, weight, plan, codes)

    def _measure(self, index: int, weight: Floats, plan: LayerRecipe, codes: int) -> Candidate:
        own = LayerRecipe(structure=plan.structure, density=plan.density, codes=codes)
        matrix = share_layer(weight, own)
        outputs = self._outputs(index, matrix)
        return Candidate(
            plan=own,
            density=matrix.nonzeros / weight.size,
            bytes=matrix.cost_bytes,
            drop=100 * (self._right - self._share_right(outputs)),
            damage=self._damage(outputs),
        )

    def _outputs(self, index: int, matrix: Matrix) -> Floats:
        layers = self._network.layers
        changed = layers[index]
        sums = self._values[index] @ matrix.weight().T + changed.bias
        values = activate(sums, changed.activation, changed.limits)
        for layer in layers[index + 1 :]:
            values = layer.run(values)
        return values

    def _share_right(self, outputs: Floats) -> float:
        return float((outputs.argmax(axis=1) == self._labels).mean())

    def _damage(self, outputs: Floats) -> float:
        logs = _log_softmax(outputs)
        divergence = (np.exp(self._logs) * (self._logs - logs)).sum(axis=1)
        return max(0.0, float(divergence.mean()))


def _affordable(network: Network) -> int:
    """Samples with which all candidates together stay within `MOST_WORK`."""
    sizes = np.array([layer.weight.size for layer in network.layers])
    behind = np.cumsum(sizes[::-1]).sum()
    return int(np.clip(MOST_WORK // (int(behind) * PER_LAYER), FEWEST_SAMPLES, MOST_SAMPLES))


def _plans(layer: Layer) -> Iterator[LayerRecipe]:
    """Structures and densities that are tried: as it is, pruned step by step, and 2:4."""
    size, left = layer.weight.size, int(np.count_nonzero(layer.weight))
    if 2 * left > size:
        yield LayerRecipe(structure="dense")
    if left < size:
        yield LayerRecipe(structure="unstructured")
    for step in range(1, STEPS + 1):
        density = float(f"{left / size * 2 ** (-step / 2):.3g}")
        if 0 < round(density * size) < left:
            yield LayerRecipe(structure="unstructured", density=density)
    yield LayerRecipe(structure=PAIRS, density=1.0)


def _exact_codes(weight: Floats, plan: LayerRecipe) -> int:
    """Codes, 2..256, that hold the weights unchanged, if so few do; else 256."""
    distinct = np.unique(weight[weight != 0]).size
    with_zero = plan.structure == PAIRS or (plan.structure == "dense" and not weight.all())
    return int(np.clip(distinct + with_zero, 2, CODES[0]))


def _log_softmax(outputs: Floats) -> Doubles:
    values = outputs.astype(np.float64)
    values -= values.max(axis=1, keepdims=True)
    return values - np.log(np.exp(values).sum(axis=1, keepdims=True))
