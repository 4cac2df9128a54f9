# SPDX-License-Identifier: BSD-2-Clause
"""A pruned digit classifier, from trained weights to simulated hardware (`make demo`).

Compresses the committed network, checks its accuracy on held-out digits, and runs all of them on
the engine's RTL. Needs ``pip install gossamer[demo]`` and a C++ compiler.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gossamer.host import model_file
from gossamer.host.compress import compress
from gossamer.host.importers import load_network
from gossamer.host.recipe import load_recipe
from gossamer.host.session import Session
from gossamer.sim.protocol_sim import Serial
from train_digits import HERE, load_split

__all__ = ["main"]


def percent(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Share of right answers in percent."""
    return 100 * float((outputs.argmax(axis=1) == labels).mean())


def show(what: str, figure: str) -> None:
    """One line of the report."""
    print(f"{what + ':':26}{figure}", flush=True)


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

    model = compress(pruned, load_recipe(HERE / "digits.toml"), x_train)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.gossamer"
        model_file.save(model, path)
        size = path.stat().st_size
        with Session(path) as session:
            q = session.quantize(x_test)
            expected = session.run_quantized(q)
            right = percent(session.outputs[0].quantizer.dequantize(expected), y_test)
        show(
            "compressed, 8-bit", f"{right:.2f} % right, {size:,} bytes: {fp32 / size:.1f}x smaller"
        )

        Serial.progress = lambda line: print(f"... {line}", flush=True)
        with Session(path, "sim") as session:
            started = time.monotonic()
            outputs = session.run_quantized(q)
            seconds = time.monotonic() - started
            stats, device = session.last_stats, session.device
    assert stats is not None
    assert device is not None
    clock, config = device.identity.clock_hz, device.identity.config
    efficiency = stats.counters["busy"] / (config.multipliers * stats.cycles)
    differ = int((outputs != expected).sum())
    cycles = stats.cycles / stats.images
    show("simulated RTL", f"{config.n_pes} PEs, {stats.images} images in {seconds:.1f} s")
    if differ:
        show("DIFFERENT", f"{differ} of {expected.size} outputs are not the golden model's")
    else:
        show("bit-exact", f"all {expected.size:,} outputs of the RTL equal the golden model")
    show("per image", f"{cycles:.1f} cycles, {1e3 * cycles / clock:.4f} ms at {clock / 1e6:g} MHz")
    show("slot efficiency", f"{100 * efficiency:.1f} %")
    print(
        "\nWhat to try next:\n"
        "  .venv/bin/gossamer bench sparsity\n"
        "      bytes and cycles of one layer as its density falls, beside dense\n"
        "  .venv/bin/pip install -e .[build]; .venv/bin/gossamer build --board icebreaker\n"
        "      the engine as a bitstream\n"
        "  .venv/bin/gossamer compress --help\n"
        "      your own network, from .npz or .safetensors"
    )
    return int(differ != 0)


if __name__ == "__main__":
    sys.exit(main())
