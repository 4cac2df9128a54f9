# SPDX-License-Identifier: BSD-2-Clause
"""The command line: results as text and JSON, and each bad input as one line and exit status 1."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.cli import app
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import Recipe
from gossamer.host.network import Layer, Network
from gossamer.host.session import Session
from gossamer.rtl.config import EngineConfig
from typer.testing import CliRunner

COMMANDS = ("compress", "info", "run", "verify", "trace", "selftest", "cosim", "build", "bench")
N = 24


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Current folder with a network, its inputs, their labels, and a compressed model."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    arrays = {
        "fc1.weight": rng.normal(0, 0.3, (12, 8)) * (rng.random((12, 8)) < 0.4),
        "fc1.bias": rng.normal(0, 0.1, 12),
        "fc2.weight": rng.normal(0, 0.3, (3, 12)),
        "fc2.bias": np.zeros(3),
    }
    np.savez("net.npz", **arrays)
    np.save("x.npy", rng.random((N, 8)))
    assert invoke("compress", "net.npz", "-o", "net.gossamer", "--calibrate", "x.npy")[0] == 0
    with Session("net.gossamer") as session:
        np.save("y.npy", session.run(np.load("x.npy")).argmax(axis=1))
    return tmp_path


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of a command in this process."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments: str) -> str:
    """The one line that a command prints when it refuses."""
    status, out, err = invoke(*arguments)
    assert status == 1, out + err
    assert out == ""
    assert err.startswith("gossamer: ")
    assert err.count("\n") == 1
    return err


def test_help_of_every_command_has_an_example() -> None:
    status, out, _ = invoke("--help")
    assert status == 0
    for command in COMMANDS:
        assert command in out
        names = [command, "sparsity"] if command == "bench" else [command]
        assert f"Example: gossamer {' '.join(names)}" in invoke(*names, "--help")[1]


def test_help_imports_neither_numpy_nor_session() -> None:
    script = (
        "import sys; from gossamer.host.cli import app; from typer.testing import CliRunner;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "assert not {'numpy', 'gossamer.host.session', 'amaranth'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version() -> None:
    status, out, _ = invoke("--version")
    assert status == 0
    assert out.strip().count(".") == 2


@pytest.mark.parametrize("arguments", [["run"], ["nosuch"], ["run", "m", "--input", "x", "--no"]])
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    assert invoke(*arguments)[0] == 2


def test_compress_reports_sizes_and_ranges(folder: Path) -> None:
    arguments = ["compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy"]
    status, out, err = invoke(*arguments, "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert document["bytes"] == Path("b.gossamer").stat().st_size
    assert Path("b.gossamer").read_bytes() == Path("net.gossamer").read_bytes()
    total = document["sizes"][-1]
    assert total["layer"] == "total"
    assert document["ratio"] == total["dense_fp32"] / total["ours"]
    assert [row["tensor"] for row in document["tensors"]] == ["input", "fc1", "fc2"]
    out = invoke(*arguments)[1]
    assert "dense fp32" in out
    assert "pruned gzip" in out
    assert max(map(len, out.splitlines()[:-1])) <= 100
    assert "pruned to 10%" in out.splitlines()[-1]  # what pruning would buy


def test_compress_with_recipe_and_masks(folder: Path) -> None:
    Path("r.toml").write_text("[default]\ndensity = 0.25\ncodes = 4\n")
    np.savez("masks.npz", fc2=np.eye(3, 12))
    status, out, _ = invoke(
        "compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy", "--recipe", "r.toml",
        "--masks", "masks.npz", "--json",
    )  # fmt: skip
    rows = {row["layer"]: row for row in json.loads(out)["sizes"]}
    assert status == 0
    assert rows["fc1"]["nonzeros"] == 24
    assert rows["fc1"]["code_bits"] == 2
    assert rows["fc2"]["nonzeros"] == 3


def test_info_says_the_same_as_compress(folder: Path) -> None:
    status, out, _ = invoke("info", "net.gossamer", "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["inputs"], document["outputs"]) == (8, 3)
    assert document["bytes"] == Path("net.gossamer").stat().st_size
    assert "smaller than dense fp32" in invoke("info", "net.gossamer")[1]


def zeros_60_percent(sizes: tuple[int, ...]) -> None:
    """Write a network whose weights are 60 % zeros, and inputs without any."""
    rng = np.random.default_rng(5)
    arrays = {}
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        weight = rng.normal(0, n_in**-0.5, (n_out, n_in))
        order = rng.permutation(weight.size)
        weight.reshape(-1)[order[: round(0.6 * weight.size)]] = 0
        arrays[f"fc{k + 1}.weight"] = weight
        arrays[f"fc{k + 1}.bias"] = rng.normal(0, 0.1, n_out)
    np.savez("zeros.npz", **arrays)
    np.save("z.npy", 0.1 + rng.random((100, sizes[0])))


def test_info_says_which_layers_gain_nothing_from_60_percent_zeros(folder: Path) -> None:
    zeros_60_percent((300, 64, 16, 10))
    Path("r.toml").write_text("[layers.fc1]\nstructure = 'dense'\n")
    options = ["--calibrate", "z.npy", "--recipe", "r.toml"]
    assert invoke("compress", "zeros.npz", "-o", "z.gossamer", *options)[0] == 0
    status, out, err = invoke("info", "z.gossamer", "--json")
    assert (status, err) == (0, "")
    engine = json.loads(out)["engine"]
    layers = {one["layer"]: one for one in engine["layers"]}
    assert [one["structure"] for one in layers.values()] == [
        "dense",
        "unstructured",
        "unstructured",
    ]
    first, second, third = layers.values()
    # stored dense its zeros cost cycles; below this density unstructured would gain
    assert first["cycles"] > 2 * first["forms"]["unstructured"]["cycles"]
    assert 0.8 < first["cycles_below"] < 0.95
    assert "gains no cycles because it is stored dense" in first["advice"]
    assert f"gain below {first['cycles_below']:.0%} of the weights" in first["advice"]
    # as few rows as PEs: a cycle per input, whatever the density
    assert second["cycles_below"] is None
    assert third["cycles_below"] is None
    assert "gains no cycles from zeros, and would at no density" in second["advice"]
    assert 0.7 < second["bytes_below"] < 0.95
    assert first["lost_bits"].keys() == {"32", "36"}
    assert engine["limit"] == "link"
    out = invoke("info", "z.gossamer")[1]
    assert max(map(len, out.splitlines())) <= 100
    text = " ".join(out.split())
    assert all(one["advice"] in text for one in layers.values())
    assert "Estimated cycles per image on sim: 16 multipliers" in text
    assert f"{first['bytes_below']:.0%} {first['cycles_below']:.0%}" in text
    assert f"{second['bytes_below']:.0%} never" in text
    assert "ms at 50 MHz" in text
    assert "the link limits, fewer cycles change little" in text
    assert "saturated" in text


def test_info_of_a_board(folder: Path) -> None:
    zeros_60_percent((300, 64, 16, 10))
    assert invoke("compress", "zeros.npz", "-o", "z.gossamer", "--calibrate", "z.npy")[0] == 0
    engine = json.loads(invoke("info", "z.gossamer", "--board", "icebreaker", "--json")[1])[
        "engine"
    ]
    assert (engine["engine"], engine["pes"], engine["clock_hz"]) == ("icebreaker", 2, 24_000_000)
    assert not any("cycles" in one["advice"] for one in engine["layers"])
    assert engine["layers"][0]["lost_bits"]["24"] > engine["layers"][0]["lost_bits"]["32"]
    assert "codebook values: 576 needed, 256 available" in engine["misfit"]
    out = invoke("info", "z.gossamer", "--board", "icebreaker")[1]
    assert "on icebreaker: 2 multipliers" in out
    assert "codebook values: 576 needed, 256 available" in out
    assert "board: 'nosuch' is unknown" in refused("info", "z.gossamer", "--board", "nosuch")


def test_trace_names_no_layer_of_a_good_model(folder: Path) -> None:
    arguments = ["trace", "net.gossamer", "--input", "x.npy"]
    status, out, err = invoke(*arguments, "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert document["images"] == N
    assert [one["tensor"] for one in document["tensors"]] == ["input", "fc1", "fc2"]
    assert document["first_wrong"] is None
    assert document["causes"] == []
    ratio = document["tensors"][2]["sqnr_db"]
    assert ratio > 30
    text = invoke(*arguments)[1]
    assert f"{ratio:.1f}" in text
    assert "8-bit golden model against the model's own weights in floats" in text
    assert text.splitlines()[-1].startswith("no layer goes wrong: the lowest ratio is")
    fine = json.loads(invoke(*arguments, "--bits", "16", "--json")[1])
    assert fine["tensors"][2]["sqnr_db"] > ratio + 20
    assert invoke(*arguments, "--bits", "12")[0] == 2


def test_trace_names_layer_and_cause(folder: Path) -> None:
    Path("r.toml").write_text("[layers.fc2]\ncodes = 2\n")
    options = ["--calibrate", "x.npy", "--recipe", "r.toml"]
    assert invoke("compress", "net.npz", "-o", "b.gossamer", *options)[0] == 0
    arguments = ["trace", "b.gossamer", "--input", "x.npy", "--network", "net.npz"]
    document = json.loads(invoke(*arguments, "--json")[1])
    assert document["first_wrong"] == "fc2"
    assert (document["causes"][0]["tensor"], document["causes"][0]["factor"]) == ("fc2", "codebook")
    out = " ".join(invoke(*arguments)[1].split())
    assert "Error of fc2 when one thing is exact" in out
    assert "fc2 is the first that goes wrong" in out
    assert "its weights share 2 values" in out


def test_run_writes_outputs_and_prints_the_score(folder: Path) -> None:
    arguments = ["run", "net.gossamer", "--input", "x.npy", "--labels", "y.npy"]
    status, out, err = invoke(*arguments, "--output", "out.npy", "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert document["score"] == 1.0
    assert document["images"] == N
    assert set(document["seconds"]) == {"host", "link", "engine"}
    with Session("net.gossamer") as session:
        expected = session.run(np.load("x.npy"))
    assert np.array_equal(np.load("out.npy"), expected)
    assert np.load("out.npy").dtype == np.float32
    assert np.array_equal(np.array(document["outputs"], np.float32), expected)
    assert "score: 100.00% (24 of 24 right)" in invoke(*arguments)[1]


def test_final_argmax_is_scored_and_shown(folder: Path) -> None:
    model = model_file.load("net.gossamer")
    model_file.save(replace(model, final="argmax"), "classes.gossamer")
    arguments = ["run", "classes.gossamer", "--input", "x.npy", "--labels", "y.npy", "--json"]
    document = json.loads(invoke(*arguments)[1])
    assert document["score"] == 1.0
    assert np.ravel(document["outputs"]).tolist() == np.load("y.npy").tolist()
    assert "argmax of the outputs: done on the host" in invoke("info", "classes.gossamer")[1]
    assert json.loads(invoke("info", "classes.gossamer", "--json")[1])["final"] == "argmax"


def test_run_of_one_sample_and_of_many(folder: Path) -> None:
    x = np.load("x.npy")
    np.save("one.npy", x[0])
    np.save("many.npy", np.tile(x, (20, 1)))
    one = json.loads(invoke("run", "net.gossamer", "--input", "one.npy", "--json")[1])
    many = json.loads(invoke("run", "net.gossamer", "--input", "many.npy", "--json")[1])
    assert one["outputs"] == many["outputs"][:1]
    assert (one["images"], many["images"]) == (1, 20 * N)


def test_verify_equal(folder: Path) -> None:
    arguments = ["verify", "net.gossamer", "--input", "x.npy", "--device", "golden"]
    status, out, _ = invoke(*arguments, "--json")
    assert status == 0
    assert json.loads(out) == {
        "equal": True, "device": "golden", "images": N, "layers": 2, "values": N * 15,
        "first": None,
    }  # fmt: skip
    assert invoke(*arguments)[1] == "equal: 24 images, 2 layers, 360 activations on golden\n"


def test_verify_names_the_first_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_layers = Session.layers

    def wrong_layers(self: Session, q: np.ndarray) -> list:
        outputs = true_layers(self, q)
        outputs[1] = outputs[1].copy()
        outputs[1][5, 2] += 1
        return outputs

    monkeypatch.setattr(Session, "layers", wrong_layers)
    arguments = ["verify", "net.gossamer", "--input", "x.npy", "--device", "golden"]
    status, out, _ = invoke(*arguments, "--json")
    first = json.loads(out)["first"]
    assert status == 3
    assert (first["layer"], first["row"], first["image"], first["count"]) == ("fc2", 2, 5, 1)
    assert first["got"] == first["expected"] + 1
    status, out, _ = invoke(*arguments)
    assert status == 3
    assert "different: layer fc2, row 2, image 5" in out


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(folder: Path, bad: float) -> None:
    arrays = dict(np.load("net.npz"))
    arrays["fc1.weight"][3, 2] = bad
    np.savez("net.npz", **arrays)
    text = refused("compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy")
    assert "net.npz: layer 'fc1': weight is" in text
    assert "[3, 2]" in text
    assert not Path("b.gossamer").exists()


BAD_NETWORKS = {
    "do not chain": {"fc2.weight": np.ones((3, 11))},
    "is empty": {"fc1.weight": np.ones((0, 8)), "fc1.bias": np.ones(0)},
    "expected (12,)": {"fc1.bias": np.ones(11)},
    "expected (rows, cols)": {"fc1.weight": np.ones(8)},
    "expected floats or integers": {"fc1.weight": np.ones((12, 8), complex)},
}


@pytest.mark.parametrize("text", BAD_NETWORKS)
def test_networks_that_cannot_be(folder: Path, text: str) -> None:
    arrays = dict(np.load("net.npz")) | BAD_NETWORKS[text]
    np.savez("net.npz", **arrays)
    assert text in refused("compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy")


def test_pickled_network_is_never_unpickled(folder: Path) -> None:
    np.savez("net.npz", **{"fc1.weight": np.array([{}], dtype=object)})
    assert "pickle" in refused("compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy")
    Path("net.npz").write_bytes(pickle.dumps({"fc1.weight": np.ones((2, 2))}))
    assert "net.npz" in refused("compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy")


def test_neither_range_nor_calibration(folder: Path) -> None:
    text = refused("compress", "net.npz", "-o", "b.gossamer")
    assert "--calibrate x.npy" in text
    assert "`range = [lowest, highest]`" in text
    Path("r.toml").write_text("[input]\nrange = [0.0, 1.0]\n")
    status, _, err = invoke("compress", "net.npz", "-o", "b.gossamer", "--recipe", "r.toml")
    assert status == 0
    assert "warning: no calibration data" in err


RECIPES = {
    "is not a known key": "[default]\ncodez = 3\n",
    "names no layer": "[layers.fc9]\ncodes = 4\n",
    "not valid TOML": "[default\n",
    "expected a whole number in 2..256": "[default]\ncodes = 300\n",
    "is unused because every layer has its own": (
        "[default]\ncodes = 8\n[layers.fc1]\ncodes = 4\n[layers.fc2]\ncodes = 4\n"
    ),
}


@pytest.mark.parametrize("text", RECIPES)
def test_bad_recipes(folder: Path, text: str) -> None:
    Path("r.toml").write_text(RECIPES[text])
    arguments = ["compress", "net.npz", "-o", "b.gossamer", "--calibrate", "x.npy"]
    assert text in refused(*arguments, "--recipe", "r.toml")


def test_files_that_are_not_there(folder: Path) -> None:
    for arguments in (
        ["info", "no.gossamer"],
        ["run", "no.gossamer", "--input", "x.npy"],
        ["run", "net.gossamer", "--input", "no.npy"],
        ["compress", "no.npz", "-o", "b.gossamer", "--calibrate", "x.npy"],
        ["compress", "net.npz", "-o", "b.gossamer", "--calibrate", "no.npy"],
        ["compress", "net.npz", "-o", "b.gossamer", "--recipe", "no.toml"],
    ):
        text = refused(*arguments)
        assert "no." in text
        assert "o such file" in text


def test_output_folder_that_is_not_there(folder: Path) -> None:
    arguments = ["net.npz", "--calibrate", "x.npy"]
    assert "cannot be written" in refused("compress", *arguments, "-o", "no/b.gossamer")
    text = refused("run", "net.gossamer", "--input", "x.npy", "--output", "no/y.npy")
    assert "cannot be written" in text


@pytest.mark.parametrize("kind", ["nan", "inf", "narrow", "empty", "text", "pickle", "3-d"])
def test_bad_inputs(folder: Path, kind: str) -> None:
    x = np.load("x.npy")
    if kind in ("nan", "inf"):
        x[3, 4] = float(kind)
    changed = {"narrow": x[:, :7], "empty": x[:0], "text": x.astype(str), "3-d": x[None, None]}
    np.save("x.npy", changed.get(kind, x))
    if kind == "pickle":
        np.save("x.npy", np.array([{}], dtype=object), allow_pickle=True)
    text = refused("run", "net.gossamer", "--input", "x.npy", "--output", "out.npy")
    expected = {"nan": "[3, 4]", "inf": "[3, 4]", "pickle": "pickled objects", "empty": "is empty"}
    assert expected.get(kind, "expected") in text
    assert not Path("out.npy").exists()


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (np.zeros(N - 1, int), "one integer per input: (24,)"),
        (np.zeros(N), "one integer per input"),
        (np.full(N, 3), "label 3 of input 0 is no output, expected 0..2"),
    ],
)
def test_bad_labels(folder: Path, labels: np.ndarray, text: str) -> None:
    np.save("y.npy", labels)
    assert text in refused("run", "net.gossamer", "--input", "x.npy", "--labels", "y.npy")


def test_damaged_models(folder: Path) -> None:
    raw = Path("net.gossamer").read_bytes()
    flipped = bytearray(raw)
    flipped[-3] ^= 4
    claims = (1 << 40).to_bytes(8, "little") + raw[8:]
    newer = raw.replace(b'"gossamer":"2"', b'"gossamer":"9"')
    assert newer != raw
    for damaged in (raw[:-1], raw[:20], b"", bytes(flipped), claims, newer, b"hello" * 10):
        Path("net.gossamer").write_bytes(damaged)
        for arguments in (["info", "net.gossamer"], ["run", "net.gossamer", "--input", "x.npy"]):
            assert "net.gossamer" in refused(*arguments)


@pytest.mark.parametrize("device", ["/dev/no-such-port", "COM99", "no-scheme://x", "sim://nosuch"])
def test_devices_that_are_not_there(folder: Path, device: str) -> None:
    pytest.importorskip("amaranth")
    text = refused("run", "net.gossamer", "--input", "x.npy", "--device", device)
    assert device in text


def test_missing_extra_is_one_line(folder: Path) -> None:
    script = (
        "import sys; sys.modules['amaranth'] = None; from gossamer.host.cli import main;"
        "sys.argv = 'gossamer run net.gossamer --input x.npy --device sim'.split(); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gossamer: ")
    assert done.stderr.count("\n") == 1
    assert "amaranth, which is not installed; pip install 'gossamer[" in done.stderr


def test_build_reports_what_was_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.boards import build

    report = build.BuildReport(
        board="icebreaker", clock_mhz=24.0, fmax_mhz=25.5, timing_met=True, lut=4000, dsp=2,
        ram=24, spram=2, available={"lut": 5280, "dsp": 8, "ram": 30, "spram": 4},
        bitstream="build/icebreaker/icebreaker.bin", bitstream_id="00ff", seed=3,
        tools={"yosys": "0.70"}, config={"n_pes": 2},
    )  # fmt: skip
    monkeypatch.setattr(build, "build", lambda board, progress: report)
    status, out, _ = invoke("build", "--board", "icebreaker", "--json")
    keys = {
        "board", "clock_mhz", "fmax_mhz", "timing_met", "lut", "dsp", "ram", "bitstream",
        "bitstream_id", "seed", "tools",
    }  # fmt: skip
    assert status == 0
    assert keys <= set(json.loads(out))
    out = invoke("build", "--board", "icebreaker")[1]
    assert "75.8%" in out
    assert "25.5 MHz reached, 24 MHz needed (seed 3)" in out


def test_a_failed_bench_is_status_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.sim.benches import runner

    def run_bench(name: str, **_: object) -> runner.BenchResult:
        return runner.BenchResult(name, 3, int(name == "pe"), Path(f"{name}.log"), None)

    monkeypatch.setattr(runner, "run_bench", run_bench)
    status, out, _ = invoke("cosim")
    assert status == 1
    assert "pe: 3 passed, 1 failed; pe.log" in out
    assert "drain: 3 passed, 0 failed" in out
    assert invoke("cosim", "drain")[0] == 0


def test_unknown_board(folder: Path) -> None:
    assert "'nosuch' is unknown; expected one of icebreaker" in refused(
        "build", "--board", "nosuch"
    )


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_run_and_verify_on_simulated_rtl(folder: Path) -> None:
    arguments = ["net.gossamer", "--input", "x.npy", "--device", "sim", "--json"]
    status, out, _ = invoke("run", *arguments, "--labels", "y.npy")
    document = json.loads(out)
    assert status == 0
    golden = json.loads(invoke("run", "net.gossamer", "--input", "x.npy", "--json")[1])
    assert document["outputs"] == golden["outputs"]
    assert document["score"] == 1.0
    assert document["cycles"] > 0
    slots = document["multipliers"] * document["cycles"]
    assert sum(document["counters"].values()) == slots
    efficiency = document["counters"]["busy"] / slots
    assert document["slot_efficiency"] == efficiency
    milliseconds = document["cycles"] / N / document["clock_mhz"] / 1e3
    assert document["milliseconds_per_image"] == pytest.approx(milliseconds)
    assert all(document["seconds"][name] > 0 for name in ("host", "link", "engine"))
    text = invoke("run", *arguments[:-1])[1]
    assert "slot efficiency" in text
    assert "MHz" in text
    assert json.loads(invoke("verify", *arguments)[1])["equal"]


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_model_that_does_not_fit(folder: Path) -> None:
    rows = EngineConfig().rows_per_pe * EngineConfig().n_pes + 1
    network = Network((Layer("wide", np.eye(rows, 4)), Layer("last", np.eye(2, rows))))
    model = compress(network, Recipe(), np.random.default_rng(0).random((9, 4)))
    model_file.save(model, "wide.gossamer")
    np.save("x.npy", np.zeros((1, 4)))
    text = refused("run", "wide.gossamer", "--input", "x.npy", "--device", "sim")
    assert "rows of wide: 257 needed, 256 available (1 too many); what would help" in text


@pytest.mark.cocotb
def test_cosim_runs_a_bench(folder: Path) -> None:
    status, out, _ = invoke("cosim", "drain", "--json")
    (bench,) = json.loads(out)["benches"]
    assert status == 0
    assert (bench["name"], bench["failed"]) == ("drain", 0)
    assert Path(bench["log"]).exists()
    assert "expected one of packets" in refused("cosim", "nosuch")
