# SPDX-License-Identifier: BSD-2-Clause
"""Clock, reset and streams for cocotb benches.

Inputs change at the falling edge only and everything is read once it has settled after that, so the
values read are those that the next rising edge will see, whatever the simulator's order of events.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from ...host.compiler.compiler import Image
from .vectors import bus_words

__all__ = ["pauses", "receive", "reset", "send", "step", "unsigned", "watch", "write_image"]


def pauses(seed: int, share: float = 0.5, longest: int = 4) -> Iterator[int]:
    """Yield idle cycles for ever: 0 with probability 1 - `share`, else 1..`longest`."""
    rng = random.Random(seed)
    while True:
        yield rng.randint(1, longest) if rng.random() < share else 0


def unsigned(handle: Any) -> int:
    """Value of a signal that must be known."""
    value = handle.value
    assert value.is_resolvable, f"{handle._name} is {value}"
    return value.to_unsigned() if hasattr(value, "to_unsigned") else int(value)


async def reset(dut: Any) -> None:
    """Start the clock, hold reset for two cycles, release it at a falling edge."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def step(dut: Any) -> None:
    """Go on to the next falling edge, where inputs may change."""
    await FallingEdge(dut.clk)


async def send(
    dut: Any, name: str, values: Iterable[int], gaps: Iterator[int] | None = None, limit: int = 5000
) -> None:
    """Send payloads into the stream `name`; an item waits `limit` cycles for `ready` at most."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    payload = getattr(dut, f"{name}__payload")
    for index, value in enumerate(values):
        for _ in range(next(gaps) if gaps is not None else 0):
            valid.value = 0
            await step(dut)
        valid.value = 1
        payload.value = value
        for _ in range(limit):
            await ReadOnly()
            taken = unsigned(ready)
            await step(dut)
            if taken:
                break
        else:
            raise AssertionError(f"{name}: item {index} was not taken within {limit} cycles")
    valid.value = 0


async def receive(
    dut: Any, name: str, count: int, gaps: Iterator[int] | None = None, limit: int = 5000
) -> list[int]:
    """Take `count` payloads from the stream `name`; each must come within `limit` cycles."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    payload = getattr(dut, f"{name}__payload")
    items = []
    for index in range(count):
        for _ in range(next(gaps) if gaps is not None else 0):
            ready.value = 0
            await step(dut)
        ready.value = 1
        for _ in range(limit):
            await ReadOnly()
            given = unsigned(valid)
            if given:
                items.append(unsigned(payload))
            await step(dut)
            if given:
                break
        else:
            raise AssertionError(f"{name}: item {index} of {count} did not come in {limit} cycles")
    ready.value = 0
    return items


async def watch(dut: Any, name: str) -> None:
    """Check for ever that a stalled item stays valid and unchanged."""
    valid, ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
    payload = getattr(dut, f"{name}__payload")
    stalled = None
    while True:
        await FallingEdge(dut.clk)
        await ReadOnly()
        if unsigned(dut.rst):
            stalled = None
            continue
        if stalled is not None:
            assert unsigned(valid), f"{name}: valid fell before the item was taken"
            assert unsigned(payload) == stalled, f"{name}: payload changed while stalled"
        waiting = unsigned(valid) and not unsigned(ready)
        stalled = unsigned(payload) if waiting else None


async def write_image(dut: Any, image: Image) -> None:
    """Write an image through the loader's bus `write`, a word per cycle."""
    for kind, pe, address, word in bus_words(image):
        dut.write__en.value = 1
        dut.write__kind.value = kind
        dut.write__pe.value = pe
        dut.write__address.value = address
        dut.write__data.value = word
        await step(dut)
    dut.write__en.value = 0
