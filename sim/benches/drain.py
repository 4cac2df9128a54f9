# SPDX-License-Identifier: BSD-2-Clause
"""Bench of a PE's drain: requantized rows against the golden arithmetic."""

import random
from typing import Any

import cocotb
import numpy as np

from ...rtl.arith import requantize
from ...rtl.config import EngineConfig
from ...rtl.drain import Drain
from ...rtl.formats import program_fields
from ...rtl.layouts import token_layout
from .drive import pauses, receive, reset, step, watch
from .vectors import pack_layer

__all__ = ["CONFIG", "drained_rows", "top"]

CONFIG = EngineConfig(n_pes=1, rows_per_pe=64, sum_bits=24)


def top() -> Drain:
    """The block under test."""
    return Drain(CONFIG)


def random_sum(rng: random.Random, shift: int, bias: int) -> int:
    """A sum whose result lies near the clamp's limits or within, or any sum at all."""
    half = 1 << (CONFIG.sum_bits - 1)
    near = (rng.randint(-300, 300) << shift) + rng.randrange(1 << shift) - bias
    extreme = abs(near) > half // 2 or rng.random() < 0.2
    return rng.randint(-half // 2, half // 2) if extreme else near


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(signed=[False, True], keep_zeros=[False, True], share=[0.0, 0.6])
async def drained_rows(dut: Any, signed: bool, keep_zeros: bool, share: float) -> None:
    """Layers of random sums, small and extreme, one after another; the list may not overflow."""
    rng = random.Random(f"{signed}{keep_zeros}{share}")
    dut.valid.value = 0
    dut.o__ready.value = 0
    await reset(dut)
    cocotb.start_soon(watch(dut, "o"))
    layout = token_layout(CONFIG, 0)
    half = 1 << (CONFIG.sum_bits - 1)
    for _ in range(6):
        rows = rng.randint(1, CONFIG.rows_per_pe)
        low, high = rng.choice([(-128, 127), (0, 127), (-5, 90)] if signed else [(0, 255), (0, 9)])
        record = {name: 0 for name, *_ in program_fields(CONFIG)}
        record |= {"low": low, "high": high, "signed_out": signed, "keep_zeros": keep_zeros}
        dut.layer.value = pack_layer(record, CONFIG)
        shift = [rng.randrange(CONFIG.sum_bits) for _ in range(rows)]
        bias = [rng.randint(-half // 4, half // 4) >> rng.randrange(20) for _ in range(rows)]
        sums = [random_sum(rng, *row) for row in zip(shift, bias, strict=True)]
        expected = requantize(np.array(sums), np.array(bias), np.array(shift), low, high)
        wanted = [
            {"row": row, "value": int(value) & 0xFF, "last": int(row == rows - 1), "pe": 0}
            for row, value in enumerate(expected)
            if value or keep_zeros or row == rows - 1
        ]
        gaps = pauses(rng.randrange(1 << 30), share) if share else None
        taker = cocotb.start_soon(receive(dut, "o", len(wanted), gaps))
        for row in range(rows):
            dut.valid.value = 1
            dut.sum.value = sums[row] & (2 * half - 1)
            dut.bias.value = bias[row] & (half - 1)
            dut.shift.value = shift[row]
            dut.row.value = row
            dut.last.value = int(row == rows - 1)
            await step(dut)
        dut.valid.value = 0
        found = [layout.from_bits(bits) for bits in await taker]
        got = [{name: int(item[name]) for name in wanted[0]} for item in found]
        assert got == wanted, f"{rows} rows, clamp {low}..{high}"
