# SPDX-License-Identifier: BSD-2-Clause
"""Shapes that hurt, on simulated RTL with 1, 5 and 64 PEs: golden's integers, whole outputs."""

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.session import Session
from gossamer.rtl.config import EngineConfig
from gossamer.sim.board import BoardModel, register_board
from networks import mask_cases, random_inputs, random_network

ENGINES = {
    1: EngineConfig(n_pes=1, weight_depth=65536, rows_per_pe=255, count_bits=4, queue_depth=2),
    5: EngineConfig(
        n_pes=5, sum_bits=24, entry_bits=16, weight_depth=16384, rows_per_pe=128, counters=False
    ),
    64: EngineConfig(
        n_pes=64, weight_depth=2048, rows_per_pe=16, column_words=256, codebook_depth=512,
        count_bits=3, queue_depth=4, input_depth=512,
    ),
}  # fmt: skip

WIDTHS = (31, 32, 33, 63, 64, 65, 127, 128, 129)
SHAPES = [
    (1, 1), (1, 7), (7, 1), (3, 5), (6, 6), (1, 129), (129, 1), (4, 4), (2, 64), (64, 2),
    *((width, 33) for width in WIDTHS), *((33, width) for width in WIDTHS),
]  # fmt: skip
"""Rows and columns of a layer."""

STRUCTURES = [("dense", 1.0), ("dense", 0.5), ("unstructured", 0.3), ("2:4", 1.0), ("3:7", 0.4)]
"""Structure of a layer, and share of its places that hold a weight before N:M thins them."""

EMPTY = {
    "start": [0],
    "start run": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    "middle run": [11, 12, 13, 14, 15, 16, 17, 18],
    "end": [39],
    "end run": [30, 31, 32, 33, 34, 35, 36, 37, 38, 39],
    "all": list(range(40)),
}


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    name = f"shapes{request.param}"
    register_board(name, BoardModel(config=ENGINES[request.param], clock_hz=1_000_000, divisor=4))
    return f"sim://{name}", ENGINES[request.param]


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shapes")]


def assert_equal(url, network, q):
    """Run on RTL and golden; report the first difference."""
    with Session(network, url) as session:
        got = session.run_quantized(q)
        stats = session.last_stats
    want = golden.run(network, q)
    differ = np.argwhere(got != want)
    place = tuple(differ[0]) if len(differ) else ()
    assert not len(differ), f"at {place}: got {got[place]}, expected {want[place]}"
    return stats


def test_every_shape_dense_and_sparse(engine):
    url, config = engine
    rng = np.random.default_rng(1)
    for k, (rows, columns) in enumerate(SHAPES):
        # 64 PEs are slow to simulate: every shape with two structures, the others by turns
        turn = range(k, k + (2 if config.n_pes == 64 else len(STRUCTURES)))
        for structure, density in (STRUCTURES[n % len(STRUCTURES)] for n in turn):
            network = random_network(
                rng, (columns, rows), structure=structure, weight_density=density,
                sum_bits=config.sum_bits, code_bits=int(rng.integers(1, 7)),
            )  # fmt: skip
            assert_equal(url, network, random_inputs(rng, network, 3, density=0.6))


def test_chains_of_every_shape(engine):
    """Every shape feeds the next one, so slots of one layer are columns of another."""
    url, config = engine
    rng = np.random.default_rng(2)
    sizes = (*WIDTHS[::-1], 1, 5, 3, 6, 6)
    for _ in range(2 if config.n_pes == 64 else 4):
        network = random_network(
            rng, sizes, weight_density=[float(d) for d in rng.choice([0.1, 0.5, 1.0], 13)],
            code_bits=[int(b) for b in rng.integers(1, 5, 13)],
            structure=[str(s) for s in rng.choice(["dense", "unstructured", "2:4"], 13)],
            sum_bits=config.sum_bits,
        )  # fmt: skip
        stats = assert_equal(url, network, random_inputs(rng, network, 5))
        if config.counters:
            assert sum(stats.counters.values()) == config.n_pes * stats.cycles


def test_every_mask_of_a_group(engine):
    """2:4 and denser groups, lowered to the array."""
    url, config = engine
    for network, q in mask_cases(config):
        assert_equal(url, network, q)


@pytest.mark.parametrize("place", EMPTY)
def test_empty_rows_and_columns(engine, place):
    url, config = engine
    rng = np.random.default_rng(3)
    for empty_rows, empty_cols in (({0: EMPTY[place]}, {}), ({}, {0: EMPTY[place]})):
        network = random_network(
            rng, (40, 40, 9), empty_rows=empty_rows, empty_cols=empty_cols,
            sum_bits=config.sum_bits,
        )  # fmt: skip
        assert_equal(url, network, random_inputs(rng, network, 4))


def test_extreme_values_and_inputs_of_zeros(engine):
    url, config = engine
    rng = np.random.default_rng(4)
    for signed in ([True, True], [False, False], [True, False], [False, True]):
        network = random_network(
            rng, (65, 31), weight_density=1.0, structure="dense", signed=signed, relu=[False],
            sum_bits=config.sum_bits, code_bits=1,
        )  # fmt: skip
        low, high = network.input.low, network.input.high
        q = np.array([[low] * 65, [high] * 65, [0] * 65, [low, high] * 32 + [0], [0] * 64 + [high]])
        assert_equal(url, network, q)
