# SPDX-License-Identifier: BSD-2-Clause
"""Does an engine compute what its images say? Known networks that reach every word of a memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..compiler.compiler import compile_network
from ..golden import run
from .device import Device
from .patterns import Pattern, patterns

__all__ = ["Finding", "Track", "selftest"]

Track = Callable[[Iterable[Pattern], str, int], Iterator[Pattern]]
"""Hands items on and shows how far it is, as `console.track` does."""


@dataclass(frozen=True)
class Finding:
    """What the patterns for one memory showed.

    Parameters
    ----------
    memory : str
    patterns : int
        Networks that were run.
    outputs, wrong : int
        Their outputs, and those that are not the golden model's.
    pes : tuple of int
        PEs that computed wrong ones.
    """

    memory: str
    patterns: int
    outputs: int
    wrong: int
    pes: tuple[int, ...]


def selftest(device: Device, track: Track) -> list[Finding]:
    """Test the memories of a device's array; the image that it holds is replaced.

    Raises
    ------
    DeviceError
        The device fails.
    """
    config = device.identity.config
    every = list(patterns(config))
    found: dict[str, Finding] = {}
    with device.lock:
        for one in track(every, "patterns", len(every)):
            image = compile_network(one.network, config)
            device.load(image)
            results, _ = device.infer(one.inputs)
            wrong = results[:, image.output_slots] != run(one.network, one.inputs)
            pes = np.unique(image.output_slots[wrong.any(axis=0)] % config.n_pes).tolist()
            old = found.get(one.memory, Finding(one.memory, 0, 0, 0, ()))
            found[one.memory] = Finding(
                one.memory,
                old.patterns + 1,
                old.outputs + wrong.size,
                old.wrong + int(wrong.sum()),
                tuple(sorted({*old.pes, *pes})),
            )
    return list(found.values())
