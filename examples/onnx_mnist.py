# SPDX-License-Identifier: BSD-2-Clause
"""Errors of quantized ONNX models of an MNIST network: onnxruntime beside this engine's integers.

    python examples/onnx_mnist.py DATA MODEL [--device golden] [--images 10000] [--keep FOLDER]

DATA is a folder with MNIST's four IDX files, plain or .gz; MODEL a .npz or .safetensors of a
network 784-...-10 with ReLU, trained on pixels / 255. It is written as ONNX (by torch.onnx if
PyTorch and onnxscript are installed, else node by node as torch.onnx writes it) and quantized by
onnxruntime in eight ways: weights per channel or per tensor, activations uint8 or int8, symmetric
or not. Each file is imported as it is, without calibration data if it has ranges of its own.

onnxruntime is asked twice: with what the file says (optimizations off) and as users run it. Without
VNNI instructions its int8 kernels add pairs of products in 16 bits, which saturate. The last column
says whether the device's outputs equal the golden model's, all of them (exit 3 if not). Needs
``pip install gossamer[onnx] onnxruntime``.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from gossamer.bench.mnist import read_idx
from gossamer.host.compression.compress import compress
from gossamer.host.importers import load_network
from gossamer.host.network import Network
from gossamer.host.session import Session
from mnist import CALIBRATION, CHUNK
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

__all__ = ["export", "main", "quantize_all"]

INPUT, OUTPUT = "input", "logits"


def export(network: Network, path: Path) -> str:
    """Write a network as ONNX, input (N, 1, 28, 28); says who wrote it."""
    try:
        import onnxscript  # noqa: F401 - torch.onnx needs it and says so too late
        import torch
    except ModuleNotFoundError:
        _write_nodes(network, path)
        return "node by node, as torch.onnx does"
    modules: list[torch.nn.Module] = [torch.nn.Flatten()]
    for layer in network.layers:
        linear = torch.nn.Linear(layer.n_cols, layer.n_rows)
        linear.weight.data = torch.tensor(layer.weight)
        linear.bias.data = torch.tensor(layer.bias)
        modules += [linear] + [torch.nn.ReLU()] * (layer.activation == "relu")
    model = torch.nn.Sequential(*modules).eval()
    torch.onnx.export(
        model, (torch.zeros(2, 1, 28, 28),), str(path), input_names=[INPUT], output_names=[OUTPUT],
        dynamic_shapes=({0: torch.export.Dim("N")},), dynamo=True, external_data=False,
        verbose=False,
    )  # fmt: skip
    return f"by torch.onnx {torch.__version__}"


def _write_nodes(network: Network, path: Path) -> None:
    nodes = [helper.make_node("Flatten", [INPUT], ["flat"], name="node_flatten", axis=1)]
    stored, name = [], "flat"
    for k, layer in enumerate(network.layers):
        stored.append(numpy_helper.from_array(layer.weight, f"{layer.name}.weight"))
        stored.append(numpy_helper.from_array(layer.bias, f"{layer.name}.bias"))
        names = [name, f"{layer.name}.weight", f"{layer.name}.bias"]
        name = OUTPUT if k == len(network.layers) - 1 else f"linear_{k}"
        nodes.append(helper.make_node("Gemm", names, [name], name=f"node_linear_{k}", transB=1))
        if layer.activation == "relu":
            nodes.append(helper.make_node("Relu", [name], [f"relu_{k}"], name=f"node_relu_{k}"))
            name = f"relu_{k}"
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", network.n_outputs])],
        stored,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path
    )


class _Images(CalibrationDataReader):
    """One calibration image after the other."""

    def __init__(self, images: np.ndarray) -> None:
        self._rest = iter(images.reshape(-1, 1, 1, 28, 28))

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._rest, None)
        return None if image is None else {INPUT: image}


def quantize_all(path: Path, images: np.ndarray) -> Iterator[tuple[str, Path]]:
    """Quantize a model in eight ways, with calibration images (n, 784)."""
    logging.getLogger().setLevel(logging.ERROR)  # it recommends a step that changes nothing here
    kinds = (QuantType.QUInt8, QuantType.QInt8)
    for channels, kind, symmetric in product((False, True), kinds, (False, True)):
        name = f"{'channel' if channels else 'tensor'}, {kind.name[1:].lower()}"
        name += ", symmetric" if symmetric else ""
        quantized = path.with_name(f"{name.replace(', ', '_')}.onnx")
        quantize_static(
            path, quantized, _Images(images), per_channel=channels, activation_type=kind,
            weight_type=QuantType.QInt8, extra_options={"ActivationSymmetric": symmetric},
        )  # fmt: skip
        yield f"per {name}", quantized


def onnxruntime_outputs(path: Path, x: np.ndarray, *, optimized: bool) -> np.ndarray:
    """Logits (n, 10) of images (n, 784)."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {INPUT: x.reshape(-1, 1, 28, 28)})[0])


def engine_outputs(path: Path, x: np.ndarray, calibration: np.ndarray, device: str) -> np.ndarray:
    """Logits (n, 10) of the model on a device."""
    network = load_network(path)
    samples = calibration if network.input_range is None else None
    with Session(compress(network, calibration=samples), device) as session:
        starts = range(0, len(x), CHUNK)
        return np.concatenate([session.run(x[start : start + CHUNK]) for start in starts])


def main(arguments: list[str] | None = None) -> int:
    """Print a line per file."""
    parser = argparse.ArgumentParser(description="Quantized ONNX models of an MNIST network.")
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="golden")
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--keep", type=Path, help="folder for the ONNX files")
    options = parser.parse_args(arguments)

    x = read_idx(options.data, "t10k-images-idx3-ubyte")[: options.images] / np.float32(255)
    labels = read_idx(options.data, "t10k-labels-idx1-ubyte")[: options.images]
    training = read_idx(options.data, "train-images-idx3-ubyte")[:CALIBRATION] / np.float32(255)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.keep is None else options.keep
        folder.mkdir(exist_ok=True)
        path = folder / "float.onnx"
        print(f"written {export(load_network(options.model), path)}")
        heads = ("file", "file says", options.device, "differ", "as users run it", "= golden")
        print("{:30} {:>9} {:>9} {:>6} {:>15} {:>8}".format(*heads))
        all_same = True
        for name, file in [("float", path), *quantize_all(path, training)]:
            exact = onnxruntime_outputs(file, x, optimized=False)
            usual = onnxruntime_outputs(file, x, optimized=True)
            ours = engine_outputs(file, x, training, options.device)
            same = np.array_equal(ours, engine_outputs(file, x, training, "golden"))
            all_same &= same
            errors = [100 * (y.argmax(axis=1) != labels).mean() for y in (exact, ours, usual)]
            differ = int((exact.argmax(axis=1) != ours.argmax(axis=1)).sum())
            print(
                f"{name:30} {errors[0]:8.2f}% {errors[1]:8.2f}% {differ:6} {errors[2]:14.2f}%"
                f" {'yes' if same else 'NO':>8}"
            )
    return 0 if all_same else 3


if __name__ == "__main__":
    sys.exit(main())
