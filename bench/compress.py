# SPDX-License-Identifier: BSD-2-Clause
"""How fast and how small: AlexNet's three fully connected layers, pruned as in Deep Compression.

The layers have the paper's shapes and densities (its table 4) and seeded Laplacian weights, as
trained ones take hundreds of megabytes to fetch. All three are compressed and saved as one network.
Bytes of a layer are all that the file spends on it: places, codes, tables, codebook, biases and its
line of the description. The floor is the entropy of which places are kept, and of the codes.

Ref: Han et al., Deep Compression, 2016, tables 4 and 5.
"""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from ..host.compression.clustering import SortedValues, cluster
from ..host.compression.codebook import share_weights
from ..host.compression.compress import CompressedLayer, CompressedModel, compress
from ..host.compression.entropy import SymbolCounts
from ..host.compression.model_file import layer_parts, save
from ..host.compression.recipe import Recipe
from ..host.importers.extras import import_extra
from ..host.network import Layer, Network

__all__ = ["ALEXNET", "LayerResult", "Result", "Shape", "measure"]

SCALE = 0.01
"""Of the weights: as in trained networks, not that it mattered."""

SLACK, LAYER_BYTES = 1.03, 2000
"""The bound: so much more than the entropy, and what a layer may take beside it."""

Floats = npt.NDArray[np.float32]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """A layer: inputs, outputs, share of the weights kept, and percent of fp32 in the paper."""

    name: str
    inputs: int
    outputs: int
    density: float
    paper_percent: float


ALEXNET = (
    Shape("fc6", 9216, 4096, 0.09, 2.39),
    Shape("fc7", 4096, 4096, 0.09, 2.46),
    Shape("fc8", 4096, 1000, 0.25, 5.85),
)


@dataclass(frozen=True)
class LayerResult:
    """One layer with some number of codes.

    `bytes` are compared with `bound_bytes`, 1.03 times the entropy and 2,000 more, and
    `percent_of_fp32` with `paper_percent`. Entropies are in bits per nonzero weight. `error` is the
    squared error of the clustering, `sklearn_error` scikit-learn's, None where it did not run.
    """

    layer: str
    codes: int
    nonzeros: int
    bytes: int
    bound_bytes: float
    percent_of_fp32: float
    paper_percent: float
    bits_per_nonzero: float
    position_entropy: float
    code_entropy: float
    sqnr_db: float
    error: float
    sklearn_error: float | None


