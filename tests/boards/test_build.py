# SPDX-License-Identifier: BSD-2-Clause
"""Bitstreams: the iCEBreaker's for real; failing tools and missed timing with stand-ins."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from gossamer.boards import build as module
from gossamer.boards.build import build
from gossamer.boards.common import bitstream_id, find_board
from gossamer.boards.resources import expected
from gossamer.host.errors import CapacityError, InputError, ToolError
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.tools import Tool, ToolRun

BASELINES = Path(__file__).parent.parent / "baselines"
SMALL = EngineConfig(
    n_pes=2, activation_bits=16, sum_bits=36, weight_depth=2048, rows_per_pe=48, column_words=512,
    count_bits=3, codebook_depth=256, max_layers=8, input_depth=1024, output_depth=256, tile_rows=1,
    tile_depth=2048, tile_bias_depth=512,
)  # fmt: skip
"""For the flow of an ECP5: every kind of memory is there, and it is quick."""
LOG = """\
Info: 	         ICESTORM_LC:    4429/   5280    83%
Info: 	        ICESTORM_RAM:      24/     30    80%
Info: 	        ICESTORM_DSP:       2/      8    25%
Info: 	      ICESTORM_SPRAM:       2/      4    50%
Info: Routing complete.
Info: Max frequency for clock 'clk': {mhz} MHz ({verdict} at 24.00 MHz)
"""
ECP5_LOG = """\
Info: 	              DP16KD:      57/    208    27%
Info: 	          MULT18X18D:       4/    156     2%
Info: 	        TRELLIS_COMB:    6780/  83640     8%
Info: Routing complete.
Info: Max frequency for clock 'clk': 55.10 MHz (PASS at 50.00 MHz)
"""


def baseline(name):
    return json.loads((BASELINES / f"{name}.json").read_text(encoding="utf-8"))


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
    need = expected(board.config, board.device)
    assert (report.ram, report.spram, report.dsp) == (need.ram, need.spram, need.dsp)
    before = baseline("icebreaker")
    assert report.lut <= 1.05 * before["lut"]
    assert report.fmax_mhz >= 0.9 * before["fmax_mhz"]
    bitstream = Path(report.bitstream)
    assert bitstream == tmp_path / "icebreaker" / "icebreaker.bin"
    assert bitstream.stat().st_size == 104_090
    assert json.loads((bitstream.parent / "report.json").read_text()) == asdict(report)
    assert set(report.tools) == {"yosys", "nextpnr-ice40", "icepack", "amaranth"}
    assert [path.name for path in tmp_path.iterdir()] == ["icebreaker"]
    assert any("place and route" in line for line in lines)


@pytest.mark.synth
@pytest.mark.xdist_group("ulx3s-85f")
def test_a_small_engine_on_the_ulx3s(tmp_path):
    report = build("ulx3s-85f", output=tmp_path, config=SMALL)
    board = find_board("ulx3s-85f")
    assert (report.timing_met, report.clock_mhz) == (True, 50.0)
    assert report.available == {"lut": 83640, "dsp": 156, "ram": 208}
    need = expected(SMALL, board.device)
    assert (report.ram, report.spram, report.dsp) == (need.ram, 0, need.dsp)
    before = baseline("ulx3s-85f-small")
    assert report.lut <= 1.05 * before["lut"]
    assert report.fmax_mhz >= 0.8 * before["fmax_mhz"]
    bitstream = Path(report.bitstream)
    assert bitstream == tmp_path / "ulx3s-85f" / "ulx3s-85f.bit"
    assert b"Part: LFE5U-85F-6CABGA381" in bitstream.read_bytes()[:200]
    assert set(report.tools) == {"yosys", "nextpnr-ecp5", "ecppack", "amaranth"}
    log = (bitstream.parent / "nextpnr.log").read_text()
    assert "Derived frequency constraint of 50.0 MHz" in log  # the PLL's dividers


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
        if self.name in ("icepack", "ecppack"):
            (folder / arguments[-1]).write_bytes(b"bits")
            return ToolRun(0, "", "")
        if self.name == "nextpnr-ecp5":
            (folder / "nextpnr.log").write_text(ECP5_LOG)
            (folder / arguments[arguments.index("--textcfg") + 1]).write_text("config")
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


def test_the_same_flow_with_the_tools_of_an_ecp5(monkeypatch, tmp_path):
    calls = []
    fake_tools(monkeypatch, lines=calls)
    monkeypatch.setenv("PATH", "")  # neither yosys nor openFPGALoader is looked for there
    report = build("ulx3s-85f", output=tmp_path, config=SMALL)
    assert (report.lut, report.dsp, report.ram, report.spram) == (6780, 4, 57, 0)
    assert report.available == {"lut": 83640, "dsp": 156, "ram": 208}
    names = sorted(path.name for path in (tmp_path / "ulx3s-85f").iterdir())
    assert names == ["nextpnr.log", "report.json", "ulx3s-85f.bit", "yosys.log"]
    assert [name for name, _ in calls] == ["yosys", "nextpnr-ecp5", "ecppack"]
    arguments = calls[1][1]
    assert "--85k" in arguments
    assert arguments[arguments.index("--freq") + 1] == "50"
    assert arguments[arguments.index("--speed") + 1] == "6"


def test_missed_timing_leaves_nothing(monkeypatch, tmp_path):
    fake_tools(monkeypatch, mhz=10.0)
    with pytest.raises(ToolError, match=r"timing: 11\.5 MHz at best, expected 24 MHz"):
        build("icebreaker", output=tmp_path, seeds=(1, 2, 3))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tool", "what"),
    [
        ("yosys", r"yosys 1\.0: exit status 0 and no netlist.*ABC9 stopped"),
        (
            "nextpnr-ice40",
            r"nextpnr-ice40 1\.0: exit status 0 before the end of routing.*ABC9 stopped",
        ),
        ("icepack", r"icepack 1\.0: exit status 0 and no bitstream"),
        (
            "nextpnr-ecp5",
            r"nextpnr-ecp5 1\.0: exit status 0 before the end of routing.*ABC9 stopped",
        ),
        ("ecppack", r"ecppack 1\.0: exit status 0 and no bitstream"),
    ],
)
def test_exit_status_0_without_a_file_is_a_failure(monkeypatch, tmp_path, tool, what):
    fake_tools(monkeypatch, broken=tool)
    board = "ulx3s-85f" if tool.startswith(("ecp", "nextpnr-ecp")) else "icebreaker"
    with pytest.raises(ToolError, match=what):
        build(board, output=tmp_path, config=SMALL if board == "ulx3s-85f" else None)
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_before_routing_is_no_verdict(monkeypatch, tmp_path):
    """nextpnr was killed while it routed: that is no missed timing."""
    fake_tools(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "ECP5_LOG", ECP5_LOG.replace("Routing complete", ""))
    with pytest.raises(ToolError, match="before the end of routing"):
        build("ulx3s-85f", output=tmp_path, config=SMALL)
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
