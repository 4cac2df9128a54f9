# SPDX-License-Identifier: BSD-2-Clause
"""No block RAM is read for good while the same word is written.

Builds for iCE40 rely on it (boards/build.py): here such a read gives random bits, and the engine
must still compute exactly, also with several requests in flight.
"""

import re

import numpy as np
import pytest
from gossamer.boards.build import free_collisions
from gossamer.host import golden
from gossamer.host.session import Session
from gossamer.rtl import export
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.engine import Engine
from gossamer.sim import board
from gossamer.sim.board import BoardModel, register_board
from networks import random_inputs, random_network

CONFIG = EngineConfig(
    n_pes=2,
    sum_bits=24,
    entry_bits=16,
    weight_depth=2048,
    rows_per_pe=64,
    column_words=512,
    codebook_depth=64,
    queue_depth=2,
    max_layers=4,
    input_depth=256,
    output_depth=128,
    rx_bytes=256,
)

pytestmark = pytest.mark.slow


def poisoned(identity, divisor, progress):
    """Verilog of the engine in which a read that meets a write gives random bits."""
    original = export.export_rtlil
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "export_rtlil", lambda *a, **k: free_collisions(original(*a, **k)))
        text = export.export_verilog(Engine(identity))
    text, places = re.subn(r"\d+'hx+", "{8{$random}}", text)
    assert places >= 2 * (3 + 3 * CONFIG.n_pes)
    return text


def test_engine_is_exact_whatever_a_colliding_read_gives(monkeypatch):
    monkeypatch.setattr(board, "_verilog", poisoned)
    register_board("poisoned", BoardModel(config=CONFIG))
    rng = np.random.default_rng(11)
    for sizes, density in (((120, 60, 40, 9), 0.3), ((200, 100), 0.1), ((8, 8, 8), 1.0)):
        network = random_network(rng, sizes, weight_density=density, sum_bits=CONFIG.sum_bits)
        q = random_inputs(rng, network, 24)
        with Session(network, "sim://poisoned") as session:
            assert np.array_equal(session.run_quantized(q), golden.run(network, q))
