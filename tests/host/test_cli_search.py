# SPDX-License-Identifier: BSD-2-Clause
"""`gossamer compress --target-size` and `--max-drop`: what is printed, written and refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.cli import app
from gossamer.host.compression.recipe import load_recipe
from typer.testing import CliRunner

GOAL = ("compress", "net.npz", "-o", "a.gossamer", "--calibrate", "x.npy")
LABELLED = (*GOAL, "--labels", "y.npy")
NAME = 'fc"1\\ ü'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Current folder with a small classifier whose first layer has an odd name, and samples."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    weights = {NAME: rng.normal(size=(8, 12)), "fc2": rng.normal(size=(3, 8))}
    np.savez("net.npz", **{f"{name}.weight": weight for name, weight in weights.items()})
    x = rng.normal(size=(80, 12))
    np.save("x.npy", x)
    np.save("y.npy", (np.maximum(x @ weights[NAME].T, 0) @ weights["fc2"].T).argmax(axis=1))
    return tmp_path


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of a command in this process."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_search_as_json_and_as_text(folder: Path) -> None:
    status, out, _ = invoke(*LABELLED, "--target-size", "0.6kB", "--recipe-out", "r.toml", "--json")
    document = json.loads(out)
    found = document["search"]
    assert status == 0
    assert document["bytes"] == Path("a.gossamer").stat().st_size <= 600
    assert (found["target_bytes"], found["max_drop"]) == (600, None)
    assert (found["samples"], found["held_out"]) == (60, 20)
    assert [row["layer"] for row in found["layers"]] == [NAME, "fc2"]
    assert found["accuracy"] == 100
    assert {"bytes": document["bytes"], "drop": found["drop"]} in found["trials"]
    # the recipe file says the same, and makes the same file
    assert load_recipe("r.toml").layers == found["recipe"]["layers"]
    again = ("compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy")
    assert invoke(*again, "--recipe", "r.toml")[0] == 0
    assert Path("b.gossamer").read_bytes() == Path("a.gossamer").read_bytes()

    status, out, err = invoke(*LABELLED, "--target-size", "600")
    assert status == 0
    assert max(map(len, out.splitlines()[:-1])) <= 100  # the last one is the compressor's advice
    assert f"drop {found['drop']:.2f}" in out
    assert f"drop {found['held_out_drop']:.2f}" in out
    assert "600 bytes" in out.splitlines()[0]
    for row in found["layers"]:
        cells = [row["structure"], f"{row['density']:.1%}", str(row["codes"]), f"{row['bytes']:,}"]
        assert " ".join([*cells, f"{row['drop']:.2f}"]) in " ".join(out.split())
    assert ("points of accuracy are lost" in err) == (found["held_out_drop"] > 1)


def test_max_drop(folder: Path) -> None:
    status, out, _ = invoke(*LABELLED, "--max-drop", "10", "--json")
    found = json.loads(out)["search"]
    assert status == 0
    assert found["drop"] <= 10
    assert (found["target_bytes"], found["max_drop"]) == (None, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*GOAL, "--target-size", "1kB"), "--labels"),
        ((*LABELLED[:4], "--labels", "y.npy", "--max-drop", "1"), "--calibrate"),
        ((*LABELLED, "--target-size", "1kB", "--max-drop", "1"), "two goals"),
        ((*LABELLED, "--target-size", "1kB", "--recipe", "r.toml"), "--recipe"),
        (LABELLED, "need a goal"),
        ((*GOAL, "--recipe-out", "r.toml"), "need a goal"),
        ((*LABELLED, "--max-drop", "-1"), "--max-drop"),
        ((*LABELLED, "--target-size", "64 sacks"), "is no size"),
        ((*LABELLED, "--target-size", "-5"), "is no size"),
    ],
)
def test_wrong_usage(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = invoke(*arguments)
    assert (status, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert not Path("a.gossamer").exists()


def test_out_of_reach_is_one_line_and_no_file(folder: Path) -> None:
    status, out, err = invoke(*LABELLED, "--target-size", "100", "--recipe-out", "r.toml")
    assert (status, out) == (1, "")
    assert err.startswith("gossamer: the target is a file of 100 bytes, the smallest that can be")
    assert err.count("\n") == 1
    assert "retraining" in err
    assert not list(folder.glob("*.gossamer"))
    assert not Path("r.toml").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64kB", 64_000),
        ("64 KB", 64_000),
        ("64KiB", 65_536),
        ("1.5MB", 1_500_000),
        ("2MiB", 2 << 20),
        ("640b", 640),
        ("64000", 64_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    from gossamer.host.cli import parse_size

    assert parse_size(text) == size
