# SPDX-License-Identifier: BSD-2-Clause
"""Networks from ONNX models (opset 9 and newer): the graph is walked from input to output.

Each operator has one handler, which tells a `Chain` what to do; what depends on no input is
evaluated beforehand. `onnx_layers.py` and `onnx_quant.py` hold the handlers and say what they take.
"""

import re
from pathlib import Path

from ..errors import InputError
from ..network import Network
from .chain import Chain, Grid
from .onnx_constants import CONSTANT_HANDLERS
from .onnx_file import read_model
from .onnx_graph import Graph, Node, evaluate, read_graph
from .onnx_layers import LAYER_HANDLERS
from .onnx_quant import QONNX_DOMAINS, QUANT_HANDLERS
from .onnx_walk import Handler, Walk

__all__ = ["SUPPORTED", "load_onnx"]

HANDLERS: dict[str, Handler] = {**LAYER_HANDLERS, **QUANT_HANDLERS}

SUPPORTED = tuple(HANDLERS)
"""Operators that may depend on the input; those that do not may be any."""

DOMAINS = ("", "com.microsoft", *QONNX_DOMAINS)

ADVICE = {
    "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool": "the engine has no convolutions: "
    "hand over the fully connected part, cut out with onnx.utils.extract_model",
    "Tanh Elu Selu Celu Gelu FastGelu HardSwish HardSigmoid Mish PRelu Softplus Softsign Swish Erf "
    "ThresholdedRelu": "replace the activation by Relu or Clip and train again",
    "LogSoftmax": "end the model before it, as it changes no ranking, or replace it by Softmax",
    "QGemm QLinearMatMul QLinearAdd QLinearConv QAttention": "quantize with "
    "quant_format=QuantFormat.QDQ, which keeps the operators",
    "DynamicQuantizeLinear MatMulInteger DynamicQuantizeMatMul MatMulIntegerToFloat": "use "
    "quantize_static with quant_format=QuantFormat.QDQ: the engine's scales are fixed",
    "LSTM GRU RNN Loop Scan If": "the engine has no recurrent networks and no control flow yet",
    "LayerNormalization InstanceNormalization SimplifiedLayerNormalization": "train with "
    "BatchNormalization, which folds into the weights",
    "Squeeze Unsqueeze": "use Reshape or Flatten",
}
"""What to do about operators that are not supported, by their names."""


def load_onnx(path: Path, masks: Path | None = None) -> Network:
    """Read a network.

    Raises
    ------
    FormatError, InputError, ToolError
        See `load_network`. Operators that are not supported are named all at once.
    """
    if masks is not None:
        raise InputError(
            f"{path}: masks are for files of named arrays, expected none; the zeros of an ONNX "
            "model's weights are found as they are"
        )
    graph = read_graph(read_model(path), path)
    _check_operators(graph)
    walk = Walk(graph, _start(graph), _samples_last(graph))
    for node in graph.nodes:
        try:
            _step(walk, node)
        except InputError as error:
            raise InputError(f"{path}: {node}: {error}") from None
    if walk.tensor != graph.output:
        raise InputError(f"{path}: output {graph.output!r} is not the end of the chain")
    if walk.grid is not None:
        walk.chain.notes.append("the file's outputs are integers; here they are the real numbers")
    try:
        return walk.chain.finish()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _check_operators(graph: Graph) -> None:
    """All operators that have no handler, in one message."""
    strange: dict[str, list[str]] = {}
    for node in graph.nodes:
        known = node.domain in DOMAINS and node.op in (*HANDLERS, "Shape")
        if not known and graph.moving.intersection(node.inputs):
            op = f"{node.domain}.{node.op}".lstrip(".")
            strange.setdefault(op, []).append(node.name or f"makes {node.outputs[0]}")
    if not strange:
        return
    lines = []
    for op, names in strange.items():
        bare = op.rpartition(".")[2]
        advice = next((text for ops, text in ADVICE.items() if bare in ops.split()), "")
        lines.append(f"{op} ({', '.join(names)}){': ' * bool(advice)}{advice}")
    raise InputError(
        f"{graph.path}: operators that are not supported: {'; '.join(lines)}; expected only "
        f"{', '.join(SUPPORTED)}"
    )


def _start(graph: Graph) -> Chain:
    shape = graph.shape
    if shape is None:
        chain = Chain(None)
    else:
        sample = shape[:-1] if _samples_last(graph) else shape[1:] if len(shape) > 1 else shape
        whole = tuple(size for size in sample if size is not None)
        chain = Chain(whole if len(whole) == len(sample) else None)
    found = re.fullmatch(r"(u?)int([48])", graph.dtype)
    if found:
        bits = int(found[2])
        low = 0 if found[1] else -(1 << (bits - 1))
        chain.input = Grid(low, low + (1 << bits) - 1, (1 << bits) - 1)
    return chain


def _samples_last(graph: Graph) -> bool:
    """Whether the input has one sample per column: its first product tells."""
    flipped = False
    for node in graph.nodes:
        place = next((k for k, name in enumerate(node.inputs[:2]) if name in graph.moving), None)
        if node.op == "Transpose" and place == 0:
            flipped = not flipped
        elif node.op in ("Gemm", "MatMul") and place is not None:
            turned = bool(node.attributes.get("transB" if place else "transA", 0))
            return flipped ^ turned ^ bool(place)
    return False


def _step(walk: Walk, node: Node) -> None:
    graph = walk.graph
    if not graph.moving.intersection(node.inputs):
        if node.op in CONSTANT_HANDLERS:
            made = [CONSTANT_HANDLERS[node.op](graph, node)]
        else:
            made = evaluate(node, graph)
        graph.constants.update(zip([name for name in node.outputs if name], made, strict=True))
        walk.remember(node)
    elif node.op == "Shape":
        graph.constants[node.outputs[0]] = walk.shape_of(node)
    else:
        walk.enter(node)
        HANDLERS[node.op](walk, node)
        walk.leave(node)
