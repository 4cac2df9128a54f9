# SPDX-License-Identifier: BSD-2-Clause
"""The boards' engines run what they are for: a pruned LeNet-300-100 fits the iCEBreaker."""

import numpy as np
import pytest
from gossamer.boards.common import find_board
from gossamer.host import golden
from gossamer.host.session import Session
from networks import random_inputs, random_network

SIZES = (784, 300, 100, 10)
DENSITIES = (0.08, 0.09, 0.26)


@pytest.mark.slow
def test_lenet_300_100_fits_the_icebreaker_and_is_exact():
    rng = np.random.default_rng(3)
    config = find_board("icebreaker").config
    network = random_network(
        rng, SIZES, weight_density=DENSITIES, code_bits=6, sum_bits=config.sum_bits
    )
    q = random_inputs(rng, network, 5)
    with Session(network, "sim://icebreaker") as session:
        assert session.config == config
        assert np.array_equal(session.run_quantized(q), golden.run(network, q))
        per_image = session.last_stats.cycles / len(q)
    assert per_image < 40_000
