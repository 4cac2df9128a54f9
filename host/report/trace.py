# SPDX-License-Identifier: BSD-2-Clause
"""Where integers leave the float network: errors per tensor, and the cause of the first large one.

A cause is established by measuring: what takes most of the error away when `replay` makes it exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import golden
from ..compiler.quantize import QuantizedLayer, QuantizedNetwork, quantize
from ..compression.compress import CompressedModel
from ..errors import InputError
from ..network import Network, as_samples
from ..quantizer import Quantizer
from .replay import Cause, Replay

__all__ = ["SUM_BITS", "WRONG_DB", "TensorTrace", "Trace", "trace"]

SUM_BITS = {8: 32, 16: 36}
"""Bits of a sum that go with the bits of an activation, in engines that are not small."""

WRONG_DB = 20.0
"""Signal to noise ratio below which a tensor is wrong: errors of a tenth of its values."""

CAUSE_IMAGES = 512
"""Inputs that causes are measured on: those with the largest errors."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TensorTrace:
    """How far a tensor of the golden model lies from the float network's.

    Parameters
    ----------
    tensor : str
        ``"input"``, or the layer whose output it is.
    max_error, rms_error : float
        In real units.
    rms : float
        Of the float network's values.
    sqnr_db : float or None
        Signal to noise ratio in decibels; None if there is no error or no signal.
    saturated : float
        Share of the float network's values beyond the tensor's range by more than half a step.
    step : float
        Real value of one integer step.
    codebook_bits : int or None
        Bits that the layer's largest codebook value takes, of 16; None for the input.
    """

    tensor: str
    max_error: float
    rms_error: float
    rms: float
    sqnr_db: float | None
    saturated: float
    step: float
    codebook_bits: int | None

    @property
    def wrong(self) -> bool:
        """Whether errors are larger than a tenth of the values."""
        return self.sqnr_db is not None and self.sqnr_db < WRONG_DB


@dataclass(frozen=True)
class Trace:
    """What `trace` found.

    Parameters
    ----------
    images : int
    tensors : tuple of TensorTrace
        The input, then each layer's output.
    first_wrong : str or None
        First tensor whose ratio is below `WRONG_DB`.
    causes : tuple of Cause
        For that tensor, the one that explains most first; empty if there is none.
    verdict : str
        The same in a sentence or two.
    """

    images: int
    tensors: tuple[TensorTrace, ...]
    first_wrong: str | None
    causes: tuple[Cause, ...]
    verdict: str


def trace(
    model: CompressedModel,
    x: npt.ArrayLike,
    network: Network | None = None,
    *,
    activation_bits: int = 8,
) -> Trace:
    """Compare the golden model with a float network, layer by layer.

    Parameters
    ----------
    model : CompressedModel
    x : (n, n_inputs) array
        Real inputs.
    network : Network, optional
        The original; the model's own pruned and shared weights in floats by default.
    activation_bits : int
        8 or 16; sums have 32 or 36 bits.

    Raises
    ------
    InputError
        `x` cannot be used, or the network's layers have other shapes than the model's.
    """
    samples = as_samples("input", x, model.n_inputs)
    integers = quantize(model, activation_bits=activation_bits, sum_bits=SUM_BITS[activation_bits])
    reference = model.to_network() if network is None else _checked(network, model)
    exact = [values.astype(np.float64) for values in (samples, *reference.run_layers(samples))]
    q = integers.input.quantize(samples)
    found = [q, *golden.run_layers(integers, q)]
    described = list(_tensors(integers))
    tensors = tuple(
        _compare(name, quantizer, e, f, layer)
        for (name, quantizer, layer), e, f in zip(described, exact, found, strict=True)
    )
    wrong = next((k for k, one in enumerate(tensors) if one.wrong), None)
    causes: tuple[Cause, ...] = ()
    if wrong is not None:
        errors = _errors(described[wrong][1], exact[wrong], found[wrong])
        worst = np.argsort(-np.square(errors).sum(axis=1), kind="stable")[:CAUSE_IMAGES]
        replay = Replay(model, integers, network, samples[worst])
        causes = replay.causes(wrong, exact[wrong][worst])
    verdict = _verdict(model, integers, tensors, wrong, causes)
    name = None if wrong is None else tensors[wrong].tensor
    return Trace(len(samples), tensors, name, causes, verdict)


