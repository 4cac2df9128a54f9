# SPDX-License-Identifier: BSD-2-Clause
"""Products of integer matrices and vectors are exact, whatever their type, shape and scale."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from fake_device import CONFIG, FakeDevice, FakePort
from gossamer.host.device.device import Device
from gossamer.host.errors import DeviceError, InputError, ToolError
from gossamer.host.limbs import limb_product
from gossamer.host.linear_operator import ExactProduct
from gossamer.host.triplets import Triplets

sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

RNG = np.random.default_rng(0)


def integers(shape, density=0.1, limit=100):
    return RNG.integers(-limit, limit + 1, shape) * (RNG.random(shape) < density)


@pytest.mark.parametrize("shape", [(1, 200), (200, 1), (4, 500), (500, 4), (90, 90)])
@pytest.mark.parametrize("low", [0, -128])
def test_products_equal_scipy(shape, low):
    matrix = sparse.csr_array(integers(shape))
    x = RNG.integers(low, low + 256, (5, shape[1]))
    with ExactProduct(matrix, (low, low + 255)) as product:
        assert product.shape == shape
        assert product.dtype == np.int64
        y = product.run(x)
        assert y.dtype == np.int64
        assert np.array_equal(y, (matrix @ x.T).T)
        assert np.array_equal(product.run(x[0]), matrix @ x[0])
        assert np.array_equal(product.run(x.astype(float)), y)


def test_many_nonzeros_and_duplicates():
    rows, columns = RNG.integers(0, (300, 400), (100_000, 2)).T
    matrix = sparse.coo_array((np.full(100_000, 100, np.int8), (rows, columns)), (300, 400))
    x = RNG.integers(0, 4, (2, 400))
    whole = sparse.coo_array((np.full(100_000, 100), (rows, columns)), (300, 400))
    assert len(np.unique(whole.tocsr().data)) > 3
    assert np.array_equal(ExactProduct(matrix, (0, 3)).run(x), (whole @ x.T).T)


@pytest.mark.parametrize("scale", [2.0**-20, 0.5, 1.0, 2.0**10, 2.0**200])
def test_entries_times_a_power_of_two(scale):
    matrix = integers((30, 20)) * scale
    x = RNG.integers(-128, 128, (4, 20))
    product = ExactProduct(sparse.csr_array(matrix), (-128, 127))
    assert product.dtype == (np.int64 if 1 <= scale < 2**20 else np.float64)
    assert np.array_equal(product.run(x), x @ matrix.T)


def test_linear_operator():
    matrix = sparse.csr_array(integers((40, 60)))
    operator = ExactProduct(matrix, (0, 255)).linear_operator()
    assert isinstance(operator, linalg.LinearOperator)
    assert (operator.shape, operator.dtype) == ((40, 60), np.dtype(np.int64))
    x = RNG.integers(0, 256, (60, 7))
    assert np.array_equal(operator @ x, matrix @ x)
    assert np.array_equal(operator.matvec(x[:, 0]), matrix @ x[:, 0])
    assert np.array_equal(operator.matvec(x[:, :1]), matrix @ x[:, :1])
    assert np.array_equal((2 * operator) @ x[:, 0], 2 * (matrix @ x[:, 0]))


def test_x_is_checked_and_never_changed():
    product = ExactProduct(np.eye(3, dtype=int), (0, 255))
    x = np.array([0, 255, 3])
    assert product.run(x).tolist() == [0, 255, 3]
    assert x.tolist() == [0, 255, 3]
    assert product.run([True, False, True]).tolist() == [1, 0, 1]
    for bad, text in (
        ([0, 1.5, 2], r"x is 1\.5 at index \[1\] \(1 such values\), expected integers in 0\.\.255"),
        ([0, np.nan, np.inf], r"x is nan at index \[1\] \(2 such values\)"),
        ([[0, 1, 256]], r"x is 256 at index \[0, 2\]"),
        ([-1, 0, 0], r"x is -1 at index \[0\]"),
        ([1, 2], r"x has shape \(2,\), expected \(3,\) or \(n, 3\)"),
        (["a", "b", "c"], "x has type <U1, expected integers"),
    ):
        with pytest.raises(InputError, match=text):
            product.run(bad)


@pytest.mark.parametrize(
    ("matrix", "input_range", "text"),
    [
        (RNG.normal(size=(20, 20)), (0, 1), "matrix has 400 distinct entries, expected at"),
        (np.array([[1.0, 1 / 3]]), (0, 1), r"no 16-bit integers times one power.*round"),
        (np.array([[40000, 1]]), (0, 1), r"between 1 and 40000 are no 16-bit integers"),
        (np.array([[1, 2]]), (0, 256), r"inputs span 0\.\.256, expected at most 255 between"),
        (np.array([[1, 2]]), (0, 1.5), r"input_range is \(0, 1\.5\), expected two int"),
        (np.array([[1, 2]]), (1, 0), r"input_range is \(1, 0\), expected two integers, rising"),
        (np.full((1, 300), 301), (0, 255), r"row 0 of the product spans 23,026,501 values"),
        (np.zeros((0, 3)), (0, 1), r"matrix has shape \(0, 3\)"),
    ],
)
def test_what_cannot_be_exact_is_refused(matrix, input_range, text):
    with pytest.raises(InputError, match=text):
        ExactProduct(matrix, input_range)


@pytest.mark.parametrize(("bits", "sums", "limbs"), [(8, 32, 3), (16, 36, 2)])
def test_limbs_are_made_for_the_device(bits, sums, limbs):
    config = replace(CONFIG, activation_bits=bits, sum_bits=sums)
    matrix = integers((6, 9), 0.9, 2000)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    network = limb_product(
        Triplets.of("m", matrix), (low, high), activation_bits=bits, sum_bits=sums
    ).network
    device = Device(FakePort(FakeDevice(network, config)), "fake")
    x = RNG.integers(low, high + 1, (5, 9))
    with ExactProduct(matrix, (low, high), device) as product:
        assert len(product.session.network.layers) == limbs
        assert np.array_equal(product.run(x), x @ matrix.T)
    with ExactProduct(matrix, (low, high), device) as again:  # still open
        assert np.array_equal(again.run(x), x @ matrix.T)


def test_devices_that_are_not_there():
    with pytest.raises(DeviceError, match="no-such-port"):
        ExactProduct(np.eye(2, dtype=int), (0, 1), device="/dev/no-such-port")


def test_missing_scipy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    product = ExactProduct(np.eye(2, dtype=int), (0, 1))
    with pytest.raises(ToolError, match=r"linear_operator\(\) needs.*'gossamer\[scipy\]'"):
        product.linear_operator()
    assert product.run([0, 1]).tolist() == [0, 1]
