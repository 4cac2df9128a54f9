# SPDX-License-Identifier: BSD-2-Clause
"""Many inferences in one session, every output checked; a wrong one would be seen."""

import json

import numpy as np
import pytest
from gossamer.bench import soak
from gossamer.host.cli import app
from typer.testing import CliRunner

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fault-board")]


def test_every_output_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource")
    result = CliRunner().invoke(app, ["bench", "soak", "--inferences", "1200", "--json"])
    document = json.loads(result.stdout)
    assert (document["inferences"], document["wrong"], document["repeats"]) == (1200, 0, 0)
    assert document["late_bytes"] >= document["early_bytes"] > 0
    assert result.exit_code == (document["late_bytes"] - document["early_bytes"] > soak.MARGIN)
    golden = soak.golden.run
    monkeypatch.setattr(soak.golden, "run", lambda net, q: golden(net, q) + np.eye(*q.shape)[:, :1])
    assert soak.measure(600).wrong == 2  # one a call
