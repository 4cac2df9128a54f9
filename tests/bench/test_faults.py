# SPDX-License-Identifier: BSD-2-Clause
"""Sessions on a bad line end in right answers or typed errors; without CRCs the faults do harm."""

import json

import pytest
from gossamer.bench import faults
from gossamer.host.cli import app
from gossamer.sim.faults import Fault, Kind, Phase
from typer.testing import CliRunner

RUNS = 60
SEED = 7

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fault-board")]


def command(*options):
    return CliRunner().invoke(app, ["bench", "faults", "--seed", str(SEED), *options])


def test_every_answer_is_right_or_a_typed_error():
    result = command("--runs", str(RUNS), "--json")
    assert result.exit_code == 0, result.stdout
    document = json.loads(result.stdout)
    assert document["wrong"] == document["hangs"] == document["crashes"] == document["stuck"] == 0
    assert document["recovered"] + sum(document["errors"].values()) == document["runs"] == RUNS
    assert set(document["errors"]) <= {"DeviceError", "DeviceTimeout"}
    assert document["transient_recovered"] >= 0.9 * document["transient"]
    assert set(document["injected"]) == set(map(str, Kind))
    assert set(document["phases"]) == set(map(str, Phase))
    assert sum(document["injected"].values()) >= 3 * RUNS
    assert min(document["runs_with"].values()) > 0
    assert document["failures"] == document["missed"] == []
    assert document["corrupted"] == {
        memory: {"planted": 2, "found": 2} for memory in ("biases", "weights", "codebook")
    }


def test_without_crcs_the_same_faults_give_wrong_answers():
    result = command("--runs", str(RUNS), "--no-crc")
    assert result.exit_code == 0, result.stdout
    assert "wrong 0" not in result.stdout
    (line, *_) = [line for line in result.stdout.splitlines() if "--only" in line]
    few = line.partition("'")[2].rstrip("'")
    assert len(few.split()) <= 3
    again = command("--only", few, "--no-crc", "--json")
    assert again.exit_code == 1
    assert "wrong" in (json.loads(again.stdout)["ending"], json.loads(again.stdout)["after"])
    assert command("--only", few).exit_code == 0


def test_a_good_line_needs_no_repeats():
    bench = faults.FaultBench()
    outcome = bench.run([])
    assert (outcome.ending, outcome.after, outcome.error) == ("right", "right", "")
    assert not outcome.injected
    bench.close()


def test_what_is_no_bug_is_told_apart():
    bench = faults.FaultBench()
    dead = [Fault(Kind.STALL, phase, 0, 10**6, 10**4, 0) for phase in Phase]
    outcome = bench.run(dead)
    assert (outcome.ending, outcome.error, outcome.failed) == ("error", "DeviceTimeout", False)
    bench.close()


def test_text_that_names_no_faults():
    result = command("--only", "sabotage:load:1:1:1:1")
    assert result.exit_code == 1
    assert "copy what gossamer bench faults printed" in result.stderr
