# SPDX-License-Identifier: BSD-2-Clause
"""Estimates against what is known exactly; tests/sim/test_estimates.py has the simulated RTL."""

import numpy as np
import pytest
from gossamer.host.compiler.estimate import (
    ArrayLoad,
    array_estimate,
    link_bytes,
    tile_estimate,
)
from gossamer.rtl.config import EngineConfig

CONFIG = EngineConfig()


def estimate(rows, cols, density, active=1.0, config=CONFIG, before=None):
    load = ArrayLoad.of_density(rows, cols, density, config.n_pes)
    return array_estimate(load, active, active, config, before)


def test_dense_layer_is_its_work_and_a_cycle_a_row():
    one = estimate(256, 256, 1.0)
    assert one.cycles == 256 * 16 + 16 + 15
    assert one.limit == "work"
    assert one.parts["imbalance"] == pytest.approx(0)


def test_counts_and_densities_agree():
    rng = np.random.default_rng(1)
    counts = rng.binomial(16, 0.3, (16, 500))
    measured = ArrayLoad.of_counts(counts, 16)
    assumed = ArrayLoad.of_density(256, 500, 0.3, 16)
    assert measured.entries.sum() == pytest.approx(assumed.entries.sum(), rel=0.01)
    assert measured.squares.sum() == pytest.approx(assumed.squares.sum(), rel=0.03)
    for active in (1.0, 0.3):
        pair = [array_estimate(load, active, active, CONFIG) for load in (measured, assumed)]
        assert pair[0].cycles == pytest.approx(pair[1].cycles, rel=0.05)


def test_cycles_rise_with_density_and_activity():
    cycles = [[estimate(300, 784, d, a).cycles for d in (0.05, 0.2, 1)] for a in (0.1, 0.5, 1)]
    assert (np.diff(cycles, axis=0) > 0).all()
    assert (np.diff(cycles, axis=1) > 0).all()


def test_what_a_layer_waits_for():
    assert estimate(256, 256, 0.5).limit == "work"
    assert estimate(10, 400, 0.4).limit == "broadcast"
    assert estimate(17, 400, 1.0).limit == "imbalance"  # one PE has two rows, the others one
    assert estimate(1024, 8, 0.01).limit == "drain"
    assert estimate(4, 4, 0.5).limit == "latency"


def test_words_of_zeros_take_a_cycle():
    quiet = estimate(16, 1000, 0.01, active=0.0)
    assert quiet.parts["broadcast"] == 250
    assert estimate(16, 1000, 0.01, active=1.0).parts["broadcast"] == 1000


def test_next_layer_begins_while_this_one_drains():
    first = estimate(512, 100, 0.02)
    scanned = estimate(512, 512, 0.02, active=0.5)
    merged = estimate(512, 512, 0.02, active=0.5, before=first)
    assert first.parts["drain"] == 32
    # nothing is scanned past: only nonzeros come, and some of them while the layer before drains
    assert merged.parts["broadcast"] == 256
    assert merged.cycles < 256 + 25 + 32
    assert merged.cycles < scanned.cycles + 25


def test_empty_layer():
    one = estimate(20, 40, 0.0)
    assert one.cycles == 40 + 15 + 2
    assert one.parts["work"] == 0


def test_tile():
    config = EngineConfig(tile_rows=4, tile_columns=2)
    pairs, dense = (tile_estimate(64, 256, passes, 1.0, config) for passes in (1, 2))
    assert pairs.cycles == (16 * 64 + 18) / 2
    assert dense.cycles - pairs.cycles == 16 * 64 / 2
    quiet = tile_estimate(64, 256, 1, 0.05, config)
    listed = 64 * (1 - 0.95**8)
    assert quiet.cycles == pytest.approx((64 + 15 * listed + 18) / 2)
    assert tile_estimate(64, 4, 1, 1.0, config).cycles == (1 + 15 * 4 + 18) / 2  # four rows a block


def test_tile_of_the_bench():
    # README, `gossamer bench tile`: 32,789 and 65,557 cycles of simulated RTL
    for columns in (1, 4):
        config = EngineConfig(tile_rows=8, tile_columns=columns)
        for passes, cycles in ((1, 32_789), (2, 65_557)):
            found = tile_estimate(1024, 1024, passes, 1.0, config).cycles * columns
            assert found == pytest.approx(cycles, abs=2)


def test_bytes_on_the_link():
    # payloads of 496 bytes at most: two frames of inputs, a RUN, the results with eight counters
    assert link_bytes(784, 16, CONFIG) == 784 + 2 * (9 + 3) + 9 + 2 + 16 + 32 + 9
    wide = EngineConfig(activation_bits=16, sum_bits=36)
    assert link_bytes(784, 16, wide) == 1568 + 4 * (9 + 3) + 9 + 2 + 32 + 32 + 9
