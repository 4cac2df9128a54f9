# SPDX-License-Identifier: BSD-2-Clause
"""A whole engine behind its byte link, against the golden model."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from engine_host import (
    OK,
    ONE,
    THREE,
    bytes_of,
    check_counters,
    commit_of,
    example,
    input_of,
    load_of,
    outputs,
    run_of,
    talk,
)
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network, program_image
from gossamer.rtl.formats import (
    Command,
    Identity,
    Section,
    State,
    Status,
    pack_record,
    section,
)
from gossamer.rtl.frames import Frame, encode_frame
from gossamer.sim.streams import idle
from networks import random_inputs, random_network
from rtl_models import SMALL, TINY


@pytest.mark.parametrize(
    ("config", "share"), [(ONE, 0.0), (THREE, 0.3)], ids=["1 PE", "3 PEs, pauses"]
)
def test_network_equals_golden(config, share):
    """Three layers, both slots in turn, pauses in front of every byte in both directions."""
    image, q, want = example(config, (9, 7, 5, 3), structure=["unstructured", "dense"] * 2)

    async def conversation(host):
        await host.load(image)
        for k in range(3):
            got, counters = await host.infer(image, q[k], k % 2)
            assert got.tolist() == want[k].tolist(), f"vector {k}"
            check_counters(counters, config)
            assert counters["busy"] > 0
            assert counters["drain"] == sum(layer.result_slots for layer in image.layers)

    talk(config, conversation, share)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_networks(seed):
    """Sizes from one row or column up, empty layers, dense ones, unsigned and signed chains."""
    rng = np.random.default_rng(seed)
    config = replace(
        SMALL, n_pes=int(rng.choice([1, 2, 3, 4, 7])), weight_depth=2000, column_words=128,
        sum_bits=int(rng.choice([24, 32])), entry_bits=int(rng.choice([12, 16, 18, 36])),
        counters=bool(rng.integers(2)), output_depth=128, queue_depth=int(rng.integers(2, 9)),
    )  # fmt: skip
    sizes = [int(rng.integers(1, 33)), *(int(n) for n in rng.integers(1, 17, 3))]
    density = float(rng.choice([0, 0.1, 0.5, 1.0]))
    image, q, want = example(config, sizes, seed, n=8, weight_density=density)

    async def conversation(host):
        await host.load(image)
        for k in range(8):
            got, counters = await host.infer(image, q[k], k % 2)
            assert got.tolist() == want[k].tolist(), f"vector {k} of {config}"
            check_counters(counters, config)

    talk(config, conversation, 0.1 if seed % 2 else 0.0)


def test_smallest_engine():
    """Every parameter at its minimum, counters left out."""
    config = replace(TINY, counters=False)
    image, q, want = example(config, (4, 1), weight_density=1.0, code_bits=2)

    async def conversation(host):
        assert (
            await host.request(Command.HELLO)
            == OK + Identity(config, 1_000_000, b"testtest").pack()
        )
        await host.load(image)
        for k in range(4):
            got, counters = await host.infer(image, q[k], k % 2)
            assert got.tolist() == want[k].tolist()
            check_counters(counters, config)

    talk(config, conversation)


@pytest.mark.parametrize(
    "moments",
    [(40,), pytest.param(range(0, 180, 4), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_two_runs_queued(moments):
    """Both slots filled and queued without waiting; a third run is refused, in order, unharmed.

    The third RUN arrives at many moments, also while the first run ends: the counters of the runs
    stay their own.
    """
    image, q, want = example(ONE, (16, 12), weight_density=0.6)
    alone = []

    async def conversation(host):
        await host.load(image)
        for k in range(2):
            got, counters = await host.infer(image, q[k], k)
            assert got.tolist() == want[k].tolist()
            alone.append(counters)
        for pause in moments:
            await host.post(input_of(0, q[0]), input_of(1, q[1]))
            for _ in range(2):
                assert (await host.receive())[2] == OK
            seqs = await host.post(run_of(0), run_of(1))
            await idle(host.ctx, pause)
            (third,) = await host.post(run_of(0))
            answers = [await host.receive() for _ in range(3)]
            (refusal,) = [a for a in answers if a[1] == third and len(a[2]) == 1] or [None]
            first, second = [a for a in answers if a[1] in seqs]
            assert (first[1], second[1]) == tuple(seqs)
            for k, (kind, _, payload) in enumerate((first, second)):
                assert kind == Command.RUN | 0x80
                got, counters = outputs(image, payload)
                assert got == want[k].tolist()
                check_counters(counters, ONE)
                if k == 0:
                    assert counters == alone[0], f"pause {pause}"
            if refusal is not None:
                assert refusal[2] == bytes([Status.BUSY])
            else:
                (last,) = [a for a in answers if a[1] == third]
                assert outputs(image, last[2])[0] == want[0].tolist()

    talk(ONE, conversation)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_shortest_runs_queued(density):
    """One row: results follow the input as soon as they ever can."""
    config = replace(SMALL, entry_bits=36)
    network = random_network(np.random.default_rng(1), (4, 1), sum_bits=32, weight_density=density)
    image = compile_network(network, config)
    q = random_inputs(np.random.default_rng(2), network, 4)
    q[2:] = 0

    async def conversation(host):
        await host.load(image)
        for first in (0, 2):
            pair = q[first : first + 2]
            results = golden.run(network, pair)
            await host.post(input_of(0, pair[0]), input_of(1, pair[1]))
            assert [(await host.receive())[2] for _ in range(2)] == [OK, OK]
            seqs = await host.post(run_of(0), run_of(1))
            for k in range(2):
                kind, seq, payload = await host.receive()
                assert (kind, seq) == (Command.RUN | 0x80, seqs[k])
                got, counters = outputs(image, payload)
                assert got == results[k].tolist()
                check_counters(counters, config)
                assert counters["drain"] == 1

    talk(config, conversation)


def test_states_and_refusals():
    """Every status of the protocol, in every state that can give it."""
    image, q, want = example(ONE, (20, 12), weight_density=0.9)
    whole = image.data

    async def conversation(host):
        async def refused(status, *requests):
            for command, payload in requests:
                assert await host.request(command, payload) == bytes([status]), (command, payload)

        no_image = [input_of(0, q[0]), run_of(0)]
        assert await host.status() == (State.EMPTY, 0, 0)
        await refused(Status.BAD_STATE, *no_image, load_of(4, b"1234"))
        await refused(Status.BAD_IMAGE, commit_of(b""), commit_of(b"abc"))
        await refused(Status.UNKNOWN, (0, b""), (8, b"xyz"), (0x7F, b""), (0x86, b"\0"))
        short = {Command.LOAD: 3, Command.COMMIT: 7, Command.INPUT: 2, Command.RUN: 1}
        for command, most in short.items():
            await refused(Status.BAD_LENGTH, (command, b""), (command, bytes(most)))
        assert await host.status() == (State.EMPTY, 0, 0)

        await refused(Status.OK, load_of(0, whole[:40]))
        assert await host.status() == (State.LOADING, 0, 40)
        await refused(Status.BAD_STATE, *no_image)
        await refused(Status.BAD_OFFSET, load_of(41, whole[41:50]))
        await refused(Status.OK, load_of(0, whole[:40]))  # begins again
        await refused(Status.OK, load_of(40, whole[40:100]), load_of(40, whole[40:100]))
        assert await host.status() == (State.LOADING, 0, 100)
        for offset in range(100, len(whole), host.chunk):
            await refused(Status.OK, load_of(offset, whole[offset : offset + host.chunk]))
        await refused(Status.OK, load_of(100, whole[100:150]))  # duplicate
        await refused(Status.OK, commit_of(whole))
        assert await host.settle() == State.READY
        await refused(Status.OK, commit_of(whole))
        assert await host.status() == (State.READY, 0, len(whole))
        await refused(Status.BAD_LENGTH, (Command.RUN, b"\0"))
        await refused(Status.BAD_ARGUMENT, run_of(0, 0), run_of(1, 2), run_of(2), input_of(2, q[0]))
        await refused(Status.BAD_ARGUMENT, (Command.INPUT, b"\0\xff\xff" + bytes(4)))

        await refused(Status.OK, input_of(0, q[0]), input_of(1, q[1]))
        seqs = await host.post(
            run_of(0), run_of(1), (Command.STATUS, b""), input_of(1, q[0]), load_of(0, b""),
            commit_of(whole), (9, b""),
        )  # fmt: skip
        answers = {seq: payload for _, seq, payload in [await host.receive() for _ in seqs]}
        for k in range(2):
            assert outputs(image, answers[seqs[k]])[0] == want[k].tolist()
        assert answers[seqs[2]][:2] == bytes([Status.OK, State.RUNNING])
        assert [answers[seq] for seq in seqs[3:6]] == [bytes([Status.BUSY])] * 3
        assert answers[seqs[6]] == bytes([Status.UNKNOWN])
        assert await host.status() == (State.READY, 0, len(whole))

        await refused(Status.OK, load_of(0, b""))
        assert await host.status() == (State.LOADING, 0, 0)
        await refused(Status.BAD_STATE, *no_image)
        await refused(Status.OK, (Command.ABORT, b""))
        assert await host.settle() == State.EMPTY

    talk(ONE, conversation)


def test_input_slot_is_busy_only_while_read():
    """The slot of the going run is free again when its first layer has been fed."""
    image, q, want = example(ONE, (24, 14, 14), weight_density=0.9)

    async def conversation(host):
        await host.load(image)
        assert await host.request(*input_of(0, q[0])) == OK
        (run,) = await host.post(run_of(0))
        (early,) = await host.post(input_of(0, q[1]))
        assert await host.receive() == (Command.INPUT | 0x80, early, bytes([Status.BUSY]))
        await idle(host.ctx, 120)
        (late,) = await host.post(input_of(0, q[1]))
        assert await host.receive() == (Command.INPUT | 0x80, late, OK)
        kind, seq, payload = await host.receive()
        assert (kind, seq) == (Command.RUN | 0x80, run)
        assert outputs(image, payload)[0] == want[0].tolist()
        got, _ = outputs(image, await host.request(*run_of(0)))
        assert got == want[1].tolist()

    talk(ONE, conversation)


def test_repeated_requests():
    """A RUN with the seq of a waiting or going run gets no answer of its own."""
    image, q, want = example(ONE, (16, 12), weight_density=0.6)

    async def conversation(host):
        await host.load(image)
        for slot in range(2):
            for _ in range(2):
                assert await host.request(*input_of(slot, q[slot])) == OK
        seqs = await host.post(run_of(0), run_of(1))
        for seq in (seqs[1], seqs[0], seqs[1]):
            await host.send(encode_frame(Frame(Command.RUN, seq, run_of(seq == seqs[1])[1])))
        for k in range(2):
            kind, seq, payload = await host.receive()
            assert (kind, seq) == (Command.RUN | 0x80, seqs[k])
            assert outputs(image, payload)[0] == want[k].tolist()
        await host.quiet()

    talk(ONE, conversation)


@pytest.mark.parametrize(
    ("config", "moments"),
    [
        (THREE, [0, 26, 90]),
        pytest.param(ONE, range(0, 400, 5), marks=pytest.mark.slow),
        pytest.param(THREE, range(0, 130, 1), marks=pytest.mark.slow),
    ],
    ids=["3 PEs, some", "1 PE, all", "3 PEs, all"],
)
def test_abort_at_any_moment(config, moments):
    """A run, or one with another waiting, is stopped; the next run is right and nothing lingers."""
    image, q, want = example(config, (12, 11, 6), weight_density=0.7)
    answered = []

    async def conversation(host):
        await host.load(image)
        for slot in range(2):
            assert await host.request(*input_of(slot, q[slot])) == OK
        for n, delay in enumerate(moments):
            seqs = await host.post(*[run_of(0), run_of(1)][: 1 + n % 2])
            await idle(host.ctx, delay)
            (abort,) = await host.post((Command.ABORT, b""))
            kind, seq, payload = await host.receive()
            answered.append(kind == Command.RUN | 0x80)
            if answered[-1]:
                assert seq == seqs[0]
                assert outputs(image, payload)[0] == want[0].tolist()
                kind, seq, payload = await host.receive()
                if seq == seqs[-1]:
                    assert outputs(image, payload)[0] == want[1].tolist()
                    kind, seq, payload = await host.receive()
            assert (kind, seq, payload) == (Command.ABORT | 0x80, abort, OK)
            assert await host.settle() == State.READY
            slot = n // 2 % 2
            got, counters = outputs(image, await host.request(*run_of(slot)))
            assert got == want[slot].tolist(), f"after an abort with delay {delay}"
            check_counters(counters, config)
        await host.quiet()

    talk(config, conversation)
    assert True in answered
    assert False in answered


def test_abort_twice_and_run_while_clearing():
    """ABORT while sums are cleared, then a RUN at once: it waits for the clearing."""
    image, q, want = example(ONE, (6, 5, 4))

    async def conversation(host):
        await host.load(image)
        assert await host.request(*input_of(0, q[0])) == OK
        seqs = await host.post(run_of(0), (Command.ABORT, b""), (Command.ABORT, b""), run_of(0))
        answers = [await host.receive() for _ in range(3)]
        assert answers[:2] == [(Command.ABORT | 0x80, seq, OK) for seq in seqs[1:3]]
        assert answers[2][1] == seqs[3]
        assert outputs(image, answers[2][2])[0] == want[0].tolist()

    talk(ONE, conversation)


def test_malformed_images():
    """Refused by COMMIT; nothing can run; a good image works afterwards."""
    config = SMALL
    image, q, want = example(config, (2, 2), code_bits=1)
    good = image.data
    bad = {
        "unknown kind": bytes([5]) + good[1:],
        "kind 0": bytes([0]) + good[1:],
        "kind of another bit pattern": bytes([0x84]) + good[1:],
        "PE that is not there": good[:1] + bytes([1]) + good[2:],
        "PE 255": good[:1] + bytes([255]) + good[2:],
        "cut in a word": good[:-1],
        "cut in a header": good + good[:5],
        "cut behind a header": good[:8],
        "one word too many announced": good[:4] + bytes([good[4] + 1]) + good[5:],
        "trailing byte": good + b"\0",
    }

    async def conversation(host):
        for name, data in bad.items():
            for offset in range(0, len(data), host.chunk):
                piece = data[offset : offset + host.chunk]
                assert await host.request(*load_of(offset, piece)) == OK, name
            assert await host.request(*commit_of(data)) == bytes([Status.BAD_IMAGE]), name
            assert (await host.status())[0] == State.EMPTY, name
            assert await host.request(*run_of(0)) == bytes([Status.BAD_STATE]), name
        for offset in range(0, len(good), host.chunk):
            await host.request(*load_of(offset, good[offset : offset + host.chunk]))
        for length, crc in ((len(good) - 1, image.crc32), (len(good), image.crc32 ^ 1)):
            commit = struct.pack("<II", length, crc)
            assert await host.request(Command.COMMIT, commit) == bytes([Status.BAD_IMAGE])
            assert (await host.status())[0] == State.EMPTY
        await host.load(image)
        got, _ = await host.infer(image, q[0])
        assert got.tolist() == want[0].tolist()

    talk(config, conversation)


def test_program_alone_is_an_image():
    """A new program stops after an earlier layer; weights, and input slots, stay."""
    config = THREE
    rng = np.random.default_rng(5)
    network = random_network(rng, (7, 6, 5, 3), sum_bits=32, code_bits=3)
    image = compile_network(network, config)
    q = random_inputs(rng, network, 1)
    want = golden.run_layers(network, q)

    async def conversation(host):
        await host.load(image)
        await host.infer(image, q[0])
        for k in (1, 0, 2):
            program = program_image(image, k)
            await host.load(program)
            assert await host.settle() == State.READY
            got, counters = outputs(program, await host.request(*run_of(0)))
            assert got == want[k][0].tolist(), f"stopped after layer {k}"
            check_counters(counters, config)

    talk(config, conversation)


@pytest.mark.parametrize(
    "record",
    [{"from_merge": 1, "last": 1}, pytest.param({"last": 0}, marks=pytest.mark.slow)],
    ids=["fed by nothing", "no last layer"],
)
def test_program_that_never_ends(record):
    """A well-formed image with a senseless program hangs; ABORT frees the engine."""
    image, q, want = example(ONE, (5, 4))
    words = pack_record(image.layers[0].record | record, ONE)
    senseless = replace(image, data=section(Section.PROGRAM, 0, 0, words, ONE))

    async def conversation(host):
        await host.load(image)
        await host.load(senseless)
        await host.request(*input_of(0, q[0]))
        await host.post(run_of(0))
        await host.quiet(500)
        assert (await host.status())[0] == State.RUNNING
        assert await host.request(Command.ABORT) == OK
        assert await host.settle() == State.READY
        await host.load(program_image(image))
        got, _ = await host.infer(image, q[1])
        assert got.tolist() == want[1].tolist()

    talk(ONE, conversation)


def test_damaged_frames_and_link_errors_show_in_status():
    """Each flag once; damaged frames get no answer and do no harm."""
    good = encode_frame(Frame(Command.ABORT, 7))
    damaged = bytes([good[0] ^ 1]) + good[1:]
    oversize = encode_frame(Frame(Command.LOAD, 7, bytes(SMALL.max_payload + 1)))
    flags = []

    async def conversation(host):
        for line in (b"", damaged, good[:4] + good[-1:], oversize, b"\x7e\x7e"):
            await host.send(line)
            await host.quiet(20)
            flags.append([(await host.status())[1] for _ in range(2)])
        for pulse in (1, 2, 3):
            host.ctx.set(host.engine.link_errors, pulse)
            await host.ctx.tick()
            host.ctx.set(host.engine.link_errors, 0)
            flags.append([(await host.status())[1] for _ in range(2)])

    talk(SMALL, conversation)
    assert flags == [[0, 0], [1, 0], [1, 0], [4, 0], [0, 0], [2, 0], [4, 0], [6, 0]]


def test_inputs_in_pieces():
    """Groups may come in any order and any number of pieces; a slot keeps what is not written."""
    image, q, want = example(ONE, (15, 3), n=2)

    async def conversation(host):
        await host.load(image)
        data = bytes_of(q[0])
        for group in (3, 1, 0, 2):
            piece = data[4 * group : 4 * group + 4]
            assert await host.request(Command.INPUT, struct.pack("<BH", 1, group) + piece) == OK
        assert await host.request(*input_of(0, q[1])) == OK
        for slot, k in ((1, 0), (0, 1), (1, 0)):
            got, _ = outputs(image, await host.request(*run_of(slot)))
            assert got == want[k].tolist()

    talk(ONE, conversation)
