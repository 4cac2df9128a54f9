# SPDX-License-Identifier: BSD-2-Clause
"""Sequencer between a store, an array and a result buffer that the bench plays."""

import random
from dataclasses import replace

import pytest
from amaranth import ResetInserter, Signal
from gossamer.rtl.formats import RECORD_STRIDE, Section, pack_record, program_fields
from gossamer.rtl.sequencer import Sequencer
from gossamer.sim.streams import idle, receive, send
from rtl_models import PAUSES, SMALL, TILED, layer_values, pauses, simulate, wait, write_words

THREE = replace(SMALL, n_pes=3, rows_per_pe=8)
FOUR = replace(SMALL, n_pes=4, rows_per_pe=8)


def random_program(rng, config, n_layers):
    """Records of a network: every field that the sequencer only passes on is random."""
    records = []
    for k in range(n_layers):
        record = {name: rng.getrandbits(width) for name, _, _, width in program_fields(config)}
        record |= {
            "last": int(k == n_layers - 1),
            "from_merge": int(k > 0),
            "last_input": rng.randrange(16),
            "last_row": rng.randrange(config.rows_per_pe),
        }
        records.append(record)
    return records


async def load(ctx, dut, config, records, reset):
    """Write a program, then reset, as a COMMIT does: the first record is read ahead."""
    for k, record in enumerate(records):
        words = enumerate(pack_record(record, config))
        base = k * RECORD_STRIDE
        program = [(Section.PROGRAM, 0, base + address, word) for address, word in words]
        await write_words(ctx, dut.write, program)
    ctx.set(dut.drained, 1)
    ctx.set(reset, 1)
    await ctx.tick()
    ctx.set(reset, 0)


async def pulse_start(ctx, dut, slot):
    await wait(ctx, dut.idle, 5000)
    ctx.set(dut.slot, slot)
    ctx.set(dut.images, 1)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)


def vector(rng, n):
    """Activations with `last` on the last."""
    return [(rng.randrange(32), rng.randrange(256), int(k == n - 1)) for k in range(n)]


def outputs(rng, config, n):
    """Tokens of the merge tree (pe, row, value, last)."""
    return [
        (
            rng.randrange(config.n_pes),
            rng.randrange(config.rows_per_pe),
            rng.randrange(256),
            int(k == n - 1),
        )
        for k in range(n)
    ]


def as_activations(config, tokens):
    return [(row * config.n_pes + pe, value, last) for pe, row, value, last in tokens]


