# SPDX-License-Identifier: BSD-2-Clause
import json
import zlib

import numpy as np
import pytest
from gossamer.host import model_file
from gossamer.host.compress import compress
from gossamer.host.network import Layer, Network
from gossamer.host.recipe import parse_recipe
from gossamer.host.report import (
    range_rows,
    range_table,
    size_rows,
    size_table,
    structure_table,
)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    layers = (
        Layer("fc1", rng.normal(size=(40, 64)), rng.normal(size=40), "relu"),
        Layer("fc2", rng.normal(size=(10, 40)), rng.normal(size=10)),
    )
    recipe = parse_recipe("[layers.fc1]\ndensity = 0.1\ncodes = 16\n[layers.fc2]\ncodes = 8")
    return compress(Network(layers), recipe, rng.random((50, 64)))


def test_sizes_add_up_to_the_file(model, tmp_path):
    path = tmp_path / "m.gossamer"
    model_file.save(model, path)
    *layers, total = size_rows(model)
    assert total["ours"] == path.stat().st_size
    parts = ("indices", "codes", "codebook", "biases", "header", "padding")
    for row in (*layers, total):
        assert sum(row[part] for part in parts) == row["ours"]
    for key, value in total.items():
        assert key == "layer" or value == sum(row[key] for row in layers)
    assert [row["layer"] for row in layers] == ["fc1", "fc2", "file"]


def test_one_layer_by_hand(model):
    first, second, *_ = size_rows(model)
    weight = model.layers[0].matrix.weight()
    assert first["weights"] == 2560
    assert first["nonzeros"] == 256
    assert first["dense_fp32"] == 4 * 2560 + 160
    assert first["dense_int8"] == 2560 + 160
    assert first["pruned_gzip"] == len(zlib.compress(weight.tobytes(), 9)) + 160
    assert (first["codes"], first["codebook"], first["biases"]) == (128, 64, 160)
    assert (second["structure"], second["code_bits"], second["indices"]) == ("dense", 3, 0)
    assert second["codes"] == 150
    assert first["ours"] < first["pruned_gzip"] < first["dense_int8"]


def test_rows_are_plain_data(model):
    assert json.loads(json.dumps(size_rows(model))) == size_rows(model)
    assert json.loads(json.dumps(range_rows(model))) == range_rows(model)


def test_ranges(model):
    rows = range_rows(model)
    assert [row["tensor"] for row in rows] == ["input", "fc1", "fc2"]
    assert rows[1]["origin"] == 0
    assert 0.1 < rows[1]["share"] < 0.9
    assert {row["source"] for row in rows} == {"calibrated"}


def test_pairs_by_hand(tmp_path):
    # six columns: groups of 4 and 2; row 0 holds 2 + 0 weights, row 1 holds 1 + 2
    weight = [[1, 0, 2, 0, 0, 0], [0, 0, 0, 3, 1, 2]]
    net = Network((Layer("a", weight), Layer("b", np.ones((3, 2)))))
    model = compress(net, parse_recipe("[layers.a]\nstructure = '2:4'"), np.eye(6))
    first, second, *_, total = rows = size_rows(model)
    assert (first["structure"], first["nonzeros"], first["fillers"]) == ("2:4", 5, 8 - 5)
    assert (first["padded_cols"], second["padded_cols"], second["fillers"]) == (2, 0, 0)
    assert first["indices"] == 8 * 2 // 8
    assert (first["codes"], first["codebook"], first["biases"]) == (8 * 2 // 8, 16, 8)
    assert total["fillers"] == 3
    path = tmp_path / "m.gossamer"
    model_file.save(model, path)
    parts = ("indices", "codes", "codebook", "biases", "header", "padding")
    assert total["ours"] == path.stat().st_size == sum(total[part] for part in parts)
    heads, body = structure_table(rows)
    assert body == [["a", 2, 6, 2, "2:4", 5, 3, 2], ["b", 3, 2, 0, "dense", 6, 0, 1]]
    assert len(heads) == len(body[0])


@pytest.mark.parametrize(("rows_of", "table"), [(size_rows, size_table), (range_rows, range_table)])
def test_tables_have_a_cell_for_each_head(model, rows_of, table):
    heads, body = table(rows_of(model))
    assert all(len(line) == len(heads) for line in body)
    assert len(body) == len(rows_of(model))
    widths = [
        max(len(f"{c:,}") if isinstance(c, int) else len(str(c)) for c in column)
        for column in zip(*body, strict=True)
    ]
    assert sum(widths) + 2 * len(widths) <= 100
