# SPDX-License-Identifier: BSD-2-Clause
"""Fetch: addresses of entries, one a cycle, with what belongs to each word, and rows to drain."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.fetch import Fetch
from gossamer.sim.streams import idle, send
from rtl_models import PAUSES, SMALL, drain_work, layer_values, pauses, simulate, slice_work

CONFIGS = [
    SMALL,
    replace(SMALL, entry_bits=12, weight_depth=1000),
    EngineConfig(n_pes=1, activation_bits=16, sum_bits=36, entry_bits=36, rows_per_pe=16),
]
IDS = ["18 bits", "12 bits", "16-bit activations"]


def layer(n_rows, signed_in, config):
    return layer_values({"last_row": n_rows - 1, "signed_in": int(signed_in)}, config)


def words_of(items, number, parameters, config):
    """(address, mac, row, last, operand or bias, parity) of each word or row; None if open."""
    parity, row = number % 2, 0
    for item in items:
        if item["drain"]:
            bias = item["body"]["bias"]
            yield None, 0, row, int(row == parameters["last_row"]), bias, parity
            row += 1
            continue
        part = item["body"]["slice"]
        top = part["value"] >> config.activation_bits - 1 & parameters["signed_in"]
        operand = part["value"] - (top << config.activation_bits)
        for k in range(part["count"]):
            yield part["base"] + k, 1, None, None, operand, parity


def matches(got, want):
    return all(w is None or g == w for g, w in zip(got, want, strict=True))


def random_items(rng, config, n_layers):
    """(parameters, slices of one layer and its rows behind them) of layer after layer."""
    out = []
    for number in range(n_layers):
        n_rows = int(rng.integers(1, config.rows_per_pe + 1))
        items = []
        for _ in range(int(rng.integers(0, 8))):
            count = int(rng.choice([1, 1, 2, 5, 16]))
            base = int(rng.integers(0, config.weight_depth - count + 1))
            value = int(rng.integers(0, 1 << config.activation_bits))
            items.append({"body": {"slice": {"value": value, "count": count, "base": base}}})
            items[-1]["drain"] = 0
        biases = rng.integers(0, 1 << config.bias_bits, n_rows).tolist()
        out.append((layer(n_rows, number % 3 == 0, config), [*items, *drain_work(biases)]))
    return out


async def observe(ctx, dut, config, seen):
    """Words and rows as they come: the address a cycle before what describes it."""
    address = None
    mask = (1 << config.activation_bits) - 1
    while True:
        _, _, read, now, mac, drain, row, last, body, sign, parity = await ctx.tick().sample(
            dut.read, dut.address, dut.mac, dut.drain, dut.row, dut.last, dut.body, dut.sign,
            dut.parity,
        )  # fmt: skip
        assert not (mac and drain)
        operand = (body & mask) - (sign << config.activation_bits) if mac else body
        seen.append((address, mac, row, last, operand, parity) if mac or drain else None)
        address = now if read else None


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_layers(config, share):
    rng = np.random.default_rng(3)
    layers = random_items(rng, config, 12)
    dut = Fetch(config)
    seen = []

    async def feed(ctx):
        gaps = pauses(1, share)
        for number, (parameters, items) in enumerate(layers):
            # Layer l - 2 is over: its last row was taken before those of l - 1.
            ctx.set(dut.layers[number % 2], parameters)
            await send(ctx, dut.i, items, gaps)
        await idle(ctx, 50)

    async def watcher(ctx):
        await observe(ctx, dut, config, seen)

    simulate(dut, feed, background=[watcher])
    want = [
        word
        for number, (parameters, items) in enumerate(layers)
        for word in words_of(items, number, parameters, config)
    ]
    got = [word for word in seen if word]
    assert len(got) == len(want)
    for k in range(len(want)):
        assert matches(got[k], want[k]), f"word {k}: {got[k]}, expected {want[k]}"
    if not share:
        first = next(k for k, word in enumerate(seen) if word)
        assert None not in seen[first : first + len(want)], "a gap at full rate"


def test_latency():
    """Address one cycle after a slice was taken, the rest a cycle later; ready with the last."""
    dut = Fetch(SMALL)
    seen = []

    async def bench(ctx):
        ctx.set(dut.layers[0], layer(1, True, SMALL))
        ctx.set(dut.i.payload, slice_work(40, 3, 0x80))
        ctx.set(dut.i.valid, 1)
        for _ in range(7):
            _, _, *now = await ctx.tick().sample(
                dut.i.ready, dut.read, dut.address, dut.mac, dut.body[:8], dut.sign
            )
            seen.append(tuple(now))

    simulate(dut, bench)
    assert [now[0] for now in seen] == [1, 0, 0, 1, 0, 0, 1]
    assert [now[1] for now in seen] == [0] + [1] * 6
    assert [now[2] for now in seen[1:]] == [40, 41, 42] * 2
    assert [now[3] for now in seen] == [0, 0] + [1] * 5
    assert {now[4:] for now in seen[2:]} == {(0x80, 1)}


@pytest.mark.parametrize(
    ("signed_in", "value", "want"),
    [(0, 255, 0), (0, 128, 0), (1, 255, 1), (1, 128, 1), (1, 127, 0), (0, 0, 0)],
)
def test_sign_of_the_operand(signed_in, value, want):
    dut = Fetch(SMALL)
    got = []

    async def bench(ctx):
        ctx.set(dut.layers[0], layer(1, signed_in, SMALL))
        ctx.set(dut.layers[1], layer(1, not signed_in, SMALL))
        await send(ctx, dut.i, [slice_work(0, 1, value)])
        await idle(ctx, 1)
        got.append((ctx.get(dut.sign), ctx.get(dut.body[:8])))

    simulate(dut, bench)
    assert got == [(want, value)]


def test_longest_slice_and_last_address():
    """A count at its maximum that ends with the last word of the memory."""
    config = replace(SMALL, count_bits=4)
    count = (1 << config.wide_count_bits) - 1
    dut = Fetch(config)
    seen = []

    async def bench(ctx):
        ctx.set(dut.layers[0], layer(1, False, config))
        await send(ctx, dut.i, [slice_work(config.weight_depth - count, count, 1)])
        await idle(ctx, count + 3)

    async def watcher(ctx):
        await observe(ctx, dut, config, seen)

    simulate(dut, bench, background=[watcher])
    addresses = [word[0] for word in seen if word]
    assert addresses == list(range(config.weight_depth - count, config.weight_depth))


def test_reset_in_mid_stream():
    """In a slice or a drain, on either parity: the next layer is the first again."""
    dut = Fetch(SMALL)
    reset = Signal()
    found, want = [], []
    seen = []

    async def bench(ctx):
        parameters = [layer(3, True, SMALL), layer(1, False, SMALL)]
        ctx.set(dut.layers, parameters)
        items = [slice_work(20, 4, 0x90), *drain_work([5, 1 << 34, 7])]
        for length in range(1, 24):
            ctx.set(dut.i.valid, 1)
            place = 0
            for _ in range(length):
                ctx.set(dut.i.payload, items[place % 4])
                _, _, ready = await ctx.tick().sample(dut.i.ready)
                place += ready
            ctx.set(dut.i.valid, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await idle(ctx, 1)
            seen.clear()
            await send(ctx, dut.i, items)
            await idle(ctx, 8)
            found.append([word for word in seen if word])
            want.append([*words_of(items, 0, parameters[0], SMALL)])

    async def watcher(ctx):
        await observe(ctx, dut, SMALL, seen)

    simulate(ResetInserter(reset)(dut), bench, background=[watcher])
    for got, words in zip(found, want, strict=True):
        assert len(got) == len(words)
        assert all(matches(g, w) for g, w in zip(got, words, strict=True))
