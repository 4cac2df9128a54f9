# SPDX-License-Identifier: BSD-2-Clause
import time

import pytest
import serial
from fake_device import CLOCK_HZ, CONFIG, FakeDevice, FakePort, Faults
from gossamer.host.device.link import Link
from gossamer.host.errors import DeviceError, DeviceTimeout
from gossamer.rtl.formats import Command, Identity, Status
from gossamer.rtl.frames import FLAG, Frame, FrameDecoder, encode_frame

IDENTITY = Identity(CONFIG, CLOCK_HZ, b"fakefake").pack()
ENDINGS = {
    "whole": Faults(),
    "one byte at a time": Faults(piece=1),
    "reads that return nothing": Faults(piece=3, zero_reads=0.5),
    "boot garbage": Faults(boot_garbage=b"U-Boot 2026\r\n\x00\xff\x7e\x7e\x01\x02"),
    "short writes": Faults(short_writes=True),
}


def make_link(faults=None, timeout=0.4):
    device = FakeDevice()
    return Link(FakePort(device, faults), "fake", timeout=timeout), device


@pytest.mark.parametrize("name", ENDINGS)
def test_request_is_answered(name):
    # Only what was garbled must be asked for again, however busy the machine is.
    link, device = make_link(ENDINGS[name], timeout=0.4 if name == "boot garbage" else 60)
    assert link.request(Command.HELLO) == IDENTITY
    assert device.requests == [Command.HELLO] * (2 if name == "boot garbage" else 1)


def test_pipeline_keeps_the_order_and_the_window():
    link, device = make_link()
    link.window = CONFIG.rx_bytes - 32
    open_bytes = []

    class Watched(FakePort):
        """Answers only when read, so that the window fills up."""

        held = b""

        def write(self, data):
            self.held += data
            frames = FrameDecoder().feed(self.held)
            open_bytes.append(sum(len(frame.message) for frame in frames))
            return len(data)

        def read(self, size=1):
            super().write(self.held)
            self.held = b""
            return super().read(size)

    link = Link(Watched(device), "fake")
    link.window = CONFIG.rx_bytes - 32
    pieces = [bytes([k]) * 60 for k in range(40)]
    requests = ((Command.LOAD, (60 * k).to_bytes(4, "little") + p) for k, p in enumerate(pieces))
    answers = list(link.pipeline(requests))
    assert [answer.status for answer in answers] == [Status.OK] * 40
    assert bytes(device.image) == b"".join(pieces)
    assert max(open_bytes) == 3 * 68
    assert link.repeats == 0


@pytest.mark.parametrize("seed", range(3))
def test_damaged_frames_are_repeated_until_all_is_answered(seed):
    link, _ = make_link(Faults(damage=0.2, seed=seed), timeout=2)
    link.window = CONFIG.rx_bytes - 32
    for k in range(20):
        assert link.request(Command.HELLO) == IDENTITY, k
    answers = list(link.pipeline((Command.STATUS, b"") for _ in range(80)))
    assert [len(answer.data) for answer in answers] == [6] * 80
    assert link.repeats > 15
    assert link.damaged > 5


def test_lost_answer_is_asked_for_again_as_soon_as_it_was_overtaken():
    link, device = make_link(timeout=60)
    port = link._port

    class Deaf:
        """Loses the first answer."""

        in_waiting = 0
        lost = False

        def write(self, data):
            port.write(data)
            if not self.lost:
                port.inbox.clear()
                self.lost = True

        def read(self, size=1):
            return port.read(10**6)

    link._port = Deaf()
    started = time.monotonic()
    answers = list(link.pipeline((Command.STATUS, b"") for _ in range(3)))
    assert [answer.status for answer in answers] == [Status.OK] * 3
    assert time.monotonic() - started < 5
    assert link.repeats == 1
    assert device.requests == [Command.STATUS] * 4


class Dripping(FakePort):
    """A slow line: eight bytes at a time, up to `limit` in all."""

    limit = 10**9

    def read(self, size=1):
        time.sleep(0.002)
        data = super().read(min(8, self.limit))
        self.limit -= len(data)
        return data


def test_long_answer_is_not_silence():
    """It is not asked for again while it comes, however long that takes."""
    device = FakeDevice()
    device.identity = bytes(range(256)) * 10
    link = Link(Dripping(device), "fake", timeout=2.0)
    started = time.monotonic()
    assert link.request(Command.HELLO) == device.identity
    assert time.monotonic() - started > 2 * link.timeout / 8
    assert link.repeats == 0


def test_long_answer_that_breaks_off_is_silence():
    device = FakeDevice()
    device.identity = bytes(2560)
    port = Dripping(device)
    port.limit = 1000
    link = Link(port, "fake", timeout=0.4)
    with pytest.raises(DeviceTimeout, match=r"no answer within 0.4 s and \d+ attempts"):
        link.request(Command.HELLO)
    assert link.repeats > 3