@dataclass(frozen=True)
class Result:
    """Worst time and memory of compressing and saving all layers, and the layers.

    `seconds` is wall time, `cpu_seconds` that of the processor; `peak_bytes` is what was allocated
    beyond the network at most; `speedup_over_sklearn` compares processor times of one thread.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    speedup_over_sklearn: float
    sqnr_db: float
    layers: tuple[LayerResult, ...]


def measure(
    shapes: Sequence[Shape] = ALEXNET, codes: Sequence[int] = (16, 32), progress: Progress = print
) -> Result:
    """Compress the layers with each number of codes; scikit-learn clusters with the first one."""
    network = _network(shapes)
    progress(f"made {sum(layer.weight.size for layer in network.layers):,} weights")
    layers: list[LayerResult] = []
    runs: list[tuple[float, float, int]] = []
    speedup, sqnr = 0.0, 0.0
    for k in codes:
        model, seconds, cpu, peak = _compress(network, shapes, k)
        runs.append((seconds, cpu, peak))
        progress(f"{k} codes: compressed and saved in {seconds:.1f} s, {peak / 1e9:.2f} GB")
        pairs = list(zip(network.layers, model.layers, strict=True))
        errors: list[float | None] = [None] * len(shapes)
        if k == codes[0]:
            speedup, errors = _compare(pairs, k, progress)
            sqnr = _decibels(sum(_power(*p) for p in pairs), sum(_noise(*p) for p in pairs))
        layers += [
            _judge(*pair, k, shape, error)
            for pair, shape, error in zip(pairs, shapes, errors, strict=True)
        ]
    seconds, cpu, peak = (max(column) for column in zip(*runs, strict=True))
    return Result(seconds, cpu, int(peak), speedup, sqnr, tuple(layers))


def _network(shapes: Sequence[Shape]) -> Network:
    rng = np.random.default_rng(0)
    layers = []
    for shape in shapes:
        weight = np.empty((shape.outputs, shape.inputs), dtype=np.float32)
        for row in weight:
            row[:] = rng.laplace(scale=SCALE, size=shape.inputs)
        bias = rng.normal(scale=SCALE, size=shape.outputs)
        layers.append(Layer(shape.name, weight, bias, "relu"))
    return Network(tuple(layers), input_range=(0.0, 1.0))


def _compress(
    network: Network, shapes: Sequence[Shape], k: int
) -> tuple[CompressedModel, float, float, int]:
    """The model, wall and processor seconds, and bytes allocated at the peak."""
    recipe = Recipe(layers={shape.name: {"density": shape.density, "codes": k} for shape in shapes})
    tracemalloc.start()
    start, cpu = time.perf_counter(), time.process_time()
    with TemporaryDirectory() as folder:
        model = compress(network, recipe)
        save(model, Path(folder) / "alexnet.gossamer")
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return model, seconds, cpu, peak


def _nonzeros(layer: Layer, small: CompressedLayer) -> tuple[Floats, Floats]:
    """Weights that were kept: as they were, and as they are shared."""
    shared = small.matrix.weight()
    return layer.weight[shared != 0], shared[shared != 0]


def _power(layer: Layer, small: CompressedLayer) -> float:
    return float(np.square(_nonzeros(layer, small)[0], dtype=np.float64).sum())


def _noise(layer: Layer, small: CompressedLayer) -> float:
    exact, shared = _nonzeros(layer, small)
    return float(np.square(exact - shared, dtype=np.float64).sum())


def _decibels(power: float, noise: float) -> float:
    return float(10 * np.log10(power / noise))


def _judge(
    layer: Layer, small: CompressedLayer, k: int, shape: Shape, sklearn_error: float | None
) -> LayerResult:
    matrix, parts = small.matrix, layer_parts(small)
    weights, nonzeros = layer.weight.size, matrix.nonzeros
    places = SymbolCounts(np.array([weights - nonzeros, nonzeros])).floor_bits
    codes = SymbolCounts(np.bincount(matrix.codes[matrix.codebook[matrix.codes] != 0])).floor_bits
    size = len(parts.data) + parts.line_bytes
    noise = _noise(layer, small)
    return LayerResult(
        layer=layer.name,
        codes=k,
        nonzeros=nonzeros,
        bytes=size,
        bound_bytes=SLACK * (places + codes) / 8 + LAYER_BYTES,
        percent_of_fp32=100 * size / (4 * weights),
        paper_percent=shape.paper_percent,
        bits_per_nonzero=8 * size / nonzeros,
        position_entropy=places / nonzeros,
        code_entropy=codes / nonzeros,
        sqnr_db=_decibels(_power(layer, small), noise),
        error=noise,
        sklearn_error=sklearn_error,
    )


def _compare(
    pairs: Sequence[tuple[Layer, CompressedLayer]], k: int, progress: Progress
) -> tuple[float, list[float | None]]:
    """How much faster than scikit-learn's k-means values are shared, and its squared errors.

    It starts from the centres that gave our result and takes as many steps, on one thread. Where a
    layer has exponents of rows, both cluster the weights without them.
    """
    k_means = import_extra("sklearn", "bench compress", "sklearn.cluster").KMeans
    limits = import_extra("sklearn", "bench compress", "threadpoolctl").threadpool_limits
    ours = theirs = 0.0
    errors: list[float | None] = []
    for layer, small in pairs:
        values, _ = _nonzeros(layer, small)
        start = time.process_time()
        share_weights(values, k, zero_code=False)
        ours += time.process_time() - start
        found = cluster(SortedValues(np.sort(values).astype(np.float64)), k)
        init = found.start.astype(np.float32)[:, None]
        means = k_means(k, init=init, n_init=1, max_iter=found.steps, tol=0)
        with limits(1):
            start = time.process_time()
            means.fit(values[:, None])
            theirs += time.process_time() - start
        centres = means.cluster_centers_[means.labels_, 0].astype(np.float64)
        errors.append(float(np.square(values - centres).sum()))
        progress(f"{layer.name}: scikit-learn took {found.steps} steps as well")
    return theirs / ours, errors
