# SPDX-License-Identifier: BSD-2-Clause
"""Controller: what each request starts, and what it is answered."""

import struct
import zlib
from dataclasses import replace

import pytest
from gossamer.rtl.controller import Controller
from gossamer.rtl.formats import Command, State, Status
from gossamer.rtl.frames import Frame
from gossamer.sim.streams import idle, send
from rtl_models import SMALL, TINY, pauses, simulate, wait

GOOD = b"some image bytes"


def items(frame):
    message = frame.message
    last = len(message) - 1
    return [
        {"data": byte, "first": int(k == 0), "last": int(k == last)}
        for k, byte in enumerate(message)
    ]


class Desk:
    """A controller with everything around it played by the bench."""

    def __init__(self, ctx, dut, gaps):
        self.ctx, self.dut, self.gaps, self.seq = ctx, dut, gaps, 0

    async def ask(self, command, payload=b""):
        """Send a request, answer it at once; its status."""
        ctx, dut = self.ctx, self.dut
        self.seq = (self.seq + 1) & 255
        await send(ctx, dut.i, items(Frame(command, self.seq, payload)), self.gaps)
        await wait(ctx, dut.answer, 12)
        found = ctx.get(dut.type), ctx.get(dut.seq)
        assert found == (command, self.seq)
        status = ctx.get(dut.status)
        await self.answered()
        assert not ctx.get(dut.answer)
        return status

    async def answered(self):
        self.ctx.set(self.dut.answered, 1)
        await self.ctx.tick()
        self.ctx.set(self.dut.answered, 0)

    def state(self):
        return self.ctx.get(self.dut.state)

    async def commit(self, image=GOOD):
        """Load and commit an image, clear the sums."""
        assert await self.ask(Command.LOAD, bytes(4) + image) == Status.OK
        self.ctx.set(self.dut.image_complete, 1)
        request = struct.pack("<II", len(image), zlib.crc32(image))
        assert await self.ask(Command.COMMIT, request) == Status.OK


def talk(conversation, config=SMALL, share=0.0):
    """Run a conversation; return what left towards loader, store, run queue and reset."""
    dut = Controller(config)
    out = {"image": [], "store": [], "runs": [], "restarts": 0, "resets": 0, "results": 0}
    ends = []

    async def bench(ctx):
        ctx.set(dut.cleared, 1)
        await conversation(Desk(ctx, dut, pauses(1, share)))
        await idle(ctx, 3)
        ends.append(True)

    async def watcher(ctx):
        while True:
            values = await ctx.tick().sample(
                dut.o_image.valid, dut.o_image.payload, dut.image_restart,
                dut.store_write, dut.store_slot, dut.store_group, dut.store_data,
                dut.request, dut.request_slot, dut.seq, dut.reset_engine, dut.result_sent,
            )  # fmt: skip
            image, byte, restart, *values = values[2:]
            write, slot, group, word, run, run_slot, seq, reset, sent = values
            if image:
                out["image"].append(byte)
            out["restarts"] += restart
            if write:
                out["store"].append((slot, group, word.to_bytes(4, "little")))
            if run:
                out["runs"].append((run_slot, seq))
            out["resets"] += reset
            out["results"] += sent

    simulate(dut, bench, background=[watcher])
    assert ends == [True]
    return out


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_image_bytes_pass_once(share):
    """In order, whole, duplicates and gaps left out; anew at offset 0."""
    data = bytes(range(60))

    async def conversation(desk):
        async def load(offset, piece, status=Status.OK):
            assert await desk.ask(Command.LOAD, struct.pack("<I", offset) + piece) == status

        await load(5, data[5:9], Status.BAD_STATE)
        await load(0, b"wrong start")
        await load(0, data[:20])
        await load(21, data[21:30], Status.BAD_OFFSET)
        await load(20, data[20:21])
        await load(21, data[21:59])
        await load(20, data[20:59])
        await load(0x01000000 + 59, data[59:], Status.BAD_OFFSET)
        await load(59, b"")
        await load(59, data[59:])
        assert desk.ctx.get(desk.dut.loaded) == 60
        desk.ctx.set(desk.dut.image_complete, 1)
        request = struct.pack("<II", 60, zlib.crc32(data))
        assert await desk.ask(Command.COMMIT, request) == Status.OK

    out = talk(conversation, share=share)
    assert bytes(out["image"]) == b"wrong start" + data
    assert (out["restarts"], out["resets"]) == (2, 1)


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("config", [SMALL, replace(SMALL, input_depth=32768), TINY])
def test_inputs_become_words(config, share):
    """Four bytes a word, groups counted up; what is left of a last word is not written."""
    groups = config.input_depth // 4

    run = b"0123456789AB"[: 4 * min(groups, 3)]
    first_of_run = groups - len(run) // 4

    async def conversation(desk):
        await desk.commit()
        for slot, first, data in (
            (0, 0, b"abcd"),
            (1, groups - 1, b"\0\xff\x7d\x7e"),
            (1, first_of_run, run),
            (0, groups - 1, b""),
            (0, 0, b"xyz"),
        ):
            request = struct.pack("<BH", slot, first) + data
            assert await desk.ask(Command.INPUT, request) == Status.OK

    out = talk(conversation, config, share)
    want = [(0, 0, b"abcd"), (1, groups - 1, b"\0\xff\x7d\x7e")]
    want += [(1, first_of_run + k // 4, run[k : k + 4]) for k in range(0, len(run), 4)]
    assert out["store"] == want


def test_inputs_are_refused_while_their_slot_is_needed():
    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        assert await desk.ask(Command.INPUT, b"\0\0\0abcd") == Status.BAD_STATE
        await desk.commit()
        for pending, holds in ((0, 0), (1, 0), (0, 1), (1, 1)):
            for pending_slot, current_slot, slot in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)):
                ctx.set(dut.pending, pending)
                ctx.set(dut.pending_slot, pending_slot)
                ctx.set(dut.holds_input, holds)
                ctx.set(dut.current_slot, current_slot)
                waiting = pending and pending_slot == slot
                reading = holds and current_slot == slot
                want = Status.BUSY if waiting or reading else Status.OK
                assert await desk.ask(Command.INPUT, bytes([slot, 1, 0]) + b"efgh") == want
                if want == Status.OK:
                    accepted.append((slot, 1, b"efgh"))

    accepted = []
    assert talk(conversation)["store"] == accepted
    assert len(accepted) == 6


