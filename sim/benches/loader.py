# SPDX-License-Identifier: BSD-2-Clause
"""Bench of the loader: coded sections write what plain ones do, whatever their tables."""

from typing import Any

import cocotb
import numpy as np

from ...host.compiler.coded_sections import CodedLayer, LayerCode, coded_sections, symbol_counts
from ...host.compiler.quantize import Ints
from ...rtl.config import EngineConfig
from ...rtl.formats import Section, pack_columns, pack_entries
from ...rtl.loader import Loader
from .drive import pauses, reset, send, step, unsigned

__all__ = ["CONFIG", "coded_equals_plain", "damage_is_an_error", "top"]

CONFIG = EngineConfig(
    n_pes=3, weight_depth=4096, rows_per_pe=64, column_words=64, count_bits=4, input_depth=128,
    decoder_bits=2,
)  # fmt: skip
ROWS, COLUMNS = 40, 90
ADDRESS, RECORDS = 9, 4
TABLES = {"any": (200, 250, 8), "longest codes": (16, 16, 4), "sole symbols": (1, 1, 8)}
"""Symbols among gaps and codes, and bits of a gap symbol."""

Words = dict[tuple[int, int, int], int]


def top() -> Loader:
    """The block under test."""
    return Loader(CONFIG)


def random_lengths(rng: np.random.Generator, n: int, symbols: Ints, size: int) -> Ints:
    """Lengths (size,) of a code for some symbols; the longest have 15 bits if there are 16."""
    leaves = [0]
    while len(leaves) < n:
        below = [k for k, length in enumerate(leaves) if length < 15]
        k = max(below, key=lambda k: leaves[k]) if n == 16 else int(rng.choice(below))
        leaves[k] += 1
        leaves.append(leaves[k])
    lengths = np.zeros(size, dtype=np.int64)
    lengths[symbols] = rng.permutation(leaves) if n > 1 else 1
    return lengths


def random_layer(rng: np.random.Generator, n_gaps: int, n_codes: int) -> CodedLayer:
    """A layer whose gaps are of `n_gaps` kinds; one PE has no entries."""
    kinds = rng.choice(200 if n_gaps > 16 else 15, n_gaps - (n_gaps == 16), replace=False)
    places, counts = [], []
    for pe in range(CONFIG.n_pes):
        own = np.cumsum(rng.choice(kinds, 300) + 1) - 1 if pe != 1 else np.zeros(0, dtype=np.int64)
        own = own[own < ROWS * COLUMNS]
        places.append(own)
        counts.append(len(own))
    codes = rng.choice(rng.choice(256, n_codes, replace=False), sum(counts))
    per_column = max(int(np.bincount(own // ROWS).max()) for own in places if len(own))
    return CodedLayer(
        counts=np.array(counts),
        addresses=np.full(CONFIG.n_pes, ADDRESS),
        places=np.concatenate(places),
        codes=codes,
        rows=ROWS,
        columns=COLUMNS,
        columns_base=RECORDS,
        wide=per_column >= 1 << CONFIG.count_bits,
    )


def random_code(
    rng: np.random.Generator, layer: CodedLayer, sizes: tuple[int, int, int]
) -> LayerCode:
    """A random code with a symbol for all that occurs, and others besides."""
    n_gaps, n_codes, width = sizes
    lengths = []
    for n, counts in (
        (n_gaps, symbol_counts(layer.gaps(), width)),
        (n_codes, np.bincount(layer.codes, minlength=256)),
    ):
        used, rest = np.flatnonzero(counts), np.flatnonzero(counts == 0)
        n = max(n, len(used))
        symbols = np.concatenate((used, rng.permutation(rest)[: n - len(used)]))
        lengths.append(random_lengths(rng, n, symbols, len(counts)))
    return LayerCode(width, *lengths)


def plain_words(layer: CodedLayer) -> Words:
    """What plain sections of the layer write, by kind, PE and address."""
    words: Words = {}
    size = 4 if layer.wide else 8
    for pe, places in enumerate(np.split(layer.places, np.cumsum(layer.counts)[:-1])):
        codes = np.split(layer.codes, np.cumsum(layer.counts)[:-1])[pe]
        for k, word in enumerate(pack_entries(places % ROWS, codes, CONFIG)):
            words[Section.WEIGHTS, pe, ADDRESS + k] = int(word)
        counts = np.bincount(places // ROWS, minlength=-(-COLUMNS // size) * size)
        groups = counts.reshape(-1, size)
        bases = ADDRESS + np.cumsum(groups.sum(axis=1)) - groups.sum(axis=1)
        for k, word in enumerate(pack_columns(bases, groups, layer.wide, CONFIG)):
            words[Section.COLUMNS, pe, RECORDS + k] = word
    return words


async def collect(dut: Any, words: Words) -> None:
    """Note for ever what is written into weights and column records; nothing twice."""
    widths = {Section.WEIGHTS: CONFIG.entry_bits, Section.COLUMNS: CONFIG.column_bits}
    while True:
        await step(dut)
        kind = unsigned(dut.write__kind)
        if unsigned(dut.write__en) and kind in widths:
            place = kind, unsigned(dut.write__pe), unsigned(dut.write__address)
            assert place not in words
            words[place] = unsigned(dut.write__data) & (1 << widths[Section(kind)]) - 1


async def load(dut: Any, image: bytes, share: float) -> Words:
    """Load an image after a restart; return what was written."""
    dut.restart.value = 1
    await step(dut)
    dut.restart.value = 0
    words: Words = {}
    watcher = cocotb.start_soon(collect(dut, words))
    await send(dut, "i", image, pauses(3, share) if share else None)
    for _ in range(COLUMNS + 60):
        await step(dut)
    assert not unsigned(dut.busy)
    watcher.cancel()
    return words


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.5], tables=list(TABLES))
async def coded_equals_plain(dut: Any, share: float, tables: str) -> None:
    """Random layers and random codes, one image after the other."""
    for signal in (dut.i__valid, dut.restart):
        signal.value = 0
    await reset(dut)
    rng = np.random.default_rng(5)
    for _ in range(3):
        layer = random_layer(rng, *TABLES[tables][:2])
        code = random_code(rng, layer, TABLES[tables])
        assert tables != "longest codes" or code.gap_lengths.max() == code.code_lengths.max() == 15
        image = b"".join(coded_sections(layer, code, CONFIG))
        assert await load(dut, image, share) == plain_words(layer)
        assert unsigned(dut.complete)
        assert not unsigned(dut.error)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def damage_is_an_error(dut: Any) -> None:
    """A section that is too short or too long; then a good image."""
    for signal in (dut.i__valid, dut.restart):
        signal.value = 0
    await reset(dut)
    rng = np.random.default_rng(6)
    layer = random_layer(rng, 200, 250)
    table, symbols, *parts = coded_sections(layer, random_code(rng, layer, TABLES["any"]), CONFIG)
    for change in (-1, 1):
        count = len(parts[0]) - 8 + change
        bad = parts[0][:4] + count.to_bytes(4, "little") + parts[0][8:] + bytes(1)
        await load(dut, (table + symbols + bad)[: change - 1 or None], 0.0)
        assert unsigned(dut.error)
        assert not unsigned(dut.complete)
        assert await load(dut, b"".join([table, symbols, *parts]), 0.0) == plain_words(layer)
        assert unsigned(dut.complete)
