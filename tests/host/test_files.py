# SPDX-License-Identifier: BSD-2-Clause
"""Arrays from strangers, and files that are whole or not there."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.errors import FormatError, InputError
from gossamer.host.files import open_atomic, read_npy


@pytest.fixture
def array(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12.0).reshape(3, 4))
    return path


@pytest.mark.parametrize("order", ["C", "F"])
def test_array_comes_back_writable_and_equal(tmp_path: Path, order) -> None:
    expected = np.array(np.arange(6.0).reshape(2, 3), order=order)
    np.save(tmp_path / "x.npy", expected)
    found = read_npy(tmp_path / "x.npy")
    assert np.array_equal(found, expected)
    assert found.flags.writeable
    assert type(found) is np.ndarray


@pytest.mark.parametrize("size", [0, 5, 40, 130])
def test_truncated(array: Path, size: int) -> None:
    array.write_bytes(array.read_bytes()[:size])
    with pytest.raises(FormatError, match=r"x\.npy: found .*expected one whole array"):
        read_npy(array)


def test_header_that_claims_too_much_is_refused_before_allocation(array: Path) -> None:
    raw = array.read_bytes().replace(b"(3, 4), }               ", b"(3000000000, 400000), } ")
    array.write_bytes(raw)
    with pytest.raises(FormatError, match="greater than file size"):
        read_npy(array)


@pytest.mark.parametrize(
    ("content", "found"), [(pickle.dumps([1.0]), "a pickle"), (b"hello, world", "no .npy header")]
)
def test_pickled_or_foreign_content(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(FormatError, match=f"found {found}"):
        read_npy(tmp_path / "x.npy")


def test_object_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="found pickled objects"):
        read_npy(tmp_path / "x.npy")


def test_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    with pytest.raises(FormatError, match=r"found an \.npz archive"):
        read_npy(tmp_path / "x.npz")


def test_empty_and_missing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 4)))
    with pytest.raises(InputError, match=r"shape \(0, 4\) is empty"):
        read_npy(tmp_path / "x.npy")
    with pytest.raises(InputError, match="no such file"):
        read_npy(tmp_path / "missing.npy")
    with pytest.raises(InputError, match="cannot be read"):
        read_npy(tmp_path)


def test_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with open_atomic(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["out.bin"]


def test_failure_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), open_atomic(path) as stream:  # noqa: PT012 - write, then fail
        stream.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.bin"]


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"), open_atomic(tmp_path / "no" / "x"):
        pytest.fail("the block must not run")
