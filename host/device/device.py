# SPDX-License-Identifier: BSD-2-Clause
"""Device: an engine behind a port, simulated or real: handshake, images, inference."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ...rtl.config import EngineConfig
from ...rtl.formats import COUNTER_NAMES, PROTOCOL_VERSION, Command, Identity, State, Status
from ..compiler.compiler import Image, program_image
from ..errors import DeviceError, DeviceTimeout, InputError
from .jobs import run_jobs
from .link import PAUSE, Clock, Link, Port
from .ports import BAUD_RATES, list_serial_ports, open_port, reopen_port
from .upload import DeviceStatus, commit, read_status, send_image

__all__ = ["Device", "RunStats", "open_device"]

PROBE_SECONDS = 1.0
"""Longest wait for a first sign of life, per port and baud rate, where several are tried."""

RX_MARGIN = 32
"""Bytes of the device's receive buffer kept free: the frame that is just arriving ends in a CRC."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunStats:
    """What a call cost.

    Parameters
    ----------
    images : int
        Inputs, of which a run takes up to `EngineConfig.batch`.
    cycles : int
        Engine cycles, over all runs.
    counters : dict
        Multiplier cycles by class, over all runs; they add up to `EngineConfig.multipliers` x
        cycles (all 0 on an engine built without counters).
    seconds : dict
        ``engine``: cycles at the device's clock; ``link``: time sending and waiting at the port;
        ``host``: all other time of the call. Engine and link overlap.
    """

    images: int
    cycles: int
    counters: dict[str, int]
    seconds: dict[str, float]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _alone(
    method: "Callable[Concatenate[Device, _P], _R]",
) -> "Callable[Concatenate[Device, _P], _R]":
    """Have a method of a device wait until no other thread uses the device."""

    @wraps(method)
    def call(self: "Device", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self.lock:
            return method(self, *args, **kwargs)

    return call


class Device:
    """An engine that answers on a port.

    Threads may share it: their calls come one after the other.

    Parameters
    ----------
    port : Port
        Open; the device closes it.
    where : str
        Name in messages.
    timeout : float
        Seconds of silence after which a request fails.
    patience : float, optional
        The same for the very first request; `timeout` by default.
    clock : Clock
        What all waiting goes by.

    Attributes
    ----------
    identity : Identity
        Config, clock and bitstream id, as the device says.
    link : Link
        For its statistics.
    lock : RLock
        Held by every call; hold it over several that belong together.

    Raises
    ------
    DeviceError
        It speaks another protocol version, or is no Gossamer engine.
    DeviceTimeout
        Nothing answers.
    """

    def __init__(
        self,
        port: Port,
        where: str,
        *,
        timeout: float = 5.0,
        patience: float | None = None,
        clock: Clock = time,
    ) -> None:
        self.where = where
        self.lock = threading.RLock()
        self.link = Link(
            port, where, timeout=timeout if patience is None else patience, clock=clock
        )
        self._port = port
        self._base: Image | None = None  # whose weights are loaded
        self._image: Image | None = None  # whose program is loaded
        self._settled = False
        self._turn: object = None
        self.identity = self._handshake()
        self.link.timeout = timeout
        self.link.window = self.identity.config.rx_bytes - RX_MARGIN
        self.abort()

    @_alone
    def reconnect(self) -> None:
        """Open the port again after the device was unplugged or lost power; `load` then sends anew.

        Raises
        ------
        DeviceError
            The port is not there, or another engine answers on it.
        DeviceTimeout
            Nothing answers.
        """
        self._settled = False
        self._base = self._image = self._turn = None
        self.link.forget()
        with contextlib.suppress(OSError):
            self._port.close()
        reopen_port(self._port, self.where)
        identity = self._handshake()
        if identity != self.identity:
            raise DeviceError(
                f"{self.where}: another engine answers (bitstream "
                f"{identity.bitstream_id.hex()}), expected bitstream "
                f"{self.identity.bitstream_id.hex()}; open it as a new device"
            )
        self.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the port; an image stays loaded."""
        self._port.close()

    @_alone
    def status(self) -> DeviceStatus:
        """Ask for state, link flags (which that clears) and image bytes taken, in any state."""
        return read_status(self.link)

    @_alone
    def abort(self) -> None:
        """Stop and forget all runs, in any state; a loaded image stays."""
        self._stop()
        self._settled = True

    @_alone
    def load(self, image: Image) -> bool:
        """Load an image, unless the device holds it already; returns whether anything was sent.

        Raises
        ------
        DeviceError
            It was compiled for another engine, or the device refuses it.
        """
        if image.config != self.identity.config:
            raise DeviceError(
                f"{self.where}: the image is for another engine: "
                f"{_difference(image.config, self.identity.config)}; compile it for this one"
            )
        if not self._settled:
            self.abort()
            self._base = self._image = None
        base = self._base
        if base is not None and base is self._image and base.data == image.data:
            return False
        with self._at_work():
            return self._load(image)

    def _load(self, image: Image) -> bool:
        if self.status().state == State.RUNNING:  # a RUN that came twice
            self._stop()
        if self._base is not None and self._base.data == image.data:
            self._image = None
            self._send(program_image(image))
        else:
            self._base = self._image = None
            if commit(self.link, image.data):
                self._base = self._image = image
                return False
            self._send(image)
        self._base = self._image = image
        return True

    @_alone
    def stop_after(self, layer: int) -> Image:
        """Have runs end after a layer of the loaded image, until `load` is called again.

        Returns
        -------
        Image
            Says where that layer's outputs lie in the results.

        Raises
        ------
        CapacityError
            The layer has more outputs than the device can return.
        DeviceError
            No image is loaded, or the device fails.
        """
        self._loaded()
        if self._base is None or not self._settled:
            raise DeviceError(f"{self.where}: the last run failed; load the image again")
        patch = program_image(self._base, layer)
        self._image = None
        with self._at_work():
            self._send(patch)
        self._image = patch
        return patch

    @_alone
    def infer(self, q: Ints) -> tuple[Ints, RunStats]:
        """Run inputs on the loaded image, the next ones being sent while some run.

        Parameters
        ----------
        q : (n, n_inputs) int
            Activations.

        Returns
        -------
        (n, result_slots) int64, RunStats
            Results in slot order (`Image.output_slots` picks the outputs), and what it cost.

        Raises
        ------
        InputError
            `q` has the wrong shape or type, or a value does not fit an activation.
        DeviceError
            No image is loaded, or the device fails.
        """
        image = self._loaded()
        if np.ndim(q) != 2:
            raise InputError(
                f"quantized input has shape {np.shape(q)}, expected (n, {image.n_inputs})"
            )
        started, port_time = self.link.clock.monotonic(), self.link.seconds
        outputs = np.zeros((len(q), image.result_slots), dtype=np.int64)
        counters = np.zeros(len(COUNTER_NAMES), dtype=np.int64)
        done = 0
        for results, counts in self.stream(q):
            outputs[done : done + len(results)] = results
            done += len(results)
            counters += counts
        link = self.link.seconds - port_time
        cycles, *classes = counters.tolist()
        seconds = {
            "host": max(self.link.clock.monotonic() - started - link, 0.0),
            "link": link,
            "engine": cycles / self.identity.clock_hz,
        }
        named: dict[str, int] = dict(zip(COUNTER_NAMES[1:], classes, strict=True))
        return outputs, RunStats(len(q), cycles, named, seconds)

    def stream(self, rows: Iterable[Ints]) -> Iterator[tuple[Ints, Ints]]:
        """Run inputs as they come, two runs in flight; results in the same order.

        A run takes up to `EngineConfig.batch` inputs, so up to 2 x batch are taken before their
        results are handed out. Any other run or load ends a stream that is still open. Rows are
        taken while the lock is held: they must not wait for another thread that uses the device.

        Parameters
        ----------
        rows : iterable of (n_inputs,) int
            Activations.

        Yields
        ------
        (images, result_slots) int64, (8,) int64
            For each run: results of its inputs in slot order, and its counters
            (`formats.COUNTER_NAMES`).
        """
        runs = self._stream(self._loaded(), rows)
        while True:
            with self.lock:
                run = next(runs, None)
            if run is None:
                return
            yield run

    def _stream(self, image: Image, rows: Iterable[Ints]) -> Iterator[tuple[Ints, Ints]]:
        with self._at_work():
            self._wait_ready()
            self._turn = turn = object()
            yield from run_jobs(self.link, image, self._while_in_turn(turn, rows))

    def _while_in_turn(self, turn: object, rows: Iterable[Ints]) -> Iterator[Ints]:
        """Keep a stream that was ended from sending inputs amid those of another one."""
        for row in rows:
            if self._turn is not turn:
                raise DeviceError(
                    f"{self.where}: the stream was ended by another call, expected to be read to "
                    "its end first; start it again"
                )
            yield row

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Unless this ends well, the next call begins with ABORT."""
        if not self._settled:
            self._stop()
        self._settled = False
        yield
        self._settled = True

    def _stop(self) -> None:
        self.link.forget()
        self._turn = None
        self.link.request(Command.ABORT)

    def _handshake(self) -> Identity:
        raw = self.link.request(Command.HELLO)
        try:
            return Identity.unpack(raw)
        except (ValueError, TypeError) as error:
            raise DeviceError(
                f"{self.where}: the device does not match this driver (protocol "
                f"{PROTOCOL_VERSION}): {error}; build bitstream and driver from one version"
            ) from error

    def _loaded(self) -> Image:
        if self._image is None:
            raise DeviceError(f"{self.where}: no image is loaded, expected one; call load first")
        return self._image

    def _send(self, image: Image) -> None:
        send_image(self.link, image.data)
        if not commit(self.link, image.data):
            raise self.link.refusal(Command.COMMIT, Status.BAD_IMAGE)
        self._wait_ready()

    def _wait_ready(self) -> None:
        deadline = self.link.clock.monotonic() + self.link.timeout
        while (state := self.status().state) != State.READY:
            late = self.link.clock.monotonic() > deadline
            if state == State.RUNNING and not late:  # a RUN that came twice
                self._stop()
            elif state != State.CLEARING or late:
                raise DeviceError(
                    f"{self.where}: state is {state.name}, expected READY (was the device reset?); "
                    "load the image again"
                )
            self.link.clock.sleep(PAUSE)


def _difference(image: EngineConfig, device: EngineConfig) -> str:
    return ", ".join(
        f"{field.name} is {getattr(image, field.name)}, expected {getattr(device, field.name)}"
        for field in fields(image)
        if getattr(image, field.name) != getattr(device, field.name)
    )


def open_device(url: str, *, timeout: float = 5.0, baud: int | None = None) -> Device:
    """Open the device behind a port.

    Parameters
    ----------
    url : str
        ``"sim"`` or ``"sim://BOARD"``, a serial port such as ``"/dev/ttyUSB0"`` or ``"COM3"``, or
        ``"auto"``: the first serial port on which a device answers.
    timeout : float
        Seconds of silence after which a request fails.
    baud : int, optional
        Bit rate; without one those of `ports.BAUD_RATES` are tried in turn.

    Raises
    ------
    DeviceError
        The port is missing, busy or not permitted; or what answers is not for this driver.
    DeviceTimeout
        Nothing answers.
    ToolError
        What ``sim://`` needs is not installed.
    """
    if url == "auto":
        return _find_device(timeout, baud)
    if url == "sim":
        url = "sim://sim"
    if "://" in url or baud is not None:
        return _open_at(url, timeout, timeout, baud or BAUD_RATES[0])
    for rate in BAUD_RATES:
        with contextlib.suppress(DeviceTimeout):
            return _open_at(url, timeout, min(timeout, PROBE_SECONDS), rate)
    rates = " or ".join(map(str, BAUD_RATES))
    raise DeviceTimeout(
        f"{url}: got no answer to HELLO at {rates} baud, expected a Gossamer engine; check that "
        "the board is powered and its bitstream loaded"
    )


def _open_at(url: str, timeout: float, patience: float, baud: int) -> Device:
    port = open_port(url, baud)
    try:
        return Device(port, url, timeout=timeout, patience=patience)
    except BaseException:
        port.close()
        raise


def _find_device(timeout: float, baud: int | None) -> Device:
    reasons = []
    for url in list_serial_ports():
        try:
            return open_device(url, timeout=timeout, baud=baud)
        except DeviceError as error:
            reasons.append(str(error))
    found = "; ".join(reasons) or "this machine has no serial port; check the cable"
    raise DeviceError(f"auto: expected a device on one of the serial ports, found none: {found}")
