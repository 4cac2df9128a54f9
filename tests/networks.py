# SPDX-License-Identifier: BSD-2-Clause
"""Random networks straight from integers, for tests of golden model, compiler and gateware."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from gossamer.host.compiler.quantize import QuantizedLayer, QuantizedNetwork, Quantizer, row_bounds
from gossamer.host.compression.nm import is_nm, parse_nm
from gossamer.rtl.arith import activation_limits
from gossamer.rtl.config import EngineConfig
from hypothesis import strategies as st


def random_network(
    rng: np.random.Generator,
    sizes: Sequence[int],
    *,
    weight_density: float | Sequence[float] = 0.3,
    code_bits: int | Sequence[int] = 4,
    structure: str | Sequence[str] = "unstructured",
    sum_bits: int = 32,
    activation_bits: int = 8,
    signed: Sequence[bool] | None = None,
    relu: Sequence[bool] | None = None,
    empty_rows: Mapping[int, Sequence[int]] | None = None,
    empty_cols: Mapping[int, Sequence[int]] | None = None,
) -> QuantizedNetwork:
    """A valid network of `len(sizes) - 1` layers whose sums fit `sum_bits`.

    Options that take a sequence hold one value per layer. `signed` has one flag per tensor (the
    input, then each layer's output; default: random); `relu` says which signed outputs are clamped
    at 0 (default: random). `empty_rows` and `empty_cols` map a layer's number to the places that
    hold no nonzero weight. Dense layers with a density below 1 store their zeros as code 0; in N:M
    layers a group keeps N random ones of its nonzeros.
    """
    n_layers = len(sizes) - 1
    flags = list(signed) if signed is not None else list(rng.random(n_layers + 1) < 0.5)
    clamps = list(relu) if relu is not None else list(rng.random(n_layers) < 0.5)
    tensors = [_quantizer(rng, activation_bits, bool(flag)) for flag in flags]
    layers = tuple(
        _random_layer(
            rng,
            f"layer{k}",
            (sizes[k + 1], sizes[k]),
            _pick(weight_density, k),
            _pick(code_bits, k),
            _pick(structure, k),
            (sum_bits, activation_bits),
            (tensors[k], tensors[k + 1]),
            bool(clamps[k]),
            list((empty_rows or {}).get(k, ())),
            list((empty_cols or {}).get(k, ())),
        )
        for k in range(n_layers)
    )
    return QuantizedNetwork(layers)


@st.composite
def network_cases(
    draw: st.DrawFn, config: EngineConfig, widest: int
) -> tuple[QuantizedNetwork, int]:
    """Networks of 1 to 6 layers of any structure for an engine, and a seed for their inputs."""
    sizes = draw(st.lists(st.integers(1, widest), min_size=2, max_size=7))
    structure, density, code_bits = (
        draw(st.lists(kind, min_size=len(sizes) - 1, max_size=len(sizes) - 1))
        for kind in (
            st.sampled_from(["dense", "unstructured", "2:4", "1:2", "3:8"]),
            st.sampled_from([0.0, 0.05, 0.5, 1.0]),
            st.integers(1, 7),
        )
    )
    seed = draw(st.integers(0, 2**32 - 1))
    network = random_network(
        np.random.default_rng(seed), sizes, structure=structure, weight_density=density,
        code_bits=code_bits, sum_bits=config.sum_bits, activation_bits=config.activation_bits,
    )  # fmt: skip
    return network, seed


def mask_cases(config: EngineConfig) -> list[tuple[QuantizedNetwork, np.ndarray]]:
    """Layers with a row for every mask of a group of four columns, and inputs with extremes.

    The masks stand in the first, a middle and the last group; the other groups are full. 2:4 layers
    have those of up to two nonzeros, unstructured ones all 16.
    """
    masks = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(bool)
    cases = []
    for lot, structure in ((masks[masks.sum(axis=1) <= 2], "2:4"), (masks, "unstructured")):
        for group in range(3):
            mask = np.tile(lot[-1], (len(lot), 3))
            mask[:, 4 * group : 4 * group + 4] = lot
            layer = _masked_layer(mask, structure, config)
            values = [0, 1, layer.input.low, layer.input.high]
            q = np.random.default_rng(group).choice(values, size=(5, 12))
            cases.append((QuantizedNetwork((layer,)), q))
    return cases


def random_inputs(
    rng: np.random.Generator, network: QuantizedNetwork, n: int, density: float = 0.5
) -> np.ndarray:
    """Inputs (n, n_in) int64 within the network's limits, about `density` of them nonzero.

    Every eighth nonzero is one of the two limits.
    """
    low, high = network.input.low, network.input.high
    shape = (n, network.layers[0].n_cols)
    values = rng.integers(low, high + 1, shape)
    limits = np.where(rng.random(shape) < 0.5, low, high)
    values = np.where(rng.random(shape) < 1 / 8, limits, values)
    values = np.where(values == 0, high, values)
    return np.where(rng.random(shape) < density, values, 0)


def _pick(option, k: int):
    return option if isinstance(option, (int, float, str)) else option[k]


def _quantizer(rng: np.random.Generator, bits: int, signed: bool) -> Quantizer:
    low, high = activation_limits(bits, signed)
    return Quantizer(float(rng.uniform(0.01, 0.1)), float(rng.normal()), low, high, signed)


def _masked_layer(mask: np.ndarray, structure: str, config: EngineConfig) -> QuantizedLayer:
    """Weights of 1, -1 and as large as 12 columns allow where `mask` (rows, 12) is set."""
    columns, rows = np.nonzero(mask.T)
    low, high = activation_limits(config.activation_bits, True)
    limit = min(15, config.sum_bits - config.activation_bits - 4)
    tensor = Quantizer(1.0, 0.0, low, high, True)
    codebook, codes = np.array([-(1 << limit), (1 << limit) - 1, 1, -1]), (rows + 3 * columns) % 4
    if is_nm(structure):
        codebook, codes = np.concatenate(([0], codebook)), codes + 1
    return QuantizedLayer(
        name="masks", n_rows=len(mask), n_cols=mask.shape[1], structure=structure,
        column_starts=np.concatenate(([0], np.cumsum(mask.sum(axis=0)))), row_indices=rows,
        codes=codes, codebook=codebook, code_bits=3, zero_code=is_nm(structure),
        bias=np.arange(len(mask)), shift=np.full(len(mask), limit), low=low, high=high,
        signed_in=True, signed_out=True, input=tensor, output=tensor,
    )  # fmt: skip


def _random_layer(
    rng, name, shape, density, code_bits, structure, bits, tensors, relu, empty_rows, empty_cols
) -> QuantizedLayer:
    n_rows, n_cols = shape
    mask = rng.random(shape) < density
    mask[empty_rows] = False
    mask[:, empty_cols] = False
    if is_nm(structure):
        mask = _thin(rng, mask, *parse_nm(structure))
    zero_code = is_nm(structure) or (structure == "dense" and not mask.all())
    k = 1 << code_bits
    codebook = rng.integers(-(1 << 15), 1 << 15, k)
    codebook[rng.integers(k)] = -(1 << 15)
    codebook[rng.integers(k)] = (1 << 15) - 1
    codebook[codebook == 0] = 1
    matrix_codes = rng.integers(1 if zero_code else 0, k, shape)
    if zero_code:
        codebook[0] = 0
        matrix_codes[~mask] = 0
    stored = np.ones(shape, bool) if structure == "dense" else mask
    columns, rows = np.nonzero(stored.T)
    source, target = tensors
    layer = QuantizedLayer(
        name=name,
        n_rows=n_rows,
        n_cols=n_cols,
        structure=structure,
        column_starts=np.concatenate(([0], np.cumsum(stored.sum(axis=0)))).astype(np.int64),
        row_indices=rows.astype(np.int64),
        codes=matrix_codes[rows, columns],
        codebook=codebook,
        code_bits=code_bits,
        zero_code=zero_code,
        bias=np.zeros(n_rows, dtype=np.int64),
        shift=np.zeros(n_rows, dtype=np.int64),
        low=0 if relu else target.low,
        high=target.high,
        signed_in=source.signed,
        signed_out=target.signed,
        input=source,
        output=target,
    )
    return _fit(rng, layer, *bits)


def _thin(rng: np.random.Generator, mask: np.ndarray, n: int, m: int) -> np.ndarray:
    """Keep at most n of the marked places in each group of m columns."""
    n_rows, n_cols = mask.shape
    groups = -(-n_cols // m)
    lots = np.zeros((n_rows, groups * m))
    lots[:, :n_cols] = np.where(mask, 1 - rng.random(mask.shape), 0)
    ranks = lots.reshape(n_rows, groups, m).argsort(axis=2).argsort(axis=2)
    return mask & (ranks.reshape(n_rows, -1)[:, :n_cols] >= m - n)


def _fit(
    rng: np.random.Generator, layer: QuantizedLayer, sum_bits: int, activation_bits: int
) -> QuantizedLayer:
    """Halve the codebook until the sums fit with bits to spare; then shifts and biases."""
    limit, quarter = 1 << (sum_bits - 1), 1 << (activation_bits - 2)
    while max(max(most, -least) for least, most in row_bounds(layer)) > limit - (limit >> 3):
        layer = replace(layer, codebook=layer.codebook >> 1)
    values = layer.codebook[layer.codes].astype(float)
    power = np.bincount(layer.row_indices, weights=values**2, minlength=layer.n_rows)
    spread = np.sqrt(power) * (layer.input.high - layer.input.low) / 4
    shift = np.ceil(np.log2(np.maximum(spread, 1) / quarter)).astype(np.int64)
    shift = np.clip(shift + rng.integers(-1, 2, layer.n_rows), 0, sum_bits - 6)
    bias = rng.integers(-quarter, quarter + 1, layer.n_rows) << shift
    bias = bias + np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    bias = np.clip(bias, -(limit >> 3), limit >> 3)
    layer = replace(layer, bias=bias, shift=shift)
    for least, most in row_bounds(layer):
        assert -limit <= least <= most <= limit - 1
    return layer
