# SPDX-License-Identifier: BSD-2-Clause
"""ONNX files: read, with weights that lie in files beside them, and checked for their versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, InputError
from .extras import import_extra

__all__ = ["OLDEST_OPSET", "ONNX_DOMAINS", "as_array", "read_model", "sparse_array"]

Array = npt.NDArray[Any]

OLDEST_OPSET = 9
ONNX_DOMAINS = ("", "ai.onnx")
"""Names of ONNX's own operators."""


def read_model(path: Path) -> Any:
    """Read a file; weights beside it are loaded, functions of its own are inlined.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    FormatError
        Not an ONNX file, damaged, or of a version that cannot be read.
    InputError
        A file is missing or cannot be read.
    ToolError
        onnx is not installed.
    """
    onnx = import_extra("onnx", str(path))
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected an ONNX model") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    decode_error = import_extra("onnx", str(path), "google.protobuf.message").DecodeError
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except decode_error as error:
        raise FormatError(
            f"{path}: not a whole ONNX file ({error}); it is damaged or of another kind, export "
            "the model again"
        ) from None
    if not model.opset_import or not model.graph.output:
        raise FormatError(
            f"{path}: holds no ONNX model (no opset or no output), expected one as exported by "
            "torch.onnx, tf2onnx and the like"
        )
    _check_versions(onnx, model, path)
    for tensor in _tensors(model.graph):
        _load_external(onnx, tensor, path)
    if model.functions:
        model = import_extra("onnx", str(path), "onnx.inliner").inline_local_functions(model)
    return model


def as_array(tensor: Any, where: str) -> Array:
    """A `TensorProto` as an array; `where` starts the message.

    Raises
    ------
    FormatError
        It holds fewer or more values than its shape says.
    """
    try:
        return np.asarray(import_extra("onnx", where, "onnx.numpy_helper").to_array(tensor))
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"{where}: tensor {tensor.name!r} is damaged ({error}); export the model again"
        ) from None


def sparse_array(tensor: Any, where: str) -> Array:
    """A `SparseTensorProto` as an array with all its zeros; `where` starts the message.

    Raises
    ------
    FormatError
        A tensor in it is damaged, or an index lies outside of the shape.
    """
    values = as_array(tensor.values, where)
    places = as_array(tensor.indices, where).astype(np.int64)
    shape = tuple(tensor.dims)
    flat = np.zeros(int(np.prod(shape)), dtype=values.dtype)
    try:
        if places.ndim == 2:
            places = np.asarray(np.ravel_multi_index(tuple(places.T), shape))
        if (places < 0).any():
            raise IndexError(f"index {places.min()}")
        flat[places] = values
    except (ValueError, IndexError) as error:
        raise FormatError(
            f"{where}: sparse tensor {tensor.values.name!r} of shape {shape} is damaged ({error}); "
            "export the model again"
        ) from None
    return flat.reshape(shape)


def _check_versions(onnx: Any, model: Any, path: Path) -> None:
    newest = onnx.defs.onnx_opset_version()
    span = f"expected {OLDEST_OPSET} to {newest} (onnx {onnx.__version__} is installed)"
    opset = max((o.version for o in model.opset_import if o.domain in ONNX_DOMAINS), default=None)
    if opset is not None and opset < OLDEST_OPSET:
        raise FormatError(
            f"{path}: opset is {opset}, {span}; export the model again with opset_version="
            f"{newest - 5}, or convert it with onnx.version_converter"
        )
    if opset is not None and opset > newest:
        raise FormatError(
            f"{path}: opset is {opset}, {span}; pip install --upgrade onnx, or export the model "
            "with a lower opset_version"
        )
    if model.ir_version > onnx.IR_VERSION:
        raise FormatError(
            f"{path}: IR version is {model.ir_version}, expected at most {onnx.IR_VERSION} "
            f"(onnx {onnx.__version__} is installed); pip install --upgrade onnx"
        )


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor that a graph stores."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def _load_external(onnx: Any, tensor: Any, path: Path) -> None:
    helper = import_extra("onnx", str(path), "onnx.external_data_helper")
    if not helper.uses_external_data(tensor):
        return
    info = helper.ExternalDataInfo(tensor)
    where = f"{path}: the values of {tensor.name!r} are in the file {info.location!r}"
    file = (path.parent / info.location).resolve()
    if not file.is_relative_to(path.parent.resolve()):
        raise InputError(
            f"{where}, outside of the model's folder; expected a file beside the model"
        )
    if not file.is_file():
        raise InputError(f"{where}, which is missing from {path.parent.resolve()}; {_advice(path)}")
    size = file.stat().st_size
    start = info.offset or 0
    length = size - start if info.length is None else info.length
    if start + length > size:
        raise FormatError(
            f"{where} at bytes {start}..{start + length}, but it has {size}; it is truncated or "
            "of another model, export the model again"
        )
    with file.open("rb") as stream:
        stream.seek(start)
        tensor.raw_data = stream.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _advice(path: Path) -> str:
    others = sorted(
        file.name for file in path.parent.iterdir() if file.suffix in (".data", ".bin", ".weights")
    )
    advice = "an ONNX model and its data file are moved together and keep their names"
    if others:
        return f"{advice} (found {', '.join(others)}: rename it back if it was that one)"
    return f"{advice}, or export the model into one file (torch.onnx.export: external_data=False)"
