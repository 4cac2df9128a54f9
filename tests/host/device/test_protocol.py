# SPDX-License-Identifier: BSD-2-Clause
"""docs/protocol.md against the code: the numbers of its tables, and its example bytes."""

import re
from pathlib import Path

import pytest
from gossamer.rtl.formats import COUNTER_NAMES, PROTOCOL_VERSION, Command, State, Status
from gossamer.rtl.frames import FLAG, Frame, FrameDecoder, encode_frame

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
COUNTS = (100, 300, 0, 50, 0, 30, 20, 0)
EXAMPLES = [
    (">", Frame(Command.STATUS, 0)),
    ("<", Frame(Command.STATUS | 0x80, 0, bytes([Status.OK, State.READY, 0, 0xE8, 3, 0, 0]))),
    (">", Frame(Command.INPUT, 1, b"\x00\x00\x00\x7e\x7d\x00\xff")),
    ("<", Frame(Command.INPUT | 0x80, 1, bytes([Status.OK]))),
    (">", Frame(Command.RUN, 2, b"\x00\x01")),
    (
        "<",
        Frame(
            Command.RUN | 0x80,
            2,
            bytes([Status.OK])
            + b"".join(count.to_bytes(4, "little") for count in COUNTS)
            + b"\x01\xfe\x00\x7e",
        ),
    ),
    (">", Frame(Command.LOAD, 0x7D, b"\x04\x00\x00\x00ab")),
    ("<", Frame(Command.LOAD | 0x80, 0x7D, bytes([Status.BAD_OFFSET]))),
    (">", Frame(Command.INPUT, 3, b"\x03\x05\x00\x01\x00\xfe\xff\x00\x00\x7d\x7e")),
    ("<", Frame(Command.INPUT | 0x80, 3, bytes([Status.OK]))),
    (">", Frame(Command.RUN, 4, b"\x01\x02")),
    (
        "<",
        Frame(
            Command.RUN | 0x80,
            4,
            bytes([Status.OK])
            + b"".join(count.to_bytes(4, "little") for count in (10, 40, 0, 0, 0, 40, 0, 0))
            + b"\x00\x01\xff\xff\x03\x00\x00\x00",
        ),
    ),
    (">", Frame(Command.RUN, 5, b"\x01\x03")),
    ("<", Frame(Command.RUN | 0x80, 5, bytes([Status.BAD_ARGUMENT]))),
]


def test_examples_are_these_frames():
    lines = re.findall(r"^([<>]) ([0-9a-f ]+)$", TEXT, re.MULTILINE)
    assert len(lines) == len(EXAMPLES)
    for k, ((way, line), (want_way, frame)) in enumerate(zip(lines, EXAMPLES, strict=True)):
        raw = bytes.fromhex(line)
        assert way == want_way, k
        assert raw == (bytes([FLAG]) if k == 0 else b"") + encode_frame(frame), k
        assert FrameDecoder().feed(raw) == [frame], k


@pytest.mark.parametrize("names", [Command, State, Status])
def test_tables_have_the_numbers_of_the_code(names):
    for one in names:
        assert f"| {one.value} | {one.name} |" in TEXT, one


def test_version_and_counters():
    assert f"Protocol version {PROTOCOL_VERSION}." in TEXT
    assert ", ".join(COUNTER_NAMES) in TEXT
