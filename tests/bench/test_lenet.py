# SPDX-License-Identifier: BSD-2-Clause
"""The parts of `gossamer bench lenet` on made-up digits: what is counted, chosen and compared."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.cli import app
from gossamer.host.compression import model_file
from gossamer.host.errors import DeviceError
from gossamer.host.session import Session
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
from gossamer.bench import lenet, lenet_training  # noqa: E402 (needs torch)
from gossamer.bench.lenet import Point, choose  # noqa: E402
from gossamer.bench.lenet_training import Plan, Stage  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*jit")

PLAN = Plan(dense_epochs=4, share_epochs=2)
STEPS = (Stage((0.1, 0.2, 0.5), (16, 16, 16), 10), Stage((0.04, 0.1, 0.4), (8, 16, 16), 10))
TRAIN, TEST = 600, 60
KEYS = {"ratio", "error", "dense_error", "rtl_error", "bytes", "seeds"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten blurred patterns with noise, in MNIST's format."""
    rng = np.random.default_rng(4)
    folder = tmp_path_factory.mktemp("mnist")
    patterns = np.kron(rng.random((10, 7, 7)) < 0.3, np.ones((4, 4)))
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        noise = rng.normal(0, 0.4, (count, 28, 28))
        images = (255 * np.clip(patterns[labels] + noise, 0, 1)).astype(np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())
    return folder


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(lenet, "HELD_OUT", 150)
    monkeypatch.setattr(lenet, "CALIBRATION", 200)


def measure(folder, note=lambda _: None, seeds=(0,), steps=STEPS[:1]):
    return lenet.measure(folder, note, device="golden", seeds=seeds, plan=PLAN, steps=steps)


@pytest.mark.slow
def test_two_seeds_on_the_golden_model(folder, small, monkeypatch):
    saved = []
    monkeypatch.setattr(
        model_file, "save", lambda model, path: (saved.append(model), path.write_bytes(bytes(9000)))
    )
    notes = []
    result = lenet.measure(
        folder, notes.append, device="golden", seeds=(3, 4), plan=PLAN, steps=STEPS
    )
    assert [seed.seed for seed in result.seeds] == [3, 4]
    assert {(p.bytes, p.ratio) for s in result.seeds for p in s.curve} == {(9000, 1_066_440 / 9000)}
    for k, model in enumerate(saved):
        shapes = [(layer.n_cols, layer.n_rows) for layer in model.layers]
        assert shapes == [(784, 300), (300, 100), (100, 10)]
        stage = STEPS[k % 2]
        for layer, density, codes in zip(model.layers, stage.density, stage.codes, strict=True):
            assert layer.matrix.nonzeros == round(density * layer.n_rows * layer.n_cols)
            assert len(layer.matrix.codebook) <= codes
            assert np.array_equal(layer.bias * 64, np.rint(layer.bias * 64))
    assert sum(np.prod(s) + s[1] for s in shapes) * 4 == lenet.DENSE_BYTES
    for seed in result.seeds:
        assert seed.error == seed.rtl_error < 30
        assert seed.dense_error < 30
    assert result.error == pytest.approx(np.mean([seed.error for seed in result.seeds]))
    assert sum("held-out" in note for note in notes) == 2


def test_only_the_held_out_images_choose(folder, small, monkeypatch):
    """Stages are judged on images that are neither trained on nor tested."""
    seen = []
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda self, x: (seen.append(x), run(self, x))[1])
    train, _ = lenet.load_mnist(folder)
    trained = []
    fit = lenet_training.fit

    def watched(module, data, **options):
        trained.append(data.images)
        return fit(module, data, **options)

    monkeypatch.setattr(lenet, "fit", watched)
    monkeypatch.setattr(lenet_training, "fit", watched)
    measure(folder)
    assert [np.array_equal(x, train.images[-150:]) for x in seen] == [True]
    assert all(np.array_equal(x, train.images[:-150]) for x in trained)
    assert len(trained) == 3


def test_a_wrong_device_is_told(folder, small, monkeypatch):
    run = Session.run_quantized

    def wrong(self, q):
        outputs = run(self, q)
        outputs[0, 0] += 1
        return outputs

    monkeypatch.setattr(Session, "run_quantized", wrong)
    with pytest.raises(DeviceError, match="differ from the golden model for 1 of 60 images"):
        lenet.measure(
            folder, lambda _: None, device="golden", seeds=(0,), plan=PLAN, steps=STEPS[:1]
        )


@pytest.mark.slow
def test_example(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import lenet300100

    options = ["--epochs", "2", "--held-out", "150", "-o", str(tmp_path)]
    lenet300100.main(["--data", str(folder), *options])
    *_, last = capsys.readouterr().out.splitlines()
    (path,) = tmp_path.iterdir()
    assert path.name == "lenet300100-0.gossamer"
    assert f"{path.stat().st_size:,} of 1,066,440 bytes" in last
    model = model_file.load(path)
    assert [layer.matrix.nonzeros for layer in model.layers] == [11760, 3300, 400]
    assert max(len(layer.matrix.codebook) for layer in model.layers) == 16


def points(*rows):
    return [Point(k, 0, size, 1.0, error) for k, (size, error) in enumerate(rows)]


def test_the_smallest_stage_within_the_margin_is_chosen():
    one = (1.50, points((30, 1.50), (20, 1.52), (10, 1.90)))
    other = (1.40, points((32, 1.50), (22, 1.45), (12, 1.50)))
    assert choose([one, other]) == 1
    assert choose([one]) == 1
    assert choose([other]) == 1  # 1.50 is 0.10 more
    assert choose([(1.0, one[1]), (1.0, other[1])]) == 1  # none fits: the least error


@pytest.mark.slow
def test_command(folder, small, monkeypatch, tmp_path):
    defaults = lenet.measure.__kwdefaults__
    monkeypatch.setattr(
        lenet.measure, "__kwdefaults__",
        {**defaults, "device": "golden", "seeds": (0,), "plan": PLAN, "steps": STEPS[:1]},
    )  # fmt: skip
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    arguments = ["bench", "lenet", "--data", str(folder), "--plot", str(picture)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) == KEYS
    assert len(document["seeds"]) == 1
    assert b"</svg>" in picture.read_bytes()
    wrong = CliRunner().invoke(app, [*arguments[:4], "--plot", "curve.txt"])
    assert wrong.exit_code == 1
    assert "curve.txt: ends in '.txt', expected .png or .svg" in wrong.stderr


def test_table_fits_a_terminal(monkeypatch):
    curve = points((17500, 1.5), (15000, 1.6))
    seed = lenet.Seed(0, 1, 1.45, curve, 15000, 71.1, 1.52, 1.58, 1.59, 1.59, 345.6)
    result = lenet.Result(71.1, 1.59, 1.52, 1.59, 15000.0, 345.6, [seed])
    monkeypatch.setattr(lenet, "measure", lambda data, note: result)
    table = CliRunner().invoke(app, ["bench", "lenet"]).stdout
    assert "mean: 71.1x, 1.59 % wrong, dense 1.52 %; RTL equal to golden" in table
    assert max(map(len, table.splitlines())) <= 100
