# SPDX-License-Identifier: BSD-2-Clause
"""Plain layers, their place in the memories and small bench helpers for tests of rtl blocks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from amaranth import ClockDomain, Module
from amaranth.sim import Simulator
from gossamer.rtl.arith import activation_limits, requantize
from gossamer.rtl.config import EngineConfig, ceil_log2
from gossamer.rtl.formats import (
    Section,
    Unit,
    pack_bias,
    pack_columns,
    pack_entries,
    pack_tile_words,
    program_fields,
)
from gossamer.sim.streams import random_pauses

SMALL = EngineConfig(
    n_pes=1, sum_bits=32, entry_bits=18, weight_depth=512, rows_per_pe=16, column_words=64,
    count_bits=3, codebook_depth=64, queue_depth=4, max_layers=4, input_depth=32, output_depth=32,
    rx_bytes=256, decoder_bits=0,
)  # fmt: skip
"""An engine that elaborates and simulates quickly."""

TINY = EngineConfig(
    n_pes=1, sum_bits=24, entry_bits=10, weight_depth=16, rows_per_pe=2, column_words=2,
    count_bits=2, codebook_depth=4, queue_depth=2, max_layers=1, input_depth=4, output_depth=2,
    rx_bytes=128, decoder_bits=0,
)  # fmt: skip
"""Every parameter at its minimum."""

TILED = replace(
    SMALL, n_pes=3, rows_per_pe=8, tile_rows=2, tile_columns=2, tile_depth=512, tile_bias_depth=64
)  # fmt: skip
"""Both units, and two images per run."""

PAUSES = [0.0, 0.5]
"""Shares of random pauses on both sides of a block."""


def simulate(dut, *benches: Callable, background: Sequence[Callable] = ()) -> None:
    """Run testbenches on a block with its clock, which it need not use."""
    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.dut = dut
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    for bench in background:
        simulator.add_testbench(bench, background=True)
    simulator.run()


async def wait(ctx, signal, limit=500):
    """Let cycles pass until `signal` is 1 and return their number."""
    for cycles in range(limit):
        if ctx.get(signal):
            return cycles
        await ctx.tick()
    raise AssertionError(f"{signal!r} was not 1 within {limit} cycles")


def pauses(seed: int, share: float):
    """Random pauses, or none at all."""
    return random_pauses(seed, share) if share else None


def signed8(value: int) -> int:
    """Two's complement value of a byte."""
    return value - 256 if value & 128 else value


def layer_values(record: dict[str, int], config: EngineConfig) -> dict[str, int]:
    """A program record as `layer_layout` wants it: fields that are missing are 0, all unsigned."""
    return {
        name: record.get(name, 0) & ((1 << width) - 1)
        for name, _, _, width in program_fields(config)
    }


@dataclass(frozen=True, eq=False)
class GridLayer:
    """A layer in slot order: row r is local row ``r // n_pes`` of PE ``r % n_pes``.

    Every place has a row; `codes` (rows, columns) holds -1 where no entry is stored.
    """

    codes: np.ndarray
    codebook: np.ndarray
    bias: np.ndarray
    shift: np.ndarray
    low: int
    high: int
    signed_in: bool
    signed_out: bool
    keep_zeros: bool = False
    zero_code: bool = False

    def weights(self) -> np.ndarray:
        return np.where(self.codes < 0, 0, self.codebook[np.maximum(self.codes, 0)])

    def model(self, q: np.ndarray) -> np.ndarray:
        return requantize(self.weights() @ q, self.bias, self.shift, self.low, self.high)


