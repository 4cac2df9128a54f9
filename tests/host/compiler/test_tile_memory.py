# SPDX-License-Identifier: BSD-2-Clause
"""The tile's memories against words packed group by group."""

from dataclasses import replace

import numpy as np
import pytest
from gossamer.host.compiler.quantize import QuantizedLayer
from gossamer.host.compiler.tile_memory import TileForm, TileMemory
from gossamer.host.quantizer import Quantizer
from gossamer.rtl.formats import SECTION_HEADER, Section, bytes_per_word, pack_bias
from rtl_models import TILED, tile_words

CONFIG = replace(TILED, tile_rows=4, tile_code_bits=5)


def layer_of(codes, rng, structure="unstructured", zero_code=True):
    """A layer with these codes, -1 where nothing is stored."""
    rows, cols = codes.shape
    columns, row_indices = np.nonzero(codes.T >= 0)
    codebook = rng.integers(-(2**15), 2**15, 8)
    codebook[0] = 0 if zero_code else 5
    kind = Quantizer(1.0, 0.0, -128, 127, signed=True)
    return QuantizedLayer(
        name="layer", n_rows=rows, n_cols=cols, structure=structure,
        column_starts=np.concatenate(([0], np.cumsum(np.bincount(columns, minlength=cols)))),
        row_indices=row_indices, codes=codes.T[codes.T >= 0], codebook=codebook, code_bits=3,
        zero_code=zero_code, bias=rng.integers(-1000, 1000, rows), shift=rng.integers(0, 9, rows),
        low=-128, high=127, signed_in=True, signed_out=True, input=kind, output=kind,
    )  # fmt: skip


def parse(sections):
    """Words of each lane, and of the biases."""
    found = {}
    for data in sections:
        kind, lane, address, count = SECTION_HEADER.unpack_from(data)
        assert address == 0
        size = bytes_per_word(Section(kind), CONFIG)
        body = data[SECTION_HEADER.size :]
        assert len(body) == count * size
        found[kind, lane] = [
            int.from_bytes(body[k : k + size], "little") for k in range(0, len(body), size)
        ]
    return found


@pytest.mark.parametrize("zero_code", [False, True])
@pytest.mark.parametrize("share", [0.15, 0.9])
def test_random_layers(share, zero_code):
    """Two layers in a row; sources in natural order and with their columns dealt otherwise."""
    rng = np.random.default_rng([int(100 * share), zero_code])
    memory = TileMemory(CONFIG)
    lanes, biases = [[] for _ in range(CONFIG.tile_rows)], []
    passes = set()
    for rows, cols in ((7, 21), (9, 16)):
        codes = rng.integers(int(zero_code), 8, (rows, cols))
        codes[rng.random(codes.shape) >= share] = -1
        layer = layer_of(codes, rng, zero_code=zero_code)
        form = TileForm.of(layer, CONFIG)
        groups = -(-cols // 4)
        column_slots = rng.permuted(np.arange(4 * groups).reshape(-1, 4), axis=1)
        column_slots = column_slots[rng.permutation(groups)].reshape(-1)[:cols]
        fields = memory.add(layer, form, column_slots)

        by_slot = np.full((rows, 4 * groups), -1)
        by_slot[:, column_slots] = np.where(codes < 0, -1, codes + form.first_code)
        words = tile_words(by_slot, form.passes == 2, CONFIG)
        assert fields == {
            "zero_code": int(form.zero_code),
            "two_pass": form.passes - 1,
            "tile_base": len(lanes[0]),
            "tile_bias_base": len(biases),
            "last_block": -(-rows // 4) - 1,
        }
        assert words.shape[1] == form.words
        for lane, more in zip(lanes, words.tolist(), strict=True):
            lane += more
        for bias, shift in zip(layer.bias.tolist(), layer.shift.tolist(), strict=True):
            biases.append(pack_bias(bias, shift, CONFIG))
        biases += [0] * (-rows % 4)
        passes.add(form.passes)
        assert form.first_code == (not zero_code)
    found = parse(memory.sections())
    assert found.pop((Section.TILE_BIASES, 0)) == biases
    assert found == {(Section.TILE_WEIGHTS, k): lane for k, lane in enumerate(lanes)}
    assert passes == {2} if share > 0.5 else 1 in passes
