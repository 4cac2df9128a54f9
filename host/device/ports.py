# SPDX-License-Identifier: BSD-2-Clause
"""Ports by URL: serial ports of the system, and simulated boards behind ``sim://``.

Everything goes through pyserial, so that one driver serves both. It is imported only here and only
when a port is wanted: what it imports itself depends on the system.
"""

import errno
import importlib
from collections.abc import Iterator

from ..errors import DeviceError, ToolError
from .link import Port

__all__ = ["BAUD_RATES", "list_serial_ports", "open_port", "reopen_port"]

BAUD_RATES = (1_000_000, 115_200)
"""Rates tried in turn where none is given: what the boards are built for, then the usual one."""

POLL_SECONDS = 0.05
"""How long one read waits; deadlines are kept above it."""

WRITE_SECONDS = 5.0
"""How long the system may take to accept one frame."""

SIMULATOR = "gossamer.sim"
"""Package with the pyserial handler `protocol_sim` for ``sim://``."""


def list_serial_ports() -> list[str]:
    """Serial ports of this machine, those on USB first."""
    from serial.tools import list_ports

    ports = sorted(list_ports.comports(), key=lambda port: (port.vid is None, port.device))
    return [port.device for port in ports]


def open_port(url: str, baud: int = BAUD_RATES[0]) -> Port:
    """Open a port for a link; DTR and RTS stay low, as they reset some boards.

    Parameters
    ----------
    url : str
        A serial port (``"/dev/ttyUSB0"``, ``"COM3"``), ``"sim://BOARD"``, or any URL that
        pyserial knows.
    baud : int
        Bits per second.

    Raises
    ------
    DeviceError
        The port is missing, busy, not permitted, or the URL is wrong.
    ToolError
        What ``sim://`` needs is not installed.
    """
    import serial

    if url.startswith("sim://"):
        _load_simulator()
    try:
        port = serial.serial_for_url(url, do_not_open=True)
        port.baudrate = baud
        port.timeout = POLL_SECONDS
        port.write_timeout = WRITE_SECONDS
        port.dtr = False
        port.rts = False
        if isinstance(port, serial.Serial):
            port.exclusive = True
    except ValueError as error:
        raise DeviceError(
            f"{url}: not a port ({error}); expected a serial port, sim://BOARD or auto"
        ) from error
    reopen_port(port, url)
    return port


def reopen_port(port: Port, where: str) -> None:
    """Open a port that is closed, with the settings it has.

    Raises
    ------
    DeviceError
        It is missing, busy or not permitted.
    """
    try:
        port.open()
    except OSError as error:  # also pyserial's own SerialException
        raise DeviceError(f"{where}: {_explain(error)}") from error


def _load_simulator() -> None:
    import serial

    if SIMULATOR not in serial.protocol_handler_packages:
        serial.protocol_handler_packages.append(SIMULATOR)
    try:
        importlib.import_module(f"{SIMULATOR}.protocol_sim")
    except ModuleNotFoundError as error:
        raise ToolError(
            f"sim:// needs the Python module {error.name}, which is not installed; "
            "pip install 'gossamer[sim]'"
        ) from error


def _explain(error: OSError) -> str:
    """What went wrong, and what to do. Windows says "busy" with a PermissionError."""
    text = str(error)
    causes = list(_causes(error))
    codes = {getattr(cause, "errno", None) for cause in causes}
    busy = "exclusively lock" in text or codes & {errno.EBUSY, errno.EAGAIN}
    if busy or "PermissionError(13" in text:
        return f"the port is busy ({text}); close the other program that has it open"
    if errno.EACCES in codes or errno.EPERM in codes:
        return (
            f"no permission to open the port ({text}); add yourself to its group (often dialout) "
            "or install a udev rule, then log in again"
        )
    if errno.ENOENT in codes or "FileNotFoundError" in text:
        there = ", ".join(list_serial_ports()) or "none"
        return f"there is no such port; ports of this machine: {there}; check the cable"
    return f"the port does not open ({text}); check that it is a serial port"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
