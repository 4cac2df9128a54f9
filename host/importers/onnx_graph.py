# SPDX-License-Identifier: BSD-2-Clause
"""The graph of an ONNX model as plain Python: nodes in order, constants as arrays, one way through.

Only nodes between the input and the output are kept, and those that make constants for them. The
latter are evaluated by onnx's own reference implementation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..errors import FormatError, InputError
from .extras import import_extra
from .onnx_file import ONNX_DOMAINS, as_array, sparse_array

__all__ = ["Graph", "Node", "evaluate", "read_graph"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One operator.

    Parameters
    ----------
    op, domain, name : str
        `domain` is ``""`` for ONNX's own operators; `name` may be empty or not unique.
    inputs, outputs : tuple of str
        Names of tensors; an empty one is an argument left out.
    attributes : dict
        Numbers, texts as bytes, lists of them; tensors as arrays.
    proto : onnx.NodeProto
    """

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: Any

    def __str__(self) -> str:
        if self.name:
            return f"{self.op} node {self.name!r}"
        return f"unnamed {self.op} node that makes {self.outputs[0]!r}"


@dataclass
class Graph:
    """One way from an input to an output.

    Parameters
    ----------
    path : Path
        Of the model, for messages.
    opset : int
        Version of ONNX's own operators.
    nodes : list of Node
        Those that the output depends on, each after what it takes.
    constants : dict
        Arrays by the names of their tensors.
    input, output : str
    shape : tuple, optional
        Shape of the input; None where a dimension is not fixed, or for all of it.
    dtype : str
        numpy's name of the input's type.
    moving : set of str
        Tensors that depend on the values of the input.
    """

    path: Path
    opset: int
    nodes: list[Node]
    constants: dict[str, Array]
    input: str
    output: str
    shape: tuple[int | None, ...] | None
    dtype: str
    moving: set[str]


def read_graph(model: Any, path: Path) -> Graph:
    """Take an ``onnx.ModelProto`` apart.

    Raises
    ------
    FormatError
        A tensor is damaged, or is used and made nowhere.
    InputError
        Several inputs or outputs, or none.
    """
    proto = model.graph
    constants = {t.name: as_array(t, str(path)) for t in proto.initializer}
    constants |= {t.values.name: sparse_array(t, str(path)) for t in proto.sparse_initializer}
    inputs = [value for value in proto.input if value.name not in constants]
    output = _only(path, "output", [value.name for value in proto.output])
    nodes = _live([_node(n, str(path)) for n in proto.node], output)
    used = {name for node in nodes for name in node.inputs} | {output}
    name = _only(path, "input", [value.name for value in inputs if value.name in used])
    moving = {name}
    known = {"", name, *constants}
    for node in nodes:
        missing = [tensor for tensor in node.inputs if tensor not in known]
        if missing:
            raise FormatError(
                f"{path}: {node} takes {missing[0]!r}, which nothing before it makes; the graph is "
                "damaged or not sorted, export the model again"
            )
        known.update(node.outputs)
        if node.op != "Shape" and moving.intersection(node.inputs):
            moving.update(node.outputs)
    kind = next(value.type.tensor_type for value in inputs if value.name == name)
    opset = max((o.version for o in model.opset_import if o.domain in ONNX_DOMAINS), default=0)
    onnx = import_extra("onnx", str(path), "onnx.helper")
    dtype = onnx.tensor_dtype_to_np_dtype(kind.elem_type).name if kind.elem_type else "float32"
    return Graph(path, opset, nodes, constants, name, output, _shape(kind), dtype, moving)


def evaluate(node: Node, graph: Graph) -> list[Array]:
    """Outputs of a node whose inputs are constants.

    Raises
    ------
    InputError
        onnx's reference implementation cannot evaluate it.
    """
    if node.op == "Constant" and "sparse_value" in node.attributes:
        return [node.attributes["sparse_value"]]
    where = str(graph.path)
    helper = import_extra("onnx", where, "onnx.helper")
    reference = import_extra("onnx", where, "onnx.reference").ReferenceEvaluator
    names = [name for name in dict.fromkeys(node.inputs) if name]
    made = [name for name in node.outputs if name]
    imports = [helper.make_opsetid("", graph.opset)]
    function = helper.make_function("fold", "fold", names, made, [node.proto], imports)
    try:
        values = {name: graph.constants[name] for name in names}
        return reference(function).run(made, values, attributes={})
    except Exception as error:  # of whatever kind: it runs onnx's operators on the file's values
        raise InputError(
            f"makes a constant that cannot be evaluated ({error}), expected an operator of onnx's "
            "reference implementation; simplify the model first, for example with onnxruntime's "
            "basic optimizations"
        ) from error


def _node(proto: Any, where: str) -> Node:
    helper = import_extra("onnx", where, "onnx.helper")
    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.HasField("t"):
            attributes[attribute.name] = as_array(attribute.t, where)
        elif attribute.HasField("sparse_tensor"):
            attributes[attribute.name] = sparse_array(attribute.sparse_tensor, where)
        else:
            attributes[attribute.name] = helper.get_attribute_value(attribute)
    domain = "" if proto.domain in ONNX_DOMAINS else proto.domain
    return Node(
        proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output), attributes,
        proto,
    )  # fmt: skip


def _live(nodes: list[Node], output: str) -> list[Node]:
    """Nodes that the output depends on, in the file's order."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _only(path: Path, what: str, names: Iterable[str]) -> str:
    names = list(names)
    if len(names) != 1:
        raise InputError(
            f"{path}: found {len(names)} {what}s that matter ({', '.join(names) or 'none'}), "
            "expected one; cut the part that is a network with onnx.utils.extract_model"
        )
    return names[0]


def _shape(kind: Any) -> tuple[int | None, ...] | None:
    """Dimensions of a tensor type; None where the file leaves it open."""
    if not kind.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0 else None
        for dim in kind.shape.dim
    )
