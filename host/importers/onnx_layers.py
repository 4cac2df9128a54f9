# SPDX-License-Identifier: BSD-2-Clause
"""Handlers of ONNX operators that compute: products, sums, activations, shapes, final steps.

=======================  ===========================================================================
Gemm, MatMul             a layer; the weights are a constant, on either side, transposed or not
Add, Sub, Mul, Div       with a constant: folded into weights and biases
BatchNormalization       likewise
Relu, Clip               the activation of the layer
LeakyRelu                only where it does what Relu or nothing would do
Flatten, Reshape         as long as each sample stays one
Transpose                of a matrix, or where it moves no value
Dropout, Identity, Cast  nothing
Softmax, Sigmoid,        at the end, done by the host
ArgMax
=======================  ===========================================================================
"""

import math

import numpy as np

from ..errors import InputError
from .onnx_graph import Node
from .onnx_walk import Doubles, Handler, Walk

__all__ = ["LAYER_HANDLERS"]

FLOATS = (1, 10, 11, 16)
"""Numbers that ONNX gives the types float32, float16, float64, bfloat16."""


def _gemm(walk: Walk, node: Node) -> None:
    attributes = node.attributes
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    turned = bool(attributes.get("transA", 0)), bool(attributes.get("transB", 0))
    bias = walk.constant(node, 2, "the bias C")
    _product(walk, node, turned, alpha, None if bias is None else beta * np.float64(bias))


def _matmul(walk: Walk, node: Node) -> None:
    _product(walk, node, (False, False), 1.0, None)


def _product(
    walk: Walk, node: Node, turned: tuple[bool, bool], alpha: float, bias: Doubles | None
) -> None:
    """``alpha * A @ B + bias``, A and B transposed as `turned` says, one of them constant."""
    if node.inputs[0] == node.inputs[1]:
        raise InputError("both factors depend on the input, expected constant weights")
    place = 0 if node.inputs[0] != walk.tensor else 1
    stored = np.asarray(walk.constant(node, place, "the other factor"), dtype=np.float64)
    if stored.ndim != 2:
        raise InputError(f"weights have shape {stored.shape}, expected (inputs, outputs)")
    weights_first = place == 0
    weight = stored.T if turned[place] else stored
    weight = weight if weights_first else weight.T  # (outputs, inputs)
    if walk.samples_last != turned[1 - place] ^ weights_first:
        raise InputError(
            "sums run over the samples of a batch, expected sums over features; "
            "check transA, transB and the order of the factors"
        )
    walk.samples_last = weights_first
    vector = np.zeros(())
    if bias is not None:
        vector = walk.per_sample(bias)
    walk.chain.linear(walk.layer_name(node, node.inputs[place]), alpha * weight, vector)


def _add(walk: Walk, node: Node) -> None:
    walk.chain.affine(1.0, walk.operand(node)[0])


def _sub(walk: Walk, node: Node) -> None:
    values, first = walk.operand(node)
    walk.chain.affine(-1.0 if first else 1.0, values if first else -values)


def _mul(walk: Walk, node: Node) -> None:
    walk.chain.affine(walk.operand(node)[0], 0.0)


def _div(walk: Walk, node: Node) -> None:
    values, first = walk.operand(node)
    if first or not values.all():
        raise InputError("divides by the input or by 0, expected a constant that is not 0")
    walk.chain.affine(1 / values, 0.0)


def _batch_norm(walk: Walk, node: Node) -> None:
    if walk.samples_last:
        raise InputError("scales the samples of a batch, expected one scale per feature")
    if node.attributes.get("training_mode", 0):
        raise InputError(
            "takes mean and variance from each batch, expected those of the training; export the "
            "model in inference mode (model.eval())"
        )
    scale, offset, mean, variance = (
        np.asarray(walk.constant(node, place, "a parameter"), dtype=np.float64)
        for place in range(1, 5)
    )
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    shape = walk.chain.shape
    channels = (-1, *[1] * (len(shape) - 1 if shape else 0))
    walk.chain.affine(factor.reshape(channels), (offset - mean * factor).reshape(channels))


def _relu(walk: Walk, node: Node) -> None:
    walk.chain.clamp(_name(node), 0.0, np.inf)


def _clip(walk: Walk, node: Node) -> None:
    ends = []
    for place, key, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = walk.constant(node, place, f"limit {key}")
        number = node.attributes.get(key, default) if value is None else value
        ends.append(float(np.asarray(number, dtype=np.float64).reshape(())))
    low, high = (end if abs(end) < np.finfo(np.float32).max else end * np.inf for end in ends)
    walk.chain.clamp(_name(node), min(low, high), high)


def _leaky_relu(walk: Walk, node: Node) -> None:
    slope = node.attributes.get("alpha", 0.01)
    if slope == 0:
        walk.chain.clamp(_name(node), 0.0, np.inf)
    elif slope != 1 and walk.chain.last_limits[0] < 0:
        raise InputError(
            f"has slope {slope:g} below 0, which the engine does not compute; replace it by Relu "
            "(slope 0) and train again"
        )


