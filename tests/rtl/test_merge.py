# SPDX-License-Identifier: BSD-2-Clause
"""Merge tree against a plain model of its nodes."""

import random

import pytest
from amaranth import Cat, ResetInserter, Signal
from gossamer.rtl.config import EngineConfig, ceil_log2
from gossamer.rtl.merge import MergeNode, MergeTree
from gossamer.sim.streams import idle, receive, send, watch
from rtl_models import PAUSES, pauses, simulate, wait


def config(n_pes):
    return EngineConfig(n_pes=n_pes, rows_per_pe=16, weight_depth=512)


def random_lists(rng, n_pes, n_layers):
    """Tokens of each PE: lists of (row, value, last), every layer ended by its last token."""
    lists = []
    for _ in range(n_pes):
        tokens = []
        for _ in range(n_layers):
            rows = sorted(rng.sample(range(15), rng.choice([0, 0, 1, 3, 9])))
            tokens += [(row, rng.randrange(1, 256), 0) for row in rows]
            tokens.append((15, rng.randrange(256), 1))
        lists.append(tokens)
    return lists


def payload(token):
    row, value, last = token
    return {"row": row, "value": value, "last": last}


def run_tree(n_pes, lists, share=0.0, sink=None, seed=1):
    """(pe, row, value, last) of all tokens as they come out."""
    dut = MergeTree(config(n_pes))
    got = []

    def feed(k):
        async def bench(ctx):
            tokens = [payload(token) for token in lists[k]]
            await send(ctx, getattr(dut, f"i{k}"), tokens, pauses(seed + k, share), limit=5000)

        return bench

    async def collect(ctx):
        count = sum(map(len, lists))
        items = await receive(ctx, dut.o, count, pauses(99, share if sink is None else sink))
        got.extend((item.pe, item.row, item.value, item.last) for item in items)
        await idle(ctx, 8)
        assert not ctx.get(dut.o.valid)

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, *[feed(k) for k in range(n_pes)], collect, background=[check])
    return got


def check_tokens(got, lists, n_layers):
    """Every PE's tokens in its own order; the n-th `last` closes layer n, when all is out."""
    n_pes = len(lists)
    for pe in range(n_pes):
        mine = [token[:2] for token in lists[pe]]
        assert [(row, value) for p, row, value, _ in got if p == pe] == mine, f"PE {pe}"
    closing = [k for k, token in enumerate(got) if token[3]]
    assert len(closing) == n_layers
    assert closing[-1] == len(got) - 1
    sizes = [[k + 1 for k, token in enumerate(tokens) if token[2]] for tokens in lists]
    for layer, place in enumerate(closing):
        assert place + 1 == sum(ends[layer] for ends in sizes), f"layer {layer}"


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize("n_pes", [1, 3, 5])
def test_layers_stay_apart(n_pes, share):
    lists = random_lists(random.Random(n_pes), n_pes, 12)
    check_tokens(run_tree(n_pes, lists, share), lists, 12)


def test_stalled_sink():
    lists = random_lists(random.Random(3), 5, 12)
    check_tokens(run_tree(5, lists, sink=0.9), lists, 12)


class Node:
    """A node's choice, when both inputs always have their next token."""

    def __init__(self, a, b, bit):
        self.sides = [list(a), list(b)]
        self.bit = bit

    def order(self):
        out, turn, ended = [], 0, [False, False]
        a, b = self.sides
        while a or b:
            can = [bool(side) and not end for side, end in zip(self.sides, ended, strict=True)]
            side = turn if can[turn] else 1 - turn
            pe, row, value, last = self.sides[side].pop(0)
            turn = 1 - side
            closing = last and ended[1 - side]
            ended[side] |= bool(last)
            if closing:
                ended = [False, False]
            out.append((pe | side << self.bit, row, value, int(closing)))
        return out


