# SPDX-License-Identifier: BSD-2-Clause
import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
import serial
from fake_device import CLOCK_HZ, CONFIG, CYCLES, FakeDevice, FakePort, Faults
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network
from gossamer.host.device import device as device_module
from gossamer.host.device.device import Device, open_device
from gossamer.host.device.ports import open_port
from gossamer.host.errors import CapacityError, DeviceError, DeviceTimeout, InputError, ToolError
from gossamer.rtl.formats import COUNTER_NAMES, IDENTITY, Command, State, Status
from networks import random_inputs, random_network

FAULTS = {
    "none": Faults(),
    "one byte at a time": Faults(piece=1),
    "reads that return nothing": Faults(piece=5, zero_reads=0.5),
    "short writes": Faults(short_writes=True),
    "boot garbage": Faults(boot_garbage=bytes(range(256)) * 2),
    "damage": Faults(damage=0.04),
    "much damage": Faults(damage=0.12, piece=50),
}


WIDE = {"activation_bits": 16, "sum_bits": 36}
BATCHES = [
    CONFIG,
    replace(CONFIG, **WIDE),
    replace(CONFIG, tile_rows=2, tile_columns=2),
    replace(CONFIG, tile_rows=1, tile_columns=4),
    replace(CONFIG, **WIDE, tile_rows=2, tile_columns=4, rx_bytes=128),
]


@pytest.fixture(scope="module")
def network():
    return random_network(np.random.default_rng(5), (150, 40, 30), signed=[True, False, True])


def network_for(config, signed=(True, False, True)):
    widths = {"activation_bits": config.activation_bits, "sum_bits": config.sum_bits}
    return random_network(np.random.default_rng(5), (149, 40, 30), signed=signed, **widths)


def make(network, faults=None, timeout=1.0, config=CONFIG):
    fake = FakeDevice(network, config)
    return Device(FakePort(fake, faults), "fake", timeout=timeout), fake


def patience(name):
    """Timeout: nothing may be repeated because the machine is slow."""
    return 1.0 if "damage" in name else 10.0


def check(network, device, image, seed, n=12):
    q = random_inputs(np.random.default_rng(seed), network, n)
    results, stats = device.infer(q)
    want = golden.run(network, q)
    got = results[:, image.output_slots]
    assert np.array_equal(got, want), f"seed {seed}: {np.argwhere(got != want)[:3]}"
    return stats


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_results_equal_golden_whatever_the_line_does(network, name, seed):
    device, _ = make(network, replace(FAULTS[name], seed=seed), patience(name))
    image = compile_network(network, CONFIG)
    assert device.load(image)
    stats = check(network, device, image, seed)
    assert stats.images == 12
    assert stats.cycles == 12 * CYCLES
    assert sum(stats.counters.values()) == CONFIG.n_pes * stats.cycles
    assert list(stats.counters) == list(COUNTER_NAMES[1:])
    assert stats.seconds["engine"] == 12 * CYCLES / CLOCK_HZ
    assert stats.seconds["link"] > 0
    assert stats.seconds["host"] >= 0
    if "damage" in name:
        assert device.link.repeats > 0
    elif name != "boot garbage":
        assert device.link.repeats == 0


def test_two_inputs_are_in_flight(network):
    device, fake = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    device.status()
    fake.requests.clear()
    take, meanwhile = fake.on_input, []

    def note_runs(frame):
        meanwhile.append(len(fake.runs))
        return take(frame)

    fake.on_input = note_runs
    check(network, device, image, 3, n=4)
    fake.on_input = take
    assert meanwhile.count(1) >= 4  # two each of the last two, which a run goes on beside
    assert fake.requests.count(Command.RUN) == 4
    device.load(image)
    taken = []

    def rows():
        for row in random_inputs(np.random.default_rng(3), network, 9):
            taken.append(len(taken))
            yield row

    stream = device.stream(rows())
    for k in range(9):
        next(stream)
        assert len(taken) <= k + 2