def _flatten(walk: Walk, node: Node) -> None:
    shape, axis = walk.chain.shape, node.attributes.get("axis", 1)
    if shape is None:
        if axis != 1:
            raise InputError(f"axis is {axis} but the input's shape is not known, expected axis 1")
        return
    axis += 1 + len(shape) if axis < 0 else 0
    if axis == 0 and walk.batch == 1:
        axis = 1
    if walk.samples_last or axis < 1 or math.prod(shape[: axis - 1]) != 1:
        raise InputError(f"axis is {axis}, which mixes samples with features; expected axis 1")
    walk.chain.reshape((math.prod(shape[axis - 1 :]),))


def _reshape(walk: Walk, node: Node) -> None:
    target = walk.constant(node, 1, "the new shape")
    wanted = [int(size) for size in np.asarray(target).reshape(-1)]
    if walk.chain.final != "none":
        return
    shape, batch = walk.chain.shape or (), walk.batch
    sizes = [shape[k - 1] if not n and 0 < k <= len(shape) else n for k, n in enumerate(wanted)]
    choices = [sizes[1:]] if sizes and sizes[0] in (-1, 0, 1, batch) else []
    choices += [sizes] if batch == 1 else []
    fitting = [one for one in choices if _has_width(one, walk.chain.width)]
    if not fitting or walk.samples_last:
        raise InputError(
            f"the new shape is {wanted}, which mixes samples with features; expected the batch "
            "(0 or -1) first and then the shape of a sample"
        )
    sample = fitting[0]
    if -1 not in sample:
        walk.chain.reshape(tuple(sample))
    elif walk.chain.width is not None:
        rest = walk.chain.width // math.prod(size for size in sample if size != -1)
        walk.chain.reshape(tuple(rest if size == -1 else size for size in sample))


def _has_width(sample: list[int], width: int | None) -> bool:
    """Whether a shape, in which one size may be -1, can hold `width` features."""
    known = math.prod(size for size in sample if size != -1)
    if width is None:
        return sample.count(-1) <= 1
    return known == width if -1 not in sample else known > 0 and width % known == 0


def _transpose(walk: Walk, node: Node) -> None:
    shape = walk.chain.shape
    rank = 2 if shape is None else 1 + len(shape)
    order = list(node.attributes.get("perm") or range(rank)[::-1])
    if order == [1, 0]:
        walk.samples_last = not walk.samples_last
        return
    moved = [k - 1 for k in order[1:] if shape and shape[k - 1] != 1]
    if order[:1] != [0] or shape is None or moved != sorted(moved):
        raise InputError(
            f"perm is {order}, which reorders the features of a sample; expected the order that "
            "the weights have, so reorder the weights instead"
        )
    walk.chain.reshape(tuple(shape[k - 1] for k in order[1:]))


def _dropout(walk: Walk, node: Node) -> None:
    training = walk.constant(node, 2, "training_mode")
    if training is not None and training.any():
        raise InputError(
            "drops values at random; export the model in inference mode (model.eval())"
        )


def _pass(walk: Walk, node: Node) -> None:
    """Identity: nothing to do."""


def _cast(walk: Walk, node: Node) -> None:
    floats = node.attributes["to"] in FLOATS
    if walk.chain.final == "none" and (not floats or walk.grid is not None):
        raise InputError("changes values or their meaning, expected a cast of numbers to floats")
    walk.whole = False


def _softmax(walk: Walk, node: Node) -> None:
    old = walk.graph.opset < 13  # flattens what follows the axis
    axis = node.attributes.get("axis", 1 if old else -1)
    if not (old and axis == 1 and not walk.samples_last):
        _check_axis(walk, axis)
    walk.chain.end(_name(node), "softmax")


def _sigmoid(walk: Walk, node: Node) -> None:
    walk.chain.end(_name(node), "sigmoid")


def _arg_max(walk: Walk, node: Node) -> None:
    _check_axis(walk, node.attributes.get("axis", 0))
    if node.attributes.get("select_last_index", 0):
        raise InputError("takes the last of equal values, expected the first (select_last_index 0)")
    walk.chain.end(_name(node), "argmax")


def _check_axis(walk: Walk, axis: int) -> None:
    """An axis must hold all features of a sample."""
    sample = walk.chain.shape or (0,)
    sizes = (*sample, 1) if walk.samples_last else (1, *sample)
    place = axis + len(sizes) if axis < 0 else axis
    is_batch = place == (len(sizes) - 1 if walk.samples_last else 0)
    if is_batch or place >= len(sizes) or sizes[place] != math.prod(sizes):
        raise InputError(f"runs along axis {axis}, expected the one of the features")


def _name(node: Node) -> str:
    return node.name.strip("/").replace("/", ".") or f"{node.op.lower()}_{node.outputs[0]}"


LAYER_HANDLERS: dict[str, Handler] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "BatchNormalization": _batch_norm,
    "Relu": _relu,
    "Clip": _clip,
    "LeakyRelu": _leaky_relu,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Dropout": _dropout,
    "Identity": _pass,
    "Cast": _cast,
    "Softmax": _softmax,
    "Sigmoid": _sigmoid,
    "ArgMax": _arg_max,
}
