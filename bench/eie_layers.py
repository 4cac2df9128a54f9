# SPDX-License-Identifier: BSD-2-Clause
"""The nine layers of EIE, made at random straight as integers: sizes and densities are the paper's.

Ref: Han et al., "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA 2016,
table III: sizes, weight and activation densities of AlexNet's and VGG-16's fully connected layers
and of NeuralTalk's. The paper's fillers and its interleaved rows are not part of the layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..host.compiler.quantize import QuantizedLayer, QuantizedNetwork, Quantizer

__all__ = [
    "CHAIN",
    "CODES",
    "LAYERS",
    "Densities",
    "Shape",
    "Work",
    "chained",
    "even",
    "single",
    "uneven",
]

CODES = 16
"""Shared weights of a layer; 0 is none of them, so no stored weight is a filler."""
ACTIVATION_HIGH = (1 << 16) - 1
SUM_LIMIT = 1 << 34
"""Bound of a row's sum, whatever the input; as much is left for its bias."""
SIGMA = 0.5
"""Of the logarithm of row and column densities in the uneven set."""
OUTPUT_DENSITY = 0.35
BLOCK = 256
"""Columns drawn at once."""


@dataclass(frozen=True)
class Shape:
    """A row of the paper's table: sizes, and shares of nonzero weights and activations."""

    name: str
    inputs: int
    outputs: int
    weights: float
    activations: float


LAYERS = (
    Shape("Alex-6", 9216, 4096, 0.09, 0.351),
    Shape("Alex-7", 4096, 4096, 0.09, 0.353),
    Shape("Alex-8", 4096, 1000, 0.25, 0.375),
    Shape("VGG-6", 25088, 4096, 0.04, 0.183),
    Shape("VGG-7", 4096, 4096, 0.04, 0.375),
    Shape("VGG-8", 4096, 1000, 0.23, 0.411),
    Shape("NT-We", 4096, 600, 0.10, 1.0),
    Shape("NT-Wd", 600, 8791, 0.11, 1.0),
    Shape("NT-LSTM", 1201, 2400, 0.10, 1.0),
)
CHAIN = LAYERS[:3]
"""Layers that follow each other in one network."""

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Densities = Callable[[np.random.Generator, Shape], tuple[Doubles, Doubles]]


@dataclass(frozen=True, eq=False)
class Work:
    """A network of layers to measure, and the input to run it on.

    Parameters
    ----------
    name : str
    network : QuantizedNetwork
    q : (n_inputs,) int64
    """

    name: str
    network: QuantizedNetwork
    q: Ints

    def active_nonzeros(self, vectors: list[Ints]) -> int:
        """Weights whose activation is not zero; `vectors` holds each layer's input (n_inputs,)."""
        return sum(
            int(np.diff(layer.column_starts)[vector != 0].sum())
            for layer, vector in zip(self.network.layers, vectors, strict=True)
        )


def even(rng: np.random.Generator, shape: Shape) -> tuple[Doubles, Doubles]:
    """Every weight is there with the same chance."""
    return np.ones(shape.outputs), np.ones(shape.inputs)


def uneven(rng: np.random.Generator, shape: Shape) -> tuple[Doubles, Doubles]:
    """Relative densities of rows and columns, log-normal."""
    return rng.lognormal(0, SIGMA, shape.outputs), rng.lognormal(0, SIGMA, shape.inputs)


def single(shape: Shape, densities: Densities, seed: int) -> Work:
    """A layer by itself, with exactly round(activations x inputs) nonzero activations."""
    rng = np.random.default_rng([seed, LAYERS.index(shape)])
    q = _activations(rng, shape)
    return Work(shape.name, QuantizedNetwork((_layer(rng, shape, densities, q)[0],)), q)


