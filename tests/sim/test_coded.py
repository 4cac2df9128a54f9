# SPDX-License-Identifier: BSD-2-Clause
"""Coded images on simulated boards: memories and results as of plain ones, damage refused."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network
from gossamer.host.device.device import Device
from gossamer.host.device.upload import commit, send_image
from gossamer.host.errors import DeviceError
from gossamer.host.session import Session
from gossamer.host.verify import verify
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import SECTION_HEADER, Section, State, bytes_per_word
from gossamer.sim.board import BoardModel, SimulatedBoard
from networks import random_inputs, random_network

CONFIG = EngineConfig(
    n_pes=4, entry_bits=16, weight_depth=2048, rows_per_pe=64, column_words=128, codebook_depth=512,
    max_layers=4, input_depth=256, output_depth=64, rx_bytes=512, decoder_bits=2,
)  # fmt: skip
MODEL = BoardModel(config=CONFIG, clock_hz=12_000_000, divisor=4)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("coded-board")]


@pytest.fixture(scope="module")
def port():
    board = SimulatedBoard(MODEL)
    yield board
    board.close()


def example(seed, density=(0.15, 0.3), code_bits=5, sizes=(150, 90, 40)):
    rng = np.random.default_rng(seed)
    network = random_network(
        rng, sizes, weight_density=list(density), code_bits=code_bits, structure="unstructured",
        sum_bits=CONFIG.sum_bits, activation_bits=CONFIG.activation_bits,
    )  # fmt: skip
    return network, random_inputs(rng, network, 6)


def sections(data):
    """Kind, PE, address and contents of the sections of an image."""
    at = 0
    while at < len(data):
        kind, pe, address, count = SECTION_HEADER.unpack_from(data, at)
        at += SECTION_HEADER.size
        size = count * bytes_per_word(Section(kind), CONFIG)
        yield Section(kind), pe, address, data[at : at + size]
        at += size


def contents(board, plain):
    """Words of weight memories and column records at the places that a plain image writes."""
    (records,) = [name for name in board._simulation.memories if name.endswith("records")]
    found = {}
    for kind, pe, address, data in sections(plain.data):
        for at in range(address, address + len(data) // bytes_per_word(kind, CONFIG)):
            if kind == Section.WEIGHTS:
                found[kind, pe, at] = board.peek_weight(pe, at)
            elif kind == Section.COLUMNS:
                word = board._simulation.peek(records, at)
                width = CONFIG.column_bits
                found[kind, pe, at] = word >> pe * width & (1 << width) - 1
    return found


@pytest.mark.parametrize(
    ("density", "code_bits"),
    [((0.15, 0.3), 5), ((0.004, 0.01), 3), ((0.3, 0.6), 8), ((0.1, 0.1), 1)],
)
def test_memories_equal_those_of_a_plain_image(port, density, code_bits):
    """Also sparse ones with long gaps, 256 codes and two."""
    network, q = example(1, density, code_bits)
    plain = compile_network(network, replace(CONFIG, decoder_bits=0))
    coded = compile_network(network, CONFIG)
    kinds = {kind for kind, *_ in sections(coded.data)}
    assert Section.CODED_ENTRIES in kinds
    assert Section.WEIGHTS not in kinds
    assert len(coded.data) < len(plain.data)
    device = Device(port, "board", timeout=5.0)
    device.load(replace(plain, config=CONFIG))
    wanted = contents(port, plain)
    device.load(compile_network(example(2)[0], CONFIG))
    assert contents(port, plain) != wanted
    device.load(coded)
    assert contents(port, plain) == wanted
    results, _ = device.infer(q)
    assert np.array_equal(results[:, coded.output_slots], golden.run(network, q))


def test_session_sends_coded_images(port):
    network, q = example(3)
    with Session(network, Device(port, "board", timeout=5.0)) as session:
        assert Section.CODED_ENTRIES in {kind for kind, *_ in sections(session.image.data)}
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
        assert verify(session, network.input.dequantize(q)) is None


def damaged(image):
    """Images by what is wrong with them."""
    data = image.data
    starts, at = [], 0
    for kind, _, _, body in sections(data):
        starts.append((kind, at, len(body)))
        at += SECTION_HEADER.size + len(body)
    at = {kind: start for kind, start, _ in reversed(starts)}
    table, coded = at[Section.CODE_TABLE], at[Section.CODED_ENTRIES]
    rng = np.random.default_rng(1)
    cases = {
        "no tables": data[:table] + data[coded:],
        "a code too many": data[: table + 8] + b"\3" + data[table + 9 :],
        "fewer columns": data[: table + 8 + 68] + b"\5\0" + data[table + 8 + 70 :],
        "an entry less": data[: coded + 8] + bytes([data[coded + 8] ^ 1]) + data[coded + 9 :],
        "ends in a code": data[:-1],
        "ends in a table": data[: table + 20],
    }
    for k in range(4):
        place = int(rng.integers(coded + 10, coded + 200))
        cases[f"bit of byte {place}, PE 0 cut"] = data[:coded] + cut(data[coded:], place - coded, k)
    return cases


def cut(section, place, bit):
    """A coded section with a bit inverted and without its last byte."""
    kind, pe, address, count = SECTION_HEADER.unpack_from(section)
    body = bytearray(section[8 : 8 + count])
    body[place - 8] ^= 1 << bit
    return (
        SECTION_HEADER.pack(kind, pe, address, count - 1) + bytes(body[:-1]) + section[8 + count :]
    )


def test_damaged_images_are_refused_and_the_device_goes_on(port):
    network, q = example(4)
    device = Device(port, "board", timeout=5.0)
    image = compile_network(network, CONFIG)
    want = golden.run(network, q)
    for name, data in damaged(image).items():
        send_image(device.link, data)
        assert not commit(device.link, data), name
        assert device.status().state == State.EMPTY, name
        again = Device(port, "board", timeout=5.0)
        assert again.load(image), name
        results, _ = again.infer(q)
        assert np.array_equal(results[:, image.output_slots], want), name
    with pytest.raises(DeviceError, match="BAD_IMAGE"):
        Device(port, "board", timeout=5.0).load(replace(image, data=image.data[:-1]))
