# SPDX-License-Identifier: BSD-2-Clause
"""Networks that test an engine's memories: one wrong bit anywhere changes an output.

Every input is 1, and the biases are such that every output is 1, between the clamps 0 and 2: a
weight, a bias or a row that is not as it was sent moves a sum, and so an output, of that layer and
of those behind it. Each bit is sent as 0 by one network and as 1 by another, so that one that is
stuck is found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from ...rtl.arith import activation_limits
from ...rtl.config import EngineConfig, ceil_log2
from ..compiler.quantize import CODEBOOK_LIMIT, Ints, QuantizedLayer, QuantizedNetwork
from ..quantizer import Quantizer

__all__ = ["Pattern", "patterns"]

ONE = Quantizer(1.0, 0.0, 0, 1, False)
TWO = Quantizer(1.0, 0.0, 0, 2, False)
SEED = 1981


@dataclass(frozen=True)
class Pattern:
    """What is tested, a network, and inputs (n, n_in) int64 for it."""

    memory: str
    network: QuantizedNetwork
    inputs: Ints


def patterns(config: EngineConfig) -> Iterator[Pattern]:
    """All patterns for an engine's array.

    Weight memory is filled to the last word, if there are column records for it. Rows go as far as
    the results of one run allow, codes to 8 bits: bits of an entry between the two are not reached.
    """
    rng = np.random.default_rng(SEED)
    for network in _biases(config, rng):
        yield Pattern("biases", network, _ones(network))
    for network in _weights(config, rng):
        yield Pattern("weights", network, _ones(network))
    for network in _codebooks(config, rng):
        yield Pattern("codebook", network, _ones(network))
    yield _corners(config)


def _ones(network: QuantizedNetwork) -> Ints:
    """A full input vector: all of a network's inputs are 1."""
    return np.ones((1, network.layers[0].n_cols), dtype=np.int64)


def _rows_per_pe(config: EngineConfig) -> int:
    """Rows of each PE whose results fit one run: a power of two."""
    most = min(
        config.rows_per_pe,
        config.output_depth // config.n_pes,
        config.weight_depth // 8,
        config.column_words // 2,  # biases and columns share the records
    )
    return 1 << max(most, 1).bit_length() - 1


def _code_bits(config: EngineConfig, rows: int) -> int:
    """Widest codes that entries have room for."""
    return min(8, config.entry_bits - ceil_log2(rows), ceil_log2(config.codebook_depth))


def _biases(config: EngineConfig, rng: np.random.Generator) -> Iterator[QuantizedNetwork]:
    """Biases and their complements at shift 0, then a shift for each bit of one."""
    rows = _rows_per_pe(config)
    count = rows * config.n_pes
    code_bits = _code_bits(config, rows) - 1
    half = rng.permutation(np.arange(4, CODEBOOK_LIMIT - 4))[: 1 << code_bits - 1]
    values = np.concatenate([half, -half])
    codes = np.arange(count) % len(values)
    for weights in (values, 3 - values):  # 1 - (3 - w) is the complement of 1 - w
        yield QuantizedNetwork((_layer([np.arange(count)], codes, weights, count),))
    for bit in range(config.shift_bits):
        if 1 << bit < config.sum_bits - 2:
            layer = _layer([np.arange(count)], codes, values, count, shift=1 << bit)
            yield QuantizedNetwork((layer,))


