# SPDX-License-Identifier: BSD-2-Clause
"""The boards' engines run what they are for: a pruned LeNet-300-100 fits each of them."""

import numpy as np
import pytest
from gossamer.boards.common import BOARD_NAMES, find_board
from gossamer.host import golden
from gossamer.host.session import Session
from networks import random_inputs, random_network

SIZES = (784, 300, 100, 10)
SPARSE = ("unstructured",) * 3
NETWORKS = {
    "icebreaker": [(SPARSE, (0.08, 0.09, 0.26), 6, 40_000)],
    "ulx3s-85f": [
        (SPARSE, (0.08, 0.09, 0.26), 6, 1_500),
        (("unstructured", "2:4", "dense"), (0.08, 1.0, 1.0), 4, 3_500),
    ],
}
"""Per board: structures, densities and code bits of the layers, and cycles per image at most."""


def test_each_board_has_its_networks():
    assert set(NETWORKS) == set(BOARD_NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARD_NAMES)
def test_lenet_300_100_fits_and_is_exact(board):
    config = find_board(board).config
    for structures, densities, code_bits, cycles in NETWORKS[board]:
        rng = np.random.default_rng(3)
        network = random_network(
            rng, SIZES, weight_density=densities, code_bits=code_bits, structure=structures,
            sum_bits=config.sum_bits, activation_bits=config.activation_bits,
        )  # fmt: skip
        q = random_inputs(rng, network, 5)
        with Session(network, f"sim://{board}") as session:
            assert session.config == config
            assert np.array_equal(session.run_quantized(q), golden.run(network, q))
            per_image = session.last_stats.cycles / len(q)
        assert per_image < cycles
