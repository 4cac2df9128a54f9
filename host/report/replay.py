# SPDX-License-Identifier: BSD-2-Clause
"""The golden model again in float64, with one thing at a time in its exact version.

No clamp, no rounding, real weights in place of integers, the original weights in place of shared or
of pruned ones: the error that goes away is the error that this one thing causes. Sums of integers
are exact in float64, so with nothing replaced the results are those of the golden model.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compiler.quantize import QuantizedNetwork
from ..compression.compress import CompressedModel
from ..network import Network, activate

__all__ = ["FACTORS", "Cause", "Replay"]

Doubles = npt.NDArray[np.float64]

FACTORS = ("saturation", "step", "overflow bound", "codebook", "pruning")
"""What can be replaced by its exact version; the last two need the original network."""


@dataclass(frozen=True)
class Cause:
    """What remains of the first wrong tensor's error when one thing is exact.

    Parameters
    ----------
    tensor : str
        Where: ``"input"`` or a layer.
    factor : str
        What, one of `FACTORS`.
    left : float
        Squared error left, as a share of what it is otherwise.
    """

    tensor: str
    factor: str
    left: float


class Replay:
    """The golden model in float64, in which one thing can be exact.

    Parameters
    ----------
    model : CompressedModel
    integers : QuantizedNetwork
        Made from `model`.
    network : Network, optional
        The original, for the factors that need it.
    samples : (n, n_inputs) float32
    """

    def __init__(
        self,
        model: CompressedModel,
        integers: QuantizedNetwork,
        network: Network | None,
        samples: npt.NDArray[np.float32],
    ) -> None:
        self._integers = integers
        self._layers = model.layers
        self._originals = None if network is None else network.layers
        self._samples = samples.astype(np.float64)

    def causes(self, wrong: int, exact: Doubles) -> tuple[Cause, ...]:
        """What each thing has to do with the error of a tensor, the largest share first.

        Parameters
        ----------
        wrong : int
            The tensor: 0 is the input, k the output of layer k - 1. It must have an error.
        exact : (n, width) float64
            What its values should be.
        """
        total = self.error(wrong, exact)
        names = ["input", *(layer.name for layer in self._layers)]
        found = [
            Cause(names[place], factor, self.error(wrong, exact, place, factor) / total)
            for place in range(wrong + 1)
            for factor in self._factors(place)
        ]
        return tuple(sorted(found, key=lambda one: one.left))

    def _factors(self, place: int) -> tuple[str, ...]:
        if place == 0:
            return FACTORS[:2]
        return FACTORS[:3] if self._originals is None else FACTORS

    def error(
        self, wrong: int, exact: Doubles, place: int | None = None, factor: str = ""
    ) -> float:
        """Squared error of tensor `wrong`; `factor` of tensor `place` is exact if given."""
        source = self._integers.input
        steps = (self._samples - source.origin) / source.scale
        steps = _round(steps, source.low, source.high, factor if place == 0 else "")
        for k in range(wrong):
            steps = self._run_layer(k, steps, factor if place == k + 1 else "")
        quantizer = source if not wrong else self._integers.layers[wrong - 1].output
        return float(np.square(quantizer.origin + quantizer.scale * steps - exact).sum())

    def _run_layer(self, k: int, steps: Doubles, factor: str) -> Doubles:
        layer = self._integers.layers[k]
        weights = np.ldexp(layer.weights().astype(np.float64), -layer.shift[:, None])
        bias = np.ldexp(layer.bias.astype(np.float64), -layer.shift)
        bias -= np.where(layer.shift > 0, 0.5, 0.0)
        if factor in FACTORS[2:]:
            more, offset = self._correction(k, weights, bias, factor)
            weights, bias = weights + more, bias + offset
        sums = steps @ weights.T + bias
        if factor not in FACTORS[:2]:
            return np.clip(np.floor(sums + 0.5), layer.low, layer.high)
        own = self._layers[k]
        real = activate(layer.output.origin + layer.output.scale * sums, own.activation, own.limits)
        sums = (real - layer.output.origin) / layer.output.scale
        return _round(sums, layer.output.low, layer.output.high, factor)

    def _correction(
        self, k: int, weights: Doubles, bias: Doubles, factor: str
    ) -> tuple[Doubles, Doubles]:
        """What to add to weights and bias, both in steps of the output, to make `factor` exact."""
        layer, own = self._integers.layers[k], self._layers[k]
        source, target = layer.input, layer.output
        shared = own.matrix.weight().astype(np.float64)
        if factor == "overflow bound":
            real = own.bias + source.origin * shared.sum(axis=1) - target.origin
            return shared * (source.scale / target.scale) - weights, real / target.scale - bias
        assert self._originals is not None
        original = self._originals[k]
        if factor == "codebook":
            more = np.where(shared != 0, original.weight - shared, 0.0)
            offset = original.bias - own.bias.astype(np.float64)
        else:
            more = np.where(shared != 0, 0.0, original.weight)
            offset = np.zeros(len(bias))
        offset = offset + source.origin * more.sum(axis=1)
        return more * (source.scale / target.scale), offset / target.scale


def _round(steps: Doubles, low: int, high: int, exact: str) -> Doubles:
    """Rounded unless the step is exact, clamped unless saturation is."""
    rounded = steps if exact == "step" else np.rint(steps)
    return rounded if exact == "saturation" else np.clip(rounded, low, high)
