# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.errors import InputError
from gossamer.host.triplets import Triplets

sparse = pytest.importorskip("scipy.sparse")

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


@pytest.mark.filterwarnings("ignore:Constructing a DIA matrix")
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (5, 300), (300, 5)])
def test_every_format_gives_the_matrix(kind, shape):
    rng = np.random.default_rng(1)
    matrix = rng.integers(-9, 10, shape) * (rng.random(shape) < 0.3)
    for one in (sparse.coo_array(matrix).asformat(kind), sparse.csr_matrix(matrix).asformat(kind)):
        triplets = Triplets.of("m", one)
        assert triplets.shape == shape
        assert triplets.values.dtype == np.int64
        assert np.array_equal(triplets.dense(), matrix)
        places = triplets.columns * shape[0] + triplets.rows
        assert (np.diff(places) > 0).all()
        assert triplets.values.all()
    assert np.array_equal(Triplets.of("m", matrix).dense(), matrix)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint64", "float32", "float64"]
)
def test_types(dtype):
    matrix = np.array([[0, 1, 0], [1, 0, 1]], dtype)
    triplets = Triplets.of("m", sparse.coo_array(matrix))
    assert triplets.values.dtype == (np.float64 if dtype.startswith("f") else np.int64)
    assert np.array_equal(triplets.dense(), matrix)


def test_duplicates_are_added_without_overflow():
    rows, columns = np.zeros(300, int), np.repeat([0, 2], 150)
    for dtype, value in ((np.uint8, 200), (np.int8, -100), (np.int32, 2**31 - 1)):
        matrix = sparse.coo_array((np.full(300, value, dtype), (rows, columns)), (2, 3))
        assert Triplets.of("m", matrix).dense().tolist() == [[150 * value, 0, 150 * value], [0] * 3]


def test_entries_that_cancel_are_gone():
    matrix = sparse.coo_array(([5, -5, 0, 3], ([0, 0, 1, 1], [0, 0, 0, 1])), (2, 2))
    triplets = Triplets.of("m", matrix)
    assert (triplets.rows.tolist(), triplets.columns.tolist()) == ([1], [1])
    assert triplets.values.tolist() == [3]


def test_more_than_65536_nonzeros():
    rng = np.random.default_rng(2)
    matrix = rng.integers(1, 4, (300, 300)).astype(np.int8)
    triplets = Triplets.of("m", sparse.csr_array(matrix))
    assert len(triplets.values) == 90_000
    assert np.array_equal(triplets.dense(), matrix)


@pytest.mark.parametrize(
    ("matrix", "text"),
    [
        (sparse.coo_array((0, 3)), r"m has shape \(0, 3\), expected \(rows, cols\)"),
        (sparse.coo_array(np.ones(3)), r"m has shape \(3,\), expected \(rows, cols\)"),
        (np.ones(3), r"m is an array of shape \(3,\), expected a scipy\.sparse matrix or a numpy"),
        ([[1, 2]], r"m is list, expected a scipy\.sparse matrix"),
        (sparse.csr_array(np.array([[1j]])), "m has type complex128, expected integers or real"),
        (np.array([["a"]]), "m has type <U1, expected integers or real floats"),
        (sparse.csr_array([[1.0, np.nan]]), r"m is nan at \(0, 1\) \(1 such entries\)"),
        (np.array([[0, 2**32], [2**40, 1]]), r"m is 4294967296 at \(0, 1\) \(2 such entries\)"),
        (np.array([[0], [-(2**32)]]), r"m is -4294967296 at \(1, 0\) .* less than 2\*\*32"),
    ],
)
def test_what_is_no_matrix_is_refused(matrix, text):
    with pytest.raises(InputError, match=text):
        Triplets.of("m", matrix)
