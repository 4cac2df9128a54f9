# SPDX-License-Identifier: BSD-2-Clause
"""ONNX import: every operator against numpy or onnxruntime, names, shapes, and what is refused."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from gossamer.host.errors import InputError
from gossamer.host.importers import load_network
from gossamer.host.importers.onnx_model import SUPPORTED
from onnx import helper
from onnx_models import UINT8, make_model, write

node = helper.make_node
RNG = np.random.default_rng(7)
W, B = RNG.normal(size=(3, 4)), RNG.normal(size=3)
X = RNG.normal(size=(6, 4)).astype(np.float32)


def load(tmp_path, nodes, constants, **options):
    return load_network(write(tmp_path, make_model(nodes, constants, **options)))


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def one_layer(kind):
    """One layer, ``x @ W.T + B`` or without B, as different exporters write it."""
    add = node("Add", ["s", "b"], ["y"])
    return {
        "Gemm transB": ([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], {"w": W, "b": B}),
        "Gemm": ([node("Gemm", ["x", "w", "b"], ["y"])], {"w": W.T, "b": B}),
        "Gemm alpha beta": (
            [node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=4.0)],
            {"w": 2 * W.T, "b": B[None] / 4},
        ),
        "MatMul Add (N,)": ([node("MatMul", ["x", "w"], ["s"]), add], {"w": W.T, "b": B}),
        "MatMul Add (1, N)": ([node("MatMul", ["x", "w"], ["s"]), add], {"w": W.T, "b": B[None]}),
        "Add first": (
            [node("MatMul", ["x", "w"], ["s"]), node("Add", ["b", "s"], ["y"])],
            {"w": W.T, "b": B},
        ),
        "Sub Mul": (
            [
                node("MatMul", ["x", "w"], ["s"]),
                node("Sub", ["s", "b"], ["t"]),
                node("Mul", ["c", "t"], ["y"]),
            ],
            {"w": W.T / 2, "b": -B / 2, "c": [2.0]},
        ),
        "BatchNormalization": (
            [
                node("MatMul", ["x", "w"], ["s"]),
                node("BatchNormalization", ["s", "c", "d", "m", "v"], ["y"], epsilon=0.25),
            ],
            {
                "w": W.T / [1, 2, 4],
                "c": [1.0, 2, 4],
                "d": B,
                "m": [0.0, 0, 0],
                "v": [0.75, 0.75, 0.75],
            },
        ),
        "weights first": (
            [
                node("Transpose", ["x"], ["t"]),
                node("MatMul", ["w", "t"], ["s"]),
                node("Add", ["s", "b"], ["u"]),
                node("Transpose", ["u"], ["y"], perm=[1, 0]),
            ],
            {"w": W, "b": B[:, None]},
        ),
        "transposed by a node": (
            [node("Transpose", ["w"], ["t"]), node("Gemm", ["x", "t", "b"], ["y"])],
            {"w": W, "b": B},
        ),
        "scalar bias": ([node("MatMul", ["x", "w"], ["s"]), add], {"w": W.T, "b": 0.5}),
        "Gemm scalar bias": ([node("Gemm", ["x", "w", "b"], ["y"])], {"w": W.T, "b": [0.5]}),
        "no bias": ([node("MatMul", ["x", "w"], ["y"])], {"w": W.T}),
        "Gemm no bias": ([node("Gemm", ["x", "w", ""], ["y"])], {"w": W.T}),
    }[kind]


BIASES = dict.fromkeys(
    ("Gemm transB", "Gemm", "Gemm alpha beta", "MatMul Add (N,)", "MatMul Add (1, N)", "Add first",
     "Sub Mul", "BatchNormalization", "weights first", "transposed by a node"), B,
) | {"scalar bias": 0.5, "Gemm scalar bias": 0.5, "no bias": 0.0, "Gemm no bias": 0.0}  # fmt: skip


@pytest.mark.parametrize("kind", BIASES)
def test_one_layer_however_written(tmp_path, kind):
    network = load(tmp_path, *one_layer(kind))
    (layer,) = network.layers
    close(layer.weight, W)
    close(layer.bias, np.broadcast_to(BIASES[kind], 3))
    close(network.run(X), X @ W.T + BIASES[kind])


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("stream", ["A", "B"])
def test_gemm_of_every_orientation(tmp_path, trans_a, trans_b, stream):
    w = RNG.normal(size=(5, 4))  # 4 inputs, 5 outputs
    columns = trans_a if stream == "A" else not trans_b
    weight = (w if trans_b else w.T) if stream == "A" else (w.T if trans_a else w)
    names = ["x", "w"] if stream == "A" else ["w", "x"]
    bias = np.arange(5.0) if stream == "A" else np.arange(5.0)[:, None]
    gemm = node("Gemm", [*names, "b"], ["y"], transA=trans_a, transB=trans_b, alpha=2.0, beta=0.5)
    shape = (4, 6) if columns else (6, 4)
    model = make_model([gemm], {"w": weight, "b": bias}, shape=shape)
    network = load_network(write(tmp_path, model))
    expected = reference(model, X.T if columns else X)
    close(network.run(X), expected if stream == "A" else expected.T)


def reference(model, x):
    """What onnxruntime makes of it."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("nodes", "constants", "activation", "limits"),
    [
        ([node("Relu", ["h"], ["y"])], {}, "relu", None),
        ([node("Clip", ["h", "lo", "hi"], ["y"])], {"lo": 0.0, "hi": 6.0}, "clip", (0, 6)),
        ([node("Clip", ["h", "", "hi"], ["y"])], {"hi": 0.5}, "clip", (-np.inf, 0.5)),
        ([node("Clip", ["h", "lo"], ["y"])], {"lo": 0.0}, "relu", None),
        ([node("Clip", ["h"], ["y"])], {}, "none", None),
        (
            [node("Clip", ["h", "lo", "hi"], ["y"])],
            {"lo": 0.0, "hi": float(np.finfo(np.float32).max)},
            "relu",
            None,
        ),
        (
            [node("Relu", ["h"], ["r"]), node("Clip", ["r", "lo", "hi"], ["y"])],
            {"lo": -1.0, "hi": 1.0},
            "clip",
            (0, 1),
        ),
        ([node("LeakyRelu", ["h"], ["y"], alpha=0.0)], {}, "relu", None),
        ([node("LeakyRelu", ["h"], ["y"], alpha=1.0)], {}, "none", None),
        ([node("Relu", ["h"], ["r"]), node("LeakyRelu", ["r"], ["y"])], {}, "relu", None),
        ([node("Dropout", ["h"], ["y", "mask"])], {}, "none", None),
        ([node("Identity", ["h"], ["i"]), node("Relu", ["i"], ["y"])], {}, "relu", None),
        ([node("Cast", ["h"], ["y"], to=onnx.TensorProto.FLOAT)], {}, "none", None),
    ],
)
def test_activations(tmp_path, nodes, constants, activation, limits):
    gemm = node("Gemm", ["x", "w", "b"], ["h"], transB=1)
    model = make_model([gemm, *nodes], {"w": W, "b": B, **constants})
    network = load_network(write(tmp_path, model))
    (layer,) = network.layers
    assert (layer.activation, layer.limits) == (activation, limits)
    close(network.run(X), reference(model, X))


