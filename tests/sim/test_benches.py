# SPDX-License-Identifier: BSD-2-Clause
"""All cocotb benches: blocks and the whole engine against the golden model."""

from pathlib import Path

import pytest
from gossamer.host.errors import InputError
from gossamer.sim.benches.runner import BENCHES, run_bench

ROOT = Path(__file__).parents[2]


@pytest.mark.cocotb
@pytest.mark.parametrize("name", BENCHES)
def test_bench(name: str, tmp_path: Path) -> None:
    result = run_bench(name, folder=tmp_path)
    assert result.failed == 0, result.log.read_text()[-5000:]
    assert result.passed >= 6
    assert result.waves is None


@pytest.mark.cocotb
def test_waveforms(tmp_path: Path) -> None:
    result = run_bench("drain", folder=tmp_path, waves=True)
    assert result.failed == 0
    assert result.waves == tmp_path / "drain.fst"
    assert result.waves.stat().st_size > 1000


def test_unknown_bench(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nosuch' is not known, expected one of packets, loader"):
        run_bench("nosuch", folder=tmp_path)


def test_every_bench_is_listed() -> None:
    helpers = {"__init__", "drive", "runner", "vectors"}
    found = {path.stem for path in (ROOT / "sim" / "benches").glob("*.py")} - helpers
    assert found == set(BENCHES)
