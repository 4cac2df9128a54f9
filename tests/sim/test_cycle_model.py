# SPDX-License-Identifier: BSD-2-Clause
"""The cycle model gives the very cycles of simulated RTL, in chains of layers, too."""

import numpy as np
import pytest
from gossamer.host.device.device import open_device
from gossamer.host.errors import CapacityError
from gossamer.host.session import Session
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import Unit
from gossamer.sim.board import BoardModel, register_board
from gossamer.sim.cycle_model import ArrayLayer, run_cycles, simulate
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from networks import network_cases, random_inputs

ENGINES = {
    n_pes: EngineConfig(
        n_pes=n_pes, weight_depth=32768, rows_per_pe=255, column_words=256, count_bits=4,
        codebook_depth=512, queue_depth=queue_depth, input_depth=256, output_depth=256,
        rx_bytes=256, decoder_bits=0, tile_rows=tile_rows, tile_depth=2, tile_bias_depth=2,
    )
    for n_pes, queue_depth, tile_rows in ((1, 2, 0), (5, 3, 0), (8, 6, 1))
}  # fmt: skip
"""The last one has a tile, which is too small for most layers: a record takes longer to read."""


@pytest.fixture(scope="module", params=ENGINES)
def device(request):
    register_board("cycles", BoardModel(config=ENGINES[request.param]))
    with open_device("sim://cycles") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.xdist_group("cycle-model")
def test_cycles_are_those_of_rtl(device):
    config = device.identity.config

    @given(
        case=network_cases(config, 100),
        density=st.sampled_from([0.0, 0.05, 0.3, 0.6, 1.0]),
    )
    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def check(case, density):
        network, seed = case
        try:
            session = Session(network, device)
        except CapacityError:
            assume(False)
        assume(all(layer.unit == Unit.SPARSE_ARRAY for layer in session.image.layers))
        for row in random_inputs(np.random.default_rng(seed), network, 2, density):
            device.abort()  # the merge tree's turns begin anew
            session.run_quantized(row)
            assert run_cycles(network, session.image, row) == session.last_stats.cycles

    check()


def test_a_pe_with_much_to_do_delays_the_others_only_when_its_queue_is_full():
    """PE 0 has ten times the work in the first columns, PE 1 in the last ones."""
    counts = np.array([[10, 1]] * 8 + [[1, 10]] * 8)
    layer = ArrayLayer(counts, np.ones((1, 2), dtype=bool), np.ones((1, 2), dtype=bool))
    q = np.ones(16, dtype=np.int64)
    cycles = [
        simulate([layer], q, EngineConfig(n_pes=2, queue_depth=depth)) for depth in (2, 4, 8, 16)
    ]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] - cycles[-1] == pytest.approx(8 * 9 - 2 * 9, abs=9)
    assert cycles[-1] > counts.sum(axis=0).max()
