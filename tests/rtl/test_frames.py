# SPDX-License-Identifier: BSD-2-Clause
import random

import pytest
from gossamer.rtl.frames import ESCAPE, FLAG, Frame, FrameDecoder, encode_frame


def test_known_bytes():
    assert encode_frame(Frame(1, 0)).hex() == "0100000079b8f8997e"
    assert encode_frame(Frame(5, 0x7E, b"\x7d")).hex() == "057d5e01007d5d74c854aa7e"


@pytest.mark.parametrize("piece", [1, 2, 7, 10**6])
def test_frames_come_back_whatever_the_pieces(piece):
    rng = random.Random(7)
    frames = [
        Frame(rng.randrange(256), rng.randrange(256), rng.randbytes(rng.choice([0, 1, 5, 300])))
        for _ in range(50)
    ]
    frames.append(Frame(3, 3, bytes([FLAG, ESCAPE]) * 100))
    line = b"".join(encode_frame(frame) for frame in frames)
    decoder = FrameDecoder()
    got = []
    for start in range(0, len(line), piece):
        got += decoder.feed(line[start : start + piece])
    assert got == frames
    assert (decoder.damaged, decoder.oversize) == (0, 0)


@pytest.mark.parametrize("payload", [b"", b"ab", bytes([FLAG]) * 300])
@pytest.mark.parametrize("head", [(0x86, 9), (ESCAPE, FLAG)])
def test_frame_that_arrives_is_known_by_its_head(head, payload):
    line = encode_frame(Frame(*head, payload))
    decoder = FrameDecoder()
    seen = []
    for byte in line[:-1]:
        assert decoder.feed(bytes([byte])) == []
        seen.append(decoder.arriving)
    first = seen.index(head)
    assert first == 3 + sum(byte in (FLAG, ESCAPE) for byte in head)
    assert seen == [None] * first + [head] * (len(line) - 1 - first)
    assert len(decoder.feed(line[-1:])) == 1
    assert decoder.arriving is None


def test_frame_longer_than_its_head_says_does_not_arrive():
    decoder = FrameDecoder()
    decoder.feed(Frame(0x86, 1, b"ab").message)
    assert decoder.arriving == (0x86, 1)
    decoder.feed(bytes(30))
    assert decoder.arriving is None


@pytest.mark.parametrize("position", range(12))
def test_one_damaged_byte_drops_one_frame(position):
    good = encode_frame(Frame(2, 9, b"abc"))
    bad = bytearray(good)
    bad[position] ^= 0x04
    decoder = FrameDecoder()
    frames = decoder.feed(bytes(bad) + bytes([FLAG]) + good)
    assert frames == [Frame(2, 9, b"abc")]
    assert decoder.damaged >= 1


def test_cut_and_aborted_frames_are_dropped():
    good = encode_frame(Frame(2, 9, b"abc"))
    decoder = FrameDecoder()
    assert decoder.feed(good[:5] + good) == []
    assert decoder.feed(good[:-1] + bytes([ESCAPE, FLAG]) + good) == [Frame(2, 9, b"abc")]
    assert decoder.damaged == 2


def test_long_frames_and_endless_garbage_do_not_grow_the_buffer():
    decoder = FrameDecoder(max_payload=16)
    assert decoder.feed(encode_frame(Frame(1, 1, bytes(17)))) == []
    assert (decoder.damaged, decoder.oversize) == (0, 1)
    for _ in range(1000):
        assert decoder.feed(bytes(1000)) == []
    assert len(decoder._piece) == 50
    assert decoder.feed(bytes([FLAG]) + encode_frame(Frame(1, 1, bytes(16)))) != []
    assert (decoder.damaged, decoder.oversize) == (1, 1)


def test_flags_in_a_row_are_no_error():
    decoder = FrameDecoder()
    assert decoder.feed(bytes([FLAG] * 5)) == []
    assert (decoder.damaged, decoder.oversize) == (0, 0)
