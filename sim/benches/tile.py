# SPDX-License-Identifier: BSD-2-Clause
"""Bench of the tensor tile: layers of random words against plain matrix products."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ReadOnly

from ...host.compiler.quantize import Ints
from ...rtl.arith import activation_limits
from ...rtl.config import EngineConfig
from ...rtl.formats import Section, Unit, pack_bias, pack_tile_words, program_fields
from ...rtl.layouts import vector_layout
from ...rtl.tile import TensorTile
from .drive import reset, step, unsigned
from .vectors import pack_layer

__all__ = ["CONFIG", "a_reset_ends_a_layer", "layers_match_the_model", "top"]

CONFIG = EngineConfig(
    n_pes=1, activation_bits=16, sum_bits=36, weight_depth=512, column_words=64, codebook_depth=64,
    input_depth=64, output_depth=64, tile_rows=4, tile_columns=4, tile_depth=1024,
    tile_bias_depth=128, decoder_bits=0,
)  # fmt: skip
CODES = 1 << CONFIG.tile_code_bits
PATIENCE = 2000
"""Cycles within which every layer must be done."""


def top() -> TensorTile:
    """The block under test."""
    return TensorTile(CONFIG)


@dataclass(frozen=True)
class TileLayer:
    """A layer in the tile's memories: record, bus words, and the matrix that they stand for."""

    record: dict[str, int]
    words: list[tuple[Section, int, int, int]]
    weights: Ints
    bias: Ints
    shift: Ints

    def model(self, inputs: Ints) -> Ints:
        """Outputs (images, rows) for inputs (images, columns)."""
        record = self.record
        return TensorTile.model(
            self.weights, inputs, self.bias, self.shift, record["low"], record["high"]
        )


