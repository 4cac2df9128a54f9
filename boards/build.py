# SPDX-License-Identifier: BSD-2-Clause
"""Bitstream of a board: synthesis, place and route at the real clock, a report beside it.

yosys can stop in the middle with exit status 0, so every step is judged by the file it had to
write. Where timing is not met the next seed is tried; a bitstream that misses timing is not kept.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ..host.errors import ToolError
from ..rtl.config import EngineConfig
from ..rtl.formats import Identity
from ..rtl.tools import Progress, Tool, find_tool
from .common import Board, bitstream_id, find_board
from .devices import Device
from .resources import check_fit
from .timing import Timing, read_timing, read_utilisation

__all__ = ["SEEDS", "BuildReport", "build", "free_collisions"]

SEEDS = (1, 2, 3, 4, 5, 6)
"""Seeds of the placement, tried in this order."""

_READ_PORT = re.compile(r"^  cell \$memrd_v2 .*?^  end$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class BuildReport:
    """What a build made.

    Parameters
    ----------
    board : str
    clock_mhz, fmax_mhz : float
        Clock of the engine, and the highest at which it works.
    timing_met : bool
    lut, dsp, ram, spram : int
        Logic cells, multipliers, block RAMs and single-port RAMs used.
    available : dict
        The same, as many as the device has; without those that it has none of.
    bitstream : str
        Path.
    bitstream_id : str
        Eight bytes as hexadecimal digits; the engine says the same of itself.
    seed : int
        Seed of the placement.
    tools : dict
        Versions by name.
    config : dict
        Parameters of the engine.
    """

    board: str
    clock_mhz: float
    fmax_mhz: float
    timing_met: bool
    lut: int
    dsp: int
    ram: int
    available: dict[str, int]
    bitstream: str
    bitstream_id: str
    seed: int
    tools: dict[str, str]
    config: dict[str, int | bool]
    spram: int = 0


def build(
    board: str,
    *,
    output: Path = Path("build"),
    config: EngineConfig | None = None,
    seeds: Sequence[int] = SEEDS,
    progress: Progress | None = None,
) -> BuildReport:
    """Build the bitstream of a board into the folder `output`/`board`, replacing it whole.

    Parameters
    ----------
    board : str
        Name of the board.
    config : EngineConfig, optional
        Engine; the board's own by default.
    seeds : sequence of int
        Tried in turn until timing is met.
    progress : callable, optional
        Told what is being done.

    Returns
    -------
    BuildReport
        Also in the folder, as ``report.json``, beside the bitstream and the logs of the tools.

    Raises
    ------
    InputError
        There is no such board.
    CapacityError
        The engine does not fit the device.
    ToolError
        A tool is missing or failed, or timing is not met.
    """
    target = find_board(board)
    config = config or target.config
    device = target.device
    check_fit(config, device)
    tools = [find_tool(name) for name in device.tools]
    versions = {tool.name: tool.version for tool in tools}
    versions["amaranth"] = metadata.version("amaranth")
    name = bitstream_id(config, *sorted(f"{key} {value}" for key, value in versions.items()))
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=f"{board}-") as made:
        folder = Path(made)
        _write_sources(target, Identity(config, target.clock_hz, name), folder)
        _synthesize(tools[0], folder, progress)
        seed, timing = _place(tools[1], target, folder, seeds, progress)
        _pack(tools[2], device, folder, progress)
        final = output / board
        bitstream = final / f"{board}{Path(device.packed).suffix}"
        report = BuildReport(
            board=board,
            clock_mhz=target.clock_hz / 1e6,
            fmax_mhz=timing.fmax_mhz,
            timing_met=timing.met,
            **_used(folder / "nextpnr.log", device),
            bitstream=str(bitstream),
            bitstream_id=name.hex(),
            seed=seed,
            tools=versions,
            config=asdict(config),
        )
        (folder / device.packed).replace(folder / bitstream.name)
        _deliver(folder, final, report)
    return report


def _used(log: Path, device: Device) -> dict[str, Any]:
    """What the placed design uses, and what the device has."""
    table = read_utilisation(log.read_text(encoding="utf-8"))
    counts = {name: table[cell] for name, cell in device.cells.items()}
    available = {name: total for name, (_, total) in counts.items()}
    return {name: count for name, (count, _) in counts.items()} | {"available": available}


def _write_sources(board: Board, identity: Identity, folder: Path) -> None:
    """RTLIL, constraints and scripts, as Amaranth's platform makes them."""
    platform = board.platform()
    plan: Any = platform.build(
        board.top(identity, board),
        do_build=False,
        emit_src=False,
        synth_opts=board.device.synth_options,
    )
    for name, content in plan.files.items():
        text = content if isinstance(content, str) else content.decode()
        if name == "top.il":
            text = free_collisions(text)
        (folder / name).write_text(text, encoding="utf-8")