def play(config, program, runs, share=0.0):
    """Let the sequencer do runs of (slot, input, outputs per layer); return what the units see.

    The array's `drained` follows each layer's last input after some cycles, and only then do its
    outputs appear.
    """
    dut = Sequencer(config)
    reset = Signal()
    rng = random.Random(77)
    fed, results, layers, scans, pulses = [], [], [], [], []
    n_layers = len(program)
    all_outputs = [tokens for _, _, per_layer in runs for tokens in per_layer]
    ends = [0]

    async def control(ctx):
        await load(ctx, dut, config, program, reset)
        for slot, _, _ in runs:
            await pulse_start(ctx, dut, slot)
        await wait(ctx, dut.idle, 5000)
        await ctx.tick()

    async def store(ctx):
        for _, values, _ in runs:
            await wait(ctx, dut.scan, 5000)
            await ctx.tick()
            scans.append((ctx.get(dut.source), ctx.get(dut.last_input)))
            items = [{"slot": s, "value": v, "last": last} for s, v, last in values]
            await send(ctx, dut.i_store, items, pauses(1, share), limit=5000)

    async def array(ctx):
        gaps = pauses(2, share)
        for k in range(n_layers * len(runs)):
            last = 0
            while not last:
                parity = ctx.get(dut.parity)
                (item,) = await receive(ctx, dut.o_array, 1, gaps, limit=5000)
                last = item.last
                fed.append((k, item.slot, item.value, last))
                values = {f: int(getattr(ctx.get(dut.layers[parity]), f)) for f in program[0]}
            layers.append((parity, values))
            ctx.set(dut.drained, 0)
            await idle(ctx, rng.randrange(30))
            ctx.set(dut.drained, 1)
            ends[0] += 1

    async def merge(ctx):
        gaps = pauses(3, share)
        for k, tokens in enumerate(all_outputs):
            while ends[0] <= k:
                await ctx.tick()
            items = [{"pe": p, "row": r, "value": v, "last": last} for p, r, v, last in tokens]
            await send(ctx, dut.i_merge, items, gaps, limit=5000)

    async def collect(ctx):
        gaps = pauses(4, share)
        for _, _, per_layer in runs:
            items = await receive(ctx, dut.o_results, len(per_layer[-1]), gaps, limit=5000)
            results.append([(item.slot, item.values[0]) for item in items])

    async def watcher(ctx):
        while True:
            _, _, computed, collected = await ctx.tick().sample(dut.computed, dut.collected)
            if computed:
                pulses.append("computed")
            if collected:
                pulses.append(("collected", ctx.get(dut.result_slots)))

    benches = control, store, array, merge, collect
    simulate(ResetInserter(reset)(dut), *benches, background=[watcher])
    return fed, results, layers, scans, pulses


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize(
    ("config", "n_layers"),
    [(THREE, 3), (FOUR, 2), (replace(SMALL, max_layers=1), 1), (THREE, 4)],
    ids=["3 layers", "4 PEs", "1 layer", "all records"],
)
def test_random_programs(config, n_layers, share):
    rng = random.Random(n_layers)
    program = random_program(rng, config, n_layers)
    runs = [
        (
            rng.randrange(2),
            vector(rng, rng.randrange(1, 9)),
            [outputs(rng, config, rng.randrange(1, 9)) for _ in program],
        )
        for _ in range(4)
    ]
    fed, results, layers, scans, pulses = play(config, program, runs, share)
    assert results == [
        [(slot, value) for slot, value, _ in as_activations(config, per_layer[-1])]
        for _, _, per_layer in runs
    ]
    assert scans == [(slot, program[0]["last_input"]) for slot, _, _ in runs]
    want_fed, want_layers = [], []
    for slot_of_run, (_, values, per_layer) in enumerate(runs):
        inputs = [values, *(as_activations(config, tokens) for tokens in per_layer[:-1])]
        for k, record in enumerate(program):
            number = slot_of_run * n_layers + k
            want_fed += [(number, *item) for item in inputs[k]]
            want_layers.append((number % 2, layer_values(record, config)))
    assert fed == want_fed
    assert layers == want_layers
    slots = ("collected", (program[-1]["last_row"] + 1) * config.n_pes)
    assert sorted(map(str, pulses)) == sorted(map(str, ["computed", slots] * len(runs)))


