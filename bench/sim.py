# SPDX-License-Identifier: BSD-2-Clause
"""How fast the simulated board is: clock cycles per second of processor, through the driver.

A network of LeNet-300-100's size and densities runs on the default engine of 16 PEs, inputs and
results on the byte link; cycles in which only the link works count as any others.
"""

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..host import golden
from ..host.compression.compress import compress
from ..host.compression.recipe import Recipe
from ..host.device.device import Device
from ..host.errors import DeviceError
from ..host.network import Layer, Network
from ..host.session import Session
from ..rtl.config import EngineConfig
from ..rtl.tools import Progress
from ..sim.board import SimulatedBoard

__all__ = ["IMAGES", "SimResult", "measure"]

SIZES = (784, 300, 100, 10)
WEIGHTS, INPUTS = 0.08, 0.2
"""Shares of nonzeros."""
IMAGES = 500
SEED = 300


@dataclass(frozen=True)
class SimResult:
    """What was measured.

    Parameters
    ----------
    pes : int
    images, cycles : int
        Inputs that were run, and clock cycles simulated meanwhile.
    seconds : float
        Of the processor, for all that happens from the inputs to the results.
    cycles_per_second : float
    """

    pes: int
    images: int
    cycles: int
    seconds: float
    cycles_per_second: float


def measure(progress: Progress) -> SimResult:
    """Run the network; loading is not measured.

    Raises
    ------
    DeviceError
        Results are not those of the golden model.
    ToolError
        What builds the simulation is missing or failed.
    """
    config = EngineConfig()
    rng = np.random.default_rng(SEED)
    x = (rng.random((IMAGES, SIZES[0])) * (rng.random((IMAGES, SIZES[0])) < INPUTS)).astype("f4")
    layers = [
        Layer(f"fc{k + 1}", rng.normal(0, n_in**-0.5, (n_out, n_in)).astype("f4"), None, "relu")
        for k, (n_in, n_out) in enumerate(pairwise(SIZES))
    ]
    model = compress(Network(tuple(layers)), Recipe(default={"density": WEIGHTS, "codes": 16}), x)
    board = SimulatedBoard(config, progress=progress)
    with Device(board, "simulated engine") as device:
        session = Session(model, device)
        q = session.quantize(x)
        session.run_quantized(q[:1])
        before, started = board.cycles, time.process_time()
        outputs = session.run_quantized(q)
        seconds, cycles = time.process_time() - started, board.cycles - before
    if not np.array_equal(outputs, golden.run(session.network, q)):
        raise DeviceError(
            "simulated engine: results differ from the golden model, expected them equal; run "
            "gossamer verify"
        )
    return SimResult(config.n_pes, IMAGES, cycles, seconds, cycles / seconds)
