# SPDX-License-Identifier: BSD-2-Clause
"""Cycles of one pruned LeNet-300-100, the same on every engine: MNIST's test images, simulated RTL.

The network has 8, 9 and 26 % of its weights left and 64 shared values a layer; it was trained on
MNIST's training images with the methods of Deep Compression.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np

from ..host import golden
from ..host.compiler.quantize import Ints, QuantizedNetwork
from ..host.compression import model_file
from ..host.errors import DeviceError
from ..host.session import Session
from .mnist import Digits

__all__ = ["Cycles", "measure_cycles"]

MODEL = "lenet300100_pruned.gossamer"
CHUNK = 500

Note = Callable[[str], None]


@dataclass(frozen=True)
class Cycles:
    """What an engine takes for an image.

    Parameters
    ----------
    device : str
    pes : int
    images : int
    cycles_per_image : float
        Mean, from RUN with the inputs on the chip until the last sums are drained.
    active_nonzeros_per_image : float
        Mean over the images of the nonzero weights whose activation is not zero.
    slot_efficiency : float
        Active nonzeros per PE and cycle.
    clock_mhz : float
        Of the device.
    active_nonzeros_per_second : float
        At that clock, without the link.
    error : float
        Wrong answers in percent.
    """

    device: str
    pes: int
    images: int
    cycles_per_image: float
    active_nonzeros_per_image: float
    slot_efficiency: float
    clock_mhz: float
    active_nonzeros_per_second: float
    error: float


def measure_cycles(test: Digits, device: str, note: Note) -> Cycles:
    """Run the images on a simulated board, every output compared with the golden model.

    Raises
    ------
    DeviceError
        The device fails, or its outputs are not those of the golden model.
    """
    with as_file(files("gossamer.bench").joinpath(MODEL)) as path:
        model = model_file.load(path)
    cycles = active = wrong = 0
    with Session(model, device) as session:
        assert session.device is not None
        identity = session.device.identity
        for start in range(0, len(test.labels), CHUNK):
            q = session.quantize(test.images[start : start + CHUNK])
            outputs = session.run_quantized(q)
            expected = golden.run_layers(session.network, q)
            if not np.array_equal(outputs, expected[-1]):
                raise DeviceError(
                    f"{device}: results differ from the golden model, expected them equal; run "
                    "gossamer verify"
                )
            assert session.last_stats is not None
            cycles += session.last_stats.cycles
            active += _active_nonzeros(session.network, [q, *expected[:-1]])
            wrong += int((outputs.argmax(axis=1) != test.labels[start : start + CHUNK]).sum())
            note(f"{device}: {start + len(q):,} of {len(test.labels):,} images")
    images = len(test.labels)
    rate = active / (cycles / identity.clock_hz)
    return Cycles(
        device=device,
        pes=identity.config.n_pes,
        images=images,
        cycles_per_image=cycles / images,
        active_nonzeros_per_image=active / images,
        slot_efficiency=active / (identity.config.n_pes * cycles),
        clock_mhz=identity.clock_hz / 1e6,
        active_nonzeros_per_second=rate,
        error=100 * wrong / images,
    )


def _active_nonzeros(network: QuantizedNetwork, inputs: list[Ints]) -> int:
    """Nonzero weights that meet a nonzero activation, over all layers and images."""
    return sum(
        int((q != 0).sum(axis=0) @ (layer.weights() != 0).sum(axis=0))
        for layer, q in zip(network.layers, inputs, strict=True)
    )
