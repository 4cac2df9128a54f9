# SPDX-License-Identifier: BSD-2-Clause
"""Run queue with a sequencer and a link that take any time they like."""

import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.runs import RunQueue
from gossamer.sim.streams import idle
from rtl_models import SMALL, TILED, simulate

OUTPUTS = (
    "pending", "pending_slot", "pending_images", "current_slot", "known", "start", "occupied",
    "save", "result_waiting", "result_seq", "result_images",
)  # fmt: skip
INPUTS = (
    "request", "request_slot", "request_images", "request_seq", "idle", "computing", "running",
    "computed", "results_ready", "result_sent",
)  # fmt: skip


async def cycle(ctx, dut, **inputs):
    """Apply inputs (others are 0) for one cycle; outputs as they were in it."""
    for name in INPUTS:
        ctx.set(getattr(dut, name), inputs.get(name, 0))
    values = await ctx.tick().sample(*(getattr(dut, name) for name in OUTPUTS))
    return dict(zip(OUTPUTS, values[2:], strict=True))


class Sequencer:
    """Computes runs and collects their results, each in a random time.

    The next run can be computed while results are collected, but ends after that. There is room for
    the results of `places` runs.
    """

    def __init__(self, rng, quick, places):
        self.rng, self.quick, self.places = rng, quick, places
        self.compute_left = self.collect_left = self.n_complete = 0
        self.collecting = False

    def inputs(self):
        computed = self.compute_left == 1 and not self.collecting
        return {
            "idle": int(self.compute_left == 0),
            "computing": int(self.compute_left > 0),
            "running": int(self.compute_left > 0 or self.collecting),
            "computed": int(computed),
            "results_ready": int(self.n_complete > 0),
        }

    def tick(self, start, now):
        if self.collecting and self.collect_left:
            self.collect_left -= 1
        elif self.collecting and self.n_complete < self.places:
            self.collecting = False
            self.n_complete += 1
        self.n_complete -= now.get("result_sent", 0)
        if now["computed"]:
            self.compute_left = 0
            self.collecting = True
            self.collect_left = 0 if self.quick else self.rng.randrange(12)
        elif self.compute_left > 1:
            self.compute_left -= 1
        if start:
            self.compute_left = self.rng.randrange(2, 4 if self.quick else 20)


@pytest.mark.parametrize("busy_link", [False, True])
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("config", [SMALL, TILED, replace(TILED, tile_columns=4)])
def test_random_runs(quick, busy_link, config):
    """Every run starts once, in order, on its slot; is saved once; is answered with its seq.

    It keeps its number of images all the way.
    """
    rng = random.Random(3)
    dut = RunQueue(config)
    log = {"requested": [], "started": [], "saved": 0, "answered": []}

    async def bench(ctx):
        sequencer = Sequencer(rng, quick, 2 if config.tile_rows else 1)
        registers = "pending", "result_waiting", "result_seq", "result_images"
        unanswered = []
        sending = 0
        seq = 0
        for _ in range(1500):
            inputs = sequencer.inputs()
            ctx.set(dut.results_ready, inputs["results_ready"])
            out = {name: ctx.get(getattr(dut, name)) for name in registers}
            asked = rng.choice(unanswered) if unanswered and rng.random() < 0.5 else None
            if not out["pending"] and rng.random() < (1.0 if quick else 0.3):
                seq = (seq + 1) % 256
                slot = rng.randrange(2)
                images = rng.randrange(config.batch) + 1
                inputs |= {"request": 1, "request_slot": slot, "request_seq": seq}
                inputs["request_images"] = images
                log["requested"].append((seq, slot, images))
                asked = None
            elif asked is not None:
                inputs["request_seq"] = asked
            else:
                inputs["request_seq"] = (seq + 1) % 256
            if out["result_waiting"]:
                if sending == 0:
                    sending = rng.randrange(1, 40 if busy_link else 4)
                sending -= 1
                if sending == 0:
                    inputs["result_sent"] = 1
                    log["answered"].append((out["result_seq"], out["result_images"]))
            now = await cycle(ctx, dut, **inputs)
            assert now["occupied"] == (now["pending"] | inputs["running"])
            if not inputs.get("request"):
                assert now["known"] == (asked is not None), f"seq {inputs['request_seq']}"
            if now["start"]:
                assert inputs["idle"]
                assert now["pending"]
                log["started"].append((now["pending_slot"], now["pending_images"]))
            log["saved"] += now["save"]
            if inputs.get("result_sent"):
                unanswered.remove(now["result_seq"])
            if inputs.get("request"):
                unanswered.append(seq)
            sequencer.tick(now["start"], inputs)

    simulate(dut, bench)
    n = len(log["answered"])
    assert n > 15
    assert log["answered"] == [(seq, images) for seq, _, images in log["requested"][:n]]
    started = len(log["started"])
    assert log["started"] == [run[1:] for run in log["requested"][:started]]
    assert started - 1 <= log["saved"] <= started
    assert n <= log["saved"] <= n + 2


def test_start_in_the_next_cycle():
    dut = RunQueue(SMALL)
    seen = []

    async def bench(ctx):
        for request in (0, 1, 0, 0):
            now = await cycle(ctx, dut, request=request, request_slot=1, request_seq=7, idle=1)
            seen.append((now["pending"], now["start"]))
        assert ctx.get(dut.current_slot) == 1

    simulate(dut, bench)
    assert seen == [(0, 0), (0, 0), (1, 1), (0, 0)]


def test_reset_forgets_everything():
    """Waiting, computed and unsent runs alike."""
    dut = RunQueue(SMALL)
    reset = Signal()
    found = []

    async def bench(ctx):
        steps = [
            {"request": 1, "request_seq": 1, "idle": 1},
            {"idle": 1},
            {"request": 1, "request_seq": 2, "computing": 1, "running": 1},
            {"computing": 1, "running": 1, "computed": 1},
            {"running": 1, "idle": 1},
            {"idle": 1, "results_ready": 1},
        ]
        for length in range(len(steps) + 1):
            for step in steps[:length]:
                await cycle(ctx, dut, **step)
            ctx.set(reset, 1)
            await cycle(ctx, dut)
            ctx.set(reset, 0)
            now = await cycle(ctx, dut, request_seq=1 + length % 2, idle=1)
            found.append([now[n] for n in ("pending", "known", "start", "save", "result_waiting")])
            await idle(ctx, 1)

    simulate(ResetInserter(reset)(dut), bench)
    assert found == [[0] * 5] * 7