@pytest.mark.parametrize("config", BATCHES)
@pytest.mark.parametrize("signed", [(True, False, True), (False, True, False)])
def test_batches(config, signed):
    """Full runs and a short last one, in order; each run counted once."""
    network = network_for(config, signed)
    device, fake = make(network, timeout=10.0, config=config)
    image = compile_network(network, config)
    device.load(image)
    for n in (1, 3, 4, 9):
        fake.requests.clear()
        stats = check(network, device, image, n, n=n)
        runs = -(-n // config.batch)
        assert (stats.images, stats.cycles) == (n, runs * CYCLES)
        assert sum(stats.counters.values()) == config.multipliers * stats.cycles
        assert fake.requests.count(Command.RUN) == runs
    assert device.link.repeats == 0


@pytest.mark.parametrize("config", BATCHES)
@pytest.mark.parametrize("name", ["damage", "short writes"])
def test_batches_over_a_bad_line(config, name):
    """Lost and repeated frames of some image of a run change no result."""
    network = network_for(config)
    faults = replace(FAULTS[name], seed=config.batch)
    device, _ = make(network, faults, patience(name), config)
    image = compile_network(network, config)
    device.load(image)
    for n in (9, 3):
        stats = check(network, device, image, n, n=n)
        assert stats.images == n
        assert stats.cycles == -(-n // config.batch) * CYCLES
    assert (device.link.repeats > 0) == ("damage" in name)


@pytest.mark.parametrize("config", BATCHES)
def test_stream_takes_two_batches_ahead(config):
    """Runs come whole and in order, the last one as short as the inputs leave it."""
    network = network_for(config)
    device, _ = make(network, config=config)
    image = compile_network(network, config)
    device.load(image)
    q = random_inputs(np.random.default_rng(3), network, 9)
    taken, got, sizes = [], [], []

    def rows():
        for row in q:
            taken.append(len(taken))
            yield row

    for results, counters in device.stream(rows()):
        assert len(taken) <= len(got) + 2 * config.batch
        assert counters[0] == CYCLES
        got.extend(results[:, image.output_slots])
        sizes.append(len(results))
    assert np.array_equal(got, golden.run(network, q))
    assert sizes == [min(config.batch, 9 - k) for k in range(0, 9, config.batch)]


def test_input_of_a_batch_that_got_lost_is_sent_again():
    """Before the run is asked for, which would not have it."""
    config = BATCHES[3]
    network = network_for(config)
    device, fake = make(network, timeout=10.0, config=config)
    image = compile_network(network, config)
    device.load(image)
    taken, lost = fake.on_input, []

    def lose_one(frame):
        if frame.payload[0] >> 1 == 2 and not lost:
            lost.append(frame)
            return b""
        return taken(frame)

    fake.on_input = lose_one
    fake.requests.clear()
    check(network, device, image, 3, n=4)
    assert lost
    kinds = [kind for kind, _ in itertools.groupby(fake.requests)]
    assert kinds == [Command.STATUS, Command.INPUT, Command.RUN]
    assert fake.requests.count(Command.RUN) == 1


def test_runs_of_more_pieces_than_there_are_sequence_numbers():
    """Numbers come round while a run is open; no answer is taken for another one's."""
    config = replace(BATCHES[4], input_depth=2048)
    network = random_network(np.random.default_rng(1), (1700, 5), weight_density=0.1, **WIDE)
    device, fake = make(network, timeout=10.0, config=config)
    image = compile_network(network, config)
    device.load(image)
    fake.requests.clear()
    check(network, device, image, 2, n=9)
    assert fake.requests.count(Command.INPUT) == 9 * 1700 * 2 // 40
    assert fake.requests.count(Command.RUN) == 3


def test_layers_of_batches_one_by_one():
    config = BATCHES[4]
    network = network_for(config)
    device, _ = make(network, config=config)
    device.load(compile_network(network, config))
    q = random_inputs(np.random.default_rng(6), network, 5)
    for k, want in enumerate(golden.run_layers(network, q)):
        patch = device.stop_after(k)
        results, _ = device.infer(q)
        assert np.array_equal(results[:, patch.output_slots], want), k


@pytest.mark.parametrize(
    ("signed", "value", "limits"), [(True, -32769, "-32768..32767"), (False, 65536, "0..65535")]
)
def test_limits_of_wide_inputs(signed, value, limits):
    config = BATCHES[1]
    network = network_for(config, (signed, True, True))
    device, _ = make(network, config=config)
    device.load(compile_network(network, config))
    q = np.zeros((3, 149), dtype=np.int64)
    q[2, 5] = value
    with pytest.raises(InputError, match=rf"input 2 spans .*{value}.*, expected {limits}; use"):
        device.infer(q)


def test_run_that_the_device_has_no_place_for(network):
    device, fake = make(network)
    device.load(compile_network(network, CONFIG))
    fake.on_run = lambda frame: fake.reply(frame, Status.BAD_ARGUMENT)
    with pytest.raises(
        DeviceError,
        match="RUN was refused with status BAD_ARGUMENT, expected OK; the device has no such input "
        "slot, image or group",
    ):
        device.infer(np.zeros((1, 150), dtype=np.int64))


def test_answer_with_results_of_another_number_of_images():
    config = BATCHES[2]
    network = network_for(config)
    device, fake = make(network, config=config)
    image = compile_network(network, config)
    device.load(image)
    fake.on_run = lambda frame: fake.reply(frame, Status.OK, bytes(32 + image.result_slots))
    size = 32 + 2 * image.result_slots
    with pytest.raises(DeviceError, match=rf"RUN was answered with .*, expected {size} bytes"):
        device.infer(np.zeros((2, 149), dtype=np.int64))


def test_no_inputs(network):
    device, _ = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    results, stats = device.infer(np.zeros((0, 150), dtype=np.int64))
    assert results.shape == (0, image.result_slots)
    assert (stats.images, stats.cycles) == (0, 0)


def test_loading_the_same_image_again_sends_nothing(network):
    device, fake = make(network)
    image = compile_network(network, CONFIG)
    assert device.load(image)
    fake.requests.clear()
    assert not device.load(image)
    assert fake.requests == []
    again = Device(FakePort(fake), "fake")
    fake.requests.clear()
    assert not again.load(image)
    assert fake.requests == [Command.STATUS, Command.COMMIT]
    check(network, again, image, 4)


def test_layers_one_by_one_and_back(network):
    device, fake = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    q = random_inputs(np.random.default_rng(6), network, 3)
    for k, want in enumerate(golden.run_layers(network, q)):
        patch = device.stop_after(k)
        results, _ = device.infer(q)
        assert np.array_equal(results[:, patch.output_slots], want), k
    fake.requests.clear()
    assert device.load(image)
    assert fake.requests.count(Command.LOAD) == 1
    assert not device.load(image)
    fake.results[fake.committed] = fake.results[image.data]
    check(network, device, image, 7)


def test_image_for_another_engine_is_refused(network):
    device, _ = make(network)
    image = compile_network(network, replace(CONFIG, n_pes=8, queue_depth=4))
    with pytest.raises(
        DeviceError,
        match="fake: the image is for another engine: n_pes is 8, expected 4, queue_depth is 4, "
        "expected 32; compile it for this one",
    ):
        device.load(image)


def test_calls_in_the_wrong_order(network):
    device, _ = make(network)
    q = np.zeros((1, 150), dtype=np.int64)
    with pytest.raises(DeviceError, match="fake: no image is loaded, expected one"):
        device.infer(q)
    with pytest.raises(DeviceError, match="fake: no image is loaded, expected one"):
        device.stop_after(0)


@pytest.mark.parametrize(
    ("q", "text"),
    [
        (np.zeros((2, 149), dtype=np.int64), r"input 0 has shape \(149,\).*integers \(150,\)"),
        (np.zeros((2, 150)), r"input 0 has shape \(150,\) and type float64"),
        (np.full((1, 150), 128), r"input 0 spans 128\.\.128, expected -128\.\.127"),
        (np.zeros(150, dtype=np.int64), r"shape \(150,\), expected \(n, 150\)"),
    ],
)
def test_bad_inputs_leave_the_device_usable(network, q, text):
    device, _ = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    with pytest.raises(InputError, match=text):
        device.infer(q)
    device.load(image)
    check(network, device, image, 8)


def test_layer_with_more_outputs_than_the_result_buffer():
    config = replace(CONFIG, output_depth=16)
    network = random_network(np.random.default_rng(1), (20, 40, 10))
    fake = FakeDevice(config=config)
    device = Device(FakePort(fake), "fake")
    device.load(compile_network(network, config))
    with pytest.raises(CapacityError, match="results of layer0: 40 needed, 16 available"):
        device.stop_after(0)


def test_device_that_falls_silent_and_comes_back(network):
    faults = Faults()
    device, fake = make(network, faults, timeout=0.3)
    image = compile_network(network, CONFIG)
    device.load(image)
    faults.silent_after = len(fake.requests) + 4
    started = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"fake: no answer within 0.3 s"):
        check(network, device, image, 9)
    assert time.monotonic() - started < 3
    faults.silent_after = 10**9
    assert not device.load(image)  # the device still has it
    check(network, device, image, 10)


def test_device_that_was_reset(network):
    device, fake = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    fake.committed = b""
    fake.image.clear()
    with pytest.raises(DeviceError, match=r"state is EMPTY, expected READY .*load the image again"):
        check(network, device, image, 11)
    assert device.load(image)
    check(network, device, image, 11)


def test_abandoned_stream_does_not_disturb_the_next_run(network):
    device, _ = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    q = random_inputs(np.random.default_rng(12), network, 6)
    stream = device.stream(q)
    next(stream)
    check(network, device, image, 13)
    with pytest.raises(DeviceError, match="the stream was ended by another call"):
        next(stream)
    other = device.stream(q)
    next(other)
    device.load(image)
    with pytest.raises(DeviceError, match="the stream was ended by another call"):
        list(other)
    check(network, device, image, 14)


def test_stream_that_is_out_of_inputs_ends_too(network):
    device, _ = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    stream = device.stream(random_inputs(np.random.default_rng(12), network, 2))
    next(stream)
    device.abort()
    with pytest.raises(DeviceError, match="RUN was given up before its answer came"):
        next(stream)
    check(network, device, image, 13)


def test_image_that_never_arrives_whole_is_refused(network):
    device, fake = make(network)
    fake.on_commit = lambda frame: fake.reply(frame, Status.BAD_IMAGE)
    with pytest.raises(DeviceError, match="COMMIT was refused with status BAD_IMAGE"):
        device.load(compile_network(network, CONFIG))


def test_device_that_takes_no_more_of_the_image(network):
    device, fake = make(network)
    taken = fake.on_load
    fake.on_load = lambda frame: (
        taken(frame) if len(fake.image) < 300 else fake.reply(frame, Status.BAD_OFFSET)
    )
    with pytest.raises(DeviceError, match=r"has taken \d+ bytes of the image, expected more than"):
        device.load(compile_network(network, CONFIG))


def test_status_and_abort(network):
    device, fake = make(network)
    assert device.status().state == State.CLEARING
    fake.bad_frames = True
    assert device.status().flags == ("frame",)
    assert device.status().flags == ()
    image = compile_network(network, CONFIG)
    device.load(image)
    assert device.status().loaded == len(image.data)
    fake.runs.append((9, 0, 1))
    device.abort()
    assert fake.runs == []
    check(network, device, image, 15)


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (b"GSMR\x09\x00" + bytes(36), "protocol 3.*protocol version must be 3, not 9.*one version"),
        (b"Arduino", "identity must start with b'GSMR', not b'Ardu'"),
        (b"GSMR\x03\x00", f"identity must have {IDENTITY.size} bytes, not 6"),
        (b"GSMR\x03\x00" + bytes(IDENTITY.size - 6), "must be"),
    ],
)
def test_other_devices_are_refused(identity, text):
    fake = FakeDevice()
    fake.identity = identity
    with pytest.raises(DeviceError, match=rf"fake: the device does not match this driver.*{text}"):
        Device(FakePort(fake), "fake")


