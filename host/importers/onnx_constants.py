# SPDX-License-Identifier: BSD-2-Clause
"""Quantized constants of ONNX models: the real numbers that integer weights and biases stand for.

onnx's reference implementation has these operators only as they are since opset 19, and none of
QONNX's.
"""

import re
from collections.abc import Callable

import numpy as np

from ..errors import InputError
from .onnx_graph import Array, Graph, Node

__all__ = ["CONSTANT_HANDLERS", "integer_limits", "quant_limits", "rounding_mode"]

ROUNDING = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil, "ROUND_TO_ZERO": np.trunc}
"""Rounding modes of a Quant node."""

WIDEST = 16
"""Most bits of a quantized activation."""

TYPES = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 21: "uint4", 22: "int4"}
"""Integers that QuantizeLinear may make, by their numbers in ONNX."""


def integer_limits(node: Node, zero_point: Array | None) -> tuple[int, int]:
    """Smallest and largest integer that a QuantizeLinear or DequantizeLinear node knows.

    Raises
    ------
    InputError
        Its type is no integer of at most 16 bits.
    """
    kind = TYPES.get(node.attributes.get("output_dtype", 2), "floats")
    if zero_point is not None:
        kind = zero_point.dtype.name
    found = re.fullmatch(r"(u?)int(\d+)", kind)
    if found is None or int(found[2]) > WIDEST:
        raise InputError(f"quantizes to {kind}, expected integers of at most {WIDEST} bits")
    span = 1 << int(found[2])
    low = 0 if found[1] else -span // 2
    return low, low + span - 1


def quant_limits(node: Node, bits: float) -> tuple[float, float]:
    """Smallest and largest integer of a Quant node."""
    signed, narrow = node.attributes.get("signed", 1), node.attributes.get("narrow", 0)
    if signed:
        return -(2.0 ** (bits - 1)) + bool(narrow), 2.0 ** (bits - 1) - 1
    return 0.0, 2.0**bits - 1 - bool(narrow)


def rounding_mode(node: Node) -> str:
    """Rounding mode of a Quant node."""
    value = node.attributes.get("rounding_mode", b"ROUND")
    return (value.decode() if isinstance(value, bytes) else str(value)).upper()


def _quantize(graph: Graph, node: Node) -> Array:
    """Integers as float64, which hold them exactly."""
    values = _argument(graph, node, 0)
    scale, zero = (_along_axis(node, _argument(graph, node, k), values.shape) for k in (1, 2))
    stored = graph.constants[node.inputs[2]] if len(node.inputs) > 2 else None
    return np.clip(np.rint(values / scale) + zero, *integer_limits(node, stored))


def _dequantize(graph: Graph, node: Node) -> Array:
    values = _argument(graph, node, 0)
    scale, zero = (_along_axis(node, _argument(graph, node, k), values.shape) for k in (1, 2))
    return ((values - zero) * scale).astype(np.float32)


def _quant(graph: Graph, node: Node) -> Array:
    values, scale, zero, bits = (_argument(graph, node, place) for place in range(4))
    round_to = ROUNDING.get(rounding_mode(node))
    if round_to is None:
        raise InputError(
            f"rounding mode is {rounding_mode(node)}, expected one of {', '.join(ROUNDING)}"
        )
    low, high = quant_limits(node, float(bits.reshape(-1)[0]))
    steps = np.clip(round_to(values / scale + zero), low, high)
    return ((steps - zero) * scale).astype(np.float32)


def _argument(graph: Graph, node: Node, place: int) -> Array:
    """An argument as float64; 0 for one that is left out."""
    name = node.inputs[place] if place < len(node.inputs) else ""
    return np.asarray(graph.constants[name] if name else 0.0, dtype=np.float64)


def _along_axis(node: Node, values: Array, shape: tuple[int, ...]) -> Array:
    """Scales or zero points so that they broadcast: one, one per channel, or one per block."""
    if values.size == 1:
        return values.reshape(())
    axis = node.attributes.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    block = node.attributes.get("block_size", 0)
    if block and values.ndim == len(shape) and 0 <= axis < len(shape):
        values = np.repeat(values, block, axis).take(range(shape[axis]), axis)
    elif values.ndim == 1 and axis < len(shape):
        values = values.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    try:
        np.broadcast_shapes(values.shape, shape)
    except ValueError:
        raise InputError(
            f"scales or zero points have shape {values.shape}, expected one value, or one for each "
            f"place along axis {axis} of {shape}"
        ) from None
    return values


CONSTANT_HANDLERS: dict[str, Callable[[Graph, Node], Array]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "Quant": _quant,
    "IntQuant": _quant,
}
"""Operators on constants that are evaluated here."""
