# SPDX-License-Identifier: BSD-2-Clause
"""Session and driver on the simulated RTL: golden's integers, also over a line full of faults."""

import random
from dataclasses import replace

import numpy as np
import pytest
from fake_device import Faults
from gossamer.host import golden
from gossamer.host.device.device import Device, open_device
from gossamer.host.device.ports import open_port
from gossamer.host.device.upload import commit, send_image
from gossamer.host.session import Session
from gossamer.host.verify import verify
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Command, Section, State, section
from gossamer.rtl.frames import Frame, encode_frame
from gossamer.sim.board import BoardModel, register_board
from networks import random_inputs, random_network

CONFIG = EngineConfig(
    n_pes=4, entry_bits=16, weight_depth=2048, rows_per_pe=64, column_words=512, codebook_depth=64,
    max_layers=4, input_depth=512, output_depth=256, rx_bytes=1024,
)  # fmt: skip
WIDE = replace(
    CONFIG, activation_bits=16, sum_bits=36, tile_rows=2, tile_columns=4, tile_code_bits=3,
    tile_depth=2048,
)  # fmt: skip
CONFIGS = {"8 bits": CONFIG, "16 bits, batches": WIDE}
DIVISOR = 4

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("session-board")]


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture(autouse=True)
def board(config):
    register_board("session", BoardModel(config=config, clock_hz=12_000_000, divisor=DIVISOR))


@pytest.fixture
def network(config):
    rng = np.random.default_rng(5)
    structure, code_bits = ("unstructured", 4) if config is CONFIG else (["2:4", "dense"], [2, 4])
    return random_network(
        rng, (150, 40, 30), weight_density=0.2, signed=[True, False, True], relu=[False, False],
        structure=structure, code_bits=code_bits, sum_bits=config.sum_bits,
        activation_bits=config.activation_bits,
    )  # fmt: skip


class FaultyPort:
    """Damages and delays what passes a port, both ways."""

    def __init__(self, port, faults):
        self.port, self.faults = port, faults
        self.rng = random.Random(faults.seed)

    @property
    def in_waiting(self):
        return self.port.in_waiting

    def read(self, size=1):
        if self.rng.random() < self.faults.zero_reads:
            return b""
        return self.harm(self.port.read(min(size, self.faults.piece)))

    def write(self, data):
        return self.port.write(self.harm(data)) and len(data)

    def close(self):
        self.port.close()

    def harm(self, data):
        if not data or self.rng.random() >= self.faults.damage:
            return data
        at = self.rng.randrange(len(data))
        if self.rng.random() < 0.5:
            return data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :]
        return data[:at] + data[at + 1 :] or b"\x00"


@pytest.mark.parametrize("url", ["sim://session", "sim://session?link=uart"])
def test_device_equals_golden(network, url, config):
    q = random_inputs(np.random.default_rng(1), network, 40)
    with Session(network, url) as session:
        assert session.config == config
        assert len({layer.unit for layer in session.image.layers}) == 1 + (config is WIDE)
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
        first = session.last_stats
        assert np.array_equal(session.run_quantized(q[:7]), golden.run(network, q[:7]))
        x = network.input.dequantize(q)
        assert np.array_equal(list(session.stream(x)), session.run(x))
        assert first.images == 40
        assert first.cycles > 0
        assert session.device.status().flags == ()
        assert session.device.link.repeats == 0
        layers = session.layers(q)
        for got, want in zip(layers, golden.run_layers(network, q), strict=True):
            assert np.array_equal(got, want)
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))


@pytest.mark.parametrize("seed", range(3))
def test_no_result_is_lost_or_wrong_on_a_bad_line(network, seed):
    faults = Faults(damage=0.04, zero_reads=0.2, seed=seed)
    device = Device(FaultyPort(open_port("sim://session"), faults), "bad line", timeout=3.0)
    session = Session(network, device)
    q = random_inputs(np.random.default_rng(seed), network, 50)
    assert np.array_equal(session.run_quantized(q), golden.run(network, q)), f"seed {seed}"
    assert device.link.repeats > 3
    assert verify(session, network.input.dequantize(q[:10])) is None
    device.close()