def _checked(network: Network, model: CompressedModel) -> Network:
    expected = [(layer.n_rows, layer.n_cols) for layer in model.layers]
    shapes = [layer.weight.shape for layer in network.layers]
    if shapes != expected:
        raise InputError(
            f"the original network has layers of shapes {shapes}, expected {expected} as in the "
            "compressed model; trace a model with the network that it was made from"
        )
    return network


def _tensors(
    network: QuantizedNetwork,
) -> Iterator[tuple[str, Quantizer, QuantizedLayer | None]]:
    yield "input", network.input, None
    for layer in network.layers:
        yield layer.name, layer.output, layer


def _errors(quantizer: Quantizer, exact: Doubles, found: npt.NDArray[np.int64]) -> Doubles:
    return quantizer.origin + quantizer.scale * found - exact


def _compare(
    name: str,
    quantizer: Quantizer,
    exact: Doubles,
    found: npt.NDArray[np.int64],
    layer: QuantizedLayer | None,
) -> TensorTrace:
    error = _errors(quantizer, exact, found)
    power, noise = float(np.square(exact).mean()), float(np.square(error).mean())
    steps = (exact - quantizer.origin) / quantizer.scale
    beyond = (steps < quantizer.low - 0.5) | (steps > quantizer.high + 0.5)
    return TensorTrace(
        tensor=name,
        max_error=float(np.abs(error).max()),
        rms_error=noise**0.5,
        rms=power**0.5,
        sqnr_db=10 * float(np.log10(power / noise)) if power and noise else None,
        saturated=float(beyond.mean()),
        step=abs(quantizer.scale),
        codebook_bits=None if layer is None else layer.codebook_bits,
    )


def _verdict(
    model: CompressedModel,
    integers: QuantizedNetwork,
    tensors: tuple[TensorTrace, ...],
    wrong: int | None,
    causes: tuple[Cause, ...],
) -> str:
    if wrong is None:
        ratios = [(one.sqnr_db, one.tensor) for one in tensors if one.sqnr_db is not None]
        if not ratios:
            return "no layer goes wrong: integers and floats are equal"
        ratio, name = min(ratios)
        return f"no layer goes wrong: the lowest ratio is {ratio:.1f} dB, at {name}"
    first, best = tensors[wrong], causes[0]
    place = next(k for k, one in enumerate(tensors) if one.tensor == best.tensor)
    reason = _reason(best.factor, place, model, integers, tensors[place])
    where = "" if best.tensor == first.tensor else f" at {best.tensor}"
    most = f"most of it comes from {best.factor}{where}"
    if best.left > 0.5:
        most = f"no single thing causes half of it; the most comes from {best.factor}{where}"
    return (
        f"{first.tensor} is the first that goes wrong ({first.sqnr_db:.1f} dB): {most} "
        f"(its exact version leaves {best.left:.0%} of the squared error): {reason}"
    )


def _reason(
    factor: str,
    place: int,
    model: CompressedModel,
    integers: QuantizedNetwork,
    tensor: TensorTrace,
) -> str:
    one = model.layers[place - 1].output if place else model.input
    if factor == "saturation":
        return (
            f"{tensor.saturated:.1%} of its values lie beyond its range "
            f"{one.low:g}..{one.high:g}; calibrate with typical inputs or another method"
        )
    if factor == "step":
        return (
            f"one step of its range {one.low:g}..{one.high:g} is {tensor.step:.3g}, its values "
            f"have an rms of {tensor.rms:.3g}; calibrate with typical inputs, or use an engine "
            "with 16-bit activations"
        )
    layer, matrix = integers.layers[place - 1], model.layers[place - 1].matrix
    if factor == "overflow bound":
        return (
            f"its sums leave its codebook {layer.codebook_bits} of 16 bits; "
            "an engine with wider sums, or fewer weights per row, would help"
        )
    if factor == "codebook":
        return (
            f"its weights share {len(matrix.codebook)} values; allow more `codes` in the recipe, "
            "or trace with the network that was compressed"
        )
    density = matrix.nonzeros / (layer.n_rows * layer.n_cols)
    return f"{density:.1%} of its weights are left; keep more of them, or retrain after pruning"
