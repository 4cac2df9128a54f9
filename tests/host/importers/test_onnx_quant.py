# SPDX-License-Identifier: BSD-2-Clause
"""Quantized ONNX models: the digits network by onnxruntime's quantizer, QDQ by hand, QONNX."""

import logging
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.errors import InputError
from gossamer.host.importers import load_network
from gossamer.host.session import Session
from onnx import TensorProto, helper
from onnx_models import UINT8, make_model, write
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from sklearn.datasets import load_digits

node = helper.make_node
DIGITS = Path(__file__).parents[3] / "examples" / "digits.npz"
RNG = np.random.default_rng(11)


@cache
def digits():
    """Images (1797, 64) float32 and labels; every fifth is a test image."""
    pixels, labels = map(np.asarray, load_digits(return_X_y=True))
    return (pixels / 16).astype(np.float32), labels


def digits_model():
    arrays = dict(np.load(DIGITS))
    nodes, name = [], "x"
    for k in (1, 2, 3):
        out = "y" if k == 3 else f"h{k}"
        gemm = node("Gemm", [name, f"fc{k}.weight", f"fc{k}.bias"], [out], transB=1, name=f"g{k}")
        nodes.append(gemm)
        if k < 3:
            nodes.append(node("Relu", [out], [f"r{k}"], name=f"relu{k}"))
        name = f"r{k}"
    return make_model(nodes, arrays, shape=("N", 64))


class Images(CalibrationDataReader):
    def __init__(self):
        self.rest = iter(digits()[0][:60, None])

    def get_next(self):
        image = next(self.rest, None)
        return None if image is None else {"x": image}


