# SPDX-License-Identifier: BSD-2-Clause
"""Stuck bits of memories on simulated RTL: found wherever an image may use the bit."""

import json
import random

import pytest
from gossamer.bench import memory_flips
from gossamer.bench.memory_flips import MEMORIES, StuckBit, find_flips, plan_bit
from gossamer.bench.small import CONFIG
from gossamer.host.cli import app
from gossamer.sim.board import BoardModel, SimulatedBoard, register_board
from typer.testing import CliRunner

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fault-board")]

ENDS = {"biases": "columns.records", "weights": "weights.words", "codebook": "codebook.values"}


@pytest.fixture
def board():
    opened = SimulatedBoard(CONFIG)
    yield opened
    opened.close()


def test_stuck_bits_are_found(board):
    counts, missed = find_flips(board, 18, random.Random(3))
    assert counts == {memory: {"planted": 6, "found": 6} for memory in MEMORIES}
    assert missed == []


def test_a_bit_that_no_image_uses_is_missed(board, monkeypatch):
    """The word is as it should be: neither rows nor codes reach bit 8."""
    unused = StuckBit("array.pe_1.weights.words", 200, 8, 1)
    monkeypatch.setattr(memory_flips, "plan_bit", lambda *_: unused)
    counts, missed = find_flips(board, 1, random.Random(1))
    assert counts["biases"] == {"planted": 1, "found": 0}
    assert missed == [unused]


def test_plans_stay_inside_the_memories(board):
    rng = random.Random(4)
    for kind in MEMORIES:
        bits = [plan_bit(board, kind, rng) for _ in range(200)]
        assert {bit.memory for bit in bits} == {
            name
            for name in board.memories
            if name.startswith("array.") and name.endswith(ENDS[kind])
        }
        assert {bit.value for bit in bits} == {0, 1}
        for bit in bits:
            assert bit.address < board.memories[bit.memory].depth
            assert bit.bit < board.memories[bit.memory].width


def test_command():
    register_board("selftest", BoardModel(config=CONFIG))
    result = CliRunner().invoke(app, ["selftest", "--device", "sim://selftest", "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["good"] is True
    assert [one["memory"] for one in document["findings"]][:3] == list(MEMORIES)
    assert CliRunner().invoke(app, ["selftest", "--device", "golden"]).exit_code == 1


def test_command_says_which_pes_are_faulty(monkeypatch):
    class Stuck(memory_flips.StuckDevice):
        stuck = StuckBit("array.pe_1.codebook.values", 5, 15, 1)

    monkeypatch.setattr(
        "gossamer.host.commands.open_device", lambda _: Stuck(SimulatedBoard(CONFIG))
    )
    result = CliRunner().invoke(app, ["selftest", "--device", "sim"])
    assert result.exit_code == 1
    assert "faulty: build the bitstream again, or replace the board" in result.stdout
