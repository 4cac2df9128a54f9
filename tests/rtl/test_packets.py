# SPDX-License-Identifier: BSD-2-Clause
import gc
import random
import zlib

import pytest
from gossamer.rtl.frames import ESCAPE, FLAG, Frame, encode_frame
from gossamer.rtl.packets import CRC_GOOD, Crc32, FrameReceiver, FrameTransmitter, FrameWalk
from gossamer.sim.streams import idle, random_pauses, receive, send, watch
from rtl_models import simulate

PAUSES = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.5, 0.5)]


def random_frames(seed, count, max_payload):
    rng = random.Random(seed)
    special = bytes([FLAG, ESCAPE, 0x5E, 0x5D, 0])
    frames = []
    for _ in range(count):
        length = rng.choice([0, 1, 2, rng.randrange(max_payload + 1), max_payload])
        payload = bytes(rng.choice(special) for _ in range(length))
        if rng.random() < 0.5:
            payload = rng.randbytes(length)
        frames.append(Frame(rng.randrange(256), rng.randrange(256), payload))
    return frames


def receive_line(dut, line, n_bytes, sender=0.0, sink=0.0, settle=20, seed=1):
    """Feed `line`; return bytes out as (data, first, last), counted error pulses, and cycles."""
    got, pulses, cycles = [], [0, 0], []

    async def feed(ctx):
        cycles.append(await send(ctx, dut.i, line, random_pauses(seed, sender), limit=5000))

    async def collect(ctx):
        items = await receive(ctx, dut.o, n_bytes, random_pauses(seed + 1, sink), limit=5000)
        got.extend((item["data"], item["first"], item["last"]) for item in items)
        await idle(ctx, settle)
        assert not ctx.get(dut.o.valid), "more bytes than expected"

    async def count(ctx):
        while True:
            _, _, errors = await ctx.tick().sample(dut.errors)
            pulses[0] += errors & 1
            pulses[1] += errors >> 1

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, feed, collect, background=[count, check])
    return got, tuple(pulses), cycles[0]


def as_stream(frames):
    out = []
    for frame in frames:
        last = len(frame.message) - 1
        out += [(byte, int(i == 0), int(i == last)) for i, byte in enumerate(frame.message)]
    return out


def check_receiver(dut, line, **options):
    frames, damaged, oversize = dut.model(line)
    want = as_stream(frames)
    got, pulses, cycles = receive_line(dut, line, len(want), **options)
    assert got == want, options
    assert pulses == (damaged, oversize), options
    return frames, pulses, cycles


def test_crc_matches_zlib():
    rng = random.Random(3)
    dut = Crc32()
    seen = []
    messages = [b"", b"123456789", *(rng.randbytes(n) for n in (1, 2, 40))]

    async def bench(ctx):
        for message in messages:
            ctx.set(dut.start, 1)
            ctx.set(dut.en, 1)  # start is stronger
            await ctx.tick()
            ctx.set(dut.start, 0)
            for byte in message:
                ctx.set(dut.data, byte)
                await ctx.tick()
            ctx.set(dut.en, 0)
            await ctx.tick()
            seen.append(ctx.get(dut.value))

    simulate(dut, bench)
    assert seen == [Crc32.model(message) for message in messages]
    assert [value ^ 0xFFFFFFFF for value in seen] == [zlib.crc32(message) for message in messages]
    whole = b"abc" + zlib.crc32(b"abc").to_bytes(4, "little")
    assert Crc32.model(whole) == CRC_GOOD


@pytest.mark.parametrize(("sender", "sink"), PAUSES)
@pytest.mark.parametrize(("rx_bytes", "max_payload"), [(64, 16), (512, 240)])
def test_receiver_passes_good_frames(rx_bytes, max_payload, sender, sink):
    frames = random_frames(11, 30 if max_payload < 100 else 8, max_payload)
    line = b"".join(encode_frame(frame) for frame in frames)
    dut = FrameReceiver(rx_bytes=rx_bytes, max_payload=max_payload)
    found, pulses, _ = check_receiver(dut, line, sender=sender, sink=sink)
    assert found == frames
    assert pulses == (0, 0)


