# SPDX-License-Identifier: BSD-2-Clause
"""Where the walk through an ONNX graph stands: what handlers of operators read and change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .chain import Chain, Grid
from .onnx_graph import Graph, Node

__all__ = ["Handler", "Walk"]

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

PASS_INTEGERS = ("DequantizeLinear", "Cast", "Flatten", "Reshape", "Transpose", "Identity")
"""Operators that take integers."""

PASS_FINAL = (
    "ArgMax",
    "QuantizeLinear",
    "DequantizeLinear",
    "Identity",
    "Cast",
    "Reshape",
    "Quant",
)
"""Operators that may stand behind Softmax, Sigmoid or ArgMax."""


class Walk:
    """The one tensor that depends on the input, and the layers so far.

    Parameters
    ----------
    graph : Graph
    chain : Chain
    samples_last : bool
        Whether the tensor has one sample per column instead of per row.

    Attributes
    ----------
    tensor : str
        Name of the tensor in the graph.
    grid : Grid, optional
        What its integers stand for, between QuantizeLinear and DequantizeLinear.
    whole : bool
        Whether it is still the model's input and that has integers.
    """

    def __init__(self, graph: Graph, chain: Chain, samples_last: bool) -> None:
        self.graph = graph
        self.chain = chain
        self.samples_last = samples_last
        self.tensor = graph.input
        self.grid: Grid | None = None
        self.whole = graph.dtype.startswith(("int", "uint"))
        self._origins: dict[str, str] = {}
        self._shapes = {self.tensor: chain.shape}

    @property
    def batch(self) -> int | None:
        """Size of the batch, if the file fixes it."""
        shape = self.graph.shape
        return (
            shape[-1 if self.samples_last else 0] if shape is not None and len(shape) > 1 else None
        )

    def enter(self, node: Node) -> None:
        """Check that a node goes on from the tensor.

        Raises
        ------
        InputError
            It branches off, or stands where it cannot.
        """
        others = [name for name in node.inputs if name in self.graph.moving - {self.tensor}]
        if others:
            takers = [str(n) for n in self.graph.nodes if others[0] in n.inputs]
            raise InputError(
                f"the graph branches: {others[0]!r} goes to {' and to '.join(takers)}; "
                "expected a chain, in which every tensor is used once (no skip connections)"
            )
        if (self.grid is not None or self.whole) and node.op not in PASS_INTEGERS:
            raise InputError(
                "computes with integers, expected DequantizeLinear or Cast before it; "
                "quantize the model with quant_format=QuantFormat.QDQ"
            )
        if self.chain.final != "none" and node.op not in PASS_FINAL:
            raise InputError(
                f"follows {self.chain.final}, expected nothing after it: the host does it at the "
                "end of the network"
            )

    def leave(self, node: Node) -> None:
        """Go on from a node's output."""
        self.tensor = node.outputs[0]
        self._shapes[self.tensor] = self.chain.shape

    def constant(self, node: Node, place: int, what: str) -> Array | None:
        """An argument of a node that must not depend on the input; None if it is left out."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if name in self.graph.moving:
            raise InputError(f"{what} depends on the input, expected a constant")
        return self.graph.constants[name] if name else None

    def operand(self, node: Node) -> tuple[Doubles, bool]:
        """The constant of a node that takes two tensors, and whether it comes first."""
        first = node.inputs[0] != self.tensor
        if node.inputs[0] == node.inputs[1]:
            raise InputError("both operands depend on the input, expected one constant")
        values = self.constant(node, 0 if first else 1, "an operand")
        return self.per_sample(np.asarray(values, dtype=np.float64)), first

    def per_sample(self, values: Doubles) -> Doubles:
        """A constant that broadcasts with the whole tensor, as one that does with a sample."""
        if values.size == 1:
            return values.reshape(())
        if self.samples_last:
            if values.ndim == 2 and values.shape[1] == 1:
                return values[:, 0]
        elif values.ndim == 1 or (self.chain.shape and values.ndim <= len(self.chain.shape)):
            return values
        elif values.shape[0] == 1:
            return values[0]
        raise InputError(
            f"a constant has shape {values.shape}, so that samples of a batch differ; expected "
            "one that is the same for all of them"
        )

    def shape_of(self, node: Node) -> Array:
        """A tensor's shape as a constant; 0 for the batch, which Reshape takes over."""
        shape = self._shapes.get(node.inputs[0])
        if shape is None or self.samples_last:
            raise InputError(
                "asks for a shape that is not known, expected fixed sizes of all dimensions but "
                "the batch; export the model with those"
            )
        whole = np.array((0, *shape), dtype=np.int64)
        return whole[node.attributes.get("start", 0) : node.attributes.get("end")]

    def remember(self, node: Node) -> None:
        """Note which stored tensor a constant was made from."""
        source = next((name for name in node.inputs if name), None)
        if source is not None:
            for name in node.outputs:
                self._origins[name] = self._origins.get(source, source)

    def layer_name(self, node: Node, weight: str) -> str:
        """A name for a layer: that of the stored weights, else that of the node."""
        stored = self._origins.get(weight, weight).removesuffix("_quantized")
        if stored.endswith((".weight", "/kernel", ".weight_orig")):
            return stored.rpartition("." if "." in stored else "/")[0]
        name = node.name.strip("/").removesuffix(f"/{node.op}").replace("/", ".")
        return name or f"{node.op.lower()}_{node.outputs[0]}"


Handler = Callable[[Walk, Node], None]
"""What one operator does to the walk; errors are InputError without the node's name."""
