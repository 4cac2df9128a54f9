# SPDX-License-Identifier: BSD-2-Clause
import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.accumulate import Accumulator
from rtl_models import SMALL, simulate

CONFIGS = [replace(SMALL, rows_per_pe=rows, sum_bits=bits) for rows, bits in [(2, 24), (16, 32)]]


class Sums:
    """The accumulator as a Python list."""

    def __init__(self, rows):
        self.rows = [0] * rows

    def apply(self, operation):
        """The sum taken, or None."""
        kind, row, weight, operand = operation
        if kind == "take":
            value, self.rows[row] = self.rows[row], 0
            return value
        if kind == "add":
            self.rows[row] += weight * operand
        return None


async def drive(ctx, dut, operation):
    kind, row, weight, operand = operation
    ctx.set(dut.valid, kind != "idle")
    ctx.set(dut.take, kind == "take")
    ctx.set(dut.row, row)
    ctx.set(dut.weight, weight)
    ctx.set(dut.operand, operand)
    _, _, taken, value = await ctx.tick().sample(dut.taken, dut.sum)
    return value if taken else None


async def clear(ctx, dut, rows):
    ctx.set(dut.clear, 1)
    for row in range(rows):
        ctx.set(dut.clear_row, row)
        await ctx.tick()
    ctx.set(dut.clear, 0)


def check(config, operations):
    """Run operations in neighbouring cycles; each sum must come exactly `LATENCY` later."""
    dut = Accumulator(config)
    model = Sums(config.rows_per_pe)
    want = [None] * Accumulator.LATENCY + [model.apply(operation) for operation in operations]
    got = []

    async def bench(ctx):
        idle = [("idle", 0, 0, 0)] * Accumulator.LATENCY
        got.extend([await drive(ctx, dut, operation) for operation in [*operations, *idle]])

    simulate(dut, bench)
    assert got == want
    return model


@pytest.mark.parametrize("busy", [1.0, 0.5])
@pytest.mark.parametrize("config", CONFIGS, ids=["2 rows", "16 rows"])
def test_random_operations(config, busy):
    rng = random.Random(7)
    limit = 1 << (config.sum_bits - 1)
    model, operations = Sums(config.rows_per_pe), []
    for _ in range(800):
        kind = rng.choices(["add", "take"], [6, 1])[0] if rng.random() < busy else "idle"
        row = rng.randrange(config.rows_per_pe)
        weight, operand = rng.randint(-(2**15), 2**15 - 1), rng.randint(-128, 255)
        if kind == "add" and not -limit <= model.rows[row] + weight * operand < limit:
            kind = "take"
        operations.append((kind, row, weight, operand))
        model.apply(operations[-1])
    check(config, operations)


@pytest.mark.parametrize("row", [0, 15])
@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_same_row_again(distance, row):
    """A row that comes again some cycles later sees the sum before it, whatever lies between."""
    gap = [("add", (row + 1 + k) % 16, 9, 9) for k in range(distance - 1)]
    hit, take = ("add", row, -321, 200), ("take", row, 1, 1)
    for between in (gap, [("idle", row, 5, 5)] * (distance - 1)):
        operations = [hit, *between, hit, *between, take, *between, hit, *between, take, *between]
        check(SMALL, [*operations, take, *(("take", k, 0, 0) for k in range(16))])


@pytest.mark.parametrize("weight", [-(2**15), 2**15 - 1])
@pytest.mark.parametrize("operand", [-128, -1, 0, 127, 255])
def test_extreme_products(weight, operand):
    check(replace(SMALL, sum_bits=24), [("add", 3, weight, operand), ("take", 3, 0, 0)])


@pytest.mark.parametrize("bits", [24, 32])
def test_extreme_sums(bits):
    """Sums reach both ends of their range and come back."""
    top = (1 << (bits - 1)) - 1
    operations = []
    for end in (top, -top - 1):
        steps = [(2**15 - 1, 255)] * (abs(end) // ((2**15 - 1) * 255))
        rest = abs(end) - len(steps) * (2**15 - 1) * 255
        steps += [(rest // 255, 255), (rest % 255, 1)]
        sign = 1 if end > 0 else -1
        operations += [("add", 5, sign * weight, operand) for weight, operand in steps]
        operations += [("take", 5, 0, 0), ("take", 5, 0, 0)]
    model = Sums(16)
    taken = [model.apply(operation) for operation in operations]
    assert [value for value in taken if value] == [top, -top - 1]
    check(replace(SMALL, sum_bits=bits), operations)


def test_nothing_is_taken_without_take():
    got = []
    dut = Accumulator(SMALL)

    async def bench(ctx):
        ctx.set(dut.take, 1)
        for row in range(4):
            ctx.set(dut.row, row)
            _, _, taken = await ctx.tick().sample(dut.taken)
            got.append(taken)

    simulate(dut, bench)
    assert got == [0] * 4


def test_reset_in_mid_stream():
    """Reset stops an operation in flight; clearing leaves no residue and forwards nothing old."""
    rows = SMALL.rows_per_pe
    dut = Accumulator(SMALL)
    reset = Signal()
    found = []

    async def bench(ctx):
        for cycles in range(1, 6):
            for _ in range(cycles):
                await drive(ctx, dut, ("add", 3, 1000, 100))
            ctx.set(reset, 1)
            await drive(ctx, dut, ("add", 3, 1000, 100))
            ctx.set(reset, 0)
            ctx.set(dut.valid, 0)
            await clear(ctx, dut, rows)
            await drive(ctx, dut, ("add", 3, 7, 1))
            taken = [await drive(ctx, dut, ("take", row, 0, 0)) for row in range(rows)]
            taken.append(await drive(ctx, dut, ("idle", 0, 0, 0)))
            found.append(taken[1:])

    simulate(ResetInserter(reset)(dut), bench)
    assert found == [[0, 0, 0, 7] + [0] * (rows - 4)] * 5