@pytest.mark.parametrize(("sender", "sink"), PAUSES)
def test_receiver_drops_damaged_frames(sender, sink):
    rng = random.Random(5)
    line = b""
    for frame in random_frames(12, 50, 16):
        piece = bytearray(encode_frame(frame))
        fault = rng.randrange(6)
        if fault == 0:
            piece[rng.randrange(len(piece))] ^= 1 << rng.randrange(8)
        elif fault == 1:
            del piece[rng.randrange(len(piece)) :]
        elif fault == 2:
            piece[:0] = rng.randbytes(rng.randrange(60))
        elif fault == 3:
            piece += bytes([FLAG])
        line += piece
    line += bytes([FLAG]) + encode_frame(Frame(1, 2, b"after"))
    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    frames, pulses, _ = check_receiver(dut, line, sender=sender, sink=sink)
    assert frames[-1] == Frame(1, 2, b"after")
    assert len(frames) > 10
    assert pulses[0] > 5
    assert pulses[1] > 0


def with_crc(content):
    raw = content + zlib.crc32(content).to_bytes(4, "little")
    raw = raw.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e")
    return raw + bytes([FLAG])


GOOD = encode_frame(Frame(1, 1, b"good"))
CORNERS = {
    "empty payload": (encode_frame(Frame(9, 0)), (2, 0, 0)),
    "longest payload": (encode_frame(Frame(9, 0, bytes(16))), (2, 0, 0)),
    "one byte too long": (encode_frame(Frame(9, 0, bytes(17))), (1, 0, 1)),
    "length 65535": (with_crc(b"\x09\x00\xff\xff"), (1, 0, 1)),
    "length 256, low byte fits": (encode_frame(Frame(9, 0, bytes(256))), (1, 0, 1)),
    "only flags": (bytes([FLAG] * 16), (1, 0, 0)),
    "only escapes": (bytes([ESCAPE] * 16 + [FLAG]), (1, 0, 0)),
    "flag inside": (GOOD[:6] + bytes([FLAG]) + GOOD[6:], (1, 1, 1)),
    "truncated, then a flag": (GOOD[:6] + bytes([FLAG]), (1, 1, 0)),
    "truncated, no flag": (GOOD[:6], (0, 1, 0)),
    "garbage, then a flag": (bytes(range(40, 120)) + bytes([FLAG]), (1, 0, 1)),
    "escape before the flag": (GOOD[:-1] + bytes([ESCAPE, FLAG]), (1, 1, 0)),
    "header alone": (with_crc(b"")[-5:], (1, 1, 0)),
    "good CRC, length short": (with_crc(b"\x09\x00\x03\x00ab"), (1, 1, 0)),
    "good CRC, length long": (with_crc(b"\x09\x00\x01\x00ab"), (1, 1, 0)),
    "byte behind the CRC": (GOOD[:-1] + b"\x55" + bytes([FLAG]), (1, 1, 0)),
}  # line before a good frame; then good frames, damaged, oversize


@pytest.mark.parametrize("name", CORNERS)
def test_receiver_corner(name):
    line, expected = CORNERS[name]
    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    frames, pulses, _ = check_receiver(dut, line + GOOD)
    assert (len(frames), *pulses) == expected


@pytest.mark.parametrize("byte", [FLAG, ESCAPE])
def test_receiver_takes_payloads_of_special_bytes(byte):
    frame = Frame(byte, byte, bytes([byte]) * 16)
    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    frames, _, _ = check_receiver(dut, encode_frame(frame) * 3)
    assert frames == [frame] * 3


def test_receiver_full_rate_and_latency():
    frames = [Frame(1, seq, bytes([seq]) * 16) for seq in range(40)]
    line = b"".join(encode_frame(frame) for frame in frames)
    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    _, _, cycles = check_receiver(dut, line)
    assert cycles == len(line)

    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    waited = []

    async def bench(ctx):
        await send(ctx, dut.i, GOOD)
        ctx.set(dut.o.ready, 1)
        for _ in range(10):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            waited.append(valid)

    simulate(dut, bench)
    assert waited == [0] + [1] * 8 + [0]