def test_answer_of_the_wrong_length_is_refused(network):
    device, fake = make(network)
    image = compile_network(network, CONFIG)
    device.load(image)
    fake.on_status = lambda frame: fake.reply(frame, Status.OK, b"\x03")
    with pytest.raises(
        DeviceError, match=r"STATUS was answered with 1 bytes \(03\), expected a st"
    ):
        device.status()


def test_close_and_context_manager(network):
    port = FakePort(FakeDevice(network))
    with Device(port, "fake") as device:
        assert device.identity.config == CONFIG
        assert port.is_open
    assert not port.is_open


@pytest.mark.parametrize("url", ["/dev/ttyNOPE7", "COM99"])
def test_missing_port(url):
    with pytest.raises(DeviceError, match=f"{url}: there is no such port; ports of this machine: "):
        open_device(url)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (serial.SerialException(16, "could not open port: Device or resource busy"), "is busy"),
        (serial.SerialException(11, "Could not exclusively lock port X: [Errno 11]"), "is busy"),
        (serial.SerialException("could not open port 'X': PermissionError(13, 'Access')"), "busy"),
        (serial.SerialException(13, "could not open port: Permission denied"), "dialout"),
        (serial.SerialException("could not open port 'X': FileNotFoundError(2)"), "no such port"),
        (serial.SerialException("Could not configure port"), "does not open"),
    ],
)
def test_ports_that_do_not_open_say_what_to_do(monkeypatch, error, text):
    def fail(self):
        raise error

    monkeypatch.setattr(serial.Serial, "open", fail)
    with pytest.raises(DeviceError, match=rf"/dev/ttyX: .*{text}"):
        open_port("/dev/ttyX")


