# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host.compiler.compiler import compile_network
from gossamer.host.compiler.placement import array_cycles, place, tile_cycles
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Unit
from networks import random_network

CONFIG = EngineConfig(
    n_pes=4, rows_per_pe=32, count_bits=3, tile_rows=2, tile_columns=1, tile_code_bits=5
)
ARRAY, TILE = Unit.SPARSE_ARRAY, Unit.TENSOR_TILE


def network_of(sizes, structure="2:4", density=1.0, code_bits=4, seed=1):
    return random_network(
        np.random.default_rng(seed), sizes, structure=structure, weight_density=density,
        code_bits=code_bits,
    )  # fmt: skip


def units(network, config):
    placements = place(network, config, {})
    for before, after in pairwise(placements):
        assert before.target_bank == after.source_bank
        assert after.from_merge == (after.source_bank is None)
        assert after.source_bank is None or after.source_bank != after.target_bank
        assert (before.target_bank is not None) == (TILE in (before.unit, after.unit))
    assert placements[-1].target_bank is None
    return [at.unit for at in placements]


def test_the_faster_unit_is_taken():
    layer = network_of((64, 32)).layers[0]
    assert tile_cycles(layer, CONFIG) == 16 * 16
    assert array_cycles(layer, CONFIG) == 2 * 16 * 32 // 4
    layer = network_of((64, 32), "dense").layers[0]
    assert tile_cycles(layer, CONFIG) == 2 * 16 * 16
    assert array_cycles(layer, CONFIG) == 64 * 32 // 4
    layer = network_of((64, 3), "unstructured", 0.01).layers[0]
    assert array_cycles(layer, CONFIG) == 64
    for config in (
        CONFIG, replace(CONFIG, n_pes=3), replace(CONFIG, tile_rows=4),
        replace(CONFIG, tile_columns=4), replace(CONFIG, tile_rows=0),
    ):  # fmt: skip
        for density in (0.02, 0.2, 1.0):
            for structure in ("2:4", "dense", "unstructured"):
                network = network_of((64, 32), structure, density, code_bits=3)
                chosen = units(network, config)
                if config.tile_rows == 0:
                    assert chosen == [ARRAY]
                else:
                    layer = network.layers[0]
                    faster = tile_cycles(layer, config) < array_cycles(layer, config)
                    assert chosen == [TILE if faster else ARRAY]


def test_a_batch_counts_for_the_array():
    layer = network_of((64, 32)).layers[0]
    four = replace(CONFIG, tile_columns=4)
    assert array_cycles(layer, four) == 4 * array_cycles(layer, CONFIG)
    assert tile_cycles(layer, four) == tile_cycles(layer, CONFIG)


def test_a_full_tile_keeps_the_layers_that_gain_most():
    config = replace(CONFIG, tile_rows=8, tile_depth=65)
    network = network_of((32, 32, 64, 32))
    assert [tile_cycles(layer, config) for layer in network.layers] == [32, 64, 64]
    assert units(network, config) == [ARRAY, TILE, ARRAY]
    assert units(network, replace(config, tile_depth=96)) == [TILE, TILE, ARRAY]
    assert units(network, replace(config, tile_depth=160)) == [TILE, TILE, TILE]
    config = replace(config, tile_depth=160)
    assert units(network, replace(config, tile_bias_depth=96)) == [ARRAY, TILE, TILE]
    assert units(network, replace(config, tile_bias_depth=95)) == [ARRAY, TILE, ARRAY]


def test_layers_too_many_for_the_array_go_to_the_tile():
    network = network_of((64, 32, 32), "dense", 0.2)
    slow_tile = replace(CONFIG, n_pes=16, tile_rows=1)
    assert units(network, slow_tile) == [ARRAY, ARRAY]
    needed = compile_network(network, slow_tile).ledger["weight words per PE"][0]
    assert units(network, replace(slow_tile, weight_depth=needed)) == [ARRAY, ARRAY]
    # the second layer loses less by it
    assert units(network, replace(slow_tile, weight_depth=needed - 1)) == [ARRAY, TILE]
    assert units(network, replace(slow_tile, column_words=16)) == [ARRAY, ARRAY]
    assert units(network, replace(slow_tile, column_words=15)) == [ARRAY, TILE]
    assert units(network, replace(slow_tile, column_words=9)) == [TILE, TILE]


@pytest.mark.parametrize(
    "change", [{"rows_per_pe": 4}, {"entry_bits": 12, "rows_per_pe": 512, "count_bits": 5}]
)
def test_what_the_array_cannot_hold_goes_to_the_tile(change):
    network = network_of((64, 500), "unstructured", 0.02, code_bits=4)
    config = replace(CONFIG, n_pes=1, tile_rows=1, **change)
    assert tile_cycles(network.layers[0], config) > array_cycles(network.layers[0], config)
    assert units(network, config) == [TILE]


def test_vectors_must_fit_a_bank():
    config = replace(CONFIG, tile_rows=8, input_depth=16)
    network = network_of((16, 17, 8))
    assert units(network, replace(config, input_depth=32)) == [TILE, TILE]
    # 17 outputs, in whole blocks of the tile or groups of four, are more than 16
    assert units(network, config) == [ARRAY, ARRAY]
    # 12 rows on 5 PEs take 15 slots, in groups, too
    assert units(network_of((5, 12, 8), "unstructured"), replace(config, n_pes=5)) == [TILE, TILE]


def test_groups_of_four_may_need_more_rows_per_pe():
    config = replace(CONFIG, n_pes=1, tile_rows=8, tile_code_bits=4, rows_per_pe=9)
    network = network_of((16, 9, 8), ["unstructured", "2:4"], 0.3, code_bits=[5, 4])
    assert units(network, config) == [ARRAY, ARRAY]
    assert units(network, replace(config, rows_per_pe=12)) == [ARRAY, TILE]


def test_padding_needs_a_code_for_zero():
    config = replace(CONFIG, tile_rows=8, tile_code_bits=4)
    for sizes, structure, code_bits, unit, zero_code in (
        ((16, 8), "dense", 4, TILE, 0),  # no padding
        ((16, 9), "dense", 4, ARRAY, 0),  # rows
        ((15, 8), "dense", 4, ARRAY, 0),  # inputs
        ((15, 9), "dense", 3, TILE, 1),  # a zero stands ahead of the codes
        ((15, 9), "2:4", 4, TILE, 1),  # code 0 is one
        ((15, 9), "2:4", 5, ARRAY, 1),
    ):
        network = network_of(sizes, structure, code_bits=code_bits)
        image = compile_network(network, config)
        assert image.layers[0].unit == unit
        assert image.layers[0].record["zero_code"] == zero_code