def test_silence_ends_in_a_timeout_that_says_what_was_expected():
    link, device = make_link(Faults(silent_after=1))
    assert link.request(Command.HELLO) == IDENTITY
    started = time.monotonic()
    with pytest.raises(
        DeviceTimeout,
        match=r"fake: no answer within 0.4 s and 8 attempts: expected an answer to STATUS 1, got "
        r"nothing; check that the device",
    ):
        link.request(Command.STATUS)
    assert 0.35 < time.monotonic() - started < 1.5
    assert device.requests == [Command.HELLO] + [Command.STATUS] * 8


def test_noise_is_shown_in_the_timeout():
    class Noisy(FakePort):
        def read(self, size=1):
            time.sleep(0.01)
            return b"\x55"

    link = Link(Noisy(FakeDevice()), "fake", timeout=0.2)
    with pytest.raises(DeviceTimeout, match="got noise ending in 55 55 55"):
        link.request(Command.HELLO)


def test_silence_does_not_keep_the_processor_busy():
    class Eager(FakePort):
        """Returns at once, as some drop-in ports do."""

        def read(self, size=1):
            self.reads += 1
            return b""

    port = Eager(FakeDevice())
    with pytest.raises(DeviceTimeout):
        Link(port, "fake", timeout=0.3).request(Command.HELLO)
    assert port.reads < 400


def test_late_and_foreign_answers_are_skipped():
    link, _ = make_link()
    stale = encode_frame(Frame(0x82, 0, b"\x00late"))
    echo = encode_frame(Frame(0x01, 0))
    link._port.inbox += stale + echo
    assert link.request(Command.HELLO) == IDENTITY
    assert link.strays == 2


def test_device_is_usable_after_a_timeout():
    faults = Faults(silent_after=0)
    link, _ = make_link(faults, timeout=0.1)
    with pytest.raises(DeviceTimeout):
        link.request(Command.HELLO)
    faults.silent_after = 10**9
    assert link.request(Command.HELLO) == IDENTITY


@pytest.mark.parametrize(
    ("command", "payload", "text"),
    [
        (Command.LOAD, b"\x05\x00\x00\x00ab", "LOAD was refused with status BAD_STATE.*load it"),
        (Command.LOAD, b"\x05", "LOAD was refused with status BAD_LENGTH.*one version"),
        (Command.COMMIT, bytes(8), "COMMIT was refused with status BAD_IMAGE.*load it again"),
        (Command.RUN, b"\x00\x01", "RUN was refused with status BAD_STATE.*load it again"),
    ],
)
def test_refusals_say_what_to_do(command, payload, text):
    link, _ = make_link()
    with pytest.raises(DeviceError, match=text):
        link.request(command, payload)


def test_unknown_status_is_refused():
    link, device = make_link()
    device.reply = lambda frame, status, data=b"": encode_frame(
        Frame(frame.type | 0x80, 0, b"\x63")
    )
    with pytest.raises(DeviceError, match=r"HELLO was answered with status 99, expected 0\.\.7"):
        link.request(Command.HELLO)


def test_answer_without_status_is_refused():
    link, device = make_link()
    device.reply = lambda frame, status, data=b"": encode_frame(Frame(frame.type | 0x80, 0))
    with pytest.raises(DeviceError, match="HELLO was answered with status None"):
        link.request(Command.HELLO)


@pytest.mark.parametrize("where", ["read", "write"])
@pytest.mark.parametrize("kind", [serial.SerialException, serial.SerialTimeoutException, OSError])
def test_broken_connection_is_a_device_error(where, kind):
    link, _ = make_link()

    def fail(*_):
        raise kind("device reports readiness to read but returned no data")

    setattr(link._port, where, fail)
    with pytest.raises(DeviceError, match=r"fake: the connection broke .*check the cable"):
        link.request(Command.HELLO)


def test_port_that_takes_nothing_is_a_timeout():
    link, _ = make_link(timeout=0.1)
    link._port.write = lambda data: 0
    with pytest.raises(DeviceTimeout, match=r"took no data for 0.1 s, expected it to take 10 more"):
        link.request(Command.HELLO)


def test_forgotten_request_does_not_wait_for_ever():
    link, _ = make_link(Faults(silent_after=0))
    ticket = link.submit(Command.HELLO)
    link.forget()
    with pytest.raises(DeviceError, match="HELLO was given up before its answer came"):
        link.wait(ticket)


def test_more_requests_than_sequence_numbers():
    link, device = make_link()
    answers = list(link.pipeline((Command.STATUS, b"") for _ in range(1000)))
    assert len(answers) == 1000
    assert len(device.requests) == 1000


def test_bytes_on_the_line():
    sent = bytearray()

    class Recorder(FakePort):
        def write(self, data):
            sent.extend(data)
            return super().write(data)

    link = Link(Recorder(FakeDevice()), "fake")
    link.request(Command.STATUS)
    link.request(Command.STATUS)
    flag = bytes([FLAG])
    first, second = encode_frame(Frame(2, 0)), encode_frame(Frame(2, 1))
    assert bytes(sent) == flag + first + second
