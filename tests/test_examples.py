# SPDX-License-Identifier: BSD-2-Clause
"""The MNIST example on made-up images in MNIST's file format; the scikit-learn example."""

import gzip
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from gossamer.bench.mnist import read_idx
from gossamer.host.errors import FormatError

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import exact_products
import mnist
import onnx_mnist
import sklearn_digits
from scipy import io, sparse
from threadpoolctl import threadpool_limits


@pytest.fixture
def data(tmp_path):
    """IDX files, one of them compressed, and a network."""
    rng = np.random.default_rng(1)

    def idx(values):
        head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
        return head + values.astype(np.uint8).tobytes()

    for name, count in (("train", 40), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28)) * (rng.random((count, 28, 28)) < 0.2)
        images[0, 0, :2] = (0, 255)
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        labels = gzip.compress(idx(rng.integers(0, 10, count)))
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(labels)
    weights = {
        "fc1.weight": rng.normal(0, 0.1, (12, 784)) * (rng.random((12, 784)) < 0.2),
        "fc1.bias": rng.normal(0, 0.1, 12),
        "fc2.weight": rng.normal(0, 0.3, (10, 12)),
        "fc2.bias": rng.normal(0, 0.1, 10),
    }
    np.savez(tmp_path / "net.npz", **{k: v.astype(np.float32) for k, v in weights.items()})
    return tmp_path


def run(data, capsys, *options):
    status = mnist.main([str(data), str(data / "net.npz"), *options])
    return status, capsys.readouterr().out


def test_normalized_network_is_the_same_function(data):
    network = mnist.load_network(data / "net.npz")
    x = read_idx(data, "t10k-images-idx3-ubyte") / np.float32(255)
    y = network.run(x)
    z = mnist.normalized(network).run((x - mnist.MEAN) / mnist.STD)
    assert np.abs(y - z).max() < 1e-4 * np.abs(y).max()


def test_figures(data, capsys):
    status, text = run(data, capsys, "--device", "golden")
    assert status == 0
    assert "20 on golden" in text
    assert "equal, all outputs" in text


def test_image_files_are_checked(data, capsys):
    path = data / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    for damaged, message in ((whole[:-1], "15679 bytes of data, expected 15680"), (b"PK", "IDX")):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=message):
            run(data, capsys)


@pytest.mark.slow
@pytest.mark.xdist_group("default-engine")
def test_figures_on_simulated_rtl(data, capsys):
    status, text = run(data, capsys)
    assert status == 0
    assert "equal, all outputs" in text
    assert "0 predictions differ, 1.0000 x the cycles" in text


@pytest.mark.slow
def test_quantized_onnx_models(data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as quick and the same where it is installed
    kept = data / "kept"
    assert onnx_mnist.main([str(data), str(data / "net.npz"), "--keep", str(kept)]) == 0
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title == "written node by node, as torch.onnx does"
    assert heads.endswith("as users run it = golden")
    assert len(lines) == len(list(kept.iterdir())) == 9
    for line in lines:
        *_, says, ours, differ, _, same = line.split()
        assert same == "yes"
        says, ours, differ = (float(field.rstrip("%")) for field in (says, ours, differ))
        assert abs(says - ours) <= 100 * differ / 20
        assert differ <= 2


def test_scikit_learn_digits(capsys):
    with threadpool_limits(1):  # two threads wait for each other when the other core is busy
        sklearn_digits.main([])
    before, after = map(float, re.findall(r"([\d.]+)% right", capsys.readouterr().out))
    assert before > 95
    assert after > before - 2


@pytest.mark.slow
@pytest.mark.xdist_group("default-engine")
def test_scikit_learn_digits_on_simulated_rtl(capsys):
    sklearn_digits.main([])
    golden = capsys.readouterr().out
    sklearn_digits.main(["--device", "sim"])
    assert capsys.readouterr().out == golden.replace("golden", "sim")


def test_exact_products_of_files(tmp_path, capsys):
    rng = np.random.default_rng(8)
    integers = sparse.random(
        40, 60, 0.2, random_state=rng, data_rvs=lambda n: rng.integers(1, 99, n)
    )
    io.mmwrite(tmp_path / "integers.mtx", integers)
    io.savemat(tmp_path / "halves.mat", {"n": 3, "A": sparse.csc_matrix(integers / 2 + 0j)})
    io.mmwrite(tmp_path / "wide.mtx", sparse.coo_matrix([[1, 70000], [0, 1]]))
    names = [str(tmp_path / name) for name in ("integers.mtx", "halves.mat", "wide.mtx")]
    assert exact_products.main(names) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"integers: 40x60, {integers.nnz} nonzeros, golden: exact"
    assert second.startswith("halves: 40x60")
    assert second.endswith("golden: exact")
    assert "wide: 2x2, 3 nonzeros, golden: refused: " in third
