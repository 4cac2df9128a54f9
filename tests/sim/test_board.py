# SPDX-License-Identifier: BSD-2-Clause
"""Simulated boards: the driver's handshake over bytes and UART, memories, waveforms, errors."""

import time

import pytest
import serial
from gossamer.host.device.device import open_device
from gossamer.host.errors import DeviceError, DeviceTimeout
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Command, Identity
from gossamer.rtl.frames import Frame, FrameDecoder, encode_frame
from gossamer.sim.board import BoardModel, SimulatedBoard, board_model, register_board
from gossamer.sim.protocol_sim import Serial

SMALL = EngineConfig(
    n_pes=2,
    weight_depth=64,
    rows_per_pe=8,
    column_words=16,
    codebook_depth=16,
    input_depth=64,
    output_depth=16,
    rx_bytes=128,
)
MODEL = BoardModel(config=SMALL, clock_hz=12_000_000, divisor=6)
HELLO = encode_frame(Frame(Command.HELLO, 7, b""))

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("small-board")]


@pytest.fixture(autouse=True)
def small_board():
    register_board("small", MODEL)


@pytest.fixture
def board():
    opened = SimulatedBoard(MODEL)
    yield opened
    opened.close()


def identity_from(answer):
    (frame,) = FrameDecoder().feed(answer)
    assert (frame.type, frame.seq) == (Command.HELLO | 0x80, 7)
    return Identity.unpack(frame.payload[1:])


@pytest.mark.parametrize("url", ["sim://small", "sim://small?link=uart"])
def test_driver_reads_the_identity(url):
    device = open_device(url)
    try:
        assert device.identity.config == SMALL
        assert device.identity.clock_hz == 12_000_000
        assert device.identity.bitstream_id != bytes(8)
    finally:
        device.close()


def test_bits_on_the_pins_take_their_time(board):
    uart = SimulatedBoard(MODEL, link="uart")
    cycles = {}
    for name, port in (("bytes", board), ("uart", uart)):
        port.write(HELLO)
        answer = port.read(len(Identity(SMALL, 0, bytes(8)).pack()) + 10)
        assert identity_from(answer).config == SMALL
        cycles[name] = port.cycles
    assert uart.cycles >= 10 * MODEL.divisor * (len(HELLO) + 50)
    assert board.cycles < 500
    assert uart._simulation.framing_errors == 0
    uart.close()


def test_a_silent_engine_times_out_on_the_wall(board):
    board.timeout = 0.2
    started = time.monotonic()
    assert board.read(1) == b""
    assert 0.2 <= time.monotonic() - started < 2
    assert board.cycles >= 20_000


def test_a_long_answer_is_read_in_any_portions(board):
    board.write(HELLO * 3)
    board.timeout = 0.01
    whole = b"".join(board.read(7) for _ in range(30))
    frames = FrameDecoder().feed(whole)
    assert [frame.seq for frame in frames] == [7, 7, 7]
    assert board.read(0) == b""
    assert board.in_waiting == 0


def test_flush_and_discard(board):
    board.write(HELLO)
    board.flush()
    assert board.cycles >= len(HELLO)
    board.write(HELLO)
    board.discard_output()
    board.timeout = 0.0
    assert len(FrameDecoder().feed(board.read(1000))) == 1
    board.write(HELLO)
    assert board.in_waiting > 0
    board.discard_input()
    assert board.read(1000) == b""


def test_weight_memory_can_be_changed_by_a_back_door(board):
    assert board.peek_weight(1, 63) == 0
    board.poke_weight(1, 63, 0x2A5A5)
    assert board.peek_weight(1, 63) == 0x2A5A5
    assert board.peek_weight(0, 63) == 0
    with pytest.raises(ValueError, match=r"address must be in 0\.\.63, not 64"):
        board.peek_weight(0, 64)
    with pytest.raises(ValueError, match=r"value must fit 18 bits, not 262144"):
        board.poke_weight(0, 0, 1 << 18)


def test_waveforms_hold_the_names_of_signals(tmp_path):
    waves = tmp_path / "waves.fst"
    register_board("traced", MODEL)
    port = serial_port(f"sim://traced?fst={waves}")
    port.write(HELLO)
    assert identity_from(port.read(200)).config == SMALL
    port.close()
    blocks = fst_blocks(waves.read_bytes())
    assert set(blocks) >= {0, 3, 6}
    names = lz4_literals(blocks[6])
    assert b"i__payload" in names
    assert b"link_errors" in names
    assert b"receiver" in names


def test_urls_that_name_nothing_are_refused():
    with pytest.raises(DeviceError, match=r"sim://nosuch: no such board; expected one of .*sim"):
        open_device("sim://nosuch")
    with pytest.raises(DeviceError, match=r"not understood; expected sim://BOARD"):
        open_device("sim://small?speed=9")
    with pytest.raises(DeviceError, match=r"not understood; expected sim://BOARD"):
        open_device("sim://small?link=can")


def test_a_closed_port_refuses():
    port = serial_port("sim://small")
    port.close()
    port.close()
    with pytest.raises(serial.SerialException, match="not open"):
        port.read(1)


def test_the_default_model_is_the_default_engine():
    assert board_model("sim").config == EngineConfig()


def test_a_mute_board_is_a_timeout(monkeypatch):
    monkeypatch.setattr(SimulatedBoard, "write", lambda self, data: len(data))
    with pytest.raises(DeviceTimeout, match=r"no answer within 0\.3 s"):
        open_device("sim://small", timeout=0.3)


def serial_port(url):
    port = Serial(timeout=0.05)
    port.port = url
    port.open()
    return port


def fst_blocks(data):
    """Blocks of a waveform file by kind. A block: kind u8, length u64 big-endian, contents."""
    blocks, at = {}, 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 9], "big")
        blocks[data[at]] = data[at + 9 : at + 1 + size]
        at += 1 + size
    assert at == len(data)
    return blocks


def lz4_literals(block):
    """Contents of an LZ4 block that is one sequence of literals, behind its length."""
    size = int.from_bytes(block[:8], "big")
    token, at = block[8], 9
    assert token & 15 == 0
    length = token >> 4
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    assert (length, len(block) - at) == (size, size)
    return block[at:]
