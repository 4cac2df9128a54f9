# SPDX-License-Identifier: BSD-2-Clause
"""What all boards share: the engine behind a UART's two pins, and what a board is made of."""

import importlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amaranth import Elaboratable, Module, Signal
from amaranth.build import Platform
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out, connect

from ..host.errors import InputError
from ..rtl import tools
from ..rtl.config import EngineConfig
from ..rtl.engine import Engine
from ..rtl.formats import Identity
from ..rtl.tools import digest
from ..rtl.uart import Uart, baud_divisor
from .devices import Device

__all__ = [
    "BOARD_NAMES",
    "Board",
    "UartEngine",
    "bitstream_id",
    "connect_uart",
    "find_board",
    "gateware_digest",
]

_MODULES = {"icebreaker": "icebreaker", "ulx3s-85f": "ulx3s"}

BOARD_NAMES = tuple(_MODULES)
"""Boards, one module each in this folder."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board that an engine can be built for.

    Parameters
    ----------
    name : str
    config : EngineConfig
        The engine that fits it.
    clock_hz : int
        Clock of the engine.
    baud : int
        Bits per second of the link.
    device : Device
        Its FPGA.
    platform : callable
        Makes the Amaranth platform.
    top : callable
        Makes the top of a bitstream from the engine's identity and this board.
    """

    name: str
    config: EngineConfig
    clock_hz: int
    baud: int
    device: Device
    platform: Callable[[], Platform]
    top: "Callable[[Identity, Board], Elaboratable]"

    @property
    def divisor(self) -> int:
        """Clock cycles per bit of the link."""
        return baud_divisor(self.clock_hz, self.baud)


class UartEngine(wiring.Component):
    """Engine whose bytes come and go over a UART.

    Parameters
    ----------
    identity : Identity
        What the engine says of itself; holds its config.
    divisor : int
        Clock cycles per bit.

    Members
    -------
    rx : In(1)
        From the host, idle high.
    tx : Out(1)
        To the host, idle high.
    """

    rx: Signal
    tx: Signal

    def __init__(self, identity: Identity, *, divisor: int) -> None:
        self._identity = identity
        self._divisor = divisor
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Connect UART and engine; the UART's faults show in the engine's status."""
        m = Module()
        m.submodules.uart = uart = Uart(divisor=self._divisor)
        m.submodules.engine = engine = Engine(self._identity)
        connect(m, uart.o, engine.i)
        connect(m, engine.o, uart.i)
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            engine.link_errors.eq(uart.errors),
        ]
        return m


def connect_uart(m: Module, platform: Any, engine: UartEngine) -> None:
    """Buffers between the engine and the pins of the platform's first UART."""
    names = [pin.name for pin in platform.lookup("uart", 0).ios]
    pins = platform.request("uart", 0, dir=dict.fromkeys(names, "-"))
    m.submodules.rx = rx = io.Buffer(io.Direction.Input, pins.rx)
    m.submodules.tx = tx = io.Buffer(io.Direction.Output, pins.tx)
    m.d.comb += [engine.rx.eq(rx.i), tx.o.eq(engine.tx)]


def find_board(name: str) -> Board:
    """Board by name.

    Raises
    ------
    InputError
        There is no such board; names those that there are.
    """
    if name not in _MODULES:
        raise InputError(f"board: {name!r} is unknown; expected one of {', '.join(BOARD_NAMES)}")
    return importlib.import_module(f".{_MODULES[name]}", __package__).BOARD


def gateware_digest() -> str:
    """Hash over the sources that the gateware is made of, whatever their line endings."""
    folders = [Path(tools.__file__).parent, Path(__file__).parent]
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return digest(
        *(part for path in files for part in (path.name, path.read_text(encoding="utf-8")))
    )


def bitstream_id(config: EngineConfig, *versions: str) -> bytes:
    """Eight bytes that name a bitstream: a hash of config, gateware sources and tool versions."""
    parameters = json.dumps(asdict(config), sort_keys=True)
    return bytes.fromhex(digest(parameters, gateware_digest(), *versions))[:8]
