# SPDX-License-Identifier: BSD-2-Clause
"""Small ONNX models written node by node, for tests of the importer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


def make_model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any],
    *,
    shape: Sequence[int | str | None] | None = ("N", 4),
    kind: int = FLOAT,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    opset: int = 20,
    ir: int = 10,
    more: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; floats among the constants become float32, `more` are other operator sets."""
    stored = [
        value
        if isinstance(value, TensorProto)
        else numpy_helper.from_array(_single(np.asarray(value)), name)
        for name, value in constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        stored,
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (more or {}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir)


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def write(path: Path, model: onnx.ModelProto) -> Path:
    """Write a model into the folder `path` and say where."""
    file = path / "net.onnx"
    file.write_bytes(model.SerializeToString())
    return file