def _weights(config: EngineConfig, rng: np.random.Generator) -> Iterator[QuantizedNetwork]:
    """Weight memory full: rows count upwards from word to word, from a place that walks."""
    rows = _rows_per_pe(config)
    most_columns = 4 * (config.column_words - rows)
    entries = min(config.weight_depth, rows * (most_columns - 2))
    n_full, rest = divmod(entries, rows)
    code_bits = _code_bits(config, rows)
    limit = min(CODEBOOK_LIMIT - 1, (1 << config.sum_bits - 5) // (n_full + 2))
    values = np.linspace(-limit, limit, 1 << code_bits).round().astype(np.int64)
    codes = rng.integers(0, 1 << code_bits, (entries, config.n_pes))
    for k, start in enumerate([0, *(1 << bit for bit in range(ceil_log2(rows)))]):
        locals_ = [range(rows - start, rows), *[range(rows)] * (n_full - 1)]
        locals_ += [range(rows - start), range(rest)]
        columns = [_slots(column, config.n_pes) for column in locals_]
        mask = (1 << code_bits) - 1 if k else 0
        layer = _layer(columns, (codes ^ mask).reshape(-1), values, rows * config.n_pes)
        yield QuantizedNetwork((layer,))


def _slots(local_rows: range, n_pes: int) -> Ints:
    return (np.array(local_rows, dtype=np.int64)[:, None] * n_pes + np.arange(n_pes)).reshape(-1)


def _codebooks(config: EngineConfig, rng: np.random.Generator) -> Iterator[QuantizedNetwork]:
    """Codebook memories full, each value a weight in each PE; and the complements.

    A chain of square layers, as every layer has a part of the memory, and as many as the weight
    memory takes.
    """
    size = 1 << _code_bits(config, config.rows_per_pe)
    rows = ceil(sqrt(size / config.n_pes))
    side = rows * config.n_pes
    room = config.weight_depth // (rows * side)
    count = max(1, min(config.codebook_depth // size, config.max_layers, room))
    books = rng.permutation(np.arange(1, CODEBOOK_LIMIT))[: count * size].reshape(count, size)
    books[:, ::2] = ~books[:, ::2]
    codes = np.repeat(np.arange(side * rows) % size, config.n_pes)
    for one in (books, ~books):
        yield QuantizedNetwork(
            tuple(
                _layer([np.arange(side)] * side, codes, book, side, source=TWO if k else ONE)
                for k, book in enumerate(one)
            )
        )


def _corners(config: EngineConfig) -> Pattern:
    """Products of extremes, such as min x min and -1 x -1, each alone in a sum."""
    low, high = activation_limits(config.activation_bits, True)
    values = np.array([-CODEBOOK_LIMIT, CODEBOOK_LIMIT - 1, -1, 1])
    count = 4 * min(config.n_pes, config.output_depth // 4)
    tensor = Quantizer(1.0, 0.0, low, high, True)
    shift = np.repeat([0, 8], count // 2)
    layer = QuantizedLayer(
        "corners", count, 1, "unstructured", np.array([0, count]), np.arange(count),
        np.arange(count) % 4, values, 2, False, np.zeros(count, dtype=np.int64), shift, low, high,
        True, True, tensor, tensor,
    )  # fmt: skip
    inputs = np.array([[low], [high], [-1], [1]])
    return Pattern("products", QuantizedNetwork((layer,)), inputs)


def _layer(
    columns: list[Ints],
    codes: Ints,
    values: Ints,
    n_rows: int,
    *,
    shift: int = 0,
    source: Quantizer = ONE,
) -> QuantizedLayer:
    """A layer with entries in the given rows of each column, whose outputs are 1 for inputs 1."""
    rows = np.concatenate(columns)
    sums = np.bincount(rows, weights=values[codes], minlength=n_rows).astype(np.int64)
    return QuantizedLayer(
        name="pattern",
        n_rows=n_rows,
        n_cols=len(columns),
        structure="unstructured",
        column_starts=np.concatenate(([0], np.cumsum([len(column) for column in columns]))),
        row_indices=rows,
        codes=codes,
        codebook=values,
        code_bits=ceil_log2(len(values)),
        zero_code=False,
        bias=(1 << shift) - sums,
        shift=np.full(n_rows, shift),
        low=TWO.low,
        high=TWO.high,
        signed_in=False,
        signed_out=False,
        input=source,
        output=TWO,
    )
