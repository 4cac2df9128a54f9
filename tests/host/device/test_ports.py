# SPDX-License-Identifier: BSD-2-Clause
"""A real serial port of the system, with a fake device on its other end (pseudo terminal)."""

import os
import select
import threading

import numpy as np
import pytest
from fake_device import CONFIG, FakeDevice
from gossamer.host import golden
from gossamer.host.device.device import open_device
from gossamer.host.device.ports import list_serial_ports
from gossamer.host.errors import DeviceError
from gossamer.host.session import Session
from networks import random_inputs, random_network

pty = pytest.importorskip("pty", reason="pseudo terminals are POSIX only")


@pytest.fixture(scope="module")
def network():
    return random_network(np.random.default_rng(5), (150, 40, 30))


@pytest.fixture
def terminal(network):
    """Name of a port on which a fake device answers."""
    end, other = pty.openpty()
    name = os.ttyname(other)
    stop, wake = os.pipe()
    device = FakeDevice(network)

    def serve():
        while True:
            ready, _, _ = select.select([end, stop], [], [], 0 if device.runs else None)
            if stop in ready:
                return
            answer = device.feed(os.read(end, 4096)) if end in ready else device.finish_run()
            while answer:
                answer = answer[os.write(end, answer) :]

    thread = threading.Thread(target=serve)
    thread.start()
    yield name
    os.write(wake, b"x")
    thread.join(5)
    for one in (end, other, stop, wake):
        os.close(one)
    assert not thread.is_alive()


def test_session_over_a_serial_port(network, terminal):
    q = random_inputs(np.random.default_rng(1), network, 25)
    with Session(network, terminal) as session:
        assert session.config == CONFIG
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
        assert session.device.link.repeats == 0
    with Session(network, terminal) as session:  # the port is free again
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))


def test_port_that_is_open_already(network, terminal):
    with (
        open_device(terminal, baud=115_200),
        pytest.raises(
            DeviceError, match=rf"{terminal}: the port is busy .*close the other program"
        ),
    ):
        open_device(terminal)


def test_ports_are_listed_by_name():
    assert all(isinstance(name, str) for name in list_serial_ports())
