# SPDX-License-Identifier: BSD-2-Clause
"""A pruned digit classifier, from trained weights to simulated hardware (`make demo`).

Compresses the committed network, checks its accuracy on held-out digits, and runs all of them on
the engine's RTL; then the same for a network with a 2:4 layer, on an engine with a tensor tile.
Needs ``pip install gossamer[demo]`` and a C++ compiler.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import Recipe, load_recipe
from gossamer.host.importers import load_network
from gossamer.host.session import Session
from gossamer.rtl.formats import Unit
from gossamer.sim.protocol_sim import Serial
from train_digits import HERE, load_split

__all__ = ["main"]

MIXED = {
    "fc1": {"structure": "unstructured", "codes": 32},
    "fc2": {"structure": "2:4", "codes": 16},
    "fc3": {"structure": "dense", "codes": 64},
}
"""What the layers of digits_mixed.npz are."""


def percent(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Share of right answers in percent."""
    return 100 * float((outputs.argmax(axis=1) == labels).mean())


def show(what: str, figure: str) -> None:
    """One line of the report."""
    print(f"{what + ':':26}{figure}", flush=True)


def run_on_rtl(path: Path, url: str, x: np.ndarray) -> bool:
    """Run all images on the simulated RTL; print figures; whether it equals the golden model."""
    with Session(path) as session:
        q = session.quantize(x)
        expected = session.run_quantized(q)
    with Session(path, url) as session:
        started = time.monotonic()
        outputs = session.run_quantized(q)
        seconds = time.monotonic() - started
        stats, device, image = session.last_stats, session.device, session.image
        layers = session.network.layers
    assert stats is not None
    assert device is not None
    assert image is not None
    config, clock = device.identity.config, device.identity.clock_hz
    tile = f" and a {config.tile_rows}x{config.tile_columns} tile" * (config.tile_rows > 0)
    show("simulated RTL", f"{config.n_pes} PEs{tile}, {stats.images} images in {seconds:.1f} s")
    if config.tile_rows:
        names = ("tile" if placed.unit == Unit.TENSOR_TILE else "array" for placed in image.layers)
        parts = [
            f"{layer.name} {layer.structure} on the {name}"
            for layer, name in zip(layers, names, strict=True)
        ]
        show("units", ", ".join(parts))
    differ = int((outputs != expected).sum())
    if differ:
        show("DIFFERENT", f"{differ} of {expected.size} outputs are not the golden model's")
    else:
        show("bit-exact", f"all {expected.size:,} outputs of the RTL equal the golden model")
    cycles = stats.cycles / stats.images
    show("per image", f"{cycles:.1f} cycles, {1e3 * cycles / clock:.4f} ms at {clock / 1e6:g} MHz")
    if not config.tile_rows:
        busy = stats.counters["busy"] / (config.multipliers * stats.cycles)
        show("slot efficiency", f"{100 * busy:.1f} %")
    return differ == 0


def main() -> int:
    """Print each step's figures; 1 if any output of the RTL differs from the golden model."""
    x_train, x_test, _, y_test = load_split()
    dense = load_network(HERE / "digits.npz")
    pruned = load_network(HERE / "digits_pruned.npz")
    weights = [layer.weight for layer in pruned.layers]
    density = sum(np.count_nonzero(w) for w in weights) / sum(w.size for w in weights)
    fp32 = 4 * sum(layer.weight.size + layer.bias.size for layer in dense.layers)
    show("held-out images", f"{len(x_test)} digits of 8x8 pixels; network 64-128-64-10, ReLU")
    show("dense, float32", f"{percent(dense.run(x_test), y_test):.2f} % right, {fp32:,} bytes")
    show("pruned, float32", f"{percent(pruned.run(x_test), y_test):.2f} % right")
    show("weights left", f"{100 * density:.1f} %")

    Serial.progress = lambda line: print(f"... {line}", flush=True)
    recipe = load_recipe(HERE / "digits.toml")
    mixed = load_network(HERE / "digits_mixed.npz")
    mixed_recipe = Recipe(layers=MIXED)
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.gossamer"
        for network, plan, url, title in (
            (pruned, recipe, "sim", "compressed, 8-bit"),
            (mixed, mixed_recipe, "sim://tile", "with 2:4, 8-bit"),
        ):
            model_file.save(compress(network, plan, x_train), path)
            size = path.stat().st_size
            with Session(path) as session:
                right = percent(session.run(x_test), y_test)
            show(title, f"{right:.2f} % right, {size:,} bytes: {fp32 / size:.1f}x smaller")
            equal &= run_on_rtl(path, url, x_test)
    print(
        "\nWhat to try next:\n"
        "  .venv/bin/gossamer bench sparsity\n"
        "      bytes and cycles of one layer as its density falls, beside dense\n"
        "  .venv/bin/pip install -e .[build]; .venv/bin/gossamer build --board icebreaker\n"
        "      the engine as a bitstream\n"
        "  .venv/bin/gossamer compress --help\n"
        "      your own network: .npz, .safetensors, .onnx, .pt, .mtx"
    )
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