def random_layer(rng: np.random.Generator, place: int, passes: int) -> TileLayer:
    """A layer at the `place`-th part of all memories, of words with any positions and codes.

    Both weights of a word may even have the same position; then they add up.
    """
    lanes = CONFIG.tile_rows
    blocks, cols = int(rng.integers(1, 5)), int(rng.integers(1, CONFIG.input_depth + 1))
    groups = -(-cols // 4)
    positions = rng.integers(0, 4, (blocks, lanes, groups, passes, 2))
    codes = rng.integers(0, CODES, positions.shape)
    # So large that no sum of a row's products leaves half the range of a sum.
    half = 1 << (CONFIG.sum_bits - 2)
    reach = min(half // (2 * groups * passes << CONFIG.activation_bits), 2**15 - 1)
    codebook = rng.integers(-reach - 1, reach + 1, CODES)
    column = 4 * np.arange(groups)[:, None, None] + positions
    # What lies beyond the last column has code 0.
    codebook[0] = 0
    codes[column >= cols] = 0
    weights = np.zeros((blocks * lanes, 4 * groups), dtype=np.int64)
    row = np.arange(blocks * lanes).reshape(blocks, lanes, 1, 1, 1)
    np.add.at(weights, (np.broadcast_to(row, codes.shape), column), codebook[codes])

    bias = rng.integers(-half, half, len(weights)) >> rng.integers(0, 30, len(weights))
    shift = rng.integers(12, 22, len(weights))
    signed_in, signed_out = (bool(rng.integers(2)) for _ in range(2))
    low, high = activation_limits(CONFIG.activation_bits, signed_out)
    base, bias_base, code_base = 256 * place, 32 * place, CODES * place
    words = [(Section.CODEBOOK, 0, code_base + k, int(v) & 0xFFFF) for k, v in enumerate(codebook)]
    words += [
        (Section.TILE_BIASES, 0, bias_base + k, pack_bias(int(b), int(s), CONFIG))
        for k, (b, s) in enumerate(zip(bias, shift, strict=True))
    ]
    packed = pack_tile_words(positions, codes, CONFIG)
    words += [
        (Section.TILE_WEIGHTS, lane, base + k, int(word))
        for lane in range(lanes)
        for k, word in enumerate(packed[:, lane].reshape(-1))
    ]
    record = dict.fromkeys((name for name, *_ in program_fields(CONFIG)), 0) | {
        "unit": Unit.TENSOR_TILE, "two_pass": passes - 1, "zero_code": 1, "signed_in": signed_in,
        "signed_out": signed_out, "last_input": cols - 1, "codebook_base": code_base, "low": low,
        "high": high, "tile_base": base, "tile_bias_base": bias_base, "last_block": blocks - 1,
    }  # fmt: skip
    return TileLayer(record, words, weights[:, :cols], bias, shift)


def random_inputs(
    rng: np.random.Generator, layer: TileLayer, images: int, density: float
) -> tuple[Ints, list[int]]:
    """Inputs (images, columns), and the words of the source by group, garbage around the inputs."""
    low, high = activation_limits(CONFIG.activation_bits, bool(layer.record["signed_in"]))
    cols = layer.weights.shape[1]
    values = rng.integers(low, high + 1, (images, cols))
    inputs = np.where(rng.random(values.shape) < density, values, 0)
    source = rng.integers(0, 1 << CONFIG.activation_bits, (CONFIG.batch, CONFIG.input_depth))
    source[:images, :cols] = inputs & ((1 << CONFIG.activation_bits) - 1)
    parts = source.reshape(CONFIG.batch, -1, 4).transpose(1, 0, 2).reshape(-1, 4 * CONFIG.batch)
    words = [
        sum(value << k * CONFIG.activation_bits for k, value in enumerate(part))
        for part in parts.tolist()
    ]
    return inputs, words


async def load(dut: Any, layers: list[TileLayer]) -> None:
    """Reset, then write all layers through the loader's bus."""
    dut.start.value = 0
    dut.data.value = 0
    await reset(dut)
    for layer in layers:
        for kind, pe, address, word in layer.words:
            dut.write__en.value = 1
            dut.write__kind.value = kind
            dut.write__pe.value = pe
            dut.write__address.value = address
            dut.write__data.value = word
            await step(dut)
    dut.write__en.value = 0


async def run_layer(
    dut: Any, layer: TileLayer, images: int, words: list[int], limit: int = PATIENCE
) -> list[tuple[int, int, list[int]]] | None:
    """Start a layer and serve its reads; rows (slot, images, values), None if not done in time."""
    layout = vector_layout(CONFIG)
    dut.layer.value = pack_layer(layer.record, CONFIG)
    dut.images.value = images
    dut.start.value = 1
    rows = []
    for _ in range(limit):
        await ReadOnly()
        group = unsigned(dut.group) if unsigned(dut.read) else None
        if unsigned(dut.o_valid):
            row = layout.from_bits(unsigned(dut.o))
            values = [int(row["values"][k]) for k in range(images)]
            rows.append((int(row["slot"]), int(row["images"]), values))
        done = unsigned(dut.done)
        await step(dut)
        dut.start.value = 0
        dut.data.value = words[group] if group is not None else (1 << len(dut.data)) - 1
        if done:
            assert not unsigned(dut.busy)
            return rows
    return None


def check(rows: list[tuple[int, int, list[int]]] | None, layer: TileLayer, inputs: Ints) -> None:
    """All rows in order, with the images that there are."""
    images = len(inputs)
    expected = layer.model(inputs) & ((1 << CONFIG.activation_bits) - 1)
    wanted = [(slot, (1 << images) - 1, row) for slot, row in enumerate(expected.T.tolist())]
    assert rows == wanted, f"{layer.weights.shape}, {images} images: {rows}, expected {wanted}"


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(images=[1, 3, 4], passes=[1, 2], density=[0.05, 0.9])
async def layers_match_the_model(dut: Any, images: int, passes: int, density: float) -> None:
    """Layers in turn, each started in the cycle after the last row of the one before."""
    rng = np.random.default_rng([images, passes, int(100 * density)])
    layers = [random_layer(rng, place, passes) for place in range(3)]
    await load(dut, layers)
    for k in range(12):
        layer = layers[int(rng.integers(3))]
        count = images if k % 3 else int(rng.integers(1, CONFIG.batch + 1))
        inputs, words = random_inputs(rng, layer, count, density)
        check(await run_layer(dut, layer, count, words), layer, inputs)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def a_reset_ends_a_layer(dut: Any) -> None:
    """At any moment; the next layer is right."""
    rng = np.random.default_rng(9)
    layers = [random_layer(rng, place, 1 + place) for place in range(2)]
    await load(dut, layers)
    for moment in range(1, 40, 2):
        inputs, words = random_inputs(rng, layers[0], 2, 0.5)
        await run_layer(dut, layers[1], 2, words, limit=moment)
        dut.rst.value = 1
        await step(dut)
        dut.rst.value = 0
        check(await run_layer(dut, layers[0], 2, words), layers[0], inputs)
