# SPDX-License-Identifier: BSD-2-Clause
"""Networks that mix both units, in batches, on simulated RTL: golden's integers, whole outputs."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.session import Session
from gossamer.host.verify import verify
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Unit
from gossamer.sim.board import BoardModel, register_board
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import mask_cases, network_cases, random_inputs, random_network

ENGINES = {
    8: EngineConfig(
        n_pes=3, rows_per_pe=132, count_bits=4, column_words=512, max_layers=16, weight_depth=16384,
        tile_rows=2, tile_columns=4, tile_code_bits=5,
    ),
    16: EngineConfig(
        n_pes=5, activation_bits=16, sum_bits=36, entry_bits=20, rows_per_pe=64, count_bits=4,
        column_words=512, weight_depth=8192, queue_depth=4, tile_rows=8, tile_columns=2,
        tile_code_bits=5,
    ),
}  # fmt: skip
"""By bits of an activation."""

BATCHES = (1, 3, 4, 9)
ARRAY, TILE = Unit.SPARSE_ARRAY, Unit.TENSOR_TILE

SHAPES = [
    (1, 1), (1, 7), (7, 1), (3, 5), (6, 6), (1, 129), (129, 1), (4, 4),
    *((width, 17) for width in (127, 128, 129)), *((17, width) for width in (127, 128, 129)),
]  # fmt: skip
"""Rows and columns of a layer."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mixed")]


def url_of(bits):
    name = f"mixed{bits}"
    register_board(name, BoardModel(config=ENGINES[bits], clock_hz=1_000_000, divisor=4))
    return f"sim://{name}"


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    return url_of(request.param), ENGINES[request.param]


def network_of(rng, config, sizes, structures, **options):
    return random_network(
        rng, sizes, structure=structures, sum_bits=config.sum_bits,
        activation_bits=config.activation_bits, **options,
    )  # fmt: skip


def check(session, network, q):
    """Equal to golden, whole outputs; the counters' classes add up."""
    got, want = session.run_quantized(q), golden.run(network, q)
    differ = np.argwhere(got != want)
    place = tuple(differ[0]) if len(differ) else ()
    assert not len(differ), f"at {place}: got {got[place]}, expected {want[place]}"
    stats = session.last_stats
    assert sum(stats.counters.values()) == session.config.multipliers * stats.cycles


def units(session):
    return [layer.unit for layer in session.image.layers]


@pytest.mark.parametrize("seed", range(3))
def test_units_take_turns_in_batches(engine, seed):
    """Sparse -> tile -> sparse -> dense, and one layer more."""
    url, config = engine
    rng = np.random.default_rng(seed)
    network = network_of(
        rng, config, [int(n) for n in rng.integers(40, 100, 6)],
        ["unstructured", "2:4", "unstructured", "dense", "unstructured"],
        weight_density=[0.05, 1.0, 0.03, 0.9, 0.05], code_bits=[6, 4, 6, 4, 6],
    )  # fmt: skip
    with Session(network, url) as session:
        assert units(session) == [ARRAY, TILE, ARRAY, TILE, ARRAY]
        for n in BATCHES:
            check(session, network, random_inputs(rng, network, n))
        got = session.layers(q := random_inputs(rng, network, 3))
        for k, want in enumerate(golden.run_layers(network, q)):
            assert np.array_equal(got[k], want), f"layer {k}"
        assert verify(session, network.input.dequantize(q)) is None


@pytest.mark.parametrize("bits", ENGINES)
def test_random_networks(bits):
    pairs = Counter()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        network_cases(ENGINES[bits], 64),
        st.sampled_from(BATCHES),
        st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    )
    def equal_to_golden(case, n, density):
        network, seed = case
        with Session(network, url_of(bits)) as session:
            pairs.update(pairwise(units(session)))
            check(session, network, random_inputs(np.random.default_rng(seed), network, n, density))

    equal_to_golden()
    assert len(pairs) == 4, "every unit before every unit"


@pytest.mark.parametrize("structure", ["2:4", "dense"])
def test_shapes_that_hurt(engine, structure):
    """Alone, and between layers that run on the other unit where that is possible."""
    url, config = engine
    rng = np.random.default_rng(12)
    for rows, columns in SHAPES:
        for sizes in ((columns, rows), (9, columns, rows, 10)):
            lot = [structure] if len(sizes) == 2 else ["unstructured", structure, "unstructured"]
            network = network_of(rng, config, sizes, lot, weight_density=0.8 if lot[1:] else 1.0)
            with Session(network, url) as session:
                check(session, network, random_inputs(rng, network, 3))


def test_every_mask_of_a_group(engine):
    url, config = engine
    for network, q in mask_cases(config):
        with Session(network, url) as session:
            assert units(session) == [TILE]
            check(session, network, q)


def test_strided_and_transposed_inputs(engine):
    url, config = engine
    rng = np.random.default_rng(15)
    network = network_of(rng, config, (12, 9, 5), ["2:4", "dense"])
    q = random_inputs(rng, network, 12)
    wide = np.zeros((24, 36), dtype=np.int64)
    wide[::2, ::3] = q
    with Session(network, url) as session:
        want = golden.run(network, q)
        for view in (wide[::2, ::3], np.asfortranarray(q), q[::-1][::-1], q.astype(">i4")):
            assert np.array_equal(session.run_quantized(view), want)
        assert np.array_equal(session.run_quantized(q.T), golden.run(network, q.T.copy()))


def test_empty_rows_and_columns(engine):
    url, config = engine
    rng = np.random.default_rng(13)
    for empty in ([0], [4, 5, 6, 7, 8], [39], list(range(40))):
        for structure in ("2:4", "dense"):
            for option in ("empty_rows", "empty_cols"):
                network = network_of(
                    rng, config, (40, 40, 9), [structure, "2:4"], weight_density=1.0,
                    **{option: {0: empty}},
                )  # fmt: skip
                with Session(network, url) as session:
                    check(session, network, random_inputs(rng, network, 5))


def test_extreme_values_and_inputs_of_zeros(engine):
    url, config = engine
    rng = np.random.default_rng(14)
    for signed in ([True, True], [False, False], [True, False], [False, True]):
        for structure in ("2:4", "dense"):
            network = network_of(
                rng, config, (65, 31), structure, signed=signed, relu=[False], code_bits=2,
                weight_density=1.0,
            )  # fmt: skip
            low, high = network.input.low, network.input.high
            q = np.array([[low] * 65, [high] * 65, [0] * 65, [low, high] * 32 + [0]])
            with Session(network, url) as session:
                assert units(session) == [TILE]
                check(session, network, q)
                check(session, network, np.zeros((9, 65), dtype=np.int64))
