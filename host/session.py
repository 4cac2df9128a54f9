# SPDX-License-Identifier: BSD-2-Clause
"""Session: a compressed model on a device, called like any other runtime."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from ..rtl.config import EngineConfig
from ..rtl.formats import COUNTER_NAMES
from . import golden
from .compiler.compiler import Image, compile_network
from .compiler.quantize import QuantizedNetwork, quantize
from .compression import model_file
from .compression.compress import CompressedModel
from .device.device import Device, RunStats, open_device
from .errors import CapacityError, InputError
from .finals import apply_final, n_answers
from .quantizer import Quantizer

__all__ = ["Session", "Tensor"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tensor:
    """Input or output of a model: name, number of features, and what its integers stand for."""

    name: str
    features: int
    quantizer: Quantizer


class Session:
    """A model, ready to run. Threads may share it, and sessions a device: calls take turns.

    Parameters
    ----------
    model : str, Path, CompressedModel or QuantizedNetwork
        A `.gossamer` file, or what one holds.
    device : str or Device
        ``"golden"`` (the integer model in numpy), ``"sim"`` or ``"sim://BOARD"``, a serial port, or
        ``"auto"``; or an open device, which the session then does not close.
    timeout : float
        Seconds of silence after which the device counts as lost.

    Attributes
    ----------
    network : QuantizedNetwork
        The model in integers, for this device's widths.
    config : EngineConfig
        The device's; without a device, the default one.
    inputs, outputs : tuple of Tensor
        One each.
    last_stats : RunStats, optional
        What the last run cost.

    Raises
    ------
    FormatError
        The file cannot be read.
    CapacityError
        The model does not fit the device.
    DeviceError
        The device is missing, or does not answer as it should.
    """

    def __init__(
        self,
        model: str | Path | CompressedModel | QuantizedNetwork,
        device: str | Device = "golden",
        *,
        timeout: float = 5.0,
    ) -> None:
        if isinstance(model, str | Path):
            model = model_file.load(model)
        self._owned = isinstance(device, str)
        self._device: Device | None = None
        self._image: Image | None = None
        self.config = EngineConfig()
        self.last_stats: RunStats | None = None
        if device != "golden":
            if isinstance(device, str):
                device = open_device(device, timeout=timeout)
            self._device = device
            self.config = device.identity.config
        try:
            self.network = self._quantize(model)
            if self._device is not None:
                self._image = compile_network(self.network, self.config)
        except BaseException:
            self.close()
            raise
        layers = self.network.layers
        self.inputs = (Tensor("input", layers[0].n_cols, self.network.input),)
        answers = n_answers(self.network.final, layers[-1].n_rows)
        self.outputs = (Tensor("output", answers, self.network.output),)

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
        """Close the device, if the session opened it."""
        if self._device is not None and self._owned:
            self._device.close()

    def reconnect(self) -> None:
        """Open the device's port again and load the model, after it was unplugged or lost power.

        Raises
        ------
        DeviceError
            The port is not there, nothing answers, or another engine does.
        """
        if self._device is None or self._image is None:
            return
        with self._device.lock:
            self._device.reconnect()
            self._device.load(self._image)

    @property
    def device(self) -> Device | None:
        """The device; None for ``"golden"``."""
        return self._device

    @property
    def image(self) -> Image | None:
        """The model as compiled for the device; None for ``"golden"``."""
        return self._image

    @overload
    def run(self, x: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]: ...

    @overload
    def run(self, x: npt.ArrayLike) -> Floats: ...

    def run(self, x: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Floats | dict[str, Floats]:
        """Run real inputs.

        Parameters
        ----------
        x : (features,) or (n, features), of any real type; or a dict ``{"input": ...}`` of such
            Values beyond the input's range saturate. Never changed.

        Returns
        -------
        (outputs,) or (n, outputs) float32; or a dict ``{"output": ...}``
            After the final step of the network, which the host does: softmax, sigmoid, or argmax
            (one output, the number of the largest).

        Raises
        ------
        InputError
            Wrong shape, type or name; NaN or infinite.
        DeviceError
            The device fails.
        """
        if isinstance(x, Mapping):
            name = self.inputs[0].name
            if list(x) != [name]:
                raise InputError(f"inputs are named {sorted(map(str, x))}, expected ['{name}']")
            return {self.outputs[0].name: self._run(x[name])}
        return self._run(x)

    def run_quantized(self, q: npt.ArrayLike) -> Ints:
        """Run integers; the same on every device. The network's final step is left out.

        Parameters
        ----------
        q : (features,) or (n, features) integers within the limits of ``inputs[0].quantizer``

        Returns
        -------
        (outputs,) or (n, outputs) int64

        Raises
        ------
        InputError
            Wrong shape or type, or a value beyond the limits.
        DeviceError
            The device fails.
        """
        array = self._checked(q, "quantized input")
        tensor = self.inputs[0].quantizer
        if array.dtype.kind not in "iu" or (
            array.size and (array.min() < tensor.low or array.max() > tensor.high)
        ):
            span = f"{array.min()}..{array.max()}" if array.size else "nothing"
            raise InputError(
                f"quantized input has type {array.dtype} and spans {span}, expected integers in "
                f"{tensor.low}..{tensor.high}; run() takes real numbers"
            )
        outputs = self._infer(np.atleast_2d(array).astype(np.int64))
        return outputs[0] if array.ndim == 1 else outputs

    def stream(self, xs: Iterable[npt.ArrayLike]) -> Iterator[Floats]:
        """Run real inputs as they come; results in the same order.

        Two runs are in flight: the next one's inputs are sent while one goes on. A run takes up to
        `EngineConfig.batch` inputs, so up to 2 x batch are taken before their results are handed
        out. Another run on the same device ends the stream.

        Parameters
        ----------
        xs : iterable of (features,), of any real type

        Yields
        ------
        (outputs,) float32

        Raises
        ------
        InputError
            Wrong shape or type; NaN or infinite.
        DeviceError
            The device fails.
        """
        rows = (self._sample(x) for x in xs)
        if self._device is None or self._image is None:
            for row in rows:
                yield self._answers(golden.run(self.network, row[None])[0])
            return
        image, device = self._image, self._device
        with device.lock:
            device.load(image)
            runs = device.stream(rows)
            first = list(itertools.islice(runs, 1))
        for results, _ in itertools.chain(first, runs):
            yield from self._answers(results.take(image.output_slots, axis=1))

    def quantize(self, x: npt.ArrayLike) -> Ints:
        """Integers that `run` makes of real inputs, (features,) or (n, features) int64.

        Raises
        ------
        InputError
            Wrong shape or type; NaN or infinite.
        """
        return self.inputs[0].quantizer.quantize(self._checked(x, "input"))

    def layers(self, q: Ints) -> list[Ints | None]:
        """Outputs of every layer, for verification: one run of all inputs per layer.

        Parameters
        ----------
        q : (n, features) int64

        Returns
        -------
        list of (n, n_rows) int64
            One per layer; None where a layer has more outputs than the device can return.
        """
        if self._device is None or self._image is None:
            return list(golden.run_layers(self.network, q))
        with self._device.lock:
            self._device.load(self._image)
            outputs = [self._layer(self._device, k, q) for k in range(len(self.network.layers))]
            self._device.load(self._image)
        return outputs

    @staticmethod
    def _layer(device: Device, k: int, q: Ints) -> Ints | None:
        try:
            image = device.stop_after(k)
        except CapacityError:
            return None
        results, _ = device.infer(q)
        return results.take(image.output_slots, axis=1)

    def _quantize(self, model: CompressedModel | QuantizedNetwork) -> QuantizedNetwork:
        if isinstance(model, QuantizedNetwork):
            return model
        config = self.config
        return quantize(model, activation_bits=config.activation_bits, sum_bits=config.sum_bits)

    def _run(self, x: npt.ArrayLike) -> Floats:
        q = self.quantize(x)
        outputs = self._answers(self._infer(np.atleast_2d(q)))
        return outputs[0] if q.ndim == 1 else outputs

    def _answers(self, outputs: Ints) -> Floats:
        """What `run` returns for integers of the last layer (..., n_rows)."""
        return apply_final(self.network.final, self.network.output.dequantize(outputs))

    def _infer(self, q: Ints) -> Ints:
        if self._device is None or self._image is None:
            started = time.monotonic()
            outputs = golden.run(self.network, q)
            seconds = {"host": time.monotonic() - started, "link": 0.0, "engine": 0.0}
            self.last_stats = RunStats(len(q), 0, dict.fromkeys(COUNTER_NAMES[1:], 0), seconds)
            return outputs
        with self._device.lock:
            self._device.load(self._image)
            results, self.last_stats = self._device.infer(q)
        return results.take(self._image.output_slots, axis=1)

    def _sample(self, x: npt.ArrayLike) -> Ints:
        q = self.quantize(x)
        if q.ndim != 1:
            raise InputError(
                f"input of a stream has shape {q.shape}, expected one sample "
                f"({self.inputs[0].features},); run() takes many at once"
            )
        return q

    def _checked(self, x: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
        """Any array-like as an array of one or two dimensions and the right width."""
        features = self.inputs[0].features
        try:
            array = np.asarray(x)
        except ValueError as error:  # ragged lists
            raise InputError(f"{what} is no array: {error}") from error
        if array.dtype.kind not in "biuf":
            raise InputError(f"{what} has type {array.dtype}, expected real numbers")
        if array.ndim not in (1, 2) or array.shape[-1] != features:
            raise InputError(
                f"{what} has shape {array.shape}, expected ({features},) or (n, {features})"
            )
        return array
