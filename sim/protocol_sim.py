# SPDX-License-Identifier: BSD-2-Clause
"""pyserial's handler of ``sim://BOARD[?link=uart][&fst=FILE]``: simulated boards as serial ports.

pyserial finds it once "gossamer.sim" is in `serial.protocol_handler_packages`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast
from urllib.parse import parse_qs, urlsplit

from serial.serialutil import PortNotOpenError, SerialBase, SerialException

from ..host.errors import DeviceError
from ..rtl.tools import Progress
from .board import SimulatedBoard, board_model

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Serial"]


class Serial(SerialBase):
    """Serial port whose other end is a simulated board.

    Attributes
    ----------
    progress : callable or None
        For all ports: told when something slow starts, as the build at the first use.
    board : SimulatedBoard or None
        The board, while the port is open.
    """

    progress: ClassVar[Progress | None] = None
    board: SimulatedBoard | None = None

    def open(self) -> None:
        """Build the board, or take it from the cache, and reset it.

        Raises
        ------
        DeviceError
            The URL names no known board or a wrong option.
        ToolError
            What builds the simulation is missing or failed.
        """
        if self.port is None or self.is_open:
            raise SerialException("the port has no URL or is already open")
        name, link, waves = _parse(self.port)
        self.board = SimulatedBoard(
            board_model(name),
            link=link,
            trace=waves,
            timeout=self.timeout,
            progress=type(self).progress,
        )
        self.is_open = True

    def close(self) -> None:
        """Free the board."""
        if self.board is not None:
            self.board.close()
        self.board = None
        self.is_open = False

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""
        return self._opened().in_waiting

    def read(self, size: int = 1, /) -> bytes:
        """Read `size` bytes, or what came within the timeout."""
        return self._opened().read(size)

    def write(self, b: "ReadableBuffer", /) -> int:
        """Queue bytes for the engine."""
        return self._opened().write(bytes(b))

    def flush(self) -> None:
        """Wait until the engine has taken all bytes."""
        self._opened().flush()

    def reset_input_buffer(self) -> None:
        """Forget the bytes that wait to be read."""
        self._opened().discard_input()

    def reset_output_buffer(self) -> None:
        """Forget the bytes that were not sent yet."""
        self._opened().discard_output()

    def _opened(self) -> SimulatedBoard:
        if self.board is None:
            raise PortNotOpenError
        return self.board

    def _reconfigure_port(self) -> None:
        """Take over the timeout; rate and format of the bits are the board's."""
        if self.board is not None:
            self.board.timeout = self.timeout

    def _update_rts_state(self) -> None:
        """RTS is not connected."""

    def _update_dtr_state(self) -> None:
        """DTR is not connected."""


def _parse(url: str) -> tuple[str, Literal["bytes", "uart"], Path | None]:
    """Board, link and waveform file of a URL."""
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    link = options.pop("link", ["bytes"])[-1]
    waves = options.pop("fst", [""])[-1]
    if parts.scheme != "sim" or parts.path.strip("/") or options or link not in ("bytes", "uart"):
        raise DeviceError(
            f"{url}: not understood; expected sim://BOARD, with ?link=uart or ?link=bytes and "
            "&fst=FILE as options"
        )
    kind = cast('Literal["bytes", "uart"]', link)
    return parts.netloc or "sim", kind, Path(waves) if waves else None