def in_turn(lists):
    """Order of the tree when nothing ever waits for an input: round robin, PE 0 first."""
    level = [[(0, *token) for token in tokens] for tokens in lists]
    for bit in range(ceil_log2(len(lists))):
        pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
        level = [Node(*pair, bit).order() if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


@pytest.mark.parametrize("n_pes", [1, 2, 4, 64])
def test_order_at_full_rate(n_pes):
    """Full lists leave in turn, lowest PE first, at one token a cycle after a cycle per level."""
    rng = random.Random(8)
    lists = [[(row, rng.randrange(256), row) for row in range(2)] for _ in range(n_pes)]
    dut = MergeTree(config(n_pes))
    levels = ceil_log2(n_pes)
    total = 2 * n_pes
    seen = []

    async def collect(ctx):
        # All inputs by hand: a stream helper per input would take most of the time at 64.
        ports = [getattr(dut, f"i{k}") for k in range(n_pes)]
        ctx.set(dut.o.ready, 1)
        left = [list(tokens) for tokens in lists]
        for k, port in enumerate(ports):
            ctx.set(port.payload, payload(left[k][0]))
            ctx.set(port.valid, 1)
        for _ in range(total + levels + 2):
            out = dut.o.p
            _, _, valid, *token, taken = await ctx.tick().sample(
                dut.o.valid, out.pe, out.row, out.value, out.last, _taken(ports)
            )
            seen.append(tuple(token) if valid else None)
            for k in range(n_pes):
                if taken >> k & 1:
                    left[k].pop(0)
                    if left[k]:
                        ctx.set(ports[k].payload, payload(left[k][0]))
                    else:
                        ctx.set(ports[k].valid, 0)

    simulate(dut, collect)
    want = in_turn(lists)
    # The tree serves its halves in turn.
    assert [token[0] for token in want[:n_pes]] == [
        int(f"{k:0{levels}b}"[::-1], 2) if levels else 0 for k in range(n_pes)
    ]
    assert seen[:levels] == [None] * levels
    assert [token for token in seen if token] == want
    assert seen[levels : levels + total] == want, "a gap at full rate"


@pytest.mark.parametrize("n_pes", [3, 5])
def test_full_rate_of_an_uneven_tree(n_pes):
    """Paths of unequal length leave no gaps either."""
    lists = [[(row, row, int(row == 5)) for row in range(6)] for _ in range(n_pes)]
    dut = MergeTree(config(n_pes))
    gaps = []

    def feed(k):
        async def bench(ctx):
            await send(ctx, getattr(dut, f"i{k}"), [payload(token) for token in lists[k]])

        return bench

    async def collect(ctx):
        ctx.set(dut.o.ready, 1)
        await wait(ctx, dut.o.valid)
        await ctx.tick()
        for _ in range(6 * n_pes - 1):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            gaps.append(not valid)
        assert not ctx.get(dut.o.valid)

    simulate(dut, *[feed(k) for k in range(n_pes)], collect)
    assert not any(gaps)


def _taken(ports):
    return Cat(port.ready & port.valid for port in ports)


def test_input_alone_passes_at_full_rate():
    """A node serves one input every cycle while the other has nothing, or has ended its layer."""
    for silent in ("a", "b"):
        dut = MergeNode(config(2), pe_bits=0)
        cycles = []

        async def bench(ctx, dut=dut, silent=silent, cycles=cycles):
            talking, quiet = (dut.b, dut.a) if silent == "a" else (dut.a, dut.b)
            ctx.set(dut.o.ready, 1)
            await send(ctx, quiet, [payload((0, 0, 1))])
            tokens = [payload((row, row, int(row == 9))) for row in range(10)]
            cycles.append(await send(ctx, talking, tokens))
            ctx.set(quiet.valid, 1)  # the next layer may begin
            _, _, ready = await ctx.tick().sample(quiet.ready)
            cycles.append(ready)

        simulate(dut, bench)
        assert cycles == [10, 1]


def test_no_input_gets_ahead_by_a_layer():
    """An input that has ended its layer is not taken before the other has, too."""
    dut = MergeNode(config(2), pe_bits=0)
    ready = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        await send(ctx, dut.a, [payload((1, 1, 1))])
        ctx.set(dut.a.payload, payload((2, 2, 0)))
        ctx.set(dut.a.valid, 1)
        for _ in range(3):
            _, _, taken = await ctx.tick().sample(dut.a.ready)
            ready.append(taken)
        await send(ctx, dut.b, [payload((3, 3, 1))])
        _, _, taken = await ctx.tick().sample(dut.a.ready)
        ready.append(taken)

    simulate(dut, bench)
    assert ready == [0, 0, 0, 1]


def test_reset_in_mid_stream():
    """No ended side, token or turn survives a reset."""
    n_pes = 3
    dut = MergeTree(config(n_pes))
    reset = Signal()
    got = []
    ports = [getattr(dut, f"i{k}") for k in range(n_pes)]

    async def bench(ctx):
        for cycles in range(1, 9):
            for k, port in enumerate(ports):
                ctx.set(port.payload, payload((k, 200 + k, k != 1)))
                ctx.set(port.valid, 1)
            ctx.set(dut.o.ready, cycles % 2)
            await idle(ctx, cycles)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.o.ready, 0)
            for k, port in enumerate(ports):
                ctx.set(port.payload, payload((k, 100 + k, 1)))
            for port in ports:
                ctx.set(port.valid, 1)
            items = []
            for _ in range(12):
                ctx.set(dut.o.ready, 1)
                out = dut.o.p
                _, _, valid, *token, taken = await ctx.tick().sample(
                    dut.o.valid, out.pe, out.value, out.last, _taken(ports)
                )
                for k, port in enumerate(ports):
                    if taken >> k & 1:
                        ctx.set(port.valid, 0)
                if valid:
                    items.append(tuple(token))
            got.append(items)

    simulate(ResetInserter(reset)(dut), bench)
    # PE 2 has one level less to go.
    assert got == [[(2, 102, 0), (0, 100, 0), (1, 101, 1)]] * 8
