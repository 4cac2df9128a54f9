# SPDX-License-Identifier: BSD-2-Clause
"""Cycles of the pruned LeNet-300-100 that comes with the package."""

import numpy as np
import pytest
from gossamer.bench.lenet_cycles import MODEL, measure_cycles
from gossamer.bench.mnist import Digits
from gossamer.host.cli import app
from gossamer.host.session import Session
from typer.testing import CliRunner

pytestmark = [pytest.mark.cocotb, pytest.mark.xdist_group("default-engine")]


def test_figures_are_those_of_the_counters(pytestconfig) -> None:
    rng = np.random.default_rng(8)
    images = np.where(rng.random((40, 784)) < 0.2, rng.random((40, 784)), 0).astype(np.float32)
    notes = []
    found = measure_cycles(Digits(images, np.zeros(40, dtype=np.int64)), "sim", notes.append)
    with Session(pytestconfig.rootpath / "bench" / MODEL, "sim") as session:
        outputs = session.run(images)
        stats = session.last_stats
    assert stats is not None
    assert (found.pes, found.images) == (16, 40)
    assert found.cycles_per_image == stats.cycles / 40
    assert found.active_nonzeros_per_image == stats.counters["busy"] / 40
    assert found.slot_efficiency == stats.counters["busy"] / (16 * stats.cycles)
    assert found.active_nonzeros_per_second == pytest.approx(
        stats.counters["busy"] / stats.cycles * 1e6 * found.clock_mhz
    )
    assert found.error == 100 * (outputs.argmax(axis=1) != 0).mean()
    assert "40 of 40 images" in notes[-1]


def test_no_picture_of_a_board() -> None:
    wrong = CliRunner().invoke(app, ["bench", "lenet", "--board", "sim", "--plot", "x.png"])
    assert wrong.exit_code == 2
    assert "nothing to draw" in wrong.stderr