def test_clip_of_old_opsets(tmp_path):
    nodes = [node("Gemm", ["x", "w"], ["h"], transB=1), node("Clip", ["h"], ["y"], min=-1, max=2.0)]
    (layer,) = load(tmp_path, nodes, {"w": W}, opset=9).layers
    assert layer.limits == (-1, 2)


@pytest.mark.parametrize(
    ("nodes", "final"),
    [
        ([node("Softmax", ["h"], ["y"])], "softmax"),
        ([node("Softmax", ["h"], ["y"], axis=1)], "softmax"),
        ([node("Sigmoid", ["h"], ["y"])], "sigmoid"),
        ([node("ArgMax", ["h"], ["y"], axis=1)], "argmax"),
        ([node("Softmax", ["h"], ["p"]), node("ArgMax", ["p"], ["y"], axis=-1)], "argmax"),
    ],
)
def test_final_steps(tmp_path, nodes, final):
    model = make_model([node("Gemm", ["x", "w", "b"], ["h"], transB=1), *nodes], {"w": W, "b": B})
    if final == "argmax":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    network = load_network(write(tmp_path, model))
    assert network.final == final
    close(network.run(X), reference(model, X))


def test_scales_before_and_after_activations(tmp_path):
    """Normalization in front, BatchNormalization behind ReLU and at the end."""
    norm = {f"{k}{i}": RNG.uniform(0.5, 2, 3) for i in (1, 2) for k in "cdmv"}
    nodes = [
        node("Sub", ["x", "mean"], ["x1"]),
        node("Div", ["x1", "std"], ["x2"]),
        node("Gemm", ["x2", "w", "b"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("BatchNormalization", ["r", "c1", "d1", "m1", "v1"], ["n"]),
        node("Gemm", ["n", "v"], ["g"]),
        node("Clip", ["g", "lo", "hi"], ["k"]),
        node("BatchNormalization", ["k", "c2", "d2", "m2", "v2"], ["y"], name="last"),
    ]
    constants = {"mean": [0.1, 0.2, 0.3, 0.4], "std": 0.3, "w": W, "b": B, "lo": -1.0, "hi": 1.0}
    model = make_model(nodes, constants | norm | {"v": RNG.normal(size=(3, 3))})
    network = load_network(write(tmp_path, model))
    assert [layer.weight.shape for layer in network.layers] == [(3, 4), (3, 3), (3, 3)]
    assert np.count_nonzero(network.layers[2].weight) == 3
    close(network.run(X), reference(model, X))


def test_images_are_normalized_per_channel(tmp_path):
    x = RNG.normal(size=(5, 2, 3, 1)).astype(np.float32)
    w = RNG.normal(size=(4, 6))
    nodes = [
        node("BatchNormalization", ["x", "c", "d", "m", "v"], ["n"]),
        node("Add", ["n", "a"], ["z"]),
        node("Flatten", ["z"], ["f"]),
        node("Gemm", ["f", "w"], ["y"], transB=1),
    ]
    two = {name: RNG.uniform(0.5, 2, 2) for name in "cdmv"}
    constants = {**two, "w": w, "a": RNG.normal(size=(1, 3, 1))}
    model = make_model(nodes, constants, shape=("N", 2, 3, 1))
    network = load_network(write(tmp_path, model))
    assert len(network.layers) == 1
    close(network.run(x.reshape(5, 6)), reference(model, x))


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Flatten", ["x"], ["f"])], {}),
        ([node("Flatten", ["x"], ["f"], axis=-2)], {}),
        ([node("Reshape", ["x", "s"], ["f"])], {"s": np.array([-1, 4])}),
        ([node("Reshape", ["x", "s"], ["f"])], {"s": np.array([0, -1])}),
        ([node("Reshape", ["x", "s"], ["f"], allowzero=1)], {"s": np.array([-1, 4])}),
        (
            [
                node("Shape", ["x"], ["all"]),
                node("Gather", ["all", "zero"], ["n"]),
                node("Unsqueeze", ["n", "axes"], ["n1"]),
                node("Concat", ["n1", "rest"], ["s"], axis=0),
                node("Reshape", ["x", "s"], ["f"]),
            ],
            {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])},
        ),
    ],
)
def test_shapes(tmp_path, nodes, constants):
    gemm = node("Gemm", ["f", "w"], ["y"], transB=1)
    model = make_model([*nodes, gemm], {"w": W, **constants}, shape=("N", 2, 2))
    network = load_network(write(tmp_path, model))
    close(network.run(X), reference(model, X.reshape(6, 2, 2)))


