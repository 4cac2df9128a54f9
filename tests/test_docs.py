# SPDX-License-Identifier: BSD-2-Clause
"""What README and docs say works: links, commands, Python and the committed example network."""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.cli import app
from gossamer.host.importers import load_network
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [name for name in targets if "://" not in name and not (page.parent / name).exists()]
    assert missing == []


def test_module_map_is_complete() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    paths = [
        path for name in ("rtl", "host", "sim", "boards") for path in (ROOT / name).glob("*.py")
    ]
    names = {path.stem for path in paths} - {"__init__"}
    assert {name for name in names if f"`{name}`" not in text} == set()


def run_page(page: Path, folder: Path, device: str) -> tuple[dict, list[str]]:
    """Run a page's blocks in order in `folder`, on a device of choice.

    A block of Python whose first line is ``# needs MODULE`` is left out without that module.

    Returns
    -------
    Names that the Python blocks leave, and the output of each command.
    """
    shutil.copytree(ROOT / "examples", folder / "examples")
    names: dict = {}
    outputs = []
    for language, text in BLOCK.findall(page.read_text()):
        if language == "toml":
            (folder / "recipe.toml").write_text(text)
        elif language == "python":
            needed = re.match(r"# needs (\w+)", text)
            if needed is None or find_spec(needed[1]):
                exec(compile(text, page.name, "exec"), names)
        elif language == "console":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "gossamer"
                result = CliRunner().invoke(app, [device if a == "sim" else a for a in arguments])
                assert result.exit_code == 0, f"{line}: {result.output}"
                outputs.append(result.stdout)
    return names, outputs


def run_readme(folder: Path, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the README and look at what it left."""
    names, outputs = run_page(ROOT / "README.md", folder, device)
    assert len(outputs) >= 4
    assert names["outputs"].shape == (1797, 10)
    assert np.array_equal(np.load(folder / "out.npy"), names["outputs"])
    assert capsys.readouterr().out.startswith("0.9")


def run_guide(folder: Path, device: str) -> None:
    """Run the guide and look at what its commands say."""
    names, outputs = run_page(ROOT / "docs" / "guide.md", folder, device)
    _, score, dense, _, _, pruned, verified, _, fitted, small, good, *rest = outputs
    _, paged, trace, with_original = rest
    texts = [" ".join(text.split()) for text in outputs]
    if find_spec("torch"):
        assert (folder / "retrained.gossamer").stat().st_size < 4000
        right = names["model"].to_network().run(np.load(folder / "x.npy")).argmax(axis=1)
        assert (right == np.load(folder / "y.npy")).mean() > 0.97
    assert re.search(r"score: 9[89]\.\d+%", score)
    assert "fc3 (100.0% of the weights left) gains no cycles from zeros" in texts[2]
    assert "on icebreaker: 2 multipliers" in texts[3]
    assert "fc1 (" not in texts[5]
    assert "equal: 1,797 images" in verified
    assert re.search(r"score: 99\.\d+%", fitted)
    assert "no layer goes wrong" in trace
    found = folder / "small.gossamer"
    assert found.stat().st_size <= 6000
    assert found.read_bytes() == (folder / "again.gossamer").read_bytes()
    drops = [float(drop) for drop in re.findall(r"compressed, drop (\S+)", small + good)]
    assert len(drops) == 4
    assert drops[2] <= 1.5
    assert "page written to page.html" in paged
    assert (folder / "page.html").read_text().count("<svg") == 7
    assert "against examples/digits_pruned.npz in floats" in with_original
    assert all(max(map(len, text.splitlines())) <= 100 for text in (dense, pruned, small, trace))


def test_readme_on_golden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_readme(tmp_path, "golden", capsys)


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_readme_on_simulated_rtl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_readme(tmp_path, "sim", capsys)


@pytest.mark.slow
def test_guide_on_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide(tmp_path, "golden")


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_guide_on_simulated_rtl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide(tmp_path, "sim")


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import train_digits

    yield train_digits
    del sys.modules["train_digits"]


def test_committed_digits_are_as_good_as_said(training) -> None:
    _, x, _, y = training.load_split()
    assert len(x) >= 360
    assert min(np.bincount(y)) >= 34  # stratified
    right = {}
    for name in training.NAMES:
        outputs = load_network(ROOT / "examples" / f"{name}.npz").run(x)
        right[name] = 100 * float((outputs.argmax(axis=1) == y).mean())
    assert right["digits"] >= 96
    assert min(right["digits_pruned"], right["digits_mixed"]) >= right["digits"] - 1.0


@pytest.mark.slow
def test_training_makes_such_networks_again(training) -> None:
    _, x, _, y = training.load_split()
    dense, pruned, mixed = training.train()
    assert training.accuracy(dense, x, y) >= 96
    assert training.accuracy(pruned, x, y) >= training.accuracy(dense, x, y) - 1.0
    for layer, density in enumerate(training.DENSITY, 1):
        weight = pruned[f"fc{layer}.weight"]
        assert np.count_nonzero(weight) == round(density * weight.size)
    assert training.accuracy(mixed, x, y) >= training.accuracy(dense, x, y) - 1.0
    second = mixed["fc2.weight"].reshape(-1, 4)
    assert (second != 0).sum(axis=1).max() == 2
    assert np.count_nonzero(second) > 0.45 * second.size


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_demo(training, capsys: pytest.CaptureFixture[str]) -> None:
    import demo

    assert demo.main() == 0
    out = capsys.readouterr().out
    assert out.count("bit-exact:                all 3,600 outputs") == 2
    assert "fc1 unstructured on the array, fc2 2:4 on the tile, fc3 dense on the array" in out
    figures = re.search(r"compressed, 8-bit: +([\d.]+) % right, [\d,]+ bytes: ([\d.]+)x", out)
    dense = re.search(r"dense, float32: +([\d.]+) % right", out)
    assert figures is not None
    assert dense is not None
    assert float(figures[1]) >= float(dense[1]) - 1.0
    assert float(figures[2]) >= 8
    assert "slot efficiency" in out
    assert re.search(r"cycles, [\d.]+ ms at 50 MHz", out)
    assert all(line in README for line in out.splitlines()[:5])
