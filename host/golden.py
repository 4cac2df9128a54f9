# SPDX-License-Identifier: BSD-2-Clause
"""The golden model: a network in integers, evaluated with numpy int64. Engines must equal it.

Sums are exact in any order because the quantizer bounds every partial sum. The product of integer
matrices is plain numpy: no float, no library whose rounding depends on the processor.
"""

import numpy as np

from ..rtl.arith import requantize
from .compiler.quantize import Ints, QuantizedLayer, QuantizedNetwork
from .errors import InputError

__all__ = ["run", "run_layers"]


def run(network: QuantizedNetwork, q: Ints) -> Ints:
    """Outputs of the last layer, (n, n_out) int64, for inputs (n, n_in).

    Raises
    ------
    InputError
        `q` has the wrong shape or type, or a value lies beyond the input's limits.
    """
    return run_layers(network, q)[-1]


def run_layers(network: QuantizedNetwork, q: Ints) -> list[Ints]:
    """Every layer's outputs, each (n, n_rows) int64, for inputs (n, n_in).

    Raises
    ------
    InputError
        `q` has the wrong shape or type, or a value lies beyond the input's limits.
    """
    values = _checked(network, q)
    outputs = []
    for layer in network.layers:
        values = _run_layer(layer, values)
        outputs.append(values)
    return outputs


def _checked(network: QuantizedNetwork, q: Ints) -> Ints:
    array = np.asarray(q)
    width = network.layers[0].n_cols
    if array.ndim != 2 or array.shape[1] != width or array.dtype.kind not in "iu":
        raise InputError(
            f"quantized input has shape {array.shape} and type {array.dtype}, "
            f"expected integers (n, {width})"
        )
    low, high = network.input.low, network.input.high
    if array.size and (array.min() < low or array.max() > high):
        raise InputError(
            f"quantized input spans {array.min()}..{array.max()}, expected {low}..{high}; "
            "use the input's quantizer, which saturates"
        )
    return array.astype(np.int64)


def _run_layer(layer: QuantizedLayer, q: Ints) -> Ints:
    sums = q @ layer.weights().T
    return requantize(sums, layer.bias, layer.shift, layer.low, layer.high)
