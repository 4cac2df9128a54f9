# SPDX-License-Identifier: BSD-2-Clause
"""The speed of the simulated board is cycles over time, whatever it is on this machine."""

import json

import pytest
from gossamer.bench.sim import IMAGES
from gossamer.host.cli import app
from typer.testing import CliRunner


@pytest.mark.cocotb
@pytest.mark.xdist_group("default-engine")
def test_speed() -> None:
    result = CliRunner().invoke(app, ["bench", "sim", "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["pes"], document["images"]) == (16, IMAGES)
    # every input alone takes 784 bytes on the link
    assert document["cycles"] > 784 * IMAGES
    assert document["cycles_per_second"] == document["cycles"] / document["seconds"]