def test_abandoned_runs_leave_no_residue(network):
    session = Session(network, "sim://session")
    q = random_inputs(np.random.default_rng(3), network, 10)
    want = golden.run(network, q)
    for taken in range(4):
        stream = session.stream(network.input.dequantize(q))
        for _ in range(taken):
            next(stream)
        assert np.array_equal(session.run_quantized(q), want), taken
    session.close()


@pytest.mark.parametrize("config", ["8 bits"], indirect=True)
def test_verify_names_a_flipped_weight_bit(network):
    session = Session(network, "sim://session")
    q = random_inputs(np.random.default_rng(4), network, 20)
    x = network.input.dequantize(q)
    assert verify(session, x) is None
    board = session.device._port.board
    # the first entry of layer 0; its top bit is bit 0 of the code
    address, bit = 0, CONFIG.entry_bits - 1
    board.poke_weight(1, address, board.peek_weight(1, address) ^ 1 << bit)
    found = verify(session, x)
    assert found is not None
    assert found.layer == "layer0"
    assert session.image.layers[0].slots[found.row] % CONFIG.n_pes == 1
    assert found.expected != found.got
    board.poke_weight(1, address, board.peek_weight(1, address) ^ 1 << bit)
    assert verify(session, x) is None
    session.close()


def test_same_image_is_not_sent_twice(network):
    device = open_device("sim://session")
    session = Session(network, device)
    q = random_inputs(np.random.default_rng(6), network, 3)
    session.run_quantized(q)
    again = Device(device._port, "again")  # as another process would
    assert not again.load(session.image)
    results, _ = again.infer(q)
    assert np.array_equal(results[:, session.image.output_slots], golden.run(network, q))
    device.close()


@pytest.mark.parametrize("config", ["8 bits"], indirect=True)
def test_host_that_died_in_mid_load(network):
    """In the middle of a frame; its successor on the same board starts at once."""
    port = open_port("sim://session")
    q = random_inputs(np.random.default_rng(6), network, 3)
    image = Session(network, Device(port, "first")).image
    for pieces in (1, 3, 5):
        head = [image.data[at : at + 64] for at in range(0, 64 * pieces, 64)]
        for k, piece in enumerate(head):
            request = (64 * k).to_bytes(4, "little") + piece
            frame = encode_frame(Frame(Command.LOAD, k, request))
            port.write(frame if k < pieces - 1 else frame[:40])
        device = Device(port, "next")
        assert np.array_equal(Session(network, device).run_quantized(q), golden.run(network, q))
        assert device.link.repeats == 0
    port.close()


def codebooks(n_bytes):
    """An image of about that size that any engine with this config takes."""
    rng = np.random.default_rng(7)
    words = CONFIG.codebook_depth
    count = n_bytes // (8 + 2 * words)
    values = rng.integers(0, 1 << 16, (count, words)).tolist()
    return b"".join(section(Section.CODEBOOK, 0, 0, one, CONFIG) for one in values)


@pytest.mark.parametrize("config", ["8 bits"], indirect=True)
def test_a_megabyte_arrives_whole_through_stalls():
    device = Device(FaultyPort(open_port("sim://session"), Faults(zero_reads=0.3)), "stalls")
    data = codebooks(1 << 20)
    send_image(device.link, data)
    assert commit(device.link, data)
    status = device.status()
    assert status.loaded == len(data)
    assert status.flags == ()
    assert device.link.repeats == 0
    device.close()


@pytest.mark.parametrize("config", ["8 bits"], indirect=True)
def test_loading_fills_the_line():
    device = open_device("sim://session?link=uart")
    board = device._port.board
    data = codebooks(20_000)
    before = board.cycles
    send_image(device.link, data)
    assert commit(device.link, data)
    bits = 10 * DIVISOR * len(data)
    assert bits / (board.cycles - before) >= 0.95
    assert device.status().state in (State.CLEARING, State.READY)
    device.close()
