# SPDX-License-Identifier: BSD-2-Clause
"""Feed, collect and watch streams in Amaranth testbenches; every wait has a limit.

Pauses are given as iterators of idle cycles, so that the same test runs at full rate (`None`), with
random gaps, or with a hand-made pattern.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from amaranth.lib import stream
from amaranth.sim._async import SimulatorContext

__all__ = ["StreamTimeout", "idle", "random_pauses", "receive", "send", "watch"]


class StreamTimeout(AssertionError):
    """A stream did not move within the limit."""


def random_pauses(seed: int, share: float = 0.5, longest: int = 4) -> Iterator[int]:
    """Yield idle cycles for ever: 0 with probability 1 - `share`, else 1..`longest`."""
    rng = random.Random(seed)
    while True:
        yield rng.randint(1, longest) if rng.random() < share else 0


async def idle(ctx: SimulatorContext, cycles: int) -> None:
    """Let `cycles` cycles pass (unlike `repeat`, quiet when a failing test abandons it)."""
    for _ in range(cycles):
        await ctx.tick()


async def send(
    ctx: SimulatorContext,
    target: stream.Interface,
    values: Iterable[Any],
    pauses: Iterator[int] | None = None,
    limit: int = 1000,
) -> int:
    """Send `values` into an input stream, at one item per cycle where the block allows it.

    Parameters
    ----------
    ctx : SimulatorContext
        Context of the calling testbench.
    target : stream
        Input stream of the block; its `valid` and `payload` are driven and `valid` is left low.
    values : iterable
        Payloads: ints, or dicts for structures.
    pauses : iterator of int, optional
        Idle cycles before each item.
    limit : int
        Cycles that one item may wait for `ready`.

    Returns
    -------
    int
        Cycles taken.

    Raises
    ------
    StreamTimeout
        An item was not taken in time; names its index.
    """
    cycles = 0
    for index, value in enumerate(values):
        pause = next(pauses) if pauses is not None else 0
        if pause:
            ctx.set(target.valid, 0)
            await idle(ctx, pause)
        ctx.set(target.payload, value)
        ctx.set(target.valid, 1)
        for waited in range(limit):
            _, _, ready = await ctx.tick().sample(target.ready)
            if ready:
                cycles += pause + waited + 1
                break
        else:
            raise StreamTimeout(f"item {index} was not taken within {limit} cycles")
    ctx.set(target.valid, 0)
    return cycles


async def receive(
    ctx: SimulatorContext,
    source: stream.Interface,
    count: int,
    pauses: Iterator[int] | None = None,
    limit: int = 1000,
) -> list[Any]:
    """Take `count` items from an output stream, at one item per cycle where the block allows it.

    Parameters
    ----------
    ctx : SimulatorContext
        Context of the calling testbench.
    source : stream
        Output stream of the block; its `ready` is driven and left low.
    count : int
        Items to take.
    pauses : iterator of int, optional
        Cycles of `ready` low before each item.
    limit : int
        Cycles that one item may take to become valid.

    Returns
    -------
    list
        Payloads: ints, or `data.Const` for structures.

    Raises
    ------
    StreamTimeout
        An item did not come in time; names its index.
    """
    items = []
    for index in range(count):
        pause = next(pauses) if pauses is not None else 0
        if pause:
            ctx.set(source.ready, 0)
            await idle(ctx, pause)
        ctx.set(source.ready, 1)
        for _ in range(limit):
            _, _, valid, payload = await ctx.tick().sample(source.valid, source.payload)
            if valid:
                items.append(payload)
                break
        else:
            raise StreamTimeout(f"item {index} of {count} did not come within {limit} cycles")
    ctx.set(source.ready, 0)
    return items


async def watch(ctx: SimulatorContext, port: stream.Interface) -> None:
    """Check for ever that a stalled item stays valid and unchanged (background testbench).

    Raises
    ------
    AssertionError
        `valid` fell or `payload` changed before the item was taken.
    """
    stalled = None
    cycle = 0
    while True:
        sample = ctx.tick().sample(port.valid, port.ready, port.payload)
        _, reset, valid, ready, payload = await sample
        if stalled is not None and not reset:
            assert valid, f"valid fell in cycle {cycle} before the item was taken"
            assert payload == stalled, f"payload changed while stalled in cycle {cycle}"
        stalled = payload if valid and not ready and not reset else None
        cycle += 1