def test_runs():
    """Queued with the request's seq; repetitions pass silently, a third is refused."""

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        assert await desk.ask(Command.RUN, b"\0") == Status.BAD_STATE
        await desk.commit()
        for slot, pending, known in ((1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1), (0, 0, 0)):
            ctx.set(dut.pending, pending)
            ctx.set(dut.known, known)
            if pending and not known:
                assert await desk.ask(Command.RUN, bytes([slot])) == Status.BUSY
            else:
                desk.seq += 1
                await send(ctx, dut.i, items(Frame(Command.RUN, desk.seq, bytes([slot]))))
                for _ in range(8):
                    await ctx.tick()
                    assert not ctx.get(dut.answer), "a RUN is answered by its results"

    # BAD_STATE had seq 1; LOAD and COMMIT two more.
    assert talk(conversation)["runs"] == [(1, 4), (0, 8)]


def test_results_go_out_before_the_next_request():
    """But never in the middle of a request that is being read."""

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        for place in range(5):
            frame = items(Frame(Command.STATUS, 50 + place))
            await send(ctx, dut.i, frame[:place])
            ctx.set(dut.result_waiting, 1)
            ctx.set(dut.result_seq, 200 + place)
            await idle(ctx, 5)
            in_between = 0 < place < 4
            assert ctx.get(dut.answer) == (not in_between), f"place {place}"
            await send(ctx, dut.i, frame[place:] if in_between else [])
            seen = []
            for _ in range(2 if place else 1):
                await wait(ctx, dut.answer, 10)
                seen.append((ctx.get(dut.type), ctx.get(dut.seq), ctx.get(dut.status)))
                await desk.answered()
                if seen[-1][0] == Command.RUN:
                    ctx.set(dut.result_waiting, 0)
                await idle(ctx, 1)
            result = (Command.RUN, 200 + place, Status.OK)
            status = (Command.STATUS, 50 + place, Status.OK)
            assert seen == ([status, result] if place else [result])

    assert talk(conversation)["results"] == 5


def test_states():
    """CLEARING over RUNNING over READY over LOADING."""

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        assert desk.state() == State.EMPTY
        await desk.ask(Command.LOAD, bytes(4))
        assert desk.state() == State.LOADING
        ctx.set(dut.cleared, 0)
        await idle(ctx, 1)
        assert desk.state() == State.CLEARING
        ctx.set(dut.cleared, 1)
        await desk.ask(Command.ABORT)
        assert desk.state() == State.EMPTY
        await desk.commit()
        assert desk.state() == State.READY
        ctx.set(dut.occupied, 1)
        await idle(ctx, 1)
        assert desk.state() == State.RUNNING
        for command, payload in (
            (Command.LOAD, bytes(4)),
            (Command.LOAD, b"\1\0\0\0"),
            (Command.COMMIT, bytes(8)),
        ):
            assert await desk.ask(command, payload) == Status.BUSY
        ctx.set(dut.occupied, 0)
        await desk.ask(Command.ABORT)
        assert desk.state() == State.READY
        await desk.ask(Command.LOAD, bytes(4))
        assert desk.state() == State.LOADING

    out = talk(conversation)
    assert (out["resets"], out["restarts"]) == (3, 3)


