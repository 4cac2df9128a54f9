# SPDX-License-Identifier: BSD-2-Clause
"""Trials of recipes: the whole network compressed, sized and run in integers on labelled samples.

Sizes and accuracies are those of a real file on an engine with 8-bit activations. Some samples are
held out: no trial sees their labels, so that they can judge what the trials led to.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compression import model_file
from ..compression.compress import CompressedModel, Matrix, assemble, share_layer
from ..compression.pruning import prune_layers
from ..compression.recipe import LayerRecipe
from ..errors import InputError
from ..network import Floats, Network
from ..score import score
from ..session import Session

__all__ = ["Trial", "Trials"]

HELD_OUT = 0.25
"""Share of the samples that is held out, at least."""

FEWEST = 20
"""Labelled samples without which nothing is tried."""

WORK = 10**9
"""Multiplications of one trial; with more samples than it allows, more are held out."""

LIMITS = 500, 5000
"""Samples of a trial, whatever its work."""

Ints = npt.NDArray[np.int64]
Plans = tuple[LayerRecipe, ...]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of one recipe.

    Parameters
    ----------
    plans : tuple of LayerRecipe
        One for each layer.
    bytes : int
        Size of the file.
    drop : float
        Percentage points of accuracy that the integers lose against the network in floats.
    """

    plans: Plans
    bytes: int
    drop: float


class Trials:
    """A network and its labelled samples.

    Parameters
    ----------
    network : Network
        A classifier.
    samples : (n, n_inputs) float32
        All of them calibrate the ranges of activations.
    labels : (n,) or (n, 1) integers
        Right classes.

    Attributes
    ----------
    network : Network
    samples : (n, n_inputs) float32
    seen, held_out : (k,) int64
        Which samples the trials use, and which they do not.
    before : float
        Percent of right answers of the network in floats, on the samples seen.
    trail : list of Trial
        What was tried, in order.

    Raises
    ------
    InputError
        Too few samples, or labels that are no classes.
    """

    def __init__(self, network: Network, samples: Floats, labels: npt.NDArray[np.int64]) -> None:
        if len(samples) < FEWEST:
            raise InputError(
                f"{len(samples)} labelled samples, expected at least {FEWEST}, better hundreds: "
                "accuracy is counted on them"
            )
        score(network.run(samples), labels, network.final)  # refuses what are no classes
        weights = sum(layer.weight.size for layer in network.layers)
        most = min(int(np.clip(WORK // weights, *LIMITS)), round((1 - HELD_OUT) * len(samples)))
        order = np.random.default_rng(0).permutation(len(samples))
        self.network = network
        self.samples = samples
        self._labels = labels.reshape(-1)
        self.seen, self.held_out = np.sort(order[:most]), np.sort(order[most:])
        self.before = self.accuracy(self.seen)
        self.trail: list[Trial] = []
        self._matrices: dict[int, tuple[LayerRecipe, Matrix]] = {}
        self._found: dict[Plans, Trial] = {}

    def data(self) -> tuple[Floats, Ints]:
        """Samples that the trials use, and their labels."""
        return self.samples[self.seen], self._labels[self.seen]

    def size(self, plans: Plans) -> int:
        """Bytes of the file, without running it."""
        return len(model_file.dump(self._compress(plans)))

    def run(self, plans: Plans) -> Trial:
        """Try a recipe; what was tried before is not tried again."""
        if plans not in self._found:
            model = self._compress(plans)
            drop = self.before - self.accuracy(self.seen, model)
            trial = Trial(plans=plans, bytes=len(model_file.dump(model)), drop=drop)
            self._found[plans] = trial
            self.trail.append(trial)
        return self._found[plans]

    def accuracy(self, which: Ints, model: CompressedModel | None = None) -> float:
        """Percent of right answers: of the model in integers, or of the network in floats."""
        x = self.samples[which]
        outputs = self.network.run(x) if model is None else Session(model).run(x)
        return 100 * score(outputs, self._labels[which], self.network.final)

    def _compress(self, plans: Plans) -> CompressedModel:
        """Share weights as planned; layers whose plan is that of the last call are kept."""
        for k, (layer, plan) in enumerate(zip(self.network.layers, plans, strict=True)):
            if k not in self._matrices or self._matrices[k][0] != plan:
                (weight,) = prune_layers([layer.weight], [plan])
                self._matrices[k] = plan, share_layer(weight, plan)
        matrices = [self._matrices[k][1] for k in range(len(plans))]
        return assemble(self.network, matrices, self.samples)
