# SPDX-License-Identifier: BSD-2-Clause
"""Matrices of scipy and MatrixMarket files as networks of one linear layer."""

import sys

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.errors import FormatError, InputError, ToolError
from gossamer.host.importers import from_scipy, load_network
from gossamer.host.session import Session

sparse = pytest.importorskip("scipy.sparse")
scipy_io = pytest.importorskip("scipy.io")

HEAD = "%%MatrixMarket matrix coordinate "


@pytest.mark.parametrize("shape", [(1, 90), (90, 1), (3, 200), (200, 3), (40, 50)])
def test_session_computes_the_product(shape):
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=shape) * (rng.random(shape) < 0.2)
    network = from_scipy(sparse.csc_array(matrix), input_range=(-1.0, 1.0))
    assert np.array_equal(network.layers[0].weight, matrix.astype(np.float32))
    x = rng.uniform(-1, 1, (50, shape[1]))
    session = Session(compress(network, calibration=x))
    y = x @ matrix.T
    step = abs(session.outputs[0].quantizer.scale)
    norm = np.abs(matrix).sum(axis=1)  # times half a step of the input: what rounding x can cost
    assert (np.abs(session.run(x) - y) <= 1.5 * step + 0.01 * norm).all()


def test_file_equals_matrix(tmp_path):
    path = tmp_path / "grid.mtx"
    rng = np.random.default_rng(2)
    matrix = rng.integers(-9, 10, (20, 30)) * (rng.random((20, 30)) < 0.3)
    for one in (sparse.coo_array(matrix), sparse.coo_array(matrix / 8), matrix):
        scipy_io.mmwrite(path, one)
        (layer,) = load_network(path).layers
        dense = one if one is matrix else one.toarray()
        assert layer.name == "grid"
        assert layer.activation == "none"
        assert not layer.bias.any()
        assert np.array_equal(layer.weight, dense)


def test_symmetric_patterns_and_duplicates(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "pattern symmetric\n2 2 2\n1 1\n2 1\n")
    assert load_network(path).layers[0].weight.tolist() == [[1, 1], [1, 0]]
    path.write_text(HEAD + "integer general\n2 2 3\n1 1 5\n1 1 -7\n2 2 1\n")
    assert load_network(path).layers[0].weight.tolist() == [[-2, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", r"m\.mtx: not a whole MatrixMarket file .*Missing banner.*scipy\.io\.mmwrite"),
        ("hello", "Missing banner"),
        (HEAD + "integer general\n3 2 3\n1 1 5\n", "Truncated file"),
        (HEAD + "integer general\n3 2 1\n4 1 5\n", "Row index out of bounds"),
        (HEAD + "integer general\n1 1 1\n1 1 99999999999999999999\n", "Integer out of range"),
        (HEAD + "real general\n3 2 99999999999\n1 1 5\n", "claims 99999999999 entries"),
        ("%%MatrixMarket matrix array real general\n90000 90000\n1\n", "claims 8100000000 ent"),
    ],
)
def test_damaged_files(tmp_path, text, error):
    path = tmp_path / "m.mtx"
    path.write_text(text)
    with pytest.raises(FormatError, match=error):
        load_network(path)


def test_files_that_cannot_be_used(tmp_path):
    path = tmp_path / "m.mtx"
    with pytest.raises(InputError, match=r"m\.mtx: no such file"):
        load_network(path)
    path.write_text(HEAD + "complex general\n1 1 1\n1 1 1 2\n")
    with pytest.raises(InputError, match=r"m\.mtx: m has type complex128"):
        load_network(path)
    path.write_text(HEAD + "real general\n99999999 2 1\n1 1 5\n")
    with pytest.raises(InputError, match=r"shape \(99999999, 2\), expected at most 65,536 rows"):
        load_network(path)
    with pytest.raises(InputError, match=r"takes no masks \(masks.npz\); leave pruned entries"):
        load_network(path, masks="masks.npz")
    (tmp_path / "folder.mtx").mkdir()
    with pytest.raises(InputError, match=r"folder\.mtx: cannot be read"):
        load_network(tmp_path / "folder.mtx")


def test_missing_module_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ToolError, match=r"m\.mtx: reading MatrixMarket needs.*'gossamer\[scipy\]'"):
        load_network(tmp_path / "m.mtx")