@pytest.mark.parametrize(
    "shape", [(1, 4), (8, 4), ("N", 4), (None, 4), (-1, 4), (0, 4), (4,), None]
)
def test_any_batch(tmp_path, shape):
    network = load(tmp_path, [node("Gemm", ["x", "w"], ["y"], transB=1)], {"w": W}, shape=shape)
    assert network.n_inputs == 4
    close(network.run(X), X @ W.T)


@pytest.mark.parametrize("target", [[4], [1, 4], [-1], [1, -1]])
def test_a_fixed_batch_of_one(tmp_path, target):
    nodes = [node("Reshape", ["x", "s"], ["f"]), node("MatMul", ["f", "w"], ["y"])]
    network = load(tmp_path, nodes, {"w": W.T, "s": np.array(target)}, shape=(1, 2, 2))
    close(network.run(X), X @ W.T)


def test_names(tmp_path):
    """Of the weights where they have one, else of the node, else made up; unique in any case."""
    square = np.eye(4)
    nodes = [
        node("Gemm", ["x", "fc1.weight"], ["a"], name="/net/Gemm"),
        node("MatMul", ["a", "u"], ["b"], name="/net/fc2/MatMul"),
        node("MatMul", ["b", "u"], ["c"]),
        node("MatMul", ["c", "dense/kernel"], ["d"], name="same"),
        node("MatMul", ["d", "u"], ["e"], name="same"),
        node("MatMul", ["e", "u"], ["y"], name="same"),
    ]
    network = load(tmp_path, nodes, {"fc1.weight": square, "u": square, "dense/kernel": square})
    names = [layer.name for layer in network.layers]
    assert names == ["fc1", "net.fc2", "matmul_c", "dense", "same", "same_2"]


