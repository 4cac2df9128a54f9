# SPDX-License-Identifier: BSD-2-Clause
"""Verdict on timing from nextpnr's log.

nextpnr says PASS at whatever frequency it was asked for, 12 MHz if at none, and prints an estimate
before routing in the same words. So the last line of each clock counts, and its target must be the
real clock of the board.
"""

import re
from dataclasses import dataclass

from ..host.errors import ToolError

__all__ = ["Timing", "read_timing", "read_utilisation"]

_CLOCK = re.compile(
    r"Max frequency for clock\s+'([^']+)':\s+([\d.]+) MHz \((?:PASS|FAIL) at ([\d.]+) MHz\)"
)
_REPORT = re.compile(r"Critical path report for clock '([^']+)'")
_SOURCE = re.compile(r"(?:clk-to-q|source)\s+[\d.]+\s+[\d.]+ Source (\S+)")
_SETUP = re.compile(r"setup\s+[\d.]+\s+[\d.]+ S(?:ource|ink) (\S+)")
_CELL = re.compile(r"(?:_SB_|_TRELLIS_|_CCU2C_|_LUT4_|_\$|\$_|_DFFLC|_LC\b|(?:\.\d+)*\.DO[AB]\d).*")
_USED = re.compile(r"(\w+):\s+(\d+)/\s*(\d+)\s+\d+%")


@dataclass(frozen=True)
class Timing:
    """Slowest clock of a routed design.

    Parameters
    ----------
    fmax_mhz, target_mhz : float
        Highest frequency at which it works, and the one asked for.
    path : tuple of str
        First and last register of its critical path, as named in the gateware; empty if the log
        has no report.
    """

    fmax_mhz: float
    target_mhz: float
    path: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether the design works at the frequency asked for."""
        return self.fmax_mhz >= self.target_mhz


def read_timing(log: str, clock_hz: int) -> Timing:
    """Timing after routing, checked against the board's real clock.

    Parameters
    ----------
    log : str
        nextpnr's log.
    clock_hz : int
        Clock that the design will run at.

    Raises
    ------
    ToolError
        The log has no frequency at all, or a clock was checked at another frequency.
    """
    clocks = {
        match[1]: (float(match[2]), float(match[3])) for match in _CLOCK.finditer(log)
    }  # the last line of a clock, after routing, wins
    if not clocks:
        raise ToolError(
            "nextpnr: no maximum frequency in its log, expected one line per clock; "
            "is the design empty or without a clock?"
        )
    wanted = clock_hz / 1e6
    for name, (_, target) in clocks.items():
        if abs(target - wanted) > 0.005:
            raise ToolError(
                f"nextpnr: clock {name} was checked at {target:g} MHz, expected the real "
                f"{wanted:g} MHz; its verdict means nothing; correct the constraint"
            )
    slowest = min(clocks, key=lambda name: clocks[name][0])
    return Timing(*clocks[slowest], _critical_path(log, slowest))


def read_utilisation(log: str) -> dict[str, tuple[int, int]]:
    """Cells by kind (``ICESTORM_LC``, ``TRELLIS_COMB`` and so on): used and available.

    Raises
    ------
    ToolError
        The log has no such table.
    """
    table = {match[1]: (int(match[2]), int(match[3])) for match in _USED.finditer(log)}
    if not table:
        raise ToolError("nextpnr: no table of used cells in its log; did it read the netlist?")
    return table


def _critical_path(log: str, clock: str) -> tuple[str, ...]:
    starts = [match.end() for match in _REPORT.finditer(log) if match[1] == clock]
    if not starts:
        return ()
    report = log[starts[-1] :].partition("Critical path report for")[0]
    ends = [_SOURCE.search(report), _SETUP.search(report)]
    return tuple(_CELL.sub("", match[1]) for match in ends if match)