def free_collisions(rtlil: str) -> str:
    """RTLIL whose block RAMs may give anything for a word that is written in the same cycle.

    The engine never uses such data (tests/sim/test_collisions.py runs it with random bits there).
    Otherwise yosys would add two flip-flops and two LUTs to each bit of an iCE40's memories, which
    give no old word by themselves.
    """
    return _READ_PORT.sub(_free_collision, rtlil)


def _free_collision(match: re.Match[str]) -> str:
    text = match[0]
    if "\\CLK_ENABLE 1\n" not in text or "\\TRANSPARENCY_MASK 1'0\n" not in text:
        return text
    return text.replace("\\COLLISION_X_MASK 1'0\n", "\\COLLISION_X_MASK 1'1\n")


def _synthesize(yosys: Tool, folder: Path, progress: Progress | None) -> None:
    if progress is not None:
        progress("synthesis with yosys")
    run = yosys.run(["-q", "-l", "yosys.log", "top.ys"], folder=folder, progress=progress)
    if run.status != 0 or not _is_there(folder / "top.json"):
        raise ToolError(
            f"yosys {yosys.version}: exit status {run.status} and no netlist, expected top.json; "
            f"it said: {_last_line(run.stderr)}"
        )


def _place(
    nextpnr: Tool, board: Board, folder: Path, seeds: Sequence[int], progress: Progress | None
) -> tuple[int, Timing]:
    """Place and route with one seed after the other until timing is met."""
    device = board.device
    best: Timing | None = None
    for seed in seeds:
        if progress is not None:
            progress(f"place and route with nextpnr, seed {seed}")
        log = folder / "nextpnr.log"
        log.unlink(missing_ok=True)
        run = nextpnr.run(
            [
                *device.place[1:], "--json", "top.json", "--freq", f"{board.clock_hz / 1e6:g}",
                "--seed", str(seed), "--log", log.name, "--quiet",
            ],
            folder=folder,
            progress=progress,
        )  # fmt: skip
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if "Routing complete" not in text:
            # Frequencies before that are estimates.
            raise ToolError(
                f"{nextpnr.name} {nextpnr.version}: exit status {run.status} before the end of "
                f"routing; it said: {_last_line(run.stderr)}"
            )
        timing = read_timing(text, board.clock_hz)
        if timing.met and run.status == 0 and _is_there(folder / device.placed):
            return seed, timing
        best = timing if best is None or timing.fmax_mhz > best.fmax_mhz else best
    if best is None:
        raise ValueError("seeds must not be empty")
    path = " to ".join(best.path) or "unknown"
    raise ToolError(
        f"timing: {best.fmax_mhz:g} MHz at best, expected {best.target_mhz:g} MHz; slowest path: "
        f"{path}; try other seeds, a smaller engine, or a lower clock"
    )


def _pack(packer: Tool, device: Device, folder: Path, progress: Progress | None) -> None:
    run = packer.run(list(device.pack[1:]), folder=folder, progress=progress)
    if run.status != 0 or not _is_there(folder / device.packed):
        raise ToolError(
            f"{packer.name} {packer.version}: exit status {run.status} and no bitstream; "
            f"it said: {_last_line(run.stderr)}"
        )


def _deliver(folder: Path, final: Path, report: BuildReport) -> None:
    """Put bitstream, report and logs in place in one step."""
    ready = Path(tempfile.mkdtemp(dir=final.parent, prefix=f"{final.name}-ready-"))
    ready.chmod(0o755)
    for name in (Path(report.bitstream).name, "yosys.log", "nextpnr.log"):
        (folder / name).replace(ready / name)
    text = json.dumps(asdict(report), indent=2)
    (ready / "report.json").write_text(text + "\n", encoding="utf-8")
    if final.exists():
        final.replace(folder / "old")
    ready.replace(final)
    shutil.rmtree(folder / "old", ignore_errors=True)


def _is_there(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][-300:] or "nothing"
