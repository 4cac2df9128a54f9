# SPDX-License-Identifier: BSD-2-Clause
import io
import json
import struct
import sys
import zipfile

import numpy as np
import pytest
from gossamer.host.errors import FormatError, InputError, ToolError
from gossamer.host.importers import from_torch, load_network
from safetensors.numpy import save_file

A = np.arange(6, dtype=np.float32).reshape(3, 2) - 2
B = np.array([[1, -1, 0.5]], np.float32)


def weights(**more):
    return {"fc1.weight": A, "fc1.bias": np.ones(3), "fc2.weight": B, **more}


@pytest.fixture(params=[".npz", ".safetensors"])
def write(request, tmp_path):
    def to_file(arrays, name="net"):
        path = tmp_path / f"{name}{request.param}"
        if request.param == ".npz":
            np.savez(path, **arrays)
        else:
            save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
        return path

    return to_file


def test_weights_biases_and_default_activations(write):
    network = load_network(write(weights()))
    first, second = network.layers
    assert np.array_equal(first.weight, A)
    assert first.bias.tolist() == [1, 1, 1]
    assert second.bias.tolist() == [0]
    assert [layer.name for layer in network.layers] == ["fc1", "fc2"]
    assert [layer.activation for layer in network.layers] == ["relu", "none"]
    assert network.notes == ()
    assert network.input_range is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
def test_types(write, dtype):
    network = load_network(write({"a.weight": A.astype(dtype)}))
    assert np.array_equal(network.layers[0].weight, A)


def test_many_layers_in_natural_order(write):
    arrays = {f"fc{k}.weight": np.full((1, 1), k) for k in range(1, 13)}
    names = [layer.name for layer in load_network(write(arrays)).layers]
    assert names == [f"fc{k}" for k in range(1, 13)]


def test_masks_are_applied(write):
    mask = np.array([[1, 0], [1, 1], [0, 1]], bool)
    for name in ("fc1.mask", "fc1.weight.mask"):
        network = load_network(write(weights(**{name: mask.astype(np.uint8)})))
        assert np.array_equal(network.layers[0].weight, A * mask)
        assert "layer 'fc1': mask applied, 4 of 6 weights kept" in network.notes[0]
        assert "it cut 2 that were not zero" in network.notes[0]


def test_pruning_leftovers_of_torch(write):
    mask = np.array([[1, 0], [1, 1], [0, 1]], np.float32)
    arrays = {"fc1.weight_orig": A, "fc1.weight_mask": mask, "fc1.bias": np.zeros(3)}
    network = load_network(write(arrays))
    assert np.array_equal(network.layers[0].weight, A * mask)


@pytest.mark.parametrize("key", ["fc1.mask", "fc1.weight", "fc1"])
def test_masks_in_a_file_of_their_own(write, key):
    mask = np.array([[1, 0], [1, 1], [0, 1]], np.uint8)
    path, masks = write(weights()), write({key: mask}, "masks")
    network = load_network(path, masks=masks)
    assert np.array_equal(network.layers[0].weight, A * mask)
    assert np.array_equal(network.layers[1].weight, B)


def test_other_arrays_are_ignored_with_a_note(write):
    network = load_network(write(weights(**{"fc1.weight.codebook": np.ones(4), "epoch": A})))
    (note,) = network.notes
    assert "ignored" in note
    assert "fc1.weight.codebook" in note
    assert "epoch" in note


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"fc1": A}, "found fc1, expected arrays named NAME.weight"),
        (weights(**{"fc1.mask": np.ones((2, 3))}), r"mask has shape \(2, 3\), expected \(3, 2\)"),
        (weights(**{"fc1.mask": np.full((3, 2), 0.5)}), "mask has other values than 0 and 1"),
        (weights(**{"fc1.bias": np.ones(2)}), r"net.*layer 'fc1': bias has shape \(2,\)"),
        (weights(**{"fc1.bias": np.full(3, np.nan)}), r"net.*layer 'fc1': bias is nan"),
        (weights(**{"fc2.weight": B.T}), "net.*'fc1' has 3 outputs, but 'fc2' takes 1 inputs"),
        (weights(input_range=np.array([1.0])), "input_range is 1.0, expected lowest and highest"),
        (weights(input_range=np.array([1, 0])), r"input range is \[1.0, 0.0\]"),
        ({"bn.weight": np.ones(3)}, r"layer 'bn': weight has shape \(3,\), expected \(rows, cols"),
        ({"a.weight": np.zeros((0, 3))}, "weight is empty"),
    ],
)
def test_unusable_networks(write, arrays, text):
    with pytest.raises(InputError, match=text):
        load_network(write(arrays))


def test_npz_order_and_texts(tmp_path):
    path = tmp_path / "net.npz"
    square = np.eye(2)
    texts = {"input_range": np.array([0, 2.5]), "activations": np.array(["ReLU", "linear"])}
    np.savez(path, **{"zeta.weight": square, "alpha.weight": square}, **texts)
    network = load_network(path)
    assert [layer.name for layer in network.layers] == ["zeta", "alpha"]
    assert [layer.activation for layer in network.layers] == ["relu", "none"]
    assert network.input_range == (0, 2.5)
    own = {"zeta.activation": np.array("none"), "alpha.activation": np.array("relu")}
    np.savez_compressed(path, **{"zeta.weight": square, "alpha.weight": square}, **own)
    assert [layer.activation for layer in load_network(path).layers] == ["none", "relu"]
    np.savez(path, **{"a.weight": square}, activations=np.array(["relu", "relu"]))
    with pytest.raises(InputError, match="has 2 texts, expected one for each of the 1 layers a"):
        load_network(path)
    np.savez(path, **{"a.weight": square, "a.activation": np.array("gelu")})
    with pytest.raises(InputError, match=r"net.npz: layer 'a': activation is 'gelu'"):
        load_network(path)


