# SPDX-License-Identifier: BSD-2-Clause
"""The HTML page: numbers as in JSON, hostile names harmless, nothing loaded, true pictures."""

import base64
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.cli import app
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import CompressedModel, compress
from gossamer.host.compression.matrix import Matrix
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.console import cell_text
from gossamer.host.errors import ToolError
from gossamer.host.network import Layer, Network
from gossamer.host.report.pictures import sparsity_pattern, weight_histogram
from gossamer.host.show import show_file
from matplotlib.image import imread
from typer.testing import CliRunner

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=https://example.org/x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %} $\\frac{x}$ &amp;",
    "zeros",
)


class Page(HTMLParser):
    """Tags, attributes, tables and headings of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tables: list[list[list[str]]] = []
        self.headings: list[str] = []
        self._target: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self._target = self.tables[-1][-1]
        elif tag in ("h1", "h2", "h3"):
            self._target = self.headings
        else:
            return
        self._target.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "h1", "h2", "h3"):
            self._target = []

    def handle_data(self, data: str) -> None:
        if self._target:
            self._target[-1] += data


@pytest.fixture(scope="module")
def model() -> CompressedModel:
    rng = np.random.default_rng(0)
    sizes = (30, 24, 1, 20, 5)
    layers = [
        Layer(name, rng.normal(size=(b, a)), rng.normal(size=b), "relu")
        for name, a, b in zip(NAMES, sizes, sizes[1:], strict=False)
    ]
    layers[3] = Layer("zeros", np.zeros((5, 20)), np.ones(5))
    recipe = parse_recipe("[default]\ncodes = 16\ndensity = 0.4")
    return compress(Network(tuple(layers)), recipe, rng.random((50, 30)))


@pytest.fixture(scope="module")
def shown(model: CompressedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    """The page, and the JSON that was printed beside it."""
    folder = tmp_path_factory.mktemp("page")
    path = folder / "a.gossamer"
    model_file.save(model, path)
    arguments = ["info", str(path), "--html", str(folder / "page.html"), "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return (folder / "page.html").read_text(encoding="utf-8"), json.loads(result.stdout)


def test_numbers_are_those_of_the_json(shown: tuple[str, dict]) -> None:
    text, document = shown
    page = Page(text)
    weights, sizes, bits, ranges, cycles, forms = page.tables
    rows = document["sizes"]
    keys = ("layer", "rows", "cols", "padded_cols", "structure", "nonzeros", "fillers", "code_bits")
    assert weights[1:] == [[cell_text(row[key]) for key in keys] for row in rows[:4]]
    for cells, row in zip(sizes[1:], rows, strict=True):
        compared = ("dense_fp32", "dense_int8", "pruned_gzip", "ours")
        assert cells[0] == row["layer"]
        assert cells[2:6] == [f"{row[key]:,}" for key in compared]
    with_weights = [row for row in rows if row["bits_per_nonzero"]]
    assert [row["layer"] for row in with_weights] == [*NAMES[:3], "total"]
    for cells, row in zip(bits[1:], with_weights, strict=True):
        values = row["bits_per_nonzero"].values()
        assert cells == [row["layer"], *(f"{value:,.2f}" for value in values)]
    assert [cells[0] for cells in ranges[1:]] == [row["tensor"] for row in document["tensors"]]
    for cells, one in zip(cycles[1:], document["engine"]["layers"], strict=True):
        assert cells[4] == f"{round(one['cycles']):,}"
    for cells, one in zip(forms[1:], document["engine"]["layers"], strict=True):
        assert cells[2] == f"{one['bytes']:,}"
    steps = document["steps"]
    assert steps[-1]["bytes"] == document["bytes"]
    for step in steps:
        ratio = steps[0]["bytes"] / step["bytes"]
        assert f">{step['step']}</text>" in text
        assert f">{step['bytes']:,} ({ratio:.1f}x)</text>" in text


def test_names_are_text_and_nothing_else(shown: tuple[str, dict]) -> None:
    page = Page(shown[0])
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.headings[-4:] == list(NAMES)


def test_nothing_is_loaded_from_elsewhere(shown: tuple[str, dict]) -> None:
    text, _ = shown
    for name, value in Page(text).attributes:
        if name.split(":")[-1] in ("src", "href", "srcset", "data", "action"):
            assert value.startswith(("#", "data:image/png;base64,"))
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    for name in NAMES:
        text = text.replace(name, "").replace("src=https://example.org/x", "")
    assert "//" not in re.sub(r"base64,[^\"]*", "", text)


def test_pictures_share_no_identifier_and_refer_to_their_own(shown: tuple[str, dict]) -> None:
    attributes = Page(shown[0]).attributes
    names = [value for name, value in attributes if name == "id"]
    assert len(set(names)) == len(names)
    used = {value[1:] for name, value in attributes if name.endswith("href") and value[0] == "#"}
    used |= set(re.findall(r"url\(#([^)]*)\)", shown[0]))
    assert used
    assert used <= set(names)


@pytest.mark.slow
def test_page_is_the_same_every_time(shown: tuple[str, dict], tmp_path: Path) -> None:
    path = Path(shown[1]["file"])
    result = CliRunner().invoke(app, ["info", str(path), "--html", str(tmp_path / "b.html")])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"page written to {tmp_path / 'b.html'}"
    assert (tmp_path / "b.html").read_text(encoding="utf-8") == shown[0]


@pytest.mark.slow
def test_page_of_lenet_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    layers = (
        Layer(f"fc{k}", rng.laplace(size=(b, a)))
        for k, (a, b) in enumerate([(784, 300), (300, 100), (100, 10)])
    )
    recipe = parse_recipe("[default]\nstructure = 'unstructured'\ndensity = 0.08\ncodes = 32")
    lenet = compress(Network(tuple(layers), input_range=(0, 1)), recipe)
    model_file.save(lenet, tmp_path / "a.gossamer")
    show_file(tmp_path / "a.gossamer", None, tmp_path / "a.html", as_json=True)
    assert (tmp_path / "a.html").stat().st_size < 300_000


def test_odd_layers(shown: tuple[str, dict]) -> None:
    text, _ = shown
    assert text.count("All weights are zero.") == 1
    assert text.count('aria-label="Weight histogram"') == 3
    assert text.count('aria-label="Sparsity pattern"') == 4


def image_of(svg: str) -> np.ndarray:
    """Opacity of the one image in a picture."""
    (data,) = re.findall(r"data:image/png;base64,([^\"]*)", svg)
    return imread(io.BytesIO(base64.b64decode(data)))[..., 3]


def test_pattern_is_the_mask() -> None:
    weight = np.random.default_rng(2).normal(size=(20, 30)).astype(np.float32)
    weight[np.abs(weight) < 1] = 0
    image = image_of(sparsity_pattern(Matrix.share(weight, "unstructured", 4), "a"))
    assert np.array_equal(image, (weight != 0).astype(float))


def test_pattern_of_a_large_matrix_is_averaged() -> None:
    weight = np.zeros((640, 560), dtype=np.float32)
    weight[:320:2] = 1  # half of the upper half
    weight[400:480, 280:] = 1
    image = image_of(sparsity_pattern(Matrix.share(weight, "unstructured", 4), "a"))
    assert image.shape == (160, 280)
    expected = np.zeros(image.shape)
    expected[:80], expected[100:120, 140:] = 0.5, 1
    assert np.abs(image - expected).max() < 0.01


@pytest.mark.parametrize("values", [[0.5], [-1, 2], [0.0, -3, 1, 1.5, 4]])
def test_histogram_has_a_line_for_each_value(values: list[float]) -> None:
    weight = np.resize(np.array(values, dtype=np.float32), (6, 10))
    svg = weight_histogram(Matrix.share(weight, "dense", 8), "a")
    stored = np.count_nonzero(values)
    assert svg.count("#e07b20") == stored
    assert f"{stored} values that weights share" in svg


@pytest.mark.parametrize("module", ["jinja2", "matplotlib.figure"])
def test_without_the_extra_it_is_named(
    model: CompressedModel, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_file.save(model, tmp_path / "a.gossamer")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolError, match=r"an HTML page needs .* pip install 'gossamer\[plot\]'"):
        show_file(tmp_path / "a.gossamer", None, tmp_path / "a.html", as_json=True)
    assert not (tmp_path / "a.html").exists()


def test_page_that_cannot_be_written(model: CompressedModel, tmp_path: Path) -> None:
    model_file.save(replace(model, layers=model.layers[:1]), tmp_path / "a.gossamer")
    arguments = ["info", str(tmp_path / "a.gossamer"), "--html", str(tmp_path / "no" / "a.html")]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be written" in result.stderr
    assert result.stderr.count("\n") == 1
