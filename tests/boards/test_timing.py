# SPDX-License-Identifier: BSD-2-Clause
"""nextpnr logs: what counts is the last line of each clock, at the board's real frequency."""

import pytest
from gossamer.boards.timing import read_timing, read_utilisation
from gossamer.host.errors import ToolError

UTILISATION = """\
Info: Device utilisation:
Info: 	         ICESTORM_LC:    4429/   5280    83%
Info: 	        ICESTORM_RAM:      24/     30    80%
Info: 	      ICESTORM_SPRAM:       2/      4    50%
"""
ECP5 = """\
Info:     Derived frequency constraint of 50.0 MHz for net clk
Info: Device utilisation:
Info: 	              DP16KD:      57/    208    27%
Info: 	        TRELLIS_COMB:    6780/  83640     8%
Info: Critical path report for clock '$glbnet$clk' (posedge -> posedge):
Info:   clk-to-q  5.83  5.83 Source engine.columns.records.0.3.DOB0
Info:    routing  1.05  6.88 Net engine.columns.count_q2_2_TRELLIS_FF_Q_C[2] (22,22) -> (22,23)
Info:                          Sink engine.columns.offset_q2_2_TRELLIS_FF_Q_5_DI_LUT4_Z.C
Info:     setup  0.00 16.77 Source engine.columns.offset_q2_2_TRELLIS_FF_Q_9.DI
Info: Max frequency for clock '$glbnet$clk': 59.62 MHz (PASS at 50.00 MHz)
"""
PATH = """\
Info: Critical path report for clock 'clk' (posedge -> posedge):
Info:       type curr  total name
Info:   clk-to-q  1.39  1.39 Source engine.columns.counts_SB_DFFE_Q_14_DFFLC.O
Info:    routing  1.76  3.15 Net engine.columns.counts[14] (4,9) -> (5,10)
Info:                          Sink engine.ending_SB_LUT4_O_1_LC.I0
Info:      logic  1.28  4.43 Source engine.ending_SB_LUT4_O_1_LC.O
Info:    routing  2.99 41.98 Net engine.fifo.ready (20,26) -> (20,23)
Info:                          Sink engine.fifo.ready_SB_DFFE_Q_DFFLC.CEN
Info:      setup  0.10 42.08 Source engine.fifo.ready_SB_DFFE_Q_DFFLC.CEN
Info: 10.00 ns logic, 32.08 ns routing
Info: Critical path report for cross-domain path '<async>' -> 'posedge clk':
Info:     source  0.00  0.00 Source rx.D_IN_0
Info:      setup  0.82  3.97 Source other_SB_DFF_Q.I3
"""


def frequency(mhz, verdict, target, name="clk"):
    return (
        f"Info: Max frequency for clock '{name}': {mhz:.2f} MHz ({verdict} at {target:.2f} MHz)\n"
    )


def test_the_frequency_after_routing_counts():
    log = frequency(19.5, "FAIL", 24) + PATH + frequency(25.04, "PASS", 24)
    timing = read_timing(log, 24_000_000)
    assert (timing.fmax_mhz, timing.target_mhz, timing.met) == (25.04, 24.0, True)


def test_an_estimate_does_not_make_a_design_fast():
    log = frequency(31.0, "PASS", 24) + PATH + frequency(23.76, "FAIL", 24)
    log = log.replace("Info: Max frequency for clock 'clk': 23.76", "ERROR: Max frequency for "
                      "clock 'clk': 23.76")  # fmt: skip
    timing = read_timing(log, 24_000_000)
    assert (timing.fmax_mhz, timing.met) == (23.76, False)
    assert timing.path == ("engine.columns.counts", "engine.fifo.ready")


def test_a_log_of_nextpnr_for_ecp5():
    timing = read_timing(ECP5, 50_000_000)
    assert (timing.fmax_mhz, timing.target_mhz) == (59.62, 50.0)
    assert timing.path == ("engine.columns.records", "engine.columns.offset_q2_2")
    assert read_utilisation(ECP5) == {"DP16KD": (57, 208), "TRELLIS_COMB": (6780, 83640)}


def test_the_slowest_clock_counts():
    log = frequency(48.0, "PASS", 24, "fast") + frequency(24.5, "PASS", 24, "slow")
    assert read_timing(log, 24_000_000).fmax_mhz == 24.5


def test_pass_at_another_frequency_is_a_failure():
    with pytest.raises(ToolError, match=r"clk was checked at 12 MHz, expected the real 24 MHz"):
        read_timing(frequency(40.0, "PASS", 12), 24_000_000)
    with pytest.raises(ToolError, match=r"usb was checked at 12 MHz, expected the real 24 MHz"):
        read_timing(frequency(40.0, "PASS", 24) + frequency(30.0, "PASS", 12, "usb"), 24_000_000)


def test_a_log_without_frequencies_is_a_failure():
    log = UTILISATION + "Info: No Fmax available; no interior timing paths found in design.\n"
    with pytest.raises(ToolError, match="no maximum frequency in its log"):
        read_timing(log, 24_000_000)


def test_utilisation():
    used = read_utilisation(UTILISATION)
    assert used["ICESTORM_LC"] == (4429, 5280)
    assert used["ICESTORM_SPRAM"] == (2, 4)
    with pytest.raises(ToolError, match="no table of used cells"):
        read_utilisation("ERROR: no netlist")
