# SPDX-License-Identifier: BSD-2-Clause
"""Random conversations with a whole engine, judged by a model of the protocol."""

from dataclasses import replace

import numpy as np
import pytest
from engine_host import Host, check_counters, commit_of, input_of, load_of, outputs, run_of
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network
from gossamer.rtl.engine import Engine
from gossamer.rtl.formats import (
    Command,
    Identity,
    Status,
)
from gossamer.rtl.frames import Frame, FrameDecoder, encode_frame
from gossamer.sim.streams import idle, send
from networks import random_inputs, random_network
from rtl_models import SMALL, pauses, simulate

ODDS = {
    "input": 0.35, "run": 0.4, "status": 0.06, "abort": 0.05, "noise": 0.06, "load": 0.04,
    "commit": 0.04,
}  # fmt: skip
"""How often each kind of request comes."""


def random_requests(rng, image, network, n):
    """Requests (command, payload, what a model needs to know), and bytes in between."""
    q = random_inputs(rng, network, n, density=0.7)
    config = image.config
    for k in range(n):
        slot, number = int(rng.integers(2)), int(rng.integers(config.batch))
        kind = rng.choice(list(ODDS), p=list(ODDS.values()))
        if kind == "input":
            request = input_of(slot, q[k], number, config.activation_bytes)
            yield *request, (slot, number, q[k])
        elif kind == "run":
            yield *run_of(slot, number + 1), (slot, number + 1)
        elif kind == "status":
            yield Command.STATUS, b"", None
        elif kind == "abort":
            yield Command.ABORT, b"", None
        elif kind == "load":
            yield *load_of(4, image.data[4:8]), None  # a duplicate at best
        elif kind == "commit":
            yield *commit_of(image.data), None
        else:
            yield None, rng.bytes(int(rng.integers(1, 9))) + b"\x7e", None


def judge_conversation(sent, answers, network, image):
    """Walk through requests and answers in their order; return how many runs were answered.

    Every request has one answer in order, but a RUN that was accepted: its answer may come late,
    and not at all if an ABORT follows. What it says belongs to the inputs taken before it.
    """
    contents = np.zeros((2, image.config.batch, image.n_inputs), dtype=np.int64)
    answers = list(answers)
    direct = [a for a in answers if a[0] != Command.RUN | 0x80 or len(a[2]) == 1]
    results = [a for a in answers if a[0] == Command.RUN | 0x80 and len(a[2]) > 1]
    n_results = len(results)
    open_runs = []  # (seq, expected outputs (images, n_outputs)), before the next ABORT
    for command, seq, known in sent:
        if command == Command.RUN and not (direct and direct[0][:2] == (command | 0x80, seq)):
            slot, images = known
            open_runs.append((seq, golden.run(network, contents[slot][:images])))
            continue
        kind, got_seq, payload = direct.pop(0)
        assert (kind, got_seq) == (command | 0x80, seq)
        status = payload[0]
        if command == Command.INPUT:
            assert status in (Status.OK, Status.BUSY)
            if status == Status.OK:
                slot, number, q = known
                contents[slot, number] = q
        elif command == Command.RUN:
            assert status == Status.BUSY
        elif command == Command.LOAD:
            assert status in (Status.BUSY, Status.BAD_STATE)
        elif command == Command.COMMIT:
            assert status in (Status.BUSY, Status.OK)
        else:
            assert status == Status.OK
        if command == Command.ABORT:
            while results and results[0][1] in [seq for seq, _ in open_runs]:
                check_result(results.pop(0), open_runs, image)
            open_runs.clear()
    while open_runs:
        check_result(results.pop(0), open_runs, image)
    assert not results
    assert not direct
    return n_results


def check_result(answer, open_runs, image):
    """The oldest run that is open must be the one that is answered."""
    seq, want = open_runs.pop(0)
    assert answer[1] == seq
    got, counters = outputs(image, answer[2], len(want))
    assert got == want.reshape(-1).tolist(), f"run {seq}"
    check_counters(counters, image.config)


def engine_of(seed):
    """Every width and batch in turn."""
    config = replace(SMALL, n_pes=1 + seed % 3, rows_per_pe=8)
    if seed % 2 == 0:
        config = replace(config, tile_rows=2, tile_columns=2 + seed % 4, tile_depth=512)
    if seed % 3 == 0:
        config = replace(config, activation_bits=16, sum_bits=36)
    return config


@pytest.mark.parametrize(
    ("seed", "n"),
    [(1, 30), *(pytest.param(seed, 240, marks=pytest.mark.slow) for seed in range(2, 8))],
)
def test_random_conversation(seed, n):
    """Requests without regard for answers, damaged frames in between, answers read with pauses."""
    config = engine_of(seed)
    rng = np.random.default_rng(seed)
    widths = {"activation_bits": config.activation_bits, "sum_bits": config.sum_bits}
    options = {"structure": ["2:4", "unstructured"], "code_bits": [3, 5]} if seed % 2 == 0 else {}
    network = random_network(rng, (9, 8, 5), **({"code_bits": 3} | widths | options))
    image = compile_network(network, config)
    engine = Engine(Identity(config, 1_000_000, b"testtest"))
    decoder = FrameDecoder()
    sent, answers, over = [], [], []

    async def talker(ctx):
        host = Host(ctx, engine, config, 0.0)
        await host.load(image)
        over.append(False)
        gaps = pauses(seed, 0.1)
        for k, (command, payload, known) in enumerate(random_requests(rng, image, network, n)):
            seq = k % 256
            line = payload
            if command is not None:
                line = encode_frame(Frame(command, seq, payload))
                sent.append((command, seq, known))
            await send(ctx, engine.i, line, gaps, limit=20000)
            if rng.random() < 0.3:
                await idle(ctx, int(rng.integers(400)))
        over[0] = True

    async def listener(ctx):
        while not over:
            await ctx.tick()
        gaps = pauses(seed, 0.2)
        silence = 0
        while not over[0] or silence < 1500:
            await idle(ctx, next(gaps))
            ctx.set(engine.o.ready, 1)
            _, _, valid, byte = await ctx.tick().sample(engine.o.valid, engine.o.payload)
            ctx.set(engine.o.ready, 0)
            silence = 0 if valid else silence + 1
            if valid:
                answers.extend((f.type, f.seq, f.payload) for f in decoder.feed(bytes([byte])))

    simulate(engine, talker, listener)
    assert judge_conversation(sent, answers, network, image) > n // 10
