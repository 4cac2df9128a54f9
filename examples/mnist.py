# SPDX-License-Identifier: BSD-2-Clause
"""A trained MNIST network on a device: score, equality with the golden model, cycles.

    python examples/mnist.py DATA MODEL [--device sim] [--images 10000]

DATA is a folder with MNIST's four IDX files, plain or .gz; MODEL a .npz or .safetensors of a
network 784-...-10 that was trained on pixels / 255. All test images are run twice: as pixels / 255,
and normalized as torchvision does, with the first layer's weights changed to suit. Both must give
the same predictions for the same cycles, because the commonest value of an input becomes integer 0.
Exit status 1 if any output differs from the golden model.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from gossamer.bench.mnist import read_idx
from gossamer.host import golden
from gossamer.host.compression.compress import compress
from gossamer.host.console import track
from gossamer.host.importers import load_network
from gossamer.host.network import Layer, Network
from gossamer.host.session import Session

__all__ = ["main", "normalized"]

MEAN, STD = 0.1307, 0.3081
"""Of MNIST's pixels, as torchvision's examples use them."""
CALIBRATION = 1000
"""Training images whose activations set the ranges."""
CHUNK = 500


def normalized(network: Network) -> Network:
    """The same function of (x - MEAN) / STD instead of x."""
    first, *others = network.layers
    weight = first.weight.astype(np.float64)
    changed = Layer(
        first.name,
        (weight * STD).astype(np.float32),
        (first.bias + MEAN * weight.sum(axis=1)).astype(np.float32),
        first.activation,
    )
    return Network((changed, *others))


def measure(network: Network, x: np.ndarray, calibration: np.ndarray, device: str, title: str):
    """Predictions, cycles, and whether all outputs equal the golden model's."""
    model = compress(network, calibration=calibration)
    equal, predictions, cycles = True, [], 0
    with Session(model, device) as session:
        for start in track(range(0, len(x), CHUNK), title, -(-len(x) // CHUNK)):
            q = session.quantize(x[start : start + CHUNK])
            outputs = session.run_quantized(q)
            equal &= np.array_equal(outputs, golden.run(session.network, q))
            real = session.outputs[0].quantizer.dequantize(outputs)
            predictions.append(real.argmax(axis=1))
            cycles += 0 if session.last_stats is None else session.last_stats.cycles
    return np.concatenate(predictions), cycles, equal


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of both runs; 1 if any output differs from the golden model."""
    parser = argparse.ArgumentParser(description="A trained MNIST network on a device.")
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="sim")
    parser.add_argument("--images", type=int, default=10000)
    options = parser.parse_args(arguments)

    images = read_idx(options.data, "t10k-images-idx3-ubyte")[: options.images] / np.float32(255)
    labels = read_idx(options.data, "t10k-labels-idx1-ubyte")[: options.images]
    training = read_idx(options.data, "train-images-idx3-ubyte")[:CALIBRATION] / np.float32(255)
    network = load_network(options.model)

    raw, cycles, equal = measure(network, images, training, options.device, "pixels")
    changed, changed_cycles, changed_equal = measure(
        normalized(network), (images - MEAN) / STD, (training - MEAN) / STD, options.device,
        "normalized",
    )  # fmt: skip
    print(f"images:      {len(images):,} on {options.device}")
    print(f"error:       {100 * (raw != labels).mean():.2f} %")
    print(f"cycles:      {cycles / len(images):.1f} per image")
    print(f"golden:      {'equal' if equal and changed_equal else 'DIFFERENT'}, all outputs")
    print(f"normalized:  {int((raw != changed).sum())} predictions differ, ", end="")
    print(f"{changed_cycles / cycles:.4f} x the cycles" if cycles else "no cycles on this device")
    return 0 if equal and changed_equal else 1


if __name__ == "__main__":
    sys.exit(main())
