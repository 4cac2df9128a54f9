# SPDX-License-Identifier: BSD-2-Clause
"""Train, prune and retrain a digit classifier: digits.npz, digits_pruned.npz, digits_mixed.npz.

The data is scikit-learn's bundled set of 1,797 handwritten digits of 8x8 pixels. The network is an
MLP of 64-128-64-10 with ReLU, trained with Adam in plain numpy. Pruning is gradual: while training
goes on, the share of weights that remain falls along a cubic curve, the smallest going first; then
the survivors are retrained. The mixed network has its first layer pruned like that, 2:4 sparsity in
the second, and a dense last layer. Same machine, same files. Needs ``pip install gossamer[demo]``.

Ref: M. Zhu, S. Gupta, "To prune, or not to prune", arXiv:1710.01878, section 3.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gossamer.host.compression.nm import select_nm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

__all__ = ["accuracy", "forward", "load_split", "train"]

HERE = Path(__file__).parent
SEED = 1
SIZES = (64, 128, 64, 10)
DENSITY = (0.14, 0.10, 0.40)
"""Share of each layer's weights that remain: the last layer is small and takes pruning badly."""
NAMES = ("digits", "digits_pruned", "digits_mixed")
EPOCHS_DENSE, EPOCHS_PRUNE, EPOCHS_RETRAIN = 40, 60, 60
BATCH, DECAY = 32, 1e-4

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
Parameters = dict[str, Floats]


def load_split() -> tuple[Floats, Floats, Labels, Labels]:
    """Pixels in 0..1 and labels: x_train (1437, 64), x_test (360, 64), y_train, y_test."""
    pixels, labels = map(np.asarray, load_digits(return_X_y=True))
    x_train, x_test, y_train, y_test = map(
        np.asarray,
        train_test_split(pixels / 16, labels, test_size=360, random_state=SEED, stratify=labels),
    )
    return x_train, x_test, y_train, y_test


def forward(parameters: Parameters, x: Floats) -> list[Floats]:
    """Input of every layer, then the logits (n, 10)."""
    values = [x]
    for layer in range(1, len(SIZES)):
        z = values[-1] @ parameters[f"fc{layer}.weight"].T + parameters[f"fc{layer}.bias"]
        values.append(z if layer == len(SIZES) - 1 else np.maximum(z, 0))
    return values


def accuracy(parameters: Parameters, x: Floats, y: Labels) -> float:
    """Share of right answers in percent."""
    return 100 * float((forward(parameters, x)[-1].argmax(1) == y).mean())


def gradients(parameters: Parameters, x: Floats, y: Labels) -> Parameters:
    """Gradient of the mean cross-entropy, plus weight decay."""
    values = forward(parameters, x)
    shifted = np.exp(values[-1] - values[-1].max(1, keepdims=True))
    delta = shifted / shifted.sum(1, keepdims=True)
    delta[np.arange(len(y)), y] -= 1
    delta /= len(y)
    result = {}
    for layer in range(len(SIZES) - 1, 0, -1):
        weight = parameters[f"fc{layer}.weight"]
        result[f"fc{layer}.weight"] = delta.T @ values[layer - 1] + DECAY * weight
        result[f"fc{layer}.bias"] = delta.sum(0)
        delta = (delta @ weight) * (values[layer - 1] > 0)
    return result


class Adam:
    """Adam with masks: a weight whose mask is 0 stays exactly 0."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.masks = {name: np.ones_like(value) for name, value in parameters.items()}
        self.mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.step = 0

    def update(self, gradient: Parameters, rate: float) -> None:
        """One step at learning rate `rate`."""
        self.step += 1
        for name, value in self.parameters.items():
            g = gradient[name]
            self.mean[name] += 0.1 * (g - self.mean[name])
            self.square[name] += 0.001 * (g * g - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.step)
            square = self.square[name] / (1 - 0.999**self.step)
            value -= rate * mean / (np.sqrt(square) + 1e-8)
            value *= self.masks[name]

    def prune(self, name: str, density: float) -> None:
        """Keep the `density` largest weights of a layer, drop the others for good."""
        weight = self.parameters[name]
        kept = np.argsort(-np.abs(weight), axis=None)[: round(density * weight.size)]
        mask = np.zeros(weight.size)
        mask[kept] = 1
        self.keep(name, mask.reshape(weight.shape))

    def keep(self, name: str, mask: Floats) -> None:
        """Drop the weights of a layer whose mask is 0 for good."""
        self.masks[name] = mask
        self.parameters[name] *= mask


def epoch(optimizer: Adam, x: Floats, y: Labels, rate: float, rng: np.random.Generator) -> None:
    """One pass over the training data in random order."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH):
        rows = order[start : start + BATCH]
        optimizer.update(gradients(optimizer.parameters, x[rows], y[rows]), rate)


def train() -> tuple[Parameters, Parameters, Parameters]:
    """The dense, the pruned and the mixed network, float32; takes some seconds."""
    x, _, y, _ = load_split()
    rng = np.random.default_rng(SEED)
    parameters: Parameters = {}
    for layer, (n_in, n_out) in enumerate(pairwise(SIZES), 1):
        parameters[f"fc{layer}.weight"] = rng.normal(0, np.sqrt(2 / n_in), (n_out, n_in))
        parameters[f"fc{layer}.bias"] = np.zeros(n_out)
    optimizer = Adam(parameters)
    for i in range(EPOCHS_DENSE):
        epoch(optimizer, x, y, 1e-3 * (1 - i / EPOCHS_DENSE) + 1e-5, rng)
    dense = as_float32(parameters)
    mixed = Adam({name: value.astype(np.float64) for name, value in dense.items()})
    prune_and_retrain(optimizer, DENSITY, x, y, rng)
    second = mixed.parameters["fc2.weight"]
    mixed.keep("fc2.weight", (select_nm(second, 2, 4) != 0).astype(float))
    prune_and_retrain(mixed, DENSITY[:1], x, y, np.random.default_rng(SEED))
    return dense, as_float32(parameters), as_float32(mixed.parameters)


def prune_and_retrain(
    optimizer: Adam,
    densities: tuple[float, ...],
    x: Floats,
    y: Labels,
    rng: np.random.Generator,
) -> None:
    """Prune the first layers to `densities` while training, then retrain what is left."""
    for i in range(EPOCHS_PRUNE):
        for layer, final in enumerate(densities, 1):
            progress = (i + 1) / EPOCHS_PRUNE
            optimizer.prune(f"fc{layer}.weight", final + (1 - final) * (1 - progress) ** 3)
        epoch(optimizer, x, y, 1e-3, rng)
    for i in range(EPOCHS_RETRAIN):
        epoch(optimizer, x, y, 1e-3 * (1 - i / EPOCHS_RETRAIN) + 1e-5, rng)


def as_float32(parameters: Parameters) -> Parameters:
    """Copies in single precision."""
    return {name: value.astype(np.float32) for name, value in parameters.items()}


def main() -> None:
    """Train, print the accuracy on the held-out images, write the files."""
    _, x_test, _, y_test = load_split()
    for name, parameters in zip(NAMES, train(), strict=True):
        weights = [value for key, value in parameters.items() if key.endswith("weight")]
        density = sum(map(np.count_nonzero, weights)) / sum(w.size for w in weights)
        np.savez_compressed(HERE / f"{name}.npz", allow_pickle=False, **parameters)
        print(
            f"{name}.npz: {accuracy(parameters, x_test, y_test):.2f} % of {len(x_test)} held-out "
            f"images right, {100 * density:.1f} % of the weights not zero"
        )


if __name__ == "__main__":
    main()
