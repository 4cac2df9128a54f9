# SPDX-License-Identifier: BSD-2-Clause
"""A real serial port of the system, with a fake device on its other end (pseudo terminal)."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def served(device, pause=0.0):
    """Name of a port on which a device answers, some time after each piece that it reads."""
    end, other = pty.openpty()
    name = os.ttyname(other)
    stop, wake = os.pipe()

    def serve():
        while True:
            ready, _, _ = select.select([end, stop], [], [], 0 if device.runs else None)
            if stop in ready:
                return
            answer = device.feed(os.read(end, 4096)) if end in ready else device.finish_run()
            time.sleep(pause)
            while answer:
                answer = answer[os.write(end, answer) :]

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield name
    finally:
        os.write(wake, b"x")
        thread.join(5)
        for one in (end, other, stop, wake):
            os.close(one)
        assert not thread.is_alive()


@pytest.fixture
def terminal(network):
    with served(FakeDevice(network)) as name:
        yield name


def another_process(code):
    """A process that finds the tests' helpers."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )


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


def test_port_that_another_process_has_open(network, terminal):
    process = another_process(
        "from gossamer.host.device.device import open_device\n"
        f"device = open_device({terminal!r})\n"
        "print('open', flush=True)\n"
        "import time; time.sleep(60)"
    )
    assert process.stdout.readline() == "open\n"
    with pytest.raises(DeviceError, match=r"the port is busy .*close the other program"):
        open_device(terminal)
    process.kill()
    process.wait()
    process.stdout.close()
    with Session(network, terminal) as session:  # a lock dies with its process
        q = random_inputs(np.random.default_rng(1), network, 2)
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))


@pytest.mark.parametrize("enough", [0, 300, 700])
def test_host_that_is_killed_in_mid_load(network, enough):
    """The next session works at once."""
    device = FakeDevice(network)
    q = random_inputs(np.random.default_rng(1), network, 3)
    with served(device, pause=0.02) as terminal:
        process = another_process(
            "import numpy as np\n"
            "from gossamer.host.session import Session\n"
            "from networks import random_network\n"
            f"session = Session(random_network(np.random.default_rng(5), (150, 40, 30)), "
            f"{terminal!r})\n"
            "session.run_quantized(np.zeros((1, 150), dtype=int))"
        )
        while not device.loading or len(device.image) <= enough:
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert not device.committed
        with Session(network, terminal) as session:
            assert np.array_equal(session.run_quantized(q), golden.run(network, q))
            assert session.device.link.repeats <= 1


def test_port_that_vanishes_and_returns(network, tmp_path):
    """A name that leads to another terminal, as when a cable was out."""
    q = random_inputs(np.random.default_rng(1), network, 3)
    port = tmp_path / "port"
    with served(FakeDevice(network)) as terminal:
        port.symlink_to(terminal)
        session = Session(network, str(port), timeout=1.0)
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
    port.unlink()
    with pytest.raises(DeviceError, match=r"the connection broke|no answer|took no data"):
        session.run_quantized(q)
    with pytest.raises(DeviceError, match="there is no such port"):
        session.reconnect()
    with served(FakeDevice(network)) as terminal:
        port.symlink_to(terminal)
        session.reconnect()
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
        session.close()


def test_ports_are_listed_by_name():
    assert all(isinstance(name, str) for name in list_serial_ports())
