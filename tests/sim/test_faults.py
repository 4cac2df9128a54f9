# SPDX-License-Identifier: BSD-2-Clause
"""The injector alone, in front of a board that answers every frame: each kind does what it says."""

import random
from collections import Counter

import pytest
from gossamer.rtl.formats import Command
from gossamer.rtl.frames import Frame, FrameDecoder, encode_frame
from gossamer.sim.faults import Fault, Kind, Phase, plan_faults
from gossamer.sim.faulty_port import FaultyPort, Hang, VirtualClock


class Echo:
    """Notes the requests that arrive whole, and answers each with its payload."""

    def __init__(self):
        self.decoder, self.frames, self.said, self.resets = FrameDecoder(), [], b"", 0

    @property
    def in_waiting(self):
        return len(self.said)

    def write(self, data):
        for frame in self.decoder.feed(data):
            self.frames.append(frame)
            self.said += encode_frame(Frame(frame.type | 0x80, frame.seq, frame.payload))

    def read(self, size):
        data, self.said = self.said[:size], self.said[size:]
        return data

    def reset(self):
        self.resets += 1
        self.said = b""


def requests(count=6):
    return [Frame(Command.LOAD, seq, bytes([seq, 0x7E, 0x7D]) * 5) for seq in range(count)]


def talk(*faults, right_crcs=False, together=False):
    """Send six requests, one after the other or at once; what the board took, and the answers."""
    board, clock = Echo(), VirtualClock()
    port = FaultyPort(board, clock, faults, right_crcs=right_crcs)
    decoder, answers = FrameDecoder(), []
    for frame in requests():
        data = b"\x7e" + encode_frame(frame)
        while not port.write(data):
            clock.sleep(0.001)
        if not together:
            answers += decoder.feed(port.read(1000))
    for _ in range(40):
        answers += decoder.feed(port.read(1000))
    return board, port, clock, [frame.seq for frame in board.frames], [one.seq for one in answers]


def fault(kind, at=4, frames=1, size=1, phase=Phase.LOAD, seed=1):
    return Fault(kind, phase, at, frames, size, seed)


def test_a_good_line_changes_nothing():
    board, port, clock, there, back = talk()
    assert board.frames == requests()
    assert there == back == list(range(6))
    assert not port.injected
    assert clock.monotonic() > 12 * 24e-5


@pytest.mark.parametrize("kind", [Kind.DROP, Kind.FLIP, Kind.TRUNCATE])
@pytest.mark.parametrize(("at", "there"), [(4, 5), (5, 6)])  # a request, its answer
@pytest.mark.parametrize("size", [9, 1000])
def test_damage_loses_the_frame(kind, at, there, size):
    """An answer that has lost its FLAG takes the next one along."""
    _, port, _, got_there, got_back = talk(fault(kind, at, size=size))
    assert port.injected == {(Phase.LOAD, kind): 1}
    assert len(got_there) == there
    assert len(got_back) in (5, 5 - (at == 5))


def test_duplicates():
    assert talk(fault(Kind.DUPLICATE, size=1000))[3] == [0, 1, 2, 2, 3, 4, 5]
    assert talk(fault(Kind.DUPLICATE, size=1))[3] in ([0, 1, 3, 4, 5], list(range(6)))


def test_garbage_is_no_frame():
    assert talk(fault(Kind.GARBAGE, size=50))[3] == list(range(6))


def test_delay_keeps_the_order_and_stall_refuses():
    *_, clock, there, back = talk(fault(Kind.DELAY, at=4, size=60))
    assert there == back == list(range(6))
    assert clock.monotonic() >= 0.6
    *_, clock, there, back = talk(fault(Kind.STALL, at=4, size=60))
    assert there == back == list(range(6))


@pytest.mark.parametrize(("size", "order"), [(1, [0, 1, 3, 2, 4, 5]), (3, [0, 1, 3, 4, 5, 2])])
def test_reorder_lets_frames_overtake(size, order):
    assert talk(fault(Kind.REORDER, at=2, size=size), together=True)[3] == order
    late = talk(fault(Kind.REORDER, at=5, size=3), together=True)[3]
    assert late == list(range(6))  # nothing came to overtake it


def test_reset_loses_what_is_on_its_way_and_leaves_garbage():
    board, _, _, there, back = talk(fault(Kind.RESET, at=4, size=20))
    assert board.resets == 1
    assert there == [0, 1, 3, 4, 5]
    assert back in ([0, 1, 3, 4, 5], [0, 1, 4, 5])


def test_bursts_hit_frames_in_a_row():
    _, port, *_ = talk(fault(Kind.DROP, at=2, frames=3), together=True)
    assert port.injected[Phase.LOAD, Kind.DROP] == 3


def test_repaired_frames_are_taken():
    boards = [talk(fault(Kind.FLIP, seed=seed), right_crcs=True)[0] for seed in range(20)]
    taken = [board.frames for board in boards if len(board.frames) == 6]
    assert sum(frames != requests() for frames in taken) > 5


def test_phases_are_those_of_the_frames():
    board, clock = Echo(), VirtualClock()
    want = [
        (Command.STATUS, Phase.HANDSHAKE, 2), (Command.HELLO, Phase.HANDSHAKE, 2),
        (Command.COMMIT, Phase.LOAD, 2), (Command.STATUS, Phase.LOAD, 2),
        (Command.INPUT, Phase.INPUT, 2), (Command.RUN, Phase.RUN, 1),
    ]  # fmt: skip
    every = [Fault(Kind.DUPLICATE, phase, 0, 100, 0, 0) for phase in Phase]
    port = FaultyPort(board, clock, every)
    counts = Counter()
    for command, phase, frames in want:
        port.write(encode_frame(Frame(command, 1, b"ab")))
        port.read(100)
        counts[phase, Kind.DUPLICATE] += frames
    counts[Phase.OUTPUT, Kind.DUPLICATE] = 1
    assert port.injected == counts


def test_no_faults_once_the_line_has_healed():
    board, clock = Echo(), VirtualClock()
    port = FaultyPort(board, clock, [fault(Kind.DROP, at=0, frames=100, size=1000)])
    port.write(encode_frame(requests()[0]))
    port.heal()
    port.write(encode_frame(requests()[1]))
    assert FrameDecoder().feed(port.read(100)) != []
    assert [frame.seq for frame in board.frames] == [1]


def test_waiting_beyond_the_deadline_is_a_hang():
    clock = VirtualClock()
    clock.deadline = 0.12
    port = FaultyPort(Echo(), clock)
    assert port.read(1) == port.read(1) == b""
    with pytest.raises(Hang, match="after the deadline"):
        port.read(1)


def test_plans():
    plans = [plan_faults(random.Random(seed)) for seed in range(400)]
    assert plans == [plan_faults(random.Random(seed)) for seed in range(400)]
    faults = [one for plan in plans for one in plan]
    assert {(one.kind, one.phase) for one in faults} == {(k, p) for k in Kind for p in Phase}
    assert len(faults) / len(plans) == pytest.approx(5, abs=0.5)
    assert [Fault.parse(str(one)) for one in faults] == faults
    with pytest.raises(ValueError, match="a fault is kind:phase:at:frames:size:seed, not 'drop:"):
        Fault.parse("drop:load:1")