def chained(densities: Densities, seed: int) -> Work:
    """The layers of `CHAIN`; each has about the next one's density of nonzero outputs."""
    rng = np.random.default_rng([seed, len(LAYERS)])
    q = vector = _activations(rng, CHAIN[0])
    layers = []
    for k, shape in enumerate(CHAIN):
        following = CHAIN[k + 1].activations if k + 1 < len(CHAIN) else OUTPUT_DENSITY
        layer, vector = _layer(rng, shape, densities, vector, following)
        layers.append(layer)
    return Work(" -> ".join(shape.name for shape in CHAIN), QuantizedNetwork(tuple(layers)), q)


def _activations(rng: np.random.Generator, shape: Shape) -> Ints:
    q = np.zeros(shape.inputs, dtype=np.int64)
    chosen = rng.permutation(shape.inputs)[: round(shape.activations * shape.inputs)]
    q[chosen] = rng.integers(1, ACTIVATION_HIGH + 1, len(chosen))
    return q


def _layer(
    rng: np.random.Generator,
    shape: Shape,
    densities: Densities,
    q: Ints,
    output_density: float = OUTPUT_DENSITY,
) -> tuple[QuantizedLayer, Ints]:
    """A layer and its outputs for `q`, of which about `output_density` are not 0."""
    rows, starts = _mask(rng, shape, *densities(rng, shape))
    codes = rng.integers(0, CODES, len(rows))
    # Half of the values are negative; the largest keep every row's sum within its bound.
    heaviest = int(np.bincount(rows, minlength=shape.outputs).max())
    largest = min(SUM_LIMIT // (ACTIVATION_HIGH * heaviest), (1 << 15) - 1)
    sizes = np.maximum(largest * np.arange(1, CODES // 2 + 1) // (CODES // 2), 1)
    codebook = rng.permutation(np.concatenate((sizes, -sizes)))
    products = codebook[codes] * np.repeat(q, np.diff(starts))
    # Sums stay below 2**53, so they are exact as floats.
    sums = np.bincount(rows, weights=products, minlength=shape.outputs).astype(np.int64)
    bias = -int(np.quantile(sums, 1 - output_density))
    shift = max(int(sums.max() + bias).bit_length() - 16, 0)
    tensor = Quantizer(1.0, 0.0, 0, ACTIVATION_HIGH, False)
    layer = QuantizedLayer(
        name=shape.name, n_rows=shape.outputs, n_cols=shape.inputs, structure="unstructured",
        column_starts=starts, row_indices=rows, codes=codes, codebook=codebook,
        code_bits=(CODES - 1).bit_length(), zero_code=False,
        bias=np.full(shape.outputs, bias), shift=np.full(shape.outputs, shift), low=0,
        high=ACTIVATION_HIGH, signed_in=False, signed_out=False, input=tensor, output=tensor,
    )  # fmt: skip
    return layer, np.clip((sums + bias) >> shift, 0, ACTIVATION_HIGH)


def _mask(
    rng: np.random.Generator, shape: Shape, rows: Doubles, columns: Doubles
) -> tuple[Ints, Ints]:
    """Rows of the nonzeros, column by column, and where each column starts."""
    scale = _scale(rows, columns, shape.weights)
    found, counts = [], []
    for first in range(0, shape.inputs, BLOCK):
        part = columns[first : first + BLOCK]
        chance = (scale * part[:, None] * rows).astype(np.float32)
        mask = rng.random(chance.shape, dtype=np.float32) < chance
        found.append(np.nonzero(mask)[1])
        counts.append(mask.sum(axis=1))
    starts = np.concatenate(([0], np.cumsum(np.concatenate(counts))))
    return np.concatenate(found).astype(np.int64), starts.astype(np.int64)


def _scale(rows: Doubles, columns: Doubles, density: float) -> float:
    """Factor that gives chances of mean `density`, those above 1 taken as 1."""
    heavy = np.sort(rows)
    below = np.concatenate(([0], np.cumsum(heavy)))
    scale = density / (rows.mean() * columns.mean())
    for _ in range(8):
        uncut = np.searchsorted(heavy, 1 / (scale * columns))
        chances = scale * columns * below[uncut] + (len(rows) - uncut)
        scale *= density / (chances.mean() / len(rows))
    return scale
