# SPDX-License-Identifier: BSD-2-Clause
"""ONNX files: versions, weights in files beside the model, sparse weights, damage."""

import sys

import numpy as np
import onnx
import pytest
from gossamer.host.errors import FormatError, InputError, ToolError
from gossamer.host.importers import load_network
from onnx import TensorProto, helper, numpy_helper
from onnx_models import make_model, write

node = helper.make_node
W = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
NEWEST = onnx.defs.onnx_opset_version()


def gemm(constants=None, **options):
    nodes = [node("Gemm", ["x", "w"], ["h"], transB=1), node("Relu", ["h"], ["y"])]
    return make_model(nodes, {"w": W} if constants is None else constants, **options)


@pytest.mark.parametrize("opset", range(9, NEWEST + 1))
def test_every_opset(tmp_path, opset):
    (layer,) = load_network(write(tmp_path, gemm(opset=opset))).layers
    assert np.array_equal(layer.weight, W)
    assert layer.activation == "relu"


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17, 18, 21, NEWEST])
def test_constants_are_evaluated_in_every_opset(tmp_path, opset):
    axes = {"axes": [0]} if opset < 13 else {}
    nodes = [
        node("Shape", ["x"], ["all"]),
        node("Gather", ["all", "one"], ["n"]),
        node("Unsqueeze", ["n"] if axes else ["n", "zero"], ["n1"], **axes),
        node("Concat", ["minus", "n1"], ["s"], axis=0),
        node("Reshape", ["x", "s"], ["f"]),
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Cast", ["t"], ["c"], to=TensorProto.FLOAT),
        node("Constant", [], ["b"], value=numpy_helper.from_array(np.ones(5, np.float32))),
        node("Gemm", ["f", "c", "b"], ["y"]),
    ]
    constants = {"w": W, "one": np.array(1), "zero": np.array([0]), "minus": np.array([-1])}
    (layer,) = load_network(write(tmp_path, make_model(nodes, constants, opset=opset))).layers
    assert np.array_equal(layer.weight, W)
    assert layer.bias.tolist() == [1] * 5


def test_unknown_versions(tmp_path):
    text = rf"opset is 8, expected 9 to {NEWEST} .*export the model again with opset_version="
    with pytest.raises(FormatError, match=text):
        load_network(write(tmp_path, gemm(opset=8)))
    text = rf"opset is 99, expected 9 to {NEWEST} .*pip install --upgrade onnx"
    with pytest.raises(FormatError, match=text):
        load_network(write(tmp_path, gemm(opset=99)))
    text = rf"IR version is 99, expected at most {onnx.IR_VERSION}"
    with pytest.raises(FormatError, match=text):
        load_network(write(tmp_path, gemm(ir=99)))
    assert load_network(write(tmp_path, gemm(ir=onnx.IR_VERSION))).n_inputs == 4


def test_initializers_among_the_inputs(tmp_path):
    """As files before IR version 4 have them."""
    assert load_network(write(tmp_path, gemm(inputs=("w", "x"), ir=3, opset=9))).n_inputs == 4


@pytest.fixture
def external(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save_model(
        gemm(), path, save_as_external_data=True, location="net.onnx.data", size_threshold=0
    )
    assert path.stat().st_size < W.nbytes + 300
    return path


def test_external_data_is_read(external):
    assert np.array_equal(load_network(external).layers[0].weight, W)


def test_external_data_that_is_missing_or_renamed(external):
    data = external.with_name("net.onnx.data")
    data.rename(external.with_name("other.data"))
    text = r"'w' are in the file 'net.onnx.data', which is missing .*found other.data: rename it"
    with pytest.raises(InputError, match=text):
        load_network(external)
    external.with_name("other.data").unlink()
    with pytest.raises(
        InputError, match=r"'net.onnx.data', which is missing .*external_data=False"
    ):
        load_network(external)


def test_external_data_that_is_truncated(external):
    data = external.with_name("net.onnx.data")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"'net.onnx.data' at bytes 0..80, but it has 79"):
        load_network(external)


def test_external_data_stays_in_its_folder(external):
    model = onnx.load(external, load_external_data=False)
    (entry,) = (e for e in model.graph.initializer[0].external_data if e.key == "location")
    entry.value = "../secret"
    external.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"'../secret', outside of the model's folder"):
        load_network(external)