def test_timing():
    """The first record is read ahead; a start scans in the next cycle; a record takes as stated."""
    program = random_program(random.Random(1), THREE, 2)
    dut = Sequencer(THREE)
    reset = Signal()
    seen = {}

    async def bench(ctx):
        await load(ctx, dut, THREE, program, reset)
        seen["idle after reset"] = await wait(ctx, dut.idle)
        ctx.set(dut.images, 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        seen["scan"] = ctx.get(dut.scan), ctx.get(dut.holds_input), ctx.get(dut.computing)
        ctx.set(dut.o_array.ready, 1)
        await send(ctx, dut.i_store, [{"slot": 1, "value": 2, "last": 1}])
        seen["scan later"] = ctx.get(dut.scan), ctx.get(dut.holds_input), ctx.get(dut.computing)
        ctx.set(dut.drained, 0)
        ctx.set(dut.i_merge.payload, {"pe": 0, "row": 0, "value": 3, "last": 1})
        ctx.set(dut.i_merge.valid, 1)
        seen["record"] = await wait(ctx, dut.i_merge.ready)
        await ctx.tick()
        ctx.set(dut.i_merge.valid, 0)
        await idle(ctx, 20)
        seen["undrained"] = ctx.get(dut.computing), ctx.get(dut.idle)
        ctx.set(dut.drained, 1)
        seen["drained"] = ctx.get(dut.computed), ctx.get(dut.idle)
        await ctx.tick()
        seen["after"] = ctx.get(dut.computing), ctx.get(dut.running), ctx.get(dut.idle)

    simulate(ResetInserter(reset)(dut), bench)
    assert seen == {
        "idle after reset": dut.record_cycles + 1,  # and one for `drained`
        "scan": (1, 1, 1),
        "scan later": (0, 0, 1),
        "record": dut.record_cycles,
        "undrained": (1, 0),
        "drained": (1, 0),
        "after": (0, 1, 1),
    }


def test_end_waits_for_the_results_before():
    """The next run is fed while results are collected, but not its last activation."""
    program = random_program(random.Random(2), THREE, 1)
    dut = Sequencer(THREE)
    reset = Signal()
    seen = []

    async def bench(ctx):
        await load(ctx, dut, THREE, program, reset)
        await pulse_start(ctx, dut, 0)
        ctx.set(dut.o_array.ready, 1)
        last = {"slot": 1, "value": 2, "last": 1}
        await send(ctx, dut.i_store, [last])
        await pulse_start(ctx, dut, 1)  # nothing has been collected yet
        await send(ctx, dut.i_store, [{"slot": 0, "value": 2, "last": 0}] * 3)
        ctx.set(dut.i_store.payload, last)
        ctx.set(dut.i_store.valid, 1)
        ctx.set(dut.o_results.ready, 1)
        for valid in (0, 0, 1, 0, 0):
            ctx.set(dut.i_merge.payload, {"pe": 0, "row": 0, "value": 3, "last": 1})
            ctx.set(dut.i_merge.valid, valid)
            _, _, *now = await ctx.tick().sample(
                dut.i_store.ready, dut.o_array.valid, dut.collected, dut.running
            )
            seen.append(tuple(now))

    simulate(ResetInserter(reset)(dut), bench)
    assert seen == [(0, 0, 0, 1)] * 2 + [(0, 0, 1, 1), (1, 1, 0, 1), (0, 0, 0, 1)]


def test_reset_at_any_moment():
    """The program starts over at its first record with parity 0."""
    program = random_program(random.Random(3), THREE, 3)
    dut = Sequencer(THREE)
    reset = Signal()
    found = []

    async def bench(ctx):
        await load(ctx, dut, THREE, program, reset)
        for length in range(0, 60, 4):
            await wait(ctx, dut.idle)
            ctx.set(dut.start, 1)
            for stream in (dut.i_store, dut.i_merge):
                ctx.set(stream.p.last, 1)
                ctx.set(stream.valid, 1)
            ctx.set(dut.o_array.ready, 1)
            ctx.set(dut.o_results.ready, length % 8 > 0)
            await idle(ctx, length)
            ctx.set(dut.start, 0)
            for stream in (dut.i_store, dut.i_merge):
                ctx.set(stream.valid, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            found.append([ctx.get(s) for s in (dut.running, dut.holds_input, dut.parity, dut.idle)])
            await wait(ctx, dut.idle)
            layer = ctx.get(dut.layers[0])
            found[-1].append({name: int(getattr(layer, name)) for name in program[0]})

    simulate(ResetInserter(reset)(dut), bench)
    assert found == [[0, 0, 0, 0, layer_values(program[0], THREE)]] * 15


def tiled_program(rng, kinds):
    """Records of a network on both units: "array" or "tile" per layer, linked as a compiler does.

    Layers of the array that follow each other form a segment. Banks are random but for the rule
    that none is read and written by one layer.
    """
    records, bank = [], 0
    for k, kind in enumerate(kinds):
        last = k == len(kinds) - 1
        to_bank = not last and "tile" in (kind, kinds[k + 1])
        from_merge = k > 0 and kinds[k - 1] == kind == "array"
        record = {name: rng.getrandbits(width) for name, _, _, width in program_fields(TILED)}
        record |= {
            "last": int(last),
            "unit": int(kind == "tile"),
            "from_merge": int(from_merge),
            "from_bank": int(k > 0 and not from_merge),
            "source_bank": bank,
            "to_bank": int(to_bank),
            "target_bank": 1 - bank,
            "last_input": rng.randrange(16),
            "last_row": rng.randrange(TILED.rows_per_pe),
            "last_block": rng.randrange(8),
        }
        bank = 1 - bank if to_bank else bank
        records.append(record)
    return records


def steps_of(program, images):
    """What is to be run in turn: (layer, image), image None for the tile."""
    steps, start = [], 0
    for k, record in enumerate(program):
        if record["unit"]:
            steps.append((k, None))
            start = k + 1
        elif record["last"] or record["to_bank"]:
            steps += [(layer, b) for b in range(images) for layer in range(start, k + 1)]
            start = k + 1
    return steps


def play_tiled(program, runs, share, seed):
    """Let the sequencer do runs of (slot, images) on both units; return what was seen and wanted.

    Per port: scans and what the array was fed, starts of the tile, outputs to banks and results.
    """
    dut = Sequencer(TILED)
    reset = Signal()
    rng = random.Random(seed)
    steps = [(slot, images, *step) for slot, images in runs for step in steps_of(program, images)]
    on_array = [step for step in steps if step[3] is not None]
    on_tile = [step for step in steps if step[3] is None]
    inputs = [vector(rng, rng.randrange(1, 5)) for _ in on_array]
    tokens = [outputs(rng, TILED, rng.randrange(1, 5)) for _ in on_array]
    seen = {name: [] for name in ("scan", "fed", "array", "tile", "out", "pulses")}
    want = {name: [] for name in seen}
    ended = [0]

    def target(record):
        return "results" if record["last"] else record["target_bank"]

    def values(ctx, parity):
        layer = ctx.get(dut.layers[parity])
        return {name: int(getattr(layer, name)) for name in program[0]}

    async def control(ctx):
        await load(ctx, dut, TILED, program, reset)
        for slot, images in runs:
            ctx.set(dut.images, images)
            await wait(ctx, dut.idle, 5000)
            ctx.set(dut.slot, slot)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            assert ctx.get(dut.holds_input)
        await wait(ctx, dut.idle, 5000)
        await idle(ctx, 100)

    async def store(ctx):
        for (slot, _, k, image), items in zip(on_array, inputs, strict=True):
            record = program[k]
            if record["from_merge"]:
                continue
            source = (1, record["source_bank"]) if record["from_bank"] else (0, slot)
            want["scan"].append((*source, image, record["last_input"]))
            await wait(ctx, dut.scan, 5000)
            found = dut.from_bank, dut.source, dut.image, dut.last_input
            seen["scan"].append(tuple(ctx.get(signal) for signal in found))
            await ctx.tick()
            items = [{"slot": s, "value": v, "last": last} for s, v, last in items]
            await send(ctx, dut.i_store, items, pauses(1, share), limit=5000)

    async def array(ctx):
        gaps = pauses(2, share)
        for number, (_, _, k, _) in enumerate(on_array):
            record = program[k]
            fed = inputs[number]
            if record["from_merge"]:
                fed = as_activations(TILED, tokens[number - 1])
            want["fed"].append(fed)
            want["array"].append((k, layer_values(record, TILED)))
            seen["fed"].append([])
            last = 0
            while not last:
                parity = ctx.get(dut.parity)
                (item,) = await receive(ctx, dut.o_array, 1, gaps, limit=5000)
                last = item.last
                seen["fed"][-1].append((item.slot, item.value, last))
            seen["array"].append((k, values(ctx, parity)))
            ctx.set(dut.drained, 0)
            await idle(ctx, rng.randrange(30))
            ctx.set(dut.drained, 1)
            ended[0] += 1

    async def merge(ctx):
        gaps = pauses(3, share)
        for number, (_, images, k, image) in enumerate(on_array):
            record = program[k]
            while ended[0] <= number:
                await ctx.tick()
            items = [
                {"pe": p, "row": r, "value": v, "last": last} for p, r, v, last in tokens[number]
            ]
            if record["last"] or record["to_bank"]:
                for slot, value, _ in as_activations(TILED, tokens[number]):
                    want["out"].append((target(record), slot, 1 << image, [value] * TILED.batch))
            if record["last"] and image == images - 1:
                want["pulses"] += ["computed", (record["last_row"] + 1) * TILED.n_pes]
            await send(ctx, dut.i_merge, items, gaps, limit=5000)

    async def tile(ctx):
        for slot, images, k, _ in on_tile:
            record = program[k]
            source = (1, record["source_bank"]) if record["from_bank"] else (0, slot)
            want["tile"].append((*source, images, layer_values(record, TILED)))
            started = 0
            while not started:  # sampled: it depends on what another bench sets in this cycle
                _, _, started, drained = await ctx.tick().sample(dut.tile_start, dut.drained)
            assert drained
            found = dut.from_bank, dut.source, dut.tile_images
            parameters = values(ctx, ctx.get(dut.parity))
            seen["tile"].append((*(ctx.get(signal) for signal in found), parameters))
            rows = rng.randrange(1, 6)
            for row in range(rows):
                await ctx.tick().repeat(rng.randrange(1, 4))
                item = {"slot": row, "values": [row, 255 - row], "images": (1 << images) - 1}
                want["out"].append((target(record), row, item["images"], item["values"]))
                ctx.set(dut.tile_vector, item)
                ctx.set(dut.tile_valid, 1)
                ctx.set(dut.tile_done, row == rows - 1)
                if record["last"] and row == rows - 1:
                    want["pulses"] += ["computed", (record["last_block"] + 1) * TILED.tile_rows]
                await ctx.tick()
                ctx.set(dut.tile_valid, 0)
                ctx.set(dut.tile_done, 0)

    async def results(ctx):
        """Like the result buffer: always ready, but now and then full between two runs."""
        full = 0
        while True:
            ctx.set(dut.o_results.ready, not full)
            ports = dut.o_results, dut.bank_write, dut.bank, dut.computed, dut.collected
            _, _, valid, item, to_bank, bank, computed, collected = await ctx.tick().sample(
                ports[0].valid, ports[0].p, *ports[1:]
            )
            place = bank if to_bank else "results"
            if to_bank or (valid and not full):
                seen["out"].append((place, item.slot, item.images, list(item.values)))
            if computed:
                seen["pulses"].append("computed")
            if collected:
                seen["pulses"].append(ctx.get(dut.result_slots))
                full = rng.randrange(40)
            full = max(full - 1, 0)

    benches = control, store, array, merge, tile
    simulate(ResetInserter(reset)(dut), *benches, background=[results])
    assert ended[0] == len(on_array)
    return seen, want


@pytest.mark.parametrize("share", PAUSES)
@pytest.mark.parametrize(
    "kinds",
    ["a", "t", "at", "ta", "tt", "aat", "taa", "ata", "ttaa"],
)
def test_programs_on_both_units(kinds, share):
    """Segments run image by image, the tile takes all; outputs go where the record says."""
    rng = random.Random(kinds)
    program = tiled_program(rng, [{"a": "array", "t": "tile"}[kind] for kind in kinds])
    runs = [(rng.randrange(2), rng.randrange(1, TILED.batch + 1)) for _ in range(5)]
    seen, want = play_tiled(program, runs, share, len(kinds))
    for name in seen:
        if name in ("out", "pulses"):  # ports that both units share: in order for each
            assert sorted(map(str, seen[name])) == sorted(map(str, want[name])), name
        else:
            assert seen[name] == want[name], name
