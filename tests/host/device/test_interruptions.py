# SPDX-License-Identifier: BSD-2-Clause
"""Ctrl-C anywhere, threads, stale answers, a device that was reset and reconnected."""

import threading

import numpy as np
import pytest
from fake_device import CONFIG, FakeDevice, FakePort
from gossamer.host import golden
from gossamer.host.device.device import Device
from gossamer.host.errors import DeviceError
from gossamer.host.session import Session
from gossamer.rtl.formats import Command, Identity, State, Status
from gossamer.rtl.frames import Frame, encode_frame
from networks import random_inputs, random_network

SIZES = (30, 12, 8)


@pytest.fixture(scope="module")
def network():
    return random_network(np.random.default_rng(5), SIZES)


class Interrupted(FakePort):
    """Raises Ctrl-C at one of its operations; a write is then half done."""

    at = 10**9

    def due(self):
        self.at -= 1
        return self.at == -1

    def open(self):
        self.is_open = True

    def read(self, size=1):
        if self.due():
            raise KeyboardInterrupt
        return super().read(size)

    def write(self, data):
        if self.due():
            super().write(data[: len(data) // 2])
            raise KeyboardInterrupt
        return super().write(data)


def right(session, seed=1, n=5):
    q = random_inputs(np.random.default_rng(seed), session.network, n)
    return np.array_equal(session.run_quantized(q), golden.run(session.network, q))


def test_ctrl_c_at_any_moment_leaves_the_device_usable(network):
    """In loading, in runs, in a stream: the next call on the same session is right."""
    at, done = 0, False
    while not done:
        port = Interrupted(FakeDevice(network))
        session = Session(network, Device(port, "fake", timeout=1.0))
        port.at = at
        try:
            assert right(session)
            list(session.stream(np.zeros((3, SIZES[0]))))
            done = True
        except KeyboardInterrupt:
            port.at = 10**9
            assert right(session, at), at
        at += 1
    assert at > 60


def test_threads_share_a_session(network):
    session = Session(network, Device(FakePort(FakeDevice(network)), "fake", timeout=10.0))
    wrong = []

    def work(seed):
        wrong.extend(k for k in range(8) if not right(session, 100 * seed + k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_with_models_of_their_own_share_a_device(network):
    """Loading and running belong together, also in a stream: never on the other one's model."""
    other = random_network(np.random.default_rng(6), SIZES)
    fake = FakeDevice(network)
    fake.results |= FakeDevice(other).results
    networks = {image: one for one in (network, other) for image in FakeDevice(one).results}
    finish = fake.finish_run

    def finish_run():
        fake.network = networks[fake.committed] if fake.committed else network
        return finish()

    fake.finish_run = finish_run
    device = Device(FakePort(fake), "fake", timeout=10.0)
    wrong, ended = [], []

    def work(one):
        session = Session(one, device)
        q = random_inputs(np.random.default_rng(1), one, 3)
        want = golden.run(one, q)
        for k in range(6):
            if not np.array_equal(session.run_quantized(q), want):
                wrong.append(k)
            try:
                got = list(session.stream(one.input.dequantize(q)))
                if not np.array_equal(got, one.output.dequantize(want)):
                    wrong.append(k)
            except DeviceError:  # ended by the other thread's call
                ended.append(k)

    threads = [threading.Thread(target=work, args=(one,)) for one in (network, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_answers_of_a_dead_session_are_not_taken_for_new_ones(network):
    """They bear numbers that the new session uses, too."""
    fake = FakeDevice(network)
    port = FakePort(fake)
    results = bytes([Status.OK]) + bytes(32 + SIZES[-1])
    for seq in range(60):
        port.inbox += encode_frame(Frame(Command.RUN | 0x80, seq, results))
        port.inbox += encode_frame(Frame(Command.INPUT | 0x80, seq, bytes([Status.BUSY])))
        port.inbox += encode_frame(Frame(Command.LOAD | 0x80, seq, bytes([Status.BAD_OFFSET])))
    port.inbox += encode_frame(Frame(Command.RUN | 0x80, 60, results))[:9]
    device = Device(port, "fake", timeout=5.0)
    assert right(Session(network, device))
    assert device.link.strays == 180


def test_a_run_that_came_twice_does_not_disturb_the_next_call(network):
    fake = FakeDevice(network)
    session = Session(network, Device(FakePort(fake), "fake", timeout=5.0))
    assert right(session)
    fake.runs.append((200, 0, 1))
    assert fake.state == State.RUNNING
    assert right(session, 2)


def test_reconnecting_after_a_reset(network):
    fake = FakeDevice(network)
    port = Interrupted(fake)
    session = Session(network, Device(port, "fake", timeout=1.0))
    assert right(session)
    fake.committed = b""
    fake.image.clear()
    with pytest.raises(DeviceError, match="was the device reset"):
        right(session)
    session.reconnect()
    assert port.is_open
    assert fake.committed == session.image.data
    assert right(session, 2)
    fake.identity = Identity(CONFIG, 5, b"otherone").pack()
    with pytest.raises(DeviceError, match=r"another engine answers \(bitstream 6f74.*open it as"):
        session.reconnect()


def test_reconnecting_golden_does_nothing(network):
    session = Session(network)
    session.reconnect()
    assert session.device is None
    assert right(session)