def test_commit_needs_length_crc_and_whole_sections():
    crc = zlib.crc32(GOOD)

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        cases = [(len(GOOD), crc, 0), (len(GOOD) + 1, crc, 1), (len(GOOD), crc ^ 1 << 31, 1)]
        cases += [(len(GOOD) + (1 << 31), crc, 1), (0, 0, 1)]
        for length, value, complete in cases:
            assert await desk.ask(Command.LOAD, bytes(4) + GOOD) == Status.OK
            ctx.set(dut.image_complete, complete)
            request = struct.pack("<II", length, value)
            assert await desk.ask(Command.COMMIT, request) == Status.BAD_IMAGE
            assert desk.state() == State.EMPTY
            # What was loaded before is not there any more.
            again = struct.pack("<II", len(GOOD), crc)
            assert await desk.ask(Command.COMMIT, again) == Status.BAD_IMAGE
            assert await desk.ask(Command.RUN, b"\0") == Status.BAD_STATE
        await desk.commit()
        assert await desk.ask(Command.COMMIT, struct.pack("<II", len(GOOD), crc)) == Status.OK
        assert desk.state() == State.READY

    assert talk(conversation)["resets"] == 1


LENGTHS = {Command.LOAD: 4, Command.COMMIT: 8, Command.INPUT: 3, Command.RUN: 1}


@pytest.mark.parametrize("command", list(LENGTHS))
def test_short_requests(command):
    """Every length below the arguments' is refused, and starts nothing."""

    async def conversation(desk):
        await desk.commit()
        for length in range(LENGTHS[command]):
            assert await desk.ask(command, bytes(length)) == Status.BAD_LENGTH
        assert await desk.ask(Command.STATUS) == Status.OK
        assert desk.state() == State.READY

    out = talk(conversation)
    assert (out["runs"], out["store"], out["restarts"], out["resets"]) == ([], [], 1, 1)


@pytest.mark.parametrize("command", [0, 8, 15, 0x46, 0x80, 0x83, 0x86, 255])
def test_unknown_requests(command):
    async def conversation(desk):
        await desk.commit()
        for length in (0, 1, 9, 40):
            assert await desk.ask(command, bytes(length)) == Status.UNKNOWN
        assert desk.state() == State.READY

    out = talk(conversation)
    assert (out["runs"], out["store"], bytes(out["image"])) == ([], [], GOOD)


@pytest.mark.parametrize(
    ("command", "payload", "latency"),
    [
        (Command.STATUS, b"", 4),
        (Command.RUN, b"\0", 4),
        (Command.COMMIT, bytes(8), 4),
        (Command.LOAD, bytes(5), 2),
        (Command.LOAD, bytes(60), 2),
        (Command.INPUT, bytes(11), 2),
        (Command.RUN, b"", 4),
    ],
)
def test_latency_and_rate(command, payload, latency):
    """A payload byte a cycle, but for two cycles in which the request is decided."""
    dut = Controller(SMALL)
    found = []

    async def bench(ctx):
        message = items(Frame(command, 1, payload))
        cycles = await send(ctx, dut.i, message)
        decided = 2 if latency == 2 else 0
        found.append(cycles - len(message) - decided)
        found.append(1 + await wait(ctx, dut.answer, 10))

    simulate(dut, bench)
    assert found == [0, latency]


def test_answer_waits_and_is_steady():
    """Type, seq and status stand until `answered`; nothing is read meanwhile."""
    dut = Controller(SMALL)
    seen = set()

    async def bench(ctx):
        await send(ctx, dut.i, items(Frame(Command.HELLO, 9)))
        await wait(ctx, dut.answer, 10)
        ctx.set(dut.i.payload, items(Frame(Command.ABORT, 10))[0])
        ctx.set(dut.i.valid, 1)
        for _ in range(20):
            values = await ctx.tick().sample(dut.answer, dut.type, dut.seq, dut.status, dut.i.ready)
            seen.add(tuple(map(int, values[2:])))

    simulate(dut, bench)
    assert seen == {(1, Command.HELLO, 9, Status.OK, 0)}
