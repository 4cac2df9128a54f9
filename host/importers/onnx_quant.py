# SPDX-License-Identifier: BSD-2-Clause
"""Handlers of quantized ONNX models: QuantizeLinear and DequantizeLinear pairs, QONNX's Quant.

Weights and biases become the real numbers that their integers stand for. Where an activation is
quantized, the layer before takes over its grid: scale, zero point and limits, one for the tensor.

Ref: QONNX, Pappalardo et al., arXiv:2206.07527, table 2.
"""

import numpy as np

from ..errors import InputError
from .chain import Grid
from .onnx_constants import integer_limits, quant_limits, rounding_mode
from .onnx_graph import Node
from .onnx_walk import Array, Handler, Walk

__all__ = ["QONNX_DOMAINS", "QUANT_HANDLERS"]

QONNX_DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
"""Where exporters put the operator Quant."""


def _quant(walk: Walk, node: Node) -> None:
    scale, zero, bits = (
        _one(walk.constant(node, place, what), what)
        for place, what in ((1, "scale"), (2, "zero point"), (3, "bit width"))
    )
    mode = rounding_mode(node)
    if mode != "ROUND":
        raise InputError(f"rounding mode is {mode}, expected ROUND: the engine rounds to nearest")
    low, high = quant_limits(node, bits)
    _declare(walk, node, _grid(scale, zero, low, high))


def _quantize_linear(walk: Walk, node: Node) -> None:
    grid = _linear_grid(walk, node)
    walk.grid = grid
    _declare(walk, node, grid)


def _dequantize_linear(walk: Walk, node: Node) -> None:
    if walk.grid is None:
        if walk.whole:
            walk.whole = False
            scale = _one(walk.constant(node, 1, "scale"), "scale")
            zero = walk.constant(node, 2, "zero point")
            offset = 0.0 if zero is None else -scale * _one(zero, "zero point")
            walk.chain.affine(scale, offset)
            return
        raise InputError("takes real numbers, expected QuantizeLinear before it")
    grid = _linear_grid(walk, node)
    if grid != walk.grid:
        raise InputError(
            f"stands for {grid.low:g} to {grid.high:g}, but QuantizeLinear before it for "
            f"{walk.grid.low:g} to {walk.grid.high:g}; expected the same scale and zero point"
        )
    walk.grid = None


def _declare(walk: Walk, node: Node, grid: Grid) -> None:
    if walk.chain.final == "none":  # what the host does at the end stays in float32
        walk.chain.declare(node.name or f"{node.op.lower()}_{node.outputs[0]}", grid)


def _linear_grid(walk: Walk, node: Node) -> Grid:
    scale = _one(walk.constant(node, 1, "scale"), "scale")
    stored = walk.constant(node, 2, "zero point")
    zero = 0.0 if stored is None else _one(stored, "zero point")
    return _grid(scale, zero, *integer_limits(node, stored))


def _grid(scale: float, zero: float, low: float, high: float) -> Grid:
    if not 0 < scale < np.inf:
        raise InputError(f"scale is {scale:g}, expected a positive number")
    return Grid((low - zero) * scale, (high - zero) * scale, int(high - low))


def _one(values: Array | None, what: str) -> float:
    distinct = np.unique(np.asarray(values, dtype=np.float64))
    if values is None or len(distinct) != 1:
        raise InputError(
            f"{what} has {len(distinct)} values, expected one for the whole tensor; quantize "
            "activations per tensor"
        )
    return float(distinct[0])


QUANT_HANDLERS: dict[str, Handler] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "Quant": _quant,
    "IntQuant": _quant,
}
