# SPDX-License-Identifier: BSD-2-Clause
"""The node tests that the onnx package brings: which of them are networks for this engine."""

import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
from gossamer.host.importers.onnx_model import SUPPORTED
from onnx import numpy_helper

MODULES = (
    "gemm", "matmul", "add", "sub", "mul", "div", "batch_normalization", "relu", "clip",
    "leakyrelu", "flatten", "reshape", "transpose", "dropout", "identity", "constant", "softmax",
    "sigmoid", "argmax", "quantizelinear", "dequantizelinear",
)  # fmt: skip
"""Modules of onnx.backend.test.case.node for the supported operators; Cast's makes no networks."""

REFUSED = {
    "batch of samples that differ": (
        "test_gemm_default_matrix_bias test_add test_sub test_mul test_div",
        "samples of a batch differ",
    ),
    "weights that are no matrix": (
        (
            "test_matmul_3d test_matmul_4d test_matmul_bcast test_matmul_1d_3d test_matmul_4d_1d "
            "test_matmul_1d_1d"
        ),
        "weights have shape",
    ),
    "integer arithmetic": (
        " ".join(
            f"test_{op}_{kind}"
            for op in ("add", "sub", "mul", "div")
            for kind in ("int8", "int16", "uint8", "uint16", "uint32", "uint64")
        )
        + " test_div_int32_trunc test_clip_default_int8_min test_clip_default_int8_max "
        "test_clip_default_int8_inbounds",
        "computes with integers",
    ),
    "training": (
        (
            "test_batchnorm_example_training_mode test_batchnorm_epsilon_training_mode "
            "test_training_dropout_default test_training_dropout test_training_dropout_zero_ratio"
        ),
        "outputs that matter|inference mode",
    ),
    "several outputs": (
        (
            "test_dropout_default_mask test_dropout_default_mask_ratio test_training_dropout_mask "
            "test_training_dropout_default_mask test_training_dropout_zero_ratio_mask"
        ),
        "found 2 outputs that matter",
    ),
    "outputs that are all equal": ("test_clip_min_greater_than_max", "are all"),
    "a slope": (
        "test_leakyrelu_example test_leakyrelu test_leakyrelu_default",
        "has slope .* replace it by Relu",
    ),
    "samples mixed with features": (
        (
            "test_flatten_axis0 test_flatten_axis2 test_flatten_axis3 test_flatten_negative_axis1 "
            "test_flatten_negative_axis2 test_flatten_negative_axis4 "
            "test_reshape_reordered_all_dims test_reshape_one_dim "
            "test_reshape_negative_extended_dims test_reshape_allowzero_reordered"
        ),
        "mixes samples with features",
    ),
    "features in another order": (
        "test_transpose_default "
        + " ".join(f"test_transpose_all_permutations_{k}" for k in range(1, 6)),
        "reorders the features",
    ),
    "an axis that is not all features": (
        (
            "test_softmax_axis_0 test_softmax_axis_1 test_softmax_axis_2 "
            "test_softmax_negative_axis test_softmax_default_axis test_argmax_default_axis_example "
            "test_argmax_default_axis_random test_argmax_no_keepdims_random "
            "test_argmax_keepdims_random test_argmax_negative_axis_keepdims_random "
            "test_argmax_default_axis_example_select_last_index "
            "test_argmax_default_axis_random_select_last_index "
            "test_argmax_no_keepdims_random_select_last_index "
            "test_argmax_keepdims_random_select_last_index "
            "test_argmax_negative_axis_keepdims_random_select_last_index"
        ),
        "runs along axis",
    ),
    "the last of equal values": (
        (
            "test_argmax_no_keepdims_example_select_last_index "
            "test_argmax_keepdims_example_select_last_index "
            "test_argmax_negative_axis_keepdims_example_select_last_index"
        ),
        "takes the last of equal values",
    ),
    "activations quantized per channel": (
        (
            "test_quantizelinear_axis test_quantizelinear_uint4 test_quantizelinear_int4 "
            "test_quantizelinear_uint2 test_quantizelinear_int2 test_quantizelinear_float4e2m1 "
            "test_quantizelinear_blocked_asymmetric test_quantizelinear_blocked_symmetric "
            "test_dequantizelinear_axis test_dequantizelinear_blocked"
        ),
        "expected one for the whole tensor",
    ),
    "small floats": (
        (
            "test_quantizelinear_e4m3fn test_quantizelinear_e5m2 test_dequantizelinear_e4m3fn "
            "test_dequantizelinear_e4m3fn_float16 test_dequantizelinear_e4m3fn_zero_point "
            "test_dequantizelinear_e5m2 test_dequantizelinear_float4e2m1"
        ),
        "quantizes to float|takes real numbers",
    ),
    "no tensor comes in": (
        "test_constant test_identity_sequence test_identity_opt",
        "found 0 inputs|unknown number of features",
    ),
}
"""Why a test is no network for this engine: its names, and what the importer says."""


@dataclass(frozen=True)
class NodeTest:
    """One test: a model, whose arguments but the first are constants, an input, the output."""

    name: str
    model: onnx.ModelProto
    x: np.ndarray
    y: np.ndarray
    rtol: float
    atol: float

    def samples(self) -> np.ndarray:
        """The input as (n, features) float64, n = 1 if it has one dimension or none."""
        x = np.asarray(self.x, dtype=np.float64)
        (node,) = self.model.graph.node
        if any(a.name == "transA" and a.i for a in node.attribute):
            x = x.T  # one sample per column
        return x.reshape(1 if x.ndim < 2 else len(x), -1)

    def expected(self) -> np.ndarray:
        """The output likewise; integers of QuantizeLinear as what they stand for."""
        node = self.model.graph.node[-1]
        y = self.y
        if node.op_type == "QuantizeLinear":
            scale, zero = (
                numpy_helper.to_array(t).astype(np.float64) for t in self.model.graph.initializer
            )
            y = (y - zero) * scale
        return np.asarray(y, dtype=np.float64).reshape(len(self.samples()), -1)


@cache
def node_tests() -> dict[str, NodeTest]:
    """The tests whose operators are all supported, by name."""
    package = "onnx.backend.test.case.node"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tests with overflows in their numpy references
        cases = import_module(package)._NodeTestCases
        for module in MODULES:
            import_module(f"{package}.{module}")
    found = {}
    for case in cases:
        if all(node.op_type in (*SUPPORTED, "Constant") for node in case.model.graph.node):
            found[case.name] = _with_constants(case)
    return found


def _with_constants(case) -> NodeTest:
    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    values = [_array(value, info) for value, info in zip(inputs, model.graph.input, strict=True)]
    for info, value in zip(list(model.graph.input)[1:], inputs[1:], strict=True):
        tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value)
        tensor.name = info.name
        model.graph.initializer.append(tensor)
        model.graph.input.remove(info)
    x = values[0] if values else np.zeros(0)
    return NodeTest(
        case.name, model, x, _array(outputs[0], model.graph.output[0]), case.rtol, case.atol
    )


def _array(value, info) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if not info.type.HasField("tensor_type"):
        return np.zeros(0)
    return np.asarray(value)


def write_test(test: NodeTest, folder: Path) -> Path:
    """Write a test's model and say where."""
    path = folder / f"{test.name}.onnx"
    path.write_bytes(test.model.SerializeToString())
    return path


def refusals() -> dict[str, tuple[str, str]]:
    """Why each test of `REFUSED` is no network, and the importer's words, by its name."""
    return {name: (why, text) for why, (names, text) in REFUSED.items() for name in names.split()}
