# SPDX-License-Identifier: BSD-2-Clause
import json
import zlib
from dataclasses import replace
from math import log2

import numpy as np
import pytest
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress
from gossamer.host.compression.entropy import PLAIN
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.network import Layer, Network
from gossamer.host.report.report import (
    PARTS,
    bit_table,
    range_rows,
    range_table,
    size_rows,
    size_steps,
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
    for row in (*layers, total):
        assert sum(row[part] for part in PARTS) == row["ours"]
    for key, value in total.items():
        if key not in ("layer", "bits_per_nonzero"):
            assert value == sum(row[key] for row in layers)
    assert [row["layer"] for row in layers] == ["fc1", "fc2", "file"]


def test_one_layer_by_hand(model):
    first, second, *_ = size_rows(model)
    layer = model.layers[0]
    weight = layer.matrix.weight()
    assert first["weights"] == 2560
    assert first["nonzeros"] == 256
    assert first["dense_fp32"] == 4 * 2560 + 160
    assert first["dense_int8"] == 2560 + 160
    assert first["pruned_gzip"] == len(zlib.compress(weight.tobytes(), 9)) + 160
    assert first["codebook"] == 64
    assert first["codes"] + first["tables"] <= 128
    assert (second["structure"], second["code_bits"], second["indices"]) == ("dense", 3, 0)
    assert 0 < second["codes"] <= 150
    assert first["ours"] < first["pruned_gzip"] < first["dense_int8"]


def test_header_of_a_layer_is_what_the_file_grows_by(model):
    rows = size_rows(model)
    renamed = replace(model.layers[1], name='a "quoted" name of the layer, ü')
    longer = size_rows(replace(model, layers=(model.layers[0], renamed)))
    grown = len(r"a \\\"quoted\\\" name of the layer, ü".encode()) - len("fc2")
    assert longer[1]["header"] - rows[1]["header"] == grown
    for key in ("header", "padding"):
        around = longer[2][key], rows[2][key]
        assert abs(around[0] - around[1]) < 8


def entropy(shares):
    return -sum(p * log2(p) for p in shares if p)


def test_bits_and_floors_by_hand():
    # 16 of 64 places, four values of which one is half of all
    weight = np.zeros((8, 8))
    weight.reshape(-1)[::4] = [1] * 8 + [2] * 4 + [3] * 2 + [4] * 2
    net = Network((Layer("a", weight), Layer("zeros", np.zeros((2, 8)))), input_range=(0, 1))
    recipe = parse_recipe("[default]\nstructure = 'unstructured'\nentropy = 'none'")
    first, empty, around, total = size_rows(compress(net, recipe))
    bits = first["bits_per_nonzero"]
    assert bits["index_floor"] == pytest.approx(entropy([0.25, 0.75]) / 0.25)
    assert bits["code_floor"] == pytest.approx(entropy([0.5, 0.25, 0.125, 0.125]))
    assert bits["codes"] == 2
    assert bits["codebook"] == 4 * 32 / 16
    assert bits["tables"] == bits["padding"] == 0
    assert bits["ours"] == 8 * first["ours"] / 16 == sum(bits[part] for part in PARTS)
    assert empty["bits_per_nonzero"] is around["bits_per_nonzero"] is None
    assert (empty["index_floor"], empty["code_floor"]) == (0, 0)
    assert total["bits_per_nonzero"]["ours"] == 8 * total["ours"] / 16


def test_floors_of_dense_layers_with_zeros_add_up_to_the_entropy_of_all_codes():
    rng = np.random.default_rng(0)
    weight = rng.integers(-1, 2, (30, 40))
    model = compress(
        Network((Layer("a", weight),), input_range=(0, 1)),
        parse_recipe("[default]\nstructure = 'dense'"),
    )
    row = size_rows(model)[0]
    _, counts = np.unique(weight, return_counts=True)
    floor = weight.size * entropy(counts / weight.size) / 8
    assert row["index_floor"] + row["code_floor"] == pytest.approx(floor)
    assert floor < row["indices"] + row["codes"] < 1.05 * floor


def test_huffman_codes_come_close_to_the_floor(model):
    first, second, *_ = size_rows(model)
    for row in (first, second):
        floor = row["index_floor"] + row["code_floor"]
        assert floor < row["indices"] + row["codes"] + row["tables"] < 1.2 * floor


def test_steps_lead_from_dense_to_the_file(model):
    steps = {row["step"]: row["bytes"] for row in size_steps(model)}
    total = size_rows(model)[-1]
    assert list(steps)[:3] == ["dense fp32", "dense int8", "pruned"]
    assert steps["dense fp32"] == total["dense_fp32"]
    assert steps["dense int8"] == total["dense_int8"]
    assert steps["file"] == total["ours"]
    parts = ("indices", "codes", "tables", "codebook")
    assert steps["entropy coded"] == sum(total[part] for part in parts) + 4 * 50
    *before, _ = steps.values()
    assert before == sorted(before, reverse=True)
    plain = compress(model.to_network(), parse_recipe("[default]\nentropy = 'none'"), np.eye(64))
    coded_as = [replace(la.matrix, coding=PLAIN) for la in model.layers]
    assert steps["shared"] == sum(matrix.cost_bytes for matrix in coded_as) + 4 * 50
    rows = size_steps(plain)
    assert rows[3]["bytes"] == rows[4]["bytes"]


def test_rows_are_plain_data(model):
    for rows in (size_rows(model), size_steps(model)):
        assert json.loads(json.dumps(rows)) == rows
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
    recipe = parse_recipe("[default]\nentropy = 'none'\n[layers.a]\nstructure = '2:4'")
    model = compress(net, recipe, np.eye(6))
    first, second, *_, total = rows = size_rows(model)
    assert (first["structure"], first["nonzeros"], first["fillers"]) == ("2:4", 5, 8 - 5)
    assert (first["padded_cols"], second["padded_cols"], second["fillers"]) == (2, 0, 0)
    assert first["indices"] == 8 * 2 // 8
    assert (first["codes"], first["codebook"], first["biases"]) == (8 * 2 // 8, 16, 0)
    assert total["fillers"] == 3
    path = tmp_path / "m.gossamer"
    model_file.save(model, path)
    assert total["ours"] == path.stat().st_size == sum(total[part] for part in PARTS)
    heads, body = structure_table(rows)
    assert body == [["a", 2, 6, 2, "2:4", 5, 3, 2], ["b", 3, 2, 0, "dense", 6, 0, 1]]
    assert len(heads) == len(body[0])


@pytest.mark.parametrize(
    ("rows_of", "table", "count"),
    [
        (size_rows, structure_table, 2),
        (size_rows, size_table, 4),
        (size_rows, bit_table, 3),
        (range_rows, range_table, 3),
    ],
)
def test_tables_have_a_cell_for_each_head(model, rows_of, table, count):
    heads, body = table(rows_of(model))
    assert all(len(line) == len(heads) for line in body)
    assert len(body) == count
    kinds = {int: "{:,}", float: "{:.2f}", str: "{}"}
    cells = [[kinds[type(c)].format(c) for c in line] for line in body]
    words = [max(map(len, head.split())) for head in heads]
    widths = [max(len(c) for c in column) for column in zip(*cells, strict=True)]
    assert sum(map(max, words, widths)) + 2 * len(heads) - 1 <= 100