def test_integer_inputs_are_declared(tmp_path):
    nodes = [
        node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Div", ["f", "c"], ["s"]),
        node("Gemm", ["s", "w"], ["y"], transB=1),
    ]
    network = load(tmp_path, nodes, {"c": 255.0, "w": W}, kind=UINT8)
    assert (network.input_range, network.input_levels) == ((0, 255), 255)
    close(network.run([[0, 255, 51, 1]]), np.array([[0, 1, 0.2, 1 / 255]]) @ W.T)


def test_dead_nodes_and_inputs_do_not_matter(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], ["unused"]),
        node("Gemm", ["x", "w"], ["y"], transB=1),
    ]
    assert load(tmp_path, nodes, {"w": W}, inputs=("x", "unused_input", "w")).n_outputs == 3


def test_unsupported_operators_are_named_all_at_once(tmp_path):
    nodes = [
        node("Conv", ["x", "k"], ["a"], name="conv1"),
        node("Conv", ["a", "k"], ["b"], name="conv2"),
        node("Tanh", ["b"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("QGemm", ["d"], ["y"], name="q", domain="com.microsoft"),
    ]
    with pytest.raises(InputError) as caught:
        load(tmp_path, nodes, {"k": np.ones((1, 1, 1, 1))}, more={"com.microsoft": 1})
    text = str(caught.value)
    assert "net.onnx: operators that are not supported: Conv (conv1, conv2): the engine" in text
    assert "Tanh (makes c): replace the activation by Relu or Clip and train again" in text
    assert "com.microsoft.QGemm (q): quantize with quant_format=QuantFormat.QDQ" in text
    assert all(op in text for op in SUPPORTED)


def test_documentation_names_every_operator():
    text = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text()
    assert all(re.search(rf"^\| .*\b{op}\b", text, re.MULTILINE) for op in SUPPORTED)


def refused(text, nodes, constants=None, **options):
    return pytest.param(nodes, constants or {}, options, text, id=text)


GEMM = node("Gemm", ["x", "w"], ["h"], transB=1, name="fc")


@pytest.mark.parametrize(
    ("nodes", "constants", "options", "text"),
    [
        refused(
            "LeakyRelu node 'act': has slope 0.1 below 0.*replace it by Relu",
            [GEMM, node("LeakyRelu", ["h"], ["y"], alpha=0.1, name="act")],
        ),
        refused(
            "Gemm node 'fc': weights take 4 inputs, but a sample has shape .2, 2.*flatten it",
            [node("Gemm", ["x", "w"], ["y"], transB=1, name="fc")],
            shape=("N", 2, 2),
        ),
        refused(
            "graph branches: 'h' goes to Relu node 'r' and to Add node 'plus'.*no skip connections",
            [
                GEMM,
                node("Relu", ["h"], ["r"], name="r"),
                node("Add", ["r", "h"], ["y"], name="plus"),
            ],
        ),
        refused(
            "follows softmax, expected nothing after it",
            [GEMM, node("Softmax", ["h"], ["s"]), node("Relu", ["s"], ["y"])],
        ),
        refused(
            "runs along axis 0, expected the one of the features",
            [GEMM, node("ArgMax", ["h"], ["y"])],
        ),
        refused(
            r"constant has shape \(6, 3\), so that samples of a batch differ",
            [GEMM, node("Add", ["h", "c"], ["y"])],
            {"c": np.ones((6, 3))},
        ),
        refused(
            r"constant has shape \(5,\), expected one that broadcasts to that of a sample, \(3,\)",
            [GEMM, node("Add", ["h", "c"], ["y"])],
            {"c": np.ones(5)},
        ),
        refused(
            "axis is 0, which mixes samples with features",
            [node("Flatten", ["x"], ["f"], axis=0), node("MatMul", ["f", "w"], ["y"])],
        ),
        refused(
            r"new shape is \[2, 8\], which mixes samples with features",
            [node("Reshape", ["x", "s"], ["f"]), node("MatMul", ["f", "w"], ["y"])],
            {"s": np.array([2, 8])},
        ),
        refused(
            r"perm is \[0, 2, 1\], which reorders the features",
            [node("Transpose", ["x"], ["y"], perm=[0, 2, 1])],
            shape=("N", 2, 2),
        ),
        refused(
            "found 2 outputs that matter .y, h., expected one; cut",
            [GEMM, node("Relu", ["h"], ["y"])],
            outputs=("y", "h"),
        ),
        refused(
            "found 2 inputs that matter .x, z.",
            [node("Add", ["x", "z"], ["y"])],
            inputs=("x", "z"),
        ),
        refused(
            "found 0 inputs that matter .none., expected one",
            [node("Identity", ["w"], ["y"])],
        ),
        refused(
            "drops values at random; export the model in inference mode",
            [GEMM, node("Dropout", ["h", "", "t"], ["y"])],
            {"t": np.array(True)},
        ),
        refused(
            "takes mean and variance from each batch.*inference mode",
            [GEMM, node("BatchNormalization", ["h", *"cccc"], ["y"], training_mode=1)],
            {"c": np.ones(3)},
        ),
        refused(
            "outputs of layer 'fc' are all -1, expected limits that leave a range",
            [GEMM, node("Relu", ["h"], ["r"]), node("Clip", ["r", "", "c"], ["y"])],
            {"c": -1.0},
        ),
        refused(
            "computes with integers, expected DequantizeLinear or Cast",
            [node("Relu", ["x"], ["y"])],
            kind=UINT8,
        ),
        refused(
            "acts on an unknown number of features without weights before it",
            [node("Relu", ["x"], ["y"])],
            shape=None,
        ),
        refused(
            "divides by the input or by 0",
            [GEMM, node("Div", ["c", "h"], ["y"])],
            {"c": 1.0},
        ),
        refused(
            "the other factor depends on the input|both factors depend on the input",
            [node("MatMul", ["x", "x"], ["y"])],
        ),
        refused(
            r"weights have shape \(4,\), expected \(inputs, outputs\)",
            [node("MatMul", ["x", "c"], ["y"])],
            {"c": np.ones(4)},
        ),
        refused(
            "sums run over the samples of a batch",
            [GEMM, node("Gemm", ["h", "c"], ["y"], transA=1)],
            {"c": np.ones((4, 3))},
        ),
        refused(
            "changes values or their meaning, expected a cast of numbers to floats",
            [GEMM, node("Cast", ["h"], ["y"], to=onnx.TensorProto.INT8)],
        ),
        refused(
            "Gemm node 'fc': bias has 2 values, expected 3",
            [node("Gemm", ["x", "w", "c"], ["y"], transB=1, name="fc")],
            {"c": np.ones(2)},
        ),
        refused(
            "asks for a shape that is not known",
            [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["y"])],
            shape=None,
        ),
        refused(
            "makes a constant that cannot be evaluated",
            [node("Reshape", ["w", "s"], ["c"]), node("MatMul", ["x", "c"], ["y"])],
            {"s": np.array([5, 5])},
        ),
        refused(
            "takes the last of equal values",
            [GEMM, node("ArgMax", ["h"], ["y"], axis=1, select_last_index=1)],
        ),
    ],
)
def test_refusals(tmp_path, nodes, constants, options, text):
    model = make_model(nodes, {"w": W, **constants}, **options)
    with pytest.raises(InputError, match=f"net.onnx: .*{text}"):
        load_network(write(tmp_path, model))


def test_masks_are_for_other_files(tmp_path):
    path = write(tmp_path, make_model([node("MatMul", ["x", "w"], ["y"])], {"w": W.T}))
    with pytest.raises(InputError, match="masks are for files of named arrays, expected none"):
        load_network(path, masks=path)