def test_wrong_url():
    with pytest.raises(DeviceError, match=r"foo://x: not a port .*expected a serial port, sim://"):
        open_device("foo://x")


def test_lines_that_reset_boards_stay_low(monkeypatch):
    seen = []
    monkeypatch.setattr(serial.Serial, "open", lambda self: seen.append((self.dtr, self.rts)))
    open_port("/dev/ttyX")
    assert seen == [(False, False)]


def test_simulator_that_is_not_installed(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'amaranth'", name="amaranth")

    monkeypatch.setattr("gossamer.host.device.ports.importlib.import_module", missing)
    with pytest.raises(ToolError, match=r"needs the Python module amaranth.*gossamer\[sim\]"):
        open_device("sim")


def test_baud_rates_are_tried_in_turn(network, monkeypatch):
    opened = []

    def fake_open(url, baud):
        silent = 0 if baud != 115_200 else 10**9
        opened.append(FakePort(FakeDevice(network), Faults(silent_after=silent)))
        return opened[-1]

    monkeypatch.setattr(device_module, "open_port", fake_open)
    device = open_device("/dev/ttyX", timeout=0.2)
    assert device.link.timeout == 0.2
    assert [port.is_open for port in opened] == [False, True]
    monkeypatch.setattr(device_module, "BAUD_RATES", (9600, 19200))
    with pytest.raises(DeviceTimeout, match="no answer to HELLO at 9600 or 19200 baud"):
        open_device("/dev/ttyX", timeout=0.1)
    assert not any(port.is_open for port in opened[2:])


def test_auto_takes_the_first_port_that_answers(network, monkeypatch):
    def fake_open(url, baud):
        if url == "/dev/ttyA":
            raise DeviceError("/dev/ttyA: the port is busy")
        silent = 0 if url == "/dev/ttyB" else 10**9
        return FakePort(FakeDevice(network), Faults(silent_after=silent))

    monkeypatch.setattr(device_module, "open_port", fake_open)
    ports = ["/dev/ttyA", "/dev/ttyB", "/dev/ttyC"]
    monkeypatch.setattr(device_module, "list_serial_ports", lambda: ports)
    assert open_device("auto", timeout=0.1).where == "/dev/ttyC"
    ports.pop()
    with pytest.raises(DeviceError, match=r"auto: .*ttyA: the port is busy; /dev/ttyB: got no ans"):
        open_device("auto", timeout=0.1)
    ports.clear()
    with pytest.raises(DeviceError, match="this machine has no serial port; check the cable"):
        open_device("auto")
