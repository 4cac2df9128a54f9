# SPDX-License-Identifier: BSD-2-Clause
"""Simulated board: the real top level as Verilog, compiled, behind the interface of a serial port.

Simulated time passes only while somebody waits for bytes, so that a slow machine sees the same
cycles as a fast one.
"""

import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

from ..boards.common import BOARD_NAMES, UartEngine, bitstream_id, find_board
from ..host.errors import DeviceError
from ..rtl.config import EngineConfig
from ..rtl.engine import Engine
from ..rtl.export import export_verilog
from ..rtl.formats import Identity
from ..rtl.tools import Progress, cache_folder, digest, find_tool
from .library import MemoryInfo, Simulation
from .verilator import build_library

__all__ = ["BoardModel", "SimulatedBoard", "board_model", "register_board"]

IDLE_CYCLES = 20_000
"""Cycles that a read waits at least for a byte, whatever its timeout."""
SLICE_CYCLES = 4_000
"""Cycles between looks at the clock on the wall."""

_WEIGHTS = re.compile(r"(?:^|\.)pe_?(\d+)\.(?:.*\.)?weights\.words$")


@dataclass(frozen=True, kw_only=True)
class BoardModel:
    """What is simulated: engine config, its nominal clock, and clock cycles per UART bit."""

    config: EngineConfig
    clock_hz: int = 50_000_000
    divisor: int = 50


_MODELS: dict[str, Callable[[], BoardModel]] = {
    "sim": lambda: BoardModel(config=EngineConfig()),
    "tile": lambda: BoardModel(config=EngineConfig(tile_rows=8, tile_columns=2)),
}


def register_board(name: str, model: BoardModel) -> None:
    """Make `model` known as ``sim://name`` in this process."""
    _MODELS[name] = lambda: model


def board_model(name: str) -> BoardModel:
    """Model by name: ``sim``, ``tile`` (that with a tensor tile), a registered one, or a board's.

    Raises
    ------
    DeviceError
        There is no such board; names those that there are.
    """
    if name in _MODELS:
        return _MODELS[name]()
    if name not in BOARD_NAMES:
        known = ", ".join(sorted({*_MODELS, *BOARD_NAMES}))
        raise DeviceError(f"sim://{name}: no such board; expected one of {known}")
    board = find_board(name)
    return BoardModel(config=board.config, clock_hz=board.clock_hz, divisor=board.divisor)


