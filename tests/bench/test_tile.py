# SPDX-License-Identifier: BSD-2-Clause
"""The tile is busy in nearly every slot, and 2:4 takes half the cycles of dense."""

import json

import pytest
from gossamer.bench.tile import CASES, TilePoint
from gossamer.host.cli import app
from typer.testing import CliRunner

pytestmark = [pytest.mark.cocotb]


@pytest.fixture(scope="module")
def document() -> dict:
    result = CliRunner().invoke(app, ["bench", "tile", "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_points(document: dict) -> None:
    """Those of the command; all that the tile should reach, it does."""
    assert set(document) == {"points"}
    points = {
        (p.tile, p.batch, p.structure): p for p in (TilePoint(**row) for row in document["points"])
    }
    want = [(f"{r}x{c}", *case) for (r, c), cases in CASES for case in cases]
    assert list(points) == want
    for tile, batch in (("8x1", 1), ("8x4", 4), ("8x4", 64)):
        assert points[tile, batch, "2:4"].slot_efficiency >= 0.99
    for tile, batch in (("8x1", 1), ("8x4", 4)):
        dense, sparse = points[tile, batch, "dense"], points[tile, batch, "2:4"]
        assert dense.slot_efficiency >= 0.99
        assert sparse.cycles <= 0.51 * dense.cycles
    alone = points["8x4", 1, "2:4"]
    assert alone.cycles == points["8x4", 4, "2:4"].cycles
    assert alone.slot_efficiency == pytest.approx(points["8x4", 4, "2:4"].slot_efficiency / 4)