def test_receiver_stops_the_line_only_when_full_of_good_frames():
    dut = FrameReceiver(rx_bytes=64, max_payload=16)
    frames = [Frame(1, seq, bytes(16)) for seq in range(8)]
    line = b"".join(encode_frame(frame) for frame in frames)
    got = []

    async def feed(ctx):
        await send(ctx, dut.i, line, limit=400)

    async def collect(ctx):
        await idle(ctx, 300)
        assert not ctx.get(dut.i.ready)
        got.extend(await receive(ctx, dut.o, 160))

    simulate(dut, feed, collect)
    assert [item["data"] for item in got] == [b for frame in frames for b in frame.message]


def transmit(messages, sender=0.0, sink=0.0, seed=1):
    dut = FrameTransmitter()
    want = b"".join(dut.model(message) for message in messages)
    got, cycles = [], []

    async def feed(ctx):
        stuff = b"".join(messages)
        cycles.append(await send(ctx, dut.i, stuff, random_pauses(seed, sender)))

    async def collect(ctx):
        got.extend(await receive(ctx, dut.o, len(want), random_pauses(seed + 1, sink)))
        await idle(ctx, 10)
        assert not ctx.get(dut.o.valid), "more bytes than expected"

    async def check(ctx):
        await watch(ctx, dut.o)

    simulate(dut, feed, collect, background=[check])
    return bytes(got), want, cycles[0]


@pytest.mark.parametrize(("sender", "sink"), PAUSES)
def test_transmitter_matches_its_model(sender, sink):
    messages = [frame.message for frame in random_frames(21, 20, 64)]
    got, want, _ = transmit(messages, sender, sink)
    assert got == want


@pytest.mark.parametrize(
    "frame",
    [
        Frame(0x81, 5),
        Frame(FLAG, ESCAPE, bytes([FLAG]) * 0x7E),
        Frame(0, 0, bytes(300)),
        Frame(255, 255, bytes([ESCAPE]) * 0x7D),
    ],
    ids=["empty", "all flags", "more than 255 bytes", "all escapes"],
)
def test_transmitter_corner(frame):
    got, want, _ = transmit([frame.message] * 2)
    assert got == want == encode_frame(frame) * 2


def test_transmitter_stuffs_every_byte_of_the_crc():
    hits = [set(), set(), set(), set()]
    messages = []
    for value in range(2**16):
        message = Frame(1, 2, value.to_bytes(2, "little")).message
        crc = zlib.crc32(message).to_bytes(4, "little")
        places = [i for i in range(4) if crc[i] in (FLAG, ESCAPE) and crc[i] not in hits[i]]
        for i in places:
            hits[i].add(crc[i])
        if places:
            messages.append(message)
        if sum(map(len, hits)) == 8:
            break
    assert sum(map(len, hits)) == 8
    got, want, _ = transmit(messages, 0.3, 0.3)
    assert got == want


def test_transmitter_full_rate():
    message = Frame(1, 1, bytes(100)).message
    line = FrameTransmitter.model(message)
    _, _, cycles = transmit([message] * 10)
    assert cycles == 10 * len(line) - 5  # CRC and FLAG of the last frame follow its last byte


def test_frames_pass_from_transmitter_to_receiver():
    frames = random_frames(31, 20, 16)
    line, _, _ = transmit([frame.message for frame in frames])
    found, pulses, _ = check_receiver(FrameReceiver(rx_bytes=64, max_payload=16), line)
    assert found == frames
    assert pulses == (0, 0)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_bad_parameters():
    with pytest.raises(ValueError, match=r"rx_bytes must be a power of two in 64\.\.4096, not 96"):
        FrameReceiver(rx_bytes=96, max_payload=16)
    with pytest.raises(ValueError, match=r"max_payload must be in 1\.\.56, not 57"):
        FrameReceiver(rx_bytes=64, max_payload=57)
    with pytest.raises(TypeError, match="float"):
        FrameReceiver(rx_bytes=64.0, max_payload=57)
    with pytest.raises(ValueError, match=r"length_width must be in 8\.\.16, not 7"):
        FrameWalk(length_width=7)
    gc.collect()  # what was refused goes here, where its warning is ignored