class SimulatedBoard:
    """An engine that runs in this process, read and written like a serial port.

    Parameters
    ----------
    model : BoardModel or EngineConfig
        What to simulate.
    link : str
        ``"bytes"`` hands bytes to the engine's streams, ``"uart"`` sends bits to the pins.
    trace : Path, optional
        File for waveforms (FST).
    progress : callable, optional
        Told when something slow starts: the first use builds the simulation.

    Attributes
    ----------
    identity : Identity
        What the engine says of itself.
    timeout : float or None
        Seconds that a read waits, as with a serial port; None waits for ever.

    Raises
    ------
    ToolError
        What builds the simulation is missing or failed.
    """

    def __init__(
        self,
        model: BoardModel | EngineConfig,
        *,
        link: Literal["bytes", "uart"] = "bytes",
        trace: Path | None = None,
        timeout: float | None = 1.0,
        progress: Progress | None = None,
    ) -> None:
        if isinstance(model, EngineConfig):
            model = BoardModel(config=model)
        self.identity = Identity(model.config, model.clock_hz, bitstream_id(model.config))
        self.timeout = timeout
        divisor = model.divisor if link == "uart" else 0
        verilog = _verilog(self.identity, divisor, progress)
        library = build_library(
            verilog, uart=divisor > 0, trace=trace is not None, progress=progress
        )
        self._power_up = partial(
            Simulation, library, clock_hz=model.clock_hz, divisor=divisor, waves=trace
        )
        self._simulation = self._power_up()
        self._weights = {
            int(match[1]): name
            for name in self._simulation.memories
            if (match := _WEIGHTS.search(name))
        }
        self._to_engine = bytearray()
        self._from_engine = bytearray()

    def open(self) -> None:
        """Power off and on, as a port that is opened again."""
        self.reset()

    def close(self) -> None:
        """Free the simulation and finish the waveforms. Can be called twice."""
        self._simulation.close()

    def reset(self) -> None:
        """Power off and on: memories are empty, cycles and waveforms start anew."""
        self._simulation.close()
        self._simulation = self._power_up()
        self._to_engine.clear()
        self._from_engine.clear()

    @property
    def cycles(self) -> int:
        """Clock cycles simulated so far."""
        return self._simulation.cycles

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once; where there are none, some cycles pass first."""
        if not self._from_engine:
            self._run(SLICE_CYCLES, 1)
        return len(self._from_engine)

    def write(self, data: bytes) -> int:
        """Queue bytes for the engine; they move while somebody reads."""
        self._to_engine += data
        return len(data)

    def read(self, size: int = 1) -> bytes:
        """Read `size` bytes, or what came within the timeout.

        The timeout counts seconds on the wall; `IDLE_CYCLES` are waited in any case.
        """
        idle = 0
        started = time.monotonic()
        while len(self._from_engine) < size:
            before = len(self._from_engine)
            cycles = self._run(SLICE_CYCLES, size - before)
            idle = 0 if len(self._from_engine) > before or self._to_engine else idle + cycles
            late = self.timeout is not None and time.monotonic() - started >= self.timeout
            if late and idle >= IDLE_CYCLES:
                break
        data = bytes(self._from_engine[:size])
        del self._from_engine[: len(data)]
        return data

    def flush(self) -> None:
        """Run until the engine has taken all that was written, or takes nothing more."""
        taken = True
        while self._to_engine and taken:
            before = len(self._to_engine)
            self._run(IDLE_CYCLES, Simulation.MAX_OUTPUT, until_taken=True)
            taken = len(self._to_engine) < before

    def peek(self, memory: str, address: int) -> int:
        """Word of a memory."""
        return self._simulation.peek(memory, address)

    def poke(self, memory: str, address: int, value: int) -> None:
        """Change a word of a memory behind the engine's back."""
        self._simulation.poke(memory, address, value)

    def peek_weight(self, pe: int, address: int) -> int:
        """Word of a PE's weight memory."""
        return self._simulation.peek(self._weights[pe], address)

    def poke_weight(self, pe: int, address: int, value: int) -> None:
        """Change a word of a PE's weight memory behind the engine's back."""
        self._simulation.poke(self._weights[pe], address, value)

    @property
    def memories(self) -> dict[str, MemoryInfo]:
        """Memories of the engine by hierarchical name."""
        return self._simulation.memories

    def poke_memory(self, name: str, words: bytes) -> None:
        """Overwrite a whole memory behind the engine's back (`Simulation.poke_all`)."""
        self._simulation.poke_all(name, words)

    def discard_input(self) -> None:
        """Forget the bytes that wait to be read."""
        self._from_engine.clear()

    def discard_output(self) -> None:
        """Forget the bytes that the engine has not taken yet."""
        self._to_engine.clear()

    def _run(self, cycles: int, enough: int, *, until_taken: bool = False) -> int:
        ran = self._simulation.run(
            bytes(self._to_engine[:4096]),
            max_cycles=cycles,
            enough=enough,
            until_taken=until_taken,
        )
        del self._to_engine[: ran.taken]
        self._from_engine += ran.output
        return ran.cycles


def _verilog(identity: Identity, divisor: int, progress: Progress | None) -> str:
    """Verilog of the top, from the cache if the same was exported before."""
    key = digest(
        identity.pack(), str(divisor), find_tool("yosys").version, metadata.version("amaranth")
    )
    path = cache_folder() / f"top-{key[:32]}.v"
    if path.exists():
        return path.read_text(encoding="utf-8")
    if progress is not None:
        progress("exporting the engine as Verilog")
    top = UartEngine(identity, divisor=divisor) if divisor else Engine(identity)
    text = export_verilog(top, progress=progress)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".v", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    Path(file.name).replace(path)
    return text