def test_safetensors_metadata(tmp_path):
    path = tmp_path / "net.safetensors"
    arrays = {"hidden.weight": np.eye(2), "alpha.weight": np.eye(2)}
    metadata = {"layers": "hidden, alpha", "activations": "none,relu", "input_range": "-1, 1"}
    save_file(arrays, path, metadata | {"format": "pt", "hidden.activation": "relu"})
    network = load_network(path)
    assert [layer.name for layer in network.layers] == ["hidden", "alpha"]
    assert [layer.activation for layer in network.layers] == ["relu", "relu"]
    assert network.input_range == (-1, 1)
    save_file(arrays, path, {"layers": "hidden"})
    with pytest.raises(InputError, match="`layers` names hidden, expected an order of"):
        load_network(path)


def test_strided_and_transposed(tmp_path):
    path = tmp_path / "net.npz"
    wide = np.arange(24.0).reshape(4, 6)
    np.savez(path, **{"a.weight": wide.T, "b.weight": wide[::2, 1::2].T[:, ::-1].T @ np.eye(3, 6)})
    assert np.array_equal(load_network(path).layers[0].weight, wide.T)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(InputError, match=r"no\.npz: no such file"):
        load_network(tmp_path / "no.npz")
    with pytest.raises(InputError, match=r"cannot read files that end in '\.h5', expected \.npz"):
        load_network(tmp_path / "model.h5")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_network(tmp_path / "folder.npz")


def test_a_missing_module_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "net.pt"
    path.write_bytes(b"PK")
    with pytest.raises(ToolError, match=r"net\.pt: reading PyTorch files needs.*gossamer\[torch\]"):
        load_network(path)
    with pytest.raises(ToolError, match=r"from_torch needs the Python module torch"):
        from_torch(None)


def test_pruned_biases_and_batch_normalization(write):
    mask = np.array([[1, 0], [1, 1], [0, 1]], np.float32)
    arrays = {
        "fc1.weight_orig": A, "fc1.weight_mask": mask,
        "fc1.bias_orig": np.array([1.0, 2, 3]), "fc1.bias_mask": np.array([1, 0, 1]),
    }  # fmt: skip
    network = load_network(write(arrays))
    assert network.layers[0].bias.tolist() == [1, 0, 3]
    assert len(network.notes) == 1
    arrays["bn.weight"] = arrays["bn.running_mean"] = np.ones(3)
    with pytest.raises(
        InputError, match=r"'bn' is a batch normalization.*hand the module to from_"
    ):
        load_network(write(arrays))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"\x93NUMPY\x01\x00", "found a .npy array, expected a .npz archive"),
        (b"\x80\x04\x95", "found a pickle"),
        (b"hello world", "found no zip archive"),
        (b"PK\x03\x04" + bytes(40), "damaged or truncated"),
    ],
)
def test_not_an_archive(tmp_path, content, text):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=text):
        load_network(path)


@pytest.mark.parametrize("content", [b"", b"12345678", struct.pack("<Q", 1 << 40) + b"{}"])
def test_not_safetensors(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.safetensors: (not a whole|the file is empty)"):
        load_network(path)


def test_pickled_arrays_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    path = tmp_path / "x.npz"
    np.savez(path, **{"a.weight": np.array([[Bomb()]], dtype=object)})
    with pytest.raises(FormatError, match=r"a\.weight holds pickled Python objects"):
        load_network(path)


@pytest.mark.parametrize("saver", [np.savez, np.savez_compressed])
def test_every_truncation_is_an_error(tmp_path, saver):
    path = tmp_path / "x.npz"
    saver(path, **weights())
    whole = path.read_bytes()
    for size in range(1, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            load_network(path)


def test_flipped_bytes_never_crash(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, **weights())
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    failures = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            load_network(path)
        except (FormatError, InputError):
            failures += 1
    assert failures > 100


def test_headers_that_claim_too_much(tmp_path):
    header = io.BytesIO()
    claim = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
    np.lib.format.write_array_header_1_0(header, claim)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.weight.npy", header.getvalue() + bytes(16))
    with pytest.raises(FormatError, match=f"claims {1 << 42} bytes of data but holds 16"):
        load_network(path)
    text = {"a.weight": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    raw = json.dumps(text).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(FormatError, match=r"not a whole \.safetensors file"):
        load_network(path)


def test_two_arrays_of_one_name(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{"a.weight": A})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.weight.npy", b"")
    with pytest.raises(FormatError, match=r"two arrays are named 'a\.weight'"):
        load_network(path)


def test_bfloat16_is_named(tmp_path):
    raw = json.dumps({"a.weight": {"dtype": "BF16", "shape": [1, 1], "data_offsets": [0, 2]}})
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw.encode() + bytes(2))
    with pytest.raises(FormatError, match=r"a\.weight is of a type that cannot be read"):
        load_network(path)
