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
from rtl_models import SMALL, TILED, TINY, pauses, simulate, wait

GOOD = b"some image bytes"
WIDE = replace(SMALL, activation_bits=16, sum_bits=36)
CONFIGS = [
    SMALL,
    replace(SMALL, input_depth=32768),
    TINY,
    TILED,
    WIDE,
    replace(WIDE, tile_rows=1, tile_columns=4),
]


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
    """Run a conversation; return what left towards loader, store, run queue and reset.

    With pauses the loader makes some, too.
    """
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
                dut.o_image.valid & dut.o_image.ready, dut.o_image.payload, dut.image_restart,
                dut.store_write, dut.store_slot, dut.store_image, dut.store_group, dut.store_data,
                dut.request, dut.request_slot, dut.request_images, dut.seq, dut.reset_engine,
                dut.result_sent,
            )  # fmt: skip
            loaded, byte, restart, *values = values[2:]
            write, slot, image, group, word, run, run_slot, images, seq, reset, sent = values
            if loaded:
                out["image"].append(byte)
            out["restarts"] += restart
            if write:
                size = 4 * config.activation_bytes
                out["store"].append((slot, image, group, word.to_bytes(size, "little")))
            if run:
                out["runs"].append((run_slot, images, seq))
            out["resets"] += reset
            out["results"] += sent

    async def loader(ctx):
        gaps = pauses(3, share)
        while True:
            ctx.set(dut.o_image.ready, 0)
            await idle(ctx, next(gaps) if gaps else 0)
            ctx.set(dut.o_image.ready, 1)
            await ctx.tick()

    simulate(dut, bench, background=[watcher, loader])
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
@pytest.mark.parametrize("config", CONFIGS)
def test_inputs_become_words(config, share):
    """Four values a word, groups counted up; what is left of a last word is not written."""
    groups = config.input_depth // 4
    size = 4 * config.activation_bytes
    one = b"abcd\0\xff\x7d\x7e"[-size:]
    run = bytes(range(48, 48 + size * min(groups, 3)))
    first_of_run = groups - len(run) // size
    image = config.batch - 1

    async def conversation(desk):
        await desk.commit()
        for slot, image_of, first, data in (
            (0, 0, 0, one),
            (1, image, groups - 1, one[::-1]),
            (1, 0, first_of_run, run),
            (0, image, groups - 1, b""),
            (0, 0, 0, one[1:]),
        ):
            request = struct.pack("<BH", slot | image_of << 1, first) + data
            assert await desk.ask(Command.INPUT, request) == Status.OK

    out = talk(conversation, config, share)
    want = [(0, 0, 0, one), (1, image, groups - 1, one[::-1])]
    want += [(1, 0, first_of_run + k // size, run[k : k + size]) for k in range(0, len(run), size)]
    assert out["store"] == want


@pytest.mark.parametrize("config", CONFIGS)
def test_inputs_beyond_the_store_are_refused(config):
    """No such image, no such group; nothing wraps, groups in front of the end are written."""
    groups = config.input_depth // 4
    size = 4 * config.activation_bytes
    word, more = bytes(range(size)), bytes(range(100, 100 + size))

    async def conversation(desk):
        assert await desk.ask(Command.INPUT, b"\xff\xff\xff" + word) == Status.BAD_STATE
        await desk.commit()
        for bit in range(config.batch.bit_length(), 8):
            request = struct.pack("<BH", 1 << bit, 0) + word
            assert await desk.ask(Command.INPUT, request) == Status.BAD_ARGUMENT, bit
        for group in (groups, 2 * groups, 65535):
            request = struct.pack("<BH", 0, group) + word
            assert await desk.ask(Command.INPUT, request) == Status.BAD_ARGUMENT, group
        request = struct.pack("<BH", 0, groups - 1) + word + more
        assert await desk.ask(Command.INPUT, request) == Status.BAD_ARGUMENT
        assert await desk.ask(Command.INPUT, request[:-1]) == Status.OK
        assert await desk.ask(Command.INPUT, request + more) == Status.BAD_ARGUMENT

    assert talk(conversation, config)["store"] == [(0, 0, groups - 1, word)] * 3


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
                    accepted.append((slot, 0, 1, b"efgh"))

    accepted = []
    assert talk(conversation)["store"] == accepted
    assert len(accepted) == 6


def test_runs():
    """Queued with the request's seq; repetitions pass silently, a third is refused."""

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        assert await desk.ask(Command.RUN, b"\0\0") == Status.BAD_STATE
        await desk.commit()
        for slot, pending, known in ((1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1), (0, 0, 0)):
            ctx.set(dut.pending, pending)
            ctx.set(dut.known, known)
            if pending and not known:
                assert await desk.ask(Command.RUN, bytes([slot, 1])) == Status.BUSY
            else:
                desk.seq += 1
                await send(ctx, dut.i, items(Frame(Command.RUN, desk.seq, bytes([slot, 1]))))
                for _ in range(8):
                    await ctx.tick()
                    assert not ctx.get(dut.answer), "a RUN is answered by its results"

    # BAD_STATE had seq 1; LOAD and COMMIT two more.
    assert talk(conversation)["runs"] == [(1, 1, 4), (0, 1, 8)]


@pytest.mark.parametrize("config", CONFIGS)
def test_runs_have_a_slot_and_as_many_images_as_fit(config):
    async def conversation(desk):
        await desk.commit()
        for slot in range(2):
            for images in range(1, config.batch + 1):
                desk.seq += 1
                request = Frame(Command.RUN, desk.seq, bytes([slot, images]))
                await send(desk.ctx, desk.dut.i, items(request))
                wanted.append((slot, images, desk.seq))
        for slot, images in [(0, 0), (0, config.batch + 1), (1, 8), (1, 128), (0, 255)]:
            status = await desk.ask(Command.RUN, bytes([slot, images]))
            assert status == Status.BAD_ARGUMENT, (slot, images)
        for slot in (2, 128, 255):
            assert await desk.ask(Command.RUN, bytes([slot, 1])) == Status.BAD_ARGUMENT

    wanted = []
    assert talk(conversation, config)["runs"] == wanted
    assert len(wanted) == 2 * config.batch


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


@pytest.mark.parametrize("command", [Command.COMMIT, Command.STATUS, Command.LOAD])
def test_requests_wait_for_the_loader(command):
    """Until it has decoded what it took: only then it knows whether the image is complete."""

    async def conversation(desk):
        ctx, dut = desk.ctx, desk.dut
        assert await desk.ask(Command.LOAD, bytes(4) + GOOD) == Status.OK
        ctx.set(dut.image_busy, 1)
        payload = {
            Command.COMMIT: struct.pack("<II", len(GOOD), zlib.crc32(GOOD)),
            Command.STATUS: b"",
            Command.LOAD: bytes(4),
        }[command]
        await send(ctx, dut.i, items(Frame(command, 77, payload)))
        for _ in range(60):
            await ctx.tick()
            assert not ctx.get(dut.answer)
        ctx.set(dut.image_complete, 1)
        ctx.set(dut.image_busy, 0)
        await wait(ctx, dut.answer, 4)
        assert (ctx.get(dut.seq), ctx.get(dut.status)) == (77, Status.OK)
        await desk.answered()

    assert talk(conversation)["restarts"] == 1 + (command == Command.LOAD)


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
            assert await desk.ask(Command.RUN, b"\0\1") == Status.BAD_STATE
        await desk.commit()
        assert await desk.ask(Command.COMMIT, struct.pack("<II", len(GOOD), crc)) == Status.OK
        assert desk.state() == State.READY

    assert talk(conversation)["resets"] == 1


LENGTHS = {Command.LOAD: 4, Command.COMMIT: 8, Command.INPUT: 3, Command.RUN: 2}


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
        (Command.RUN, b"\0\1", 4),
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
        ctx.set(dut.o_image.ready, 1)
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