def outputs(path, x):
    """What a file says: onnxruntime without its integer kernels, which may saturate."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("channels", "kind", "symmetric"),
    list(product((False, True), (QuantType.QUInt8, QuantType.QInt8), (False, True))),
)
def test_digits_as_onnxruntime_quantizes_them(tmp_path, channels, kind, symmetric):
    logging.getLogger().setLevel(logging.ERROR)
    path, quantized = write(tmp_path, digits_model()), tmp_path / "quantized.onnx"
    quantize_static(
        path, quantized, Images(), per_channel=channels, activation_type=kind,
        weight_type=QuantType.QInt8, extra_options={"ActivationSymmetric": symmetric},
    )  # fmt: skip
    network = load_network(quantized)
    assert [layer.name for layer in network.layers] == ["fc1", "fc2", "fc3"]
    assert network.input_levels == 255
    assert all(layer.output_levels == 255 for layer in network.layers)

    (x, labels), model = digits(), compress(network)
    assert model.warnings == ()
    expected = outputs(quantized, x)
    with Session(model) as session:
        got = session.run(x)
        step = abs(session.network.output.scale)
    steps = np.rint(np.abs(got - expected) / step)  # both lie on the output's grid
    errors = [(y.argmax(axis=1) != labels).mean() for y in (got, expected)]
    assert abs(errors[0] - errors[1]) <= 0.0015
    if channels:  # 256 shared weights do not hold every row's 255 values
        assert (steps == 0).mean() > 0.6
        assert steps.max() <= 3
    else:
        assert (steps == 0).mean() > 0.98
        assert steps.max() <= 1


def test_float_digits(tmp_path):
    path = write(tmp_path, digits_model())
    x, labels = digits()
    network = load_network(path)
    assert [layer.activation for layer in network.layers] == ["relu", "relu", "none"]
    np.testing.assert_allclose(network.run(x), outputs(path, x), rtol=1e-4, atol=1e-4)
    with Session(compress(network, calibration=x[:500])) as session:
        right = (session.run(x).argmax(axis=1) == labels).mean()
    assert right > 0.985


def chain(*, weight, scale, zero, axis=1, activation=("uint8", 0.02, 3), domain="", **attributes):
    """x -> Q -> DQ -> MatMul(DQ(weight)) -> Q -> DQ -> y."""
    kind, step, offset = activation
    constants = {"w": weight, "ws": np.float32(scale), "wz": zero}
    constants |= {"s": np.float32(step), "z": np.array(offset, kind)}
    nodes = [
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis, **attributes),
        node("QuantizeLinear", ["x", "s", "z"], ["xq"], domain=domain),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"], domain=domain),
        node("MatMul", ["xd", "wd"], ["h"], name="fc"),
        node("QuantizeLinear", ["h", "s", "z"], ["hq"], domain=domain),
        node("DequantizeLinear", ["hq", "s", "z"], ["y"], domain=domain),
    ]
    return nodes, constants


X = RNG.uniform(-3, 3, size=(50, 4)).astype(np.float32)
CASES = {
    "uint8": ("uint8", np.array(128, np.uint8), 0.01),
    "int8": ("int8", np.array(-5, np.int8), 0.01),
    "per channel": ("int8", np.zeros(3, np.int8), [0.01, 0.02, 0.003]),
    "per channel, zero points": ("uint8", np.array([1, 2, 200], np.uint8), [0.01, 0.02, 0.003]),
    "per input": ("int8", np.zeros(4, np.int8), [0.01, 0.02, 0.003, 0.1]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("activation", [("uint8", 0.03, 100), ("int8", 0.03, 0), ("int8", 0.02, 5)])
@pytest.mark.parametrize("opset", [13, 19, 21])
def test_qdq_by_hand(tmp_path, case, activation, opset):
    kind, zero, scale = CASES[case]
    limits = np.iinfo(kind)
    weight = RNG.integers(limits.min, limits.max + 1, (4, 3)).astype(kind)
    axis = 0 if case == "per input" else 1
    options = {"weight": weight, "scale": scale, "zero": zero, "axis": axis}
    nodes, constants = chain(activation=activation, **options)
    path = write(tmp_path, make_model(nodes, constants, opset=opset))
    network = load_network(path)
    per_axis = (lambda v: np.float64(v)[:, None]) if axis == 0 else np.float64
    real = (weight - per_axis(zero)) * per_axis(scale)
    np.testing.assert_allclose(network.layers[0].weight, real.T, rtol=1e-6)
    with Session(compress(network)) as session:
        got = session.run(X)
    step = activation[1]
    assert np.abs(got - outputs(path, X)).max() < 1.01 * step
    assert (np.abs(got - outputs(path, X)) < 0.01 * step).mean() > 0.97


def test_ranges_are_those_of_the_file(tmp_path):
    nodes, constants = chain(
        weight=np.eye(4, 3, dtype=np.int8), scale=0.5, zero=np.int8(0),
        activation=("uint8", 0.5, 10),
    )  # fmt: skip
    network = load_network(write(tmp_path, make_model(nodes, constants)))
    assert (network.input_range, network.input_levels) == ((-5, 122.5), 255)
    (layer,) = network.layers
    assert (layer.output_range, layer.output_levels) == ((-5, 122.5), 255)
    assert (layer.activation, layer.limits) == ("clip", (-5, 122.5))
    assert network.run([[-1000, 1000, 3, 0]]).tolist() == [[-5, 122.5, 1.5]]


def test_types_of_16_bits_in_the_domain_of_onnxruntime(tmp_path):
    nodes, constants = chain(
        weight=np.eye(4, 3, dtype=np.int8), scale=0.5, zero=np.int8(0),
        activation=("int16", 0.001, 0), domain="com.microsoft",
    )  # fmt: skip
    path = write(tmp_path, make_model(nodes, constants, opset=17, more={"com.microsoft": 1}))
    network = load_network(path)
    assert network.input_levels == 65535
    assert network.input_range == pytest.approx((-32.768, 32.767))
    np.testing.assert_allclose(network.run(X), outputs(path, X), atol=0.002)


def test_biases_and_weights_that_the_file_quantizes(tmp_path):
    """Weights as floats through QuantizeLinear, as training with quantization leaves them."""
    weight, bias = RNG.normal(size=(3, 4)), np.array([100, -50, 7], np.int32)
    constants = {
        "w": weight, "ws": np.float32([0.01, 0.02, 0.03]), "wz": np.zeros(3, np.int8),
        "b": bias, "bs": np.float32([0.01, 0.02, 0.03]), "bz": np.zeros(3, np.int32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("Gemm", ["x", "wd", "bd"], ["y"], transB=1),
    ]
    path = write(tmp_path, make_model(nodes, constants))
    (layer,) = load_network(path).layers
    scale = np.array([0.01, 0.02, 0.03])
    q = np.clip(np.rint(weight.astype(np.float32) / scale[:, None].astype(np.float32)), -128, 127)
    np.testing.assert_allclose(layer.weight, q * scale[:, None], rtol=1e-6)
    np.testing.assert_allclose(layer.bias, bias * scale, rtol=1e-6)
    np.testing.assert_allclose(load_network(path).run(X), outputs(path, X), rtol=1e-5, atol=1e-5)


def test_weights_in_blocks_of_four_bits(tmp_path):
    codes = RNG.integers(-8, 8, (6, 3))
    scale = RNG.uniform(0.1, 1, (3, 3)).astype(np.float32)
    tensor = helper.make_tensor("w", TensorProto.INT4, codes.shape, codes.reshape(-1))
    nodes = [
        node("DequantizeLinear", ["w", "ws"], ["wd"], axis=0, block_size=2),
        node("MatMul", ["x", "wd"], ["y"]),
    ]
    model = make_model(nodes, {"w": tensor, "ws": scale}, shape=("N", 6), opset=21)
    (layer,) = load_network(write(tmp_path, model)).layers
    np.testing.assert_allclose(layer.weight, (codes * np.repeat(scale, 2, 0)).T, rtol=1e-6)


def test_integer_inputs_and_outputs(tmp_path):
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xd"]),
        node("MatMul", ["xd", "w"], ["h"]),
        node("QuantizeLinear", ["h", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.5), "z": np.uint8(4), "w": np.eye(4) * 2}
    network = load_network(write(tmp_path, make_model(nodes, constants, kind=UINT8)))
    assert (network.input_range, network.input_levels) == ((0, 255), 255)
    assert network.layers[0].output_range == (-2, 125.5)
    assert network.run([[0, 4, 5, 10]]).tolist() == [[-2, 0, 1, 6]]
    assert "outputs are integers; here they are the real numbers" in network.notes[0]


def quant(x, scale, zero, bits, signed, narrow):
    low = -(2 ** (bits - 1)) + narrow if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    return (np.clip(np.rint(x / scale + zero), low, high) - zero) * scale


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "onnx.brevitas"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("narrow", [0, 1])
def test_qonnx(tmp_path, domain, bits, narrow):
    weight, w_scale = RNG.normal(size=(5, 4)), np.array([[0.5], [1], [0.25], [0.3], [0.7]]) / bits
    nodes = [
        node("Quant", ["w", "ws", "zero", "bits"], ["wq"], domain=domain, signed=1, narrow=narrow,
             rounding_mode="ROUND"),
        node("Quant", ["x", "xs", "zero", "eight"], ["xq"], domain=domain, signed=1),
        node("Gemm", ["xq", "wq"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("Quant", ["r", "hs", "zero", "bits"], ["q"], domain=domain, signed=0, narrow=narrow),
        node("MatMul", ["q", "v"], ["y"]),
    ]  # fmt: skip
    constants = {
        "w": weight, "ws": w_scale, "v": np.eye(5), "xs": 1 / 32, "hs": 1.5 / bits, "zero": 0.0,
        "bits": float(bits), "eight": 8.0,
    }  # fmt: skip
    model = make_model(nodes, constants, more={domain: 1})
    network = load_network(write(tmp_path, model))
    shared = quant(np.float32(weight), np.float32(w_scale), 0, bits, True, narrow)
    np.testing.assert_allclose(network.layers[0].weight, shared, rtol=1e-6)
    assert network.layers[0].output_levels == 2**bits - 1 - narrow

    hidden = np.maximum(quant(X, 1 / 32, 0, 8, True, False) @ shared.T, 0)
    expected = quant(hidden, np.float32(1.5 / bits), 0, bits, False, narrow)
    with Session(compress(network)) as session:
        (q, _) = session.layers(session.quantize(X))
        got = session.network.layers[0].output.dequantize(q)
    assert session.network.layers[0].high == 2**bits - 1 - narrow
    assert (np.abs(got - expected) < 1e-4).mean() > 0.98


@pytest.mark.parametrize(
    ("mode", "function"), [("FLOOR", np.floor), ("CEIL", np.ceil), ("ROUND_TO_ZERO", np.trunc)]
)
def test_rounding_modes_of_qonnx_weights(tmp_path, mode, function):
    weight = RNG.normal(size=(4, 4))
    domain = "qonnx.custom_op.general"
    nodes = [
        node("Quant", ["w", "s", "z", "b"], ["wq"], domain=domain, rounding_mode=mode),
        node("MatMul", ["x", "wq"], ["y"]),
    ]
    constants = {"w": weight, "s": 0.125, "z": 0.0, "b": 8.0}
    network = load_network(write(tmp_path, make_model(nodes, constants, more={domain: 1})))
    expected = np.clip(function(np.float32(weight) / 0.125), -128, 127) * 0.125
    np.testing.assert_allclose(network.layers[0].weight, expected.T)


def refused(text, nodes, constants, **options):
    return pytest.param(nodes, constants, options, text, id=text)


QUANTIZE = node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize")
QONNX = {"more": {"qonnx.custom_op.general": 1}}


@pytest.mark.parametrize(
    ("nodes", "constants", "options", "text"),
    [
        refused(
            "QuantizeLinear node 'quantize': scale has 2 values, expected one for the whole tensor",
            [QUANTIZE, node("DequantizeLinear", ["q", "s", "z"], ["y"])],
            {"s": np.float32([1, 2, 1, 2]), "z": np.zeros(4, np.uint8)},
        ),
        refused(
            "stands for 0 to 510, but QuantizeLinear before it for 0 to 255; expected the same",
            [QUANTIZE, node("DequantizeLinear", ["q", "t", "z"], ["y"])],
            {"s": np.float32(1), "t": np.float32(2), "z": np.uint8(0)},
        ),
        refused(
            "Relu node that makes 'y': computes with integers, expected DequantizeLinear",
            [QUANTIZE, node("Relu", ["q"], ["y"])],
            {"s": np.float32(1), "z": np.uint8(0)},
        ),
        refused(
            "takes real numbers, expected QuantizeLinear before it",
            [node("DequantizeLinear", ["x", "s"], ["y"])],
            {"s": np.float32(1)},
        ),
        refused(
            "scale is 0, expected a positive number",
            [QUANTIZE, node("DequantizeLinear", ["q", "s", "z"], ["y"])],
            {"s": np.float32(0), "z": np.uint8(0)},
        ),
        refused(
            "quantizes to float8e4m3fn|quantizes to float8_e4m3fn",
            [QUANTIZE, node("DequantizeLinear", ["q", "s", "z"], ["y"])],
            {"s": np.float32(1), "z": helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0])},
        ),
        refused(
            "rounding mode is FLOOR, expected ROUND",
            [
                node("Quant", ["x", "s", "z", "b"], ["y"], rounding_mode="FLOOR",
                     domain="qonnx.custom_op.general")
            ],
            {"s": 1.0, "z": 0.0, "b": 4.0},
            **QONNX,
        ),
        refused(
            "rounding mode is HALF_UP, expected one of ROUND, FLOOR",
            [
                node("Quant", ["w", "s", "z", "b"], ["q"], rounding_mode="HALF_UP",
                     domain="qonnx.custom_op.general"),
                node("MatMul", ["x", "q"], ["y"]),
            ],
            {"w": np.eye(4), "s": 1.0, "z": 0.0, "b": 4.0},
            **QONNX,
        ),
        refused(
            r"scales or zero points have shape \(1, 3\), expected one value, or one for each place",
            [node("DequantizeLinear", ["w", "s"], ["d"]), node("MatMul", ["x", "d"], ["y"])],
            {"w": np.eye(4, dtype=np.int8), "s": np.ones(3)},
        ),
        refused(
            "operators that are not supported: qonnx.custom_op.general.BipolarQuant",
            [node("BipolarQuant", ["x", "s"], ["y"], domain="qonnx.custom_op.general")],
            {"s": 1.0},
            **QONNX,
        ),
    ],
)  # fmt: skip
def test_refusals(tmp_path, nodes, constants, options, text):
    model = make_model(nodes, constants, **options)
    with pytest.raises(InputError, match=f"net.onnx: .*({text})"):
        load_network(write(tmp_path, model))