def random_layer(
    rng: np.random.Generator,
    config: EngineConfig,
    rows_per_pe: int,
    n_cols: int,
    *,
    density: float = 0.4,
    code_bits: int = 3,
    signed_in: bool | None = None,
    signed_out: bool | None = None,
    **options,
) -> GridLayer:
    """A layer whose sums fit, with shifts from 0 up and a clamp that is often narrower than A."""
    rows = rows_per_pe * config.n_pes
    codes = rng.integers(0, 1 << code_bits, (rows, n_cols))
    codes[rng.random(codes.shape) >= density] = -1
    limit = 1 << (config.sum_bits - 2)
    most = max(int((codes >= 0).sum(axis=1).max()), 1)
    reach = min(limit // (255 * most), 32767)
    codebook = rng.integers(-reach, reach + 1, 1 << code_bits)
    codebook[-1] = -reach
    if options.get("zero_code"):
        codebook[0] = 0
    signed_in = bool(rng.integers(2)) if signed_in is None else signed_in
    signed_out = bool(rng.integers(2)) if signed_out is None else signed_out
    low, high = activation_limits(8, signed_out)
    low = int(rng.integers(low, 1))
    high = int(rng.integers(high // 2, high + 1))
    usual = ceil_log2(max(reach * most, 2))
    shift = np.clip(usual + rng.integers(-3, 3, rows), 0, config.sum_bits - 1)
    shift[rng.random(rows) < 0.1] = 0
    bias = rng.integers(-limit // 64, limit // 64 + 1, rows)
    return GridLayer(
        codes, codebook, bias, shift, low, high, signed_in, signed_out, **options
    )  # fmt: skip


def random_vector(
    rng: np.random.Generator, n: int, signed: bool, density: float = 0.6
) -> np.ndarray:
    """Activations (n,) int64, some of them the limits."""
    low, high = activation_limits(8, signed)
    values = rng.integers(low, high + 1, n)
    values = np.where(rng.random(n) < 0.2, np.where(rng.random(n) < 0.5, low, high), values)
    return np.where(rng.random(n) < density, values, 0)


@dataclass(frozen=True, eq=False)
class Grid:
    """Layers placed in the memories: records, bus words, and (n_pes, columns) bases and counts."""

    records: list[dict[str, int]]
    words: list[tuple[Section, int, int, int]]
    bases: list[np.ndarray]
    counts: list[np.ndarray]


def bias_word(layer: GridLayer, row: int, config: EngineConfig) -> int:
    """Bias and shift of a row as a PE gets them."""
    return pack_bias(int(layer.bias[row]), int(layer.shift[row]), config)


def slice_work(base: int, count: int, value: int) -> dict:
    """A slice as a PE's queue takes it."""
    body = {"slice": {"value": value & 0xFF, "count": count, "base": base}}
    return {"body": body, "drain": 0}


def drain_work(words: Iterable[int]) -> list[dict]:
    """Rows to drain as a PE's queue takes them."""
    return [{"body": {"bias": word}, "drain": 1} for word in words]


def place(config: EngineConfig, layers: Sequence[GridLayer], *, wide: bool = False) -> Grid:
    """Place layers one after the other, all biases in front, as a compiler may do it."""
    words: list[tuple[Section, int, int, int]] = []
    records, all_bases, all_counts = [], [], []
    rows = [len(layer.bias) // config.n_pes for layer in layers]
    next_bias, next_column, next_code = 0, sum(rows), 0
    next_entry = [0] * config.n_pes
    for layer, n_rows in zip(layers, rows, strict=True):
        size = len(layer.codebook)
        next_code = -(-next_code // size) * size
        n_cols = layer.codes.shape[1]
        counts = np.zeros((config.n_pes, n_cols), dtype=np.int64)
        bases = np.zeros_like(counts)
        for pe in range(config.n_pes):
            for local in range(n_rows):
                word = bias_word(layer, local * config.n_pes + pe, config)
                words.append((Section.COLUMNS, pe, next_bias + local, word))
            codes = layer.codes[pe :: config.n_pes]
            for column in range(n_cols):
                (local_rows,) = np.nonzero(codes[:, column] >= 0)
                packed = pack_entries(local_rows, codes[local_rows, column], config)
                bases[pe, column] = next_entry[pe]
                counts[pe, column] = len(packed)
                for word in packed.tolist():
                    words.append((Section.WEIGHTS, pe, next_entry[pe], word))
                    next_entry[pe] += 1
        is_wide = wide or bool(counts.max() >= 1 << config.count_bits)
        group = 4 if is_wide else 8
        n_groups = -(-n_cols // group)
        for pe in range(config.n_pes):
            padded = np.zeros(n_groups * group, dtype=np.int64)
            padded[:n_cols] = counts[pe]
            first = bases[pe, ::group]
            packed = pack_columns(first, padded.reshape(-1, group), is_wide, config)
            for k, word in enumerate(packed):
                words.append((Section.COLUMNS, pe, next_column + k, word))
        for k, value in enumerate(layer.codebook.tolist()):
            words.append((Section.CODEBOOK, 0, next_code + k, value & 0xFFFF))
        records.append(
            {
                "keep_zeros": int(layer.keep_zeros),
                "wide_counts": int(is_wide),
                "zero_code": int(layer.zero_code),
                "signed_in": int(layer.signed_in),
                "signed_out": int(layer.signed_out),
                "last_input": n_cols - 1,
                "last_row": n_rows - 1,
                "columns_base": next_column,
                "codebook_base": next_code,
                "bias_base": next_bias,
                "code_mask": size - 1,
                "row_mask": (1 << ceil_log2(n_rows)) - 1,
                "low": layer.low,
                "high": layer.high,
            }
        )
        next_bias += n_rows
        next_column += n_groups
        next_code += size
        all_bases.append(bases)
        all_counts.append(counts)
    assert max(next_entry) <= config.weight_depth
    assert next_column <= config.column_words
    assert next_code <= config.codebook_depth
    return Grid(records, words, all_bases, all_counts)


async def write_words(ctx, bus, words) -> None:
    """Write (kind, pe, address, word) through a loader's bus, one word per cycle."""
    ports = (bus.kind, bus.pe, bus.address, bus.data)
    before = [None] * len(ports)
    ctx.set(bus.en, 1)
    for values in words:
        for port, value, old in zip(ports, values, before, strict=True):
            if value != old:  # each change settles the whole block
                ctx.set(port, value)
        before = values
        await ctx.tick()
    ctx.set(bus.en, 0)


def drained(values: np.ndarray, keep_zeros: bool) -> list[tuple[int, int, int]]:
    """(row, value as a byte, last) of what one PE lists for its rows' activations (rows,)."""
    last = len(values) - 1
    return [
        (row, int(value) & 0xFF, int(row == last))
        for row, value in enumerate(values)
        if value or keep_zeros or row == last
    ]


def random_tile_layer(
    rng: np.random.Generator,
    config: EngineConfig,
    rows: int,
    n_cols: int,
    *,
    two_pass: bool = False,
    share: float = 0.8,
    code_bits: int = 3,
    signed_in: bool | None = None,
    **options,
) -> GridLayer:
    """A layer for the tile, rows in natural order, whose sums fit.

    `share` of the places that one or two passes offer in each group hold an entry; code 0 is zero.
    """
    places = rng.permuted(np.tile(np.arange(4), (rows, -(-n_cols // 4), 1)), axis=-1)
    offered = (places < (4 if two_pass else 2)).reshape(rows, -1)[:, :n_cols]
    codes = rng.integers(0, 1 << code_bits, (rows, n_cols))
    codes[~offered | (rng.random(codes.shape) >= share)] = -1
    limit = 1 << (config.sum_bits - 2)
    most = max(int((codes >= 0).sum(axis=1).max()), 1)
    reach = min(limit // (most << config.activation_bits), 32767)
    codebook = rng.integers(-reach, reach + 1, 1 << code_bits)
    codebook[[0, -1]] = 0, -reach
    signed_in = bool(rng.integers(2)) if signed_in is None else signed_in
    signed_out = bool(rng.integers(2))
    low, high = activation_limits(config.activation_bits, signed_out)
    low, high = int(rng.integers(low, 1)), int(rng.integers(high // 2, high + 1))
    usual = ceil_log2(max(reach * most, 2))
    shift = np.clip(usual + rng.integers(-3, 3, rows), 0, config.sum_bits - 1)
    bias = rng.integers(-limit // 64, limit // 64 + 1, rows)
    return GridLayer(
        codes, codebook, bias, shift, low, high, signed_in, signed_out, **options
    )  # fmt: skip


def tile_words(codes: np.ndarray, two_pass: bool, config: EngineConfig) -> np.ndarray:
    """Words of the tile's weight memories, (tile_rows, blocks x groups x passes) int64.

    A group's entries come in ascending order; places without an entry are position 0 and code 0.

    Parameters
    ----------
    codes : (rows, cols) int64
        Codes, -1 where nothing is stored.
    """
    rows, cols = codes.shape
    blocks, groups = -(-rows // config.tile_rows), -(-cols // 4)
    padded = np.full((blocks * config.tile_rows, 4 * groups), -1)
    padded[:rows, :cols] = codes
    grouped = padded.reshape(blocks, config.tile_rows, groups, 4)
    n = 4 if two_pass else 2
    assert (grouped >= 0).sum(axis=-1).max() <= n
    positions = np.argsort(grouped < 0, axis=-1, kind="stable")[..., :n]
    grouped = np.take_along_axis(grouped, positions, axis=-1)
    positions = np.where(grouped < 0, 0, positions)
    pairs = (blocks, config.tile_rows, groups, 1 + two_pass, 2)
    words = pack_tile_words(positions.reshape(pairs), np.maximum(grouped, 0).reshape(pairs), config)
    return words.transpose(1, 0, 2, 3).reshape(config.tile_rows, -1)


def place_tile(config: EngineConfig, layers: Sequence[GridLayer]) -> Grid:
    """Place layers in the tile's memories, one after the other.

    A layer takes two passes where one does not do.
    """
    words: list[tuple[Section, int, int, int]] = []
    records = []
    next_word, next_bias, next_code = 0, 0, 0
    for layer in layers:
        rows, cols = layer.codes.shape
        padded = np.pad(layer.codes, ((0, 0), (0, -cols % 4)), constant_values=-1)
        two_pass = bool((padded.reshape(rows, -1, 4) >= 0).sum(axis=-1).max() > 2)
        packed = tile_words(layer.codes, two_pass, config)
        for lane, lane_words in enumerate(packed.tolist()):
            for k, word in enumerate(lane_words):
                words.append((Section.TILE_WEIGHTS, lane, next_word + k, word))
        blocks = -(-rows // config.tile_rows)
        for row in range(blocks * config.tile_rows):
            bias, shift = (layer.bias[row], layer.shift[row]) if row < rows else (0, 0)
            value = pack_bias(int(bias), int(shift), config)
            words.append((Section.TILE_BIASES, 0, next_bias + row, value))
        size = 1 << config.tile_code_bits
        next_code = -(-next_code // size) * size
        for k, value in enumerate(layer.codebook.tolist()):
            words.append((Section.CODEBOOK, 0, next_code + k, value & 0xFFFF))
        records.append(
            {
                "unit": Unit.TENSOR_TILE,
                "keep_zeros": int(layer.keep_zeros),
                "zero_code": int(layer.zero_code),
                "signed_in": int(layer.signed_in),
                "signed_out": int(layer.signed_out),
                "two_pass": int(two_pass),
                "last_input": cols - 1,
                "codebook_base": next_code,
                "low": layer.low,
                "high": layer.high,
                "tile_base": next_word,
                "tile_bias_base": next_bias,
                "last_block": blocks - 1,
            }
        )
        next_word += packed.shape[1]
        next_bias += blocks * config.tile_rows
        next_code += len(layer.codebook)
    assert next_word <= config.tile_depth
    assert next_bias <= config.tile_bias_depth
    assert next_code <= config.codebook_depth
    return Grid(records, words, [], [])