def sparse(values, indices, dims, name="w"):
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), name),
        numpy_helper.from_array(np.asarray(indices, np.int64), f"{name}_at"),
        dims,
    )


@pytest.mark.parametrize(
    "indices", [[1, 7, 18], [[0, 1], [1, 3], [4, 2]]], ids=["linear", "coordinates"]
)
@pytest.mark.parametrize("where", ["initializer", "node"])
def test_sparse_weights(tmp_path, indices, where):
    weight = np.zeros((5, 4), np.float32)
    weight[[0, 1, 4], [1, 3, 2]] = 1, -2, 3
    tensor = sparse([1, -2, 3], indices, weight.shape)
    model = gemm({})
    if where == "initializer":
        model.graph.sparse_initializer.append(tensor)
    else:
        model.graph.node.insert(0, node("Constant", [], ["w"], sparse_value=tensor))
    assert np.array_equal(load_network(write(tmp_path, model)).layers[0].weight, weight)


def test_sparse_weights_without_entries_and_beyond_the_shape(tmp_path):
    model = gemm({})
    model.graph.sparse_initializer.append(sparse([], np.zeros((0, 2)), (5, 4)))
    assert not load_network(write(tmp_path, model)).layers[0].weight.any()
    for indices in ([20], [-1], [[5, 0]]):
        model = gemm({})
        model.graph.sparse_initializer.append(sparse([1], indices, (5, 4)))
        with pytest.raises(FormatError, match=r"sparse tensor 'w' of shape \(5, 4\) is damaged"):
            load_network(write(tmp_path, model))


def test_functions_of_the_model_are_inlined(tmp_path):
    body = [node("MatMul", ["a", "b"], ["m"]), node("Relu", ["m"], ["c"])]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    model = make_model(
        [node("Block", ["x", "w"], ["y"], domain="mine")], {"w": W.T}, more={"mine": 1}
    )
    model.functions.append(helper.make_function("mine", "Block", ["a", "b"], ["c"], body, imports))
    (layer,) = load_network(write(tmp_path, model)).layers
    assert np.array_equal(layer.weight, W)
    assert layer.activation == "relu"


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_weights_of_other_types(tmp_path, dtype):
    model = gemm({"w": numpy_helper.from_array(W.astype(dtype), "w")})
    (layer,) = load_network(write(tmp_path, model)).layers
    assert np.array_equal(layer.weight, W.astype(dtype).astype(np.float32))


def test_bfloat16_weights(tmp_path):
    weight = np.round(W * 8) / 8
    tensor = helper.make_tensor("w", TensorProto.BFLOAT16, W.shape, weight.reshape(-1))
    (layer,) = load_network(write(tmp_path, gemm({"w": tensor}))).layers
    assert np.array_equal(layer.weight, weight)


def test_damaged_files(tmp_path):
    path = write(tmp_path, gemm())
    raw = path.read_bytes()
    for bad, text in (
        (raw[:-5], "not a whole ONNX file .*damaged or of another kind"),
        (b"PK\x03\x04 a zip archive", "not a whole ONNX file"),
        (b"", "holds no ONNX model"),
    ):
        path.write_bytes(bad)
        with pytest.raises(FormatError, match=f"net.onnx: {text}"):
            load_network(path)
    with pytest.raises(InputError, match="no such file, expected an ONNX model"):
        load_network(tmp_path / "absent.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_network(tmp_path / "folder.onnx")


def test_damaged_graphs(tmp_path):
    model = gemm()
    model.graph.node[0].input.append("nowhere")
    with pytest.raises(FormatError, match="takes 'nowhere', which nothing before it makes"):
        load_network(write(tmp_path, model))
    model = gemm()
    model.graph.initializer[0].raw_data = b"123"
    with pytest.raises(FormatError, match=r"net.onnx: tensor 'w' is damaged"):
        load_network(write(tmp_path, model))
    model = gemm({"w": np.full((5, 4), np.nan)})
    with pytest.raises(InputError, match=r"net.onnx: layer .*: weight is nan"):
        load_network(write(tmp_path, model))


def test_missing_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, gemm())
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ToolError, match=r"needs the Python module onnx.*'gossamer\[onnx\]'"):
        load_network(path)
