# SPDX-License-Identifier: BSD-2-Clause
"""LeNet-300-100 on MNIST, trained, pruned, retrained and shared in PyTorch.

The dense network learns with dropout. Then it is pruned in stages, each from where the one before
ended: the smallest weights go while training goes on, the rest of the stage retrains what is left.
From each stage a copy shares values and trains them. From pruning on the labels are not used any
more: networks learn to answer as the dense one does, on images shifted by up to a pixel, so that
there are more places to compare. The dense network sees no shifted images: with them it would be
better, 1.1 % of the held-out images wrong, and farther from what few weights can do.

Ref: LeCun et al., Gradient-based learning applied to document recognition (the network); Hinton et
al., Distilling the knowledge in a neural network; Beyer et al., Knowledge distillation: a good
teacher is patient and consistent (function matching).
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from ..host.compression.recipe import Recipe, parse_recipe
from ..host.compression.retrain import finish, prune, share
from ..host.importers.extras import import_extra
from .mnist import Digits

__all__ = ["PLAN", "SIZES", "STAGES", "Plan", "Stage", "fit", "make_network", "stages"]

torch = import_extra("torch", "training LeNet-300-100")

SIZES = (784, 300, 100, 10)
BATCH = 128
EVERY = 50
"""Mini-batches between two steps of pruning."""
RAMP = 0.5
"""Share of a stage in which weights are pruned."""
SHIFTS = tuple(product((-1, 0, 1), repeat=2))
"""Rows and columns by which the images of a batch move, at random."""
BIAS_STEP = 2.0**-6
"""Biases become multiples of it, which a file holds in a byte each or so."""
TEMPERATURE = 2.0
"""By which outputs are divided before they are compared with those of the dense network."""


@dataclass(frozen=True)
class Stage:
    """Densities and codes of the three layers to end with, and epochs of pruning on the way."""

    density: tuple[float, ...]
    codes: tuple[int, ...]
    epochs: int

    @property
    def recipe(self) -> Recipe:
        """For pruning, sharing and compression."""
        tables = (
            f"[layers.fc{k}]\ndensity = {density}\ncodes = {codes}\n"
            for k, (density, codes) in enumerate(zip(self.density, self.codes, strict=True), 1)
        )
        return parse_recipe("".join(tables))


STAGES = (
    Stage((0.060, 0.120, 0.42), (16, 16, 16), 24),
    Stage((0.047, 0.100, 0.38), (16, 16, 16), 8),
    Stage((0.038, 0.085, 0.34), (16, 16, 16), 8),
)
"""From large to small."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Epochs, first rates of Adam, and dropout before each layer of the dense network."""

    dense_epochs: int = 20
    share_epochs: int = 2
    dense_rate: float = 1e-3
    prune_rate: float = 2e-3
    share_rate: float = 2e-4
    dropout: tuple[float, ...] = (0.1, 0.3, 0.2)


PLAN = Plan()
"""What the measurement takes."""


def make_network(dropout: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Any:
    """A `torch.nn.Sequential` of fc1, fc2 and fc3, with dropout before each and ReLU between."""
    module = torch.nn.Sequential()
    for k, (n_in, n_out) in enumerate(pairwise(SIZES), 1):
        if k > 1:
            module.add_module(f"relu{k - 1}", torch.nn.ReLU())
        module.add_module(f"dropout{k}", torch.nn.Dropout(dropout[k - 1]))
        module.add_module(f"fc{k}", torch.nn.Linear(n_in, n_out))
    return module


def fit(
    module: Any,
    data: Digits,
    *,
    epochs: int,
    rate: float,
    teacher: Any = None,
    before: Callable[[float], None] | None = None,
) -> Iterator[float]:
    """Train with Adam, from the labels or a teacher; the rate falls along a cosine to 0.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    data : Digits
    epochs : int
    rate : float
    teacher : (shifts, n, 10) tensor, optional
        Outputs to learn, for the images at each of SHIFTS; each batch is shifted by one of them.
    before : function, optional
        Called every `EVERY` mini-batches with the share of the training that is done.

    Yields
    ------
    float
        Mean loss of each epoch.
    """
    images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, fused=True)
    batches = math.ceil(len(labels) / BATCH)
    module.train()
    for epoch in range(epochs):
        total = 0.0
        for batch, rows in enumerate(torch.randperm(len(labels)).split(BATCH)):
            done = (epoch + batch / batches) / epochs
            if before is not None and (epoch * batches + batch) % EVERY == 0:
                before(done)
            optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done)) / 2
            optimizer.zero_grad()
            if teacher is None:
                loss = torch.nn.functional.cross_entropy(module(images[rows]), labels[rows])
            else:
                k = int(torch.randint(len(SHIFTS), (1,)))
                loss = _distance(module(_shifted(images[rows], k)), teacher[k][rows])
            loss.backward()
            optimizer.step()
            total += loss.detach().item() * len(rows)
        yield total / len(labels)


def stages(dense: Any, data: Digits, plan: Plan, steps: tuple[Stage, ...]) -> Iterator[Any]:
    """Prune a copy of a dense network stage by stage.

    Yields
    ------
    torch.nn.Module
        Of each stage a network whose weights are pruned and shared, plain parameters again.
    """
    with torch.no_grad():
        images = torch.from_numpy(data.images)
        teacher = torch.stack([dense.eval()(_shifted(images, k)) for k in range(len(SHIFTS))])
    module = make_network()
    module.load_state_dict(dense.state_dict())
    for stage in steps:
        recipe = stage.recipe

        def ramp(done: float, recipe: Recipe = recipe) -> None:
            prune(module, recipe, min(1.0, done / RAMP))

        for _ in fit(
            module, data, epochs=stage.epochs, rate=plan.prune_rate, teacher=teacher,
            before=ramp,
        ):  # fmt: skip
            pass
        prune(module, recipe)
        shared = copy.deepcopy(module)
        share(shared, recipe)
        for _ in fit(shared, data, epochs=plan.share_epochs, rate=plan.share_rate, teacher=teacher):
            pass
        finish(shared)
        with torch.no_grad():
            for name, parameter in shared.named_parameters():
                if name.endswith("bias"):
                    parameter.copy_((parameter / BIAS_STEP).round() * BIAS_STEP)
        yield shared.eval()


def _shifted(images: Any, k: int) -> Any:
    """Images (n, side x side) moved by SHIFTS[k]; their edges are black."""
    side = math.isqrt(images.shape[1])
    return images.view(-1, side, side).roll(SHIFTS[k], dims=(1, 2)).view(len(images), -1)


def _distance(outputs: Any, wanted: Any) -> Any:
    """Divergence of two outputs (n, 10) as probabilities, softened."""
    functional = torch.nn.functional
    ours, theirs = (functional.log_softmax(z / TEMPERATURE, dim=1) for z in (outputs, wanted))
    divergence = functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return TEMPERATURE**2 * divergence
