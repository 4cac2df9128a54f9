# SPDX-License-Identifier: BSD-2-Clause
"""Delays by a number of cycles, so that they can be made from the latencies that blocks state."""

from typing import Any

from amaranth import Module, Signal

__all__ = ["delay"]


def delay(m: Module, value: Any, cycles: int) -> Any:
    """`value`, a signal or view, `cycles` cycles later; registers are reset."""
    for _ in range(cycles):
        later = Signal.like(value)
        m.d.sync += later.eq(value)
        value = later
    return value
