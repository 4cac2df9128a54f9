# SPDX-License-Identifier: BSD-2-Clause
"""Bitstreams: the iCEBreaker's for real; failing tools and missed timing with stand-ins."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from gossamer.boards import build as module
from gossamer.boards.build import build
from gossamer.boards.common import bitstream_id, find_board
from gossamer.boards.resources import expected
from gossamer.host.errors import CapacityError, InputError, ToolError
from gossamer.rtl.tools import Tool, ToolRun

BASELINE = json.loads(
    (Path(__file__).parent.parent / "baselines" / "icebreaker.json").read_text(encoding="utf-8")
)
LOG = """\
Info: 	         ICESTORM_LC:    4429/   5280    83%
Info: 	        ICESTORM_RAM:      24/     30    80%
Info: 	        ICESTORM_DSP:       2/      8    25%
Info: 	      ICESTORM_SPRAM:       2/      4    50%
Info: Max frequency for clock 'clk': {mhz} MHz ({verdict} at 24.00 MHz)
"""


@pytest.mark.synth
@pytest.mark.xdist_group("icebreaker")
def test_icebreaker(tmp_path):
    lines = []
    report = build("icebreaker", output=tmp_path, progress=lines.append)
    board = find_board("icebreaker")
    assert report.timing_met
    assert report.clock_mhz == 24.0
    assert report.fmax_mhz >= 24.0
    assert report.lut <= 0.9 * report.available["lut"]
    need = expected(board.config)
    assert (report.ram, report.spram, report.dsp) == (need.ram, need.spram, need.dsp)
    assert report.lut <= 1.05 * BASELINE["lut"]
    assert report.fmax_mhz >= 0.9 * BASELINE["fmax_mhz"]
    bitstream = Path(report.bitstream)
    assert bitstream == tmp_path / "icebreaker" / "icebreaker.bin"
    assert bitstream.stat().st_size == 104_090
    assert json.loads((bitstream.parent / "report.json").read_text()) == asdict(report)
    assert set(report.tools) == {"yosys", "nextpnr-ice40", "icepack", "amaranth"}
    assert [path.name for path in tmp_path.iterdir()] == ["icebreaker"]
    assert any("place and route" in line for line in lines)


def fake_tools(monkeypatch, mhz=25.0, broken=None, lines=None):
    """Tools that write what real ones would, or nothing where broken; each seed 0.5 MHz faster."""

    def run(self, arguments, *, folder, progress=None, stdin=""):
        if lines is not None:
            lines.append((self.name, arguments))
        if self.name == broken:
            return ToolRun(0, "", "something\nABC9 stopped")
        if self.name == "yosys":
            (folder / "yosys.log").write_text("log")
            (folder / "top.json").write_text("{}")
            return ToolRun(0, "", "")
        if self.name == "icepack":
            (folder / "top.bin").write_bytes(b"bits")
            return ToolRun(0, "", "")
        seed = int(arguments[arguments.index("--seed") + 1])
        fmax = mhz + 0.5 * seed
        verdict = "PASS" if fmax >= 24 else "FAIL"
        (folder / "nextpnr.log").write_text(LOG.format(mhz=fmax, verdict=verdict))
        if verdict == "PASS":
            (folder / "top.asc").write_text("asc")
        return ToolRun(0 if verdict == "PASS" else 125, "", "")

    monkeypatch.setattr(Tool, "run", run)
    monkeypatch.setattr(module, "find_tool", lambda name: Tool(name, "1.0", (name,), False))


def test_seeds_are_tried_until_timing_is_met(monkeypatch, tmp_path):
    calls = []
    fake_tools(monkeypatch, mhz=22.6, lines=calls)
    (tmp_path / "icebreaker").mkdir()
    (tmp_path / "icebreaker" / "old").write_text("left over")
    report = build("icebreaker", output=tmp_path)
    assert (report.seed, report.fmax_mhz, report.timing_met) == (3, 24.1, True)
    assert report.available == {"lut": 5280, "dsp": 8, "ram": 30, "spram": 4}
    names = sorted(path.name for path in (tmp_path / "icebreaker").iterdir())
    assert names == ["icebreaker.bin", "nextpnr.log", "report.json", "yosys.log"]
    placed = [arguments for name, arguments in calls if name == "nextpnr-ice40"]
    assert all(arguments[arguments.index("--freq") + 1] == "24" for arguments in placed)


def test_missed_timing_leaves_nothing(monkeypatch, tmp_path):
    fake_tools(monkeypatch, mhz=10.0)
    with pytest.raises(ToolError, match=r"timing: 11\.5 MHz at best, expected 24 MHz"):
        build("icebreaker", output=tmp_path, seeds=(1, 2, 3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tool", "what"),
    [
        ("yosys", r"yosys 1\.0: exit status 0 and no netlist.*ABC9 stopped"),
        ("nextpnr-ice40", r"nextpnr-ice40 1\.0: exit status 0 before routing.*ABC9 stopped"),
        ("icepack", r"icepack 1\.0: exit status 0 and no bitstream"),
    ],
)
def test_exit_status_0_without_a_file_is_a_failure(monkeypatch, tmp_path, tool, what):
    fake_tools(monkeypatch, broken=tool)
    with pytest.raises(ToolError, match=what):
        build("icebreaker", output=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_refusals_come_before_any_work(tmp_path):
    with pytest.raises(InputError, match="unknown; expected one of"):
        build("nosuch", output=tmp_path)
    large = replace(find_board("icebreaker").config, column_words=4096)
    with pytest.raises(CapacityError, match="block RAM"):
        build("icebreaker", output=tmp_path, config=large)
    assert list(tmp_path.iterdir()) == []


def test_the_id_names_config_and_tools():
    config = find_board("icebreaker").config
    name = bitstream_id(config, "yosys 1")
    assert len(name) == 8
    assert bitstream_id(config, "yosys 1") == name
    assert bitstream_id(config, "yosys 2") != name
    assert bitstream_id(replace(config, queue_depth=4), "yosys 1") != name
