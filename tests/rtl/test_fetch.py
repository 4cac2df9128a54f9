# SPDX-License-Identifier: BSD-2-Clause
"""Fetch: addresses of entries and biases, one a cycle, with what belongs to each word."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.fetch import Fetch
from gossamer.sim.streams import idle, send
from rtl_models import PAUSES, SMALL, layer_values, pauses, signed8, simulate

CONFIGS = [
    SMALL,
    replace(SMALL, entry_bits=12, weight_depth=1000),
    EngineConfig(n_pes=1, entry_bits=36, weight_depth=512, rows_per_pe=16),
]
IDS = ["2 bias words", "3 bias words", "1 bias word"]


def layer(bias_base, n_rows, signed_in, config):
    record = {
        "bias_base": bias_base,
        "last_drain_word": n_rows * config.bias_words - 1,
        "signed_in": int(signed_in),
    }
    return layer_values(record, config)


def words_of(item, number, parameters, config):
    """(address, mac, drain, row_done, row, last, value, parity) of each word; None if open."""
    parity = number % 2
    if item["end"]:
        n_words = parameters["last_drain_word"] + 1
        for k in range(n_words):
            row, word = divmod(k, config.bias_words)
            done = int(word == config.bias_words - 1)
            address = parameters["bias_base"] + k
            yield address, 0, 1, done, row, int(k == n_words - 1), None, parity
    else:
        value = signed8(item["value"]) if parameters["signed_in"] else item["value"]
        for k in range(item["count"]):
            yield item["base"] + k, 1, 0, None, None, None, value, parity


def matches(got, want):
    return all(w is None or g == w for g, w in zip(got, want, strict=True))


def random_items(rng, config, n_layers):
    """(parameters, items of one layer, END behind them) of layer after layer."""
    out = []
    for number in range(n_layers):
        n_rows = int(rng.integers(1, config.rows_per_pe + 1))
        room = config.weight_depth - n_rows * config.bias_words
        parameters = layer(int(rng.integers(0, room)), n_rows, number % 3 == 0, config)
        items = []
        for _ in range(int(rng.integers(0, 8))):
            count = int(rng.choice([1, 1, 2, 5, 16]))
            base = int(rng.integers(0, config.weight_depth - count + 1))
            value = int(rng.integers(0, 256))
            items.append({"base": base, "count": count, "value": value, "end": 0})
        out.append((parameters, [*items, {"base": 7, "count": 3, "value": 1, "end": 1}]))
    return out


async def observe(ctx, dut, seen):
    """Words as they come: the address a cycle before what describes it."""
    address = None
    while True:
        _, _, read, now, *rest = await ctx.tick().sample(
            dut.read, dut.address, dut.mac, dut.drain, dut.row_done, dut.row, dut.last,
            dut.value, dut.parity,
        )  # fmt: skip
        seen.append((address, *rest) if rest[0] or rest[1] else None)
        address = now if read else None


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_layers(config, share):
    rng = np.random.default_rng(3)
    layers = random_items(rng, config, 12)
    dut = Fetch(config)
    seen, cycles = [], 0

    async def feed(ctx):
        nonlocal cycles
        gaps = pauses(1, share)
        for number, (parameters, items) in enumerate(layers):
            # Layer l - 2 is over: its END was taken before the END of l - 1.
            ctx.set(dut.layers[number % 2], parameters)
            cycles += await send(ctx, dut.i, items, gaps)
        await idle(ctx, 50)

    async def watcher(ctx):
        await observe(ctx, dut, seen)

    simulate(dut, feed, background=[watcher])
    want = [
        word
        for number, (parameters, items) in enumerate(layers)
        for item in items
        for word in words_of(item, number, parameters, config)
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
        ctx.set(dut.layers[0], layer(0, 1, True, SMALL))
        ctx.set(dut.i.payload, {"base": 40, "count": 3, "value": 0x80, "end": 0})
        ctx.set(dut.i.valid, 1)
        for _ in range(7):
            _, _, *now = await ctx.tick().sample(
                dut.i.ready, dut.read, dut.address, dut.mac, dut.value
            )
            seen.append(tuple(now))

    simulate(dut, bench)
    assert [now[0] for now in seen] == [1, 0, 0, 1, 0, 0, 1]
    assert [now[1] for now in seen] == [0] + [1] * 6
    assert [now[2] for now in seen[1:]] == [40, 41, 42] * 2
    assert [now[3] for now in seen] == [0, 0] + [1] * 5
    assert {now[4] for now in seen[2:]} == {-128}


@pytest.mark.parametrize(
    ("signed_in", "value", "want"),
    [(0, 255, 255), (0, 128, 128), (1, 255, -1), (1, 128, -128), (1, 127, 127), (0, 0, 0)],
)
def test_sign_of_the_operand(signed_in, value, want):
    dut = Fetch(SMALL)
    got = []

    async def bench(ctx):
        ctx.set(dut.layers[0], layer(0, 1, signed_in, SMALL))
        ctx.set(dut.layers[1], layer(0, 1, not signed_in, SMALL))
        await send(ctx, dut.i, [{"base": 0, "count": 1, "value": value, "end": 0}])
        await idle(ctx, 1)
        got.append(ctx.get(dut.value))

    simulate(dut, bench)
    assert got == [want]


def test_longest_slice_and_last_address():
    """A count at its maximum that ends with the last word of the memory."""
    config = replace(SMALL, count_bits=4)
    count = (1 << config.wide_count_bits) - 1
    dut = Fetch(config)
    seen = []

    async def bench(ctx):
        ctx.set(dut.layers[0], layer(0, 1, False, config))
        item = {"base": config.weight_depth - count, "count": count, "value": 1, "end": 0}
        await send(ctx, dut.i, [item])
        await idle(ctx, count + 3)

    async def watcher(ctx):
        await observe(ctx, dut, seen)

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
        parameters = [layer(3, 2, True, SMALL), layer(100, 1, False, SMALL)]
        ctx.set(dut.layers, parameters)
        items = [
            {"base": 20, "count": 4, "value": 0x90, "end": 0},
            {"base": 0, "count": 0, "value": 0, "end": 1},
        ]
        for length in range(1, 24):
            ctx.set(dut.i.valid, 1)
            place = 0
            for _ in range(length):
                ctx.set(dut.i.payload, items[place % 2])
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
            want.append([w for item in items for w in words_of(item, 0, parameters[0], SMALL)])

    async def watcher(ctx):
        await observe(ctx, dut, seen)

    simulate(ResetInserter(reset)(dut), bench, background=[watcher])
    for got, words in zip(found, want, strict=True):
        assert len(got) == len(words)
        assert all(matches(g, w) for g, w in zip(got, words, strict=True))
