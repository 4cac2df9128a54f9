# SPDX-License-Identifier: BSD-2-Clause
"""The `.gossamer` file: write, read, verify. `docs/format.md` is its specification.

A safetensors container with one tensor of bytes and a description as JSON in its metadata, both
kept short because small models are mostly headers elsewhere. The CRC-32 covers both. Equal models
give equal bytes.
"""

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AGAIN, FormatError, InputError
from ..files import open_atomic
from ..network import ACTIVATIONS
from .biases import decode_biases, encode_biases
from .calibrate import SOURCES, TensorRange
from .compress import CompressedLayer, CompressedModel
from .matrix_parts import MatrixParts, decode_matrix, encode_matrix
from .reader import Reader, check_limits

__all__ = ["FORMAT_VERSION", "LayerParts", "dump", "layer_parts", "load", "parse", "save"]

FORMAT_VERSION = 2


@dataclass(frozen=True)
class LayerParts:
    """What a file holds of one layer: its line in the description and its bytes."""

    line: list[Any]
    matrix: MatrixParts
    bias: bytes

    @property
    def data(self) -> bytes:
        """All bytes, in the file's order."""
        return self.matrix.data + self.bias

    @property
    def line_bytes(self) -> int:
        """Bytes of the line and of the comma before it in a header, where quotes are escaped."""
        return len(_compact(_compact(self.line)).encode()) - len('""') + len(",")


def layer_parts(layer: CompressedLayer) -> LayerParts:
    """Encode one layer."""
    matrix = encode_matrix(layer.matrix)
    numbers, bias = encode_biases(layer.bias)
    line = [
        layer.name,
        layer.n_rows,
        layer.n_cols,
        _activation_mark(layer),
        matrix.numbers,
        numbers,
        _range_line(layer.output),
        *([] if layer.met == 1 else [round(100 * layer.met)]),
    ]
    return LayerParts(line, matrix, bias)


def dump(model: CompressedModel) -> bytes:
    """The bytes of a file."""
    parts = [layer_parts(layer) for layer in model.layers]
    final = [] if model.final == "none" else [model.final]
    text = _compact([_range_line(model.input), *(part.line for part in parts), *final])
    data = b"".join(part.data for part in parts)
    header = {
        "__metadata__": {
            "gossamer": str(FORMAT_VERSION),
            "crc32": f"{_crc(text, data):08x}",
            "model": text,
        },
        "model": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]},
    }
    raw = _compact(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + data


def save(model: CompressedModel, path: str | Path) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    with open_atomic(Path(path)) as stream:
        stream.write(dump(model))


def load(path: str | Path) -> CompressedModel:
    """Read a file.

    Raises
    ------
    FormatError
        Not a `.gossamer` file, truncated, damaged, or of a newer version.
    InputError
        The file is missing or cannot be read.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected a .gossamer model") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    return parse(raw, str(path))


def parse(raw: bytes, where: str = "model") -> CompressedModel:
    """Read the bytes of a file; every length is checked before anything is made from it.

    Raises
    ------
    FormatError
        See `load`; `where` starts the message.
    """
    metadata, data = _open(raw, where)
    text = str(metadata["model"])
    found = f"{_crc(text, data):08x}"
    if found != metadata["crc32"]:
        raise FormatError(f"{where}: CRC-32 is {found}, expected {metadata['crc32']!r}; {AGAIN}")
    try:
        first, *lines = json.loads(text)
        source = _parse_range(first)
        final = lines.pop() if isinstance(lines[-1], str) else "none"
        reader = Reader(data, 0, where)
        layers = tuple(_parse_layer(line, reader, where) for line in lines)
        if reader.at != len(data):
            raise FormatError(f"{where}: {len(data) - reader.at} bytes left over; {AGAIN}")
        model = CompressedModel(layers, source, final=final)
        model.to_network()
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, InputError) as error:
        raise FormatError(f"{where}: the description is not valid ({error}); {AGAIN}") from None
    return model


def _open(raw: bytes, where: str) -> tuple[dict[str, Any], bytes]:
    """Metadata and data of the container, its lengths checked against the file's."""
    size = int.from_bytes(raw[:8], "little")
    if size > len(raw) - 8:
        raise FormatError(
            f"{where}: header claims {size} bytes but the file has {len(raw)}, expected a "
            ".gossamer file; it is of another kind or truncated, write it again"
        )
    try:
        header = json.loads(raw[8 : 8 + size].decode())
        metadata, tensor = header["__metadata__"], header["model"]
        version, _, _ = (metadata[key] for key in ("gossamer", "crc32", "model"))
        described = [tensor[key] for key in ("dtype", "shape", "data_offsets")]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(
            f"{where}: header is not that of a .gossamer file; expected one written by "
            "`gossamer compress`"
        ) from None
    if version != str(FORMAT_VERSION):
        newer = str(version).isdecimal() and int(version) > FORMAT_VERSION
        raise FormatError(
            f"{where}: format version is {version!r}, expected {FORMAT_VERSION}; "
            + ("update gossamer to read it" if newer else AGAIN)
        )
    length = len(raw) - 8 - size
    if described != ["U8", [length], [0, length]]:
        raise FormatError(
            f"{where}: header describes {described}, expected {length} bytes of data as the file "
            f"holds; {AGAIN}"
        )
    return metadata, raw[8 + size :]


def _parse_layer(line: list[Any], reader: Reader, where: str) -> CompressedLayer:
    name, rows, cols, activation, numbers, bias_numbers, output, *share = line
    reader.where = f"{where}: layer {name!r}"
    if type(name) is not str:
        raise FormatError(f"{reader.where}: the name is no text; {AGAIN}")
    matrix = decode_matrix(numbers, rows, cols, reader)
    bias = decode_biases(bias_numbers, rows, reader)
    after, clip = _parse_activation(activation, reader.where)
    (met,) = share or [100]
    check_limits({"met percentage": (met, 0, 100)}, reader.where)
    return CompressedLayer(name, matrix, bias, after, _parse_range(output), clip, met / 100)


def _activation_mark(layer: CompressedLayer) -> int | list[float | None]:
    """The activation's number, or the limits of ``clip``, null for none."""
    if layer.limits is None:
        return ACTIVATIONS.index(layer.activation)
    return [limit if np.isfinite(limit) else None for limit in layer.limits]


def _parse_activation(mark: Any, where: str) -> tuple[str, tuple[float, float] | None]:
    if isinstance(mark, list):
        low, high = mark
        low, high = (-np.inf if low is None else low, np.inf if high is None else high)
        return "clip", (float(low), float(high))
    check_limits({"activation": (mark, 0, ACTIVATIONS.index("clip") - 1)}, where)
    return ACTIVATIONS[mark], None


def _range_line(one: TensorRange) -> list[float]:
    """Numbers of a range; zeros at the end are left out."""
    values = [one.low, one.high, one.origin, one.levels, one.share, SOURCES.index(one.source)]
    values.append(one.saturated)
    while len(values) > 2 and not values[-1]:
        values.pop()
    return [int(value) if value == int(value) else value for value in values]


def _parse_range(line: list[Any]) -> TensorRange:
    low, high, origin, levels, share, source, saturated = line + [0] * (7 - len(line))
    return TensorRange(
        low=float(low),
        high=float(high),
        origin=float(origin),
        levels=int(levels),
        share=float(share),
        source=SOURCES[source],
        saturated=float(saturated),
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _crc(text: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(text.encode(errors="surrogatepass")))
