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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .bits import packed_bytes
from .calibrate import SOURCES, TensorRange
from .codebook import code_bits, decode_codes, encode_codes
from .compress import CompressedLayer, CompressedModel, Matrix
from .errors import FormatError, InputError
from .files import open_atomic
from .network import ACTIVATIONS, MAX_WEIGHTS, MAX_WIDTH
from .structure import MAX_GAP_BITS, Places, decode_gaps, encode_gaps

__all__ = ["FORMAT_VERSION", "LayerParts", "dump", "layer_parts", "load", "parse", "save"]

FORMAT_VERSION = 1

KINDS = ("dense", "dense with zeros", "unstructured")
"""Structure and zero code of a layer, by number in the description."""

AGAIN = "the file is damaged, write it again"


@dataclass(frozen=True)
class LayerParts:
    """What a file holds of one layer: its line in the description and its bytes."""

    line: list[Any]
    gaps: bytes
    codes: bytes
    codebook: bytes
    bias: bytes

    @property
    def data(self) -> bytes:
        """All bytes, in the file's order."""
        return self.gaps + self.codes + self.codebook + self.bias


def layer_parts(layer: CompressedLayer) -> LayerParts:
    """Encode one layer."""
    matrix = layer.matrix
    kind = 2 if matrix.structure == "unstructured" else int(matrix.zero_code)
    width, gaps = encode_gaps(matrix.places) if kind == 2 else (0, b"")
    line = [
        layer.name,
        layer.n_rows,
        layer.n_cols,
        _activation_mark(layer),
        kind,
        len(matrix.codes),
        len(matrix.codebook),
        width,
        len(gaps),
        _range_line(layer.output),
    ]
    return LayerParts(
        line,
        gaps,
        encode_codes(matrix.codes, len(matrix.codebook)),
        matrix.codebook.astype("<f4").tobytes(),
        layer.bias.astype("<f4").tobytes(),
    )


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
        layers, offset = [], 0
        for line in lines:
            layer, offset = _parse_layer(line, data, offset, where)
            layers.append(layer)
        if offset != len(data):
            raise FormatError(f"{where}: {len(data) - offset} bytes left over; {AGAIN}")
        model = CompressedModel(tuple(layers), source, final=final)
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


def _parse_layer(
    line: list[Any], data: bytes, offset: int, where: str
) -> tuple[CompressedLayer, int]:
    name, rows, cols, activation, kind, entries, n_codes, width, n_gaps, output = line
    where = f"{where}: layer {name!r}"
    if type(name) is not str:
        raise FormatError(f"{where}: the name is no text; {AGAIN}")
    limits = {
        "rows": (rows, 1, MAX_WIDTH),
        "cols": (cols, 1, MAX_WIDTH),
        "kind": (kind, 0, len(KINDS) - 1),
        "codes": (n_codes, 1, 256),
        "gap bits": (width, 1, MAX_GAP_BITS) if kind == 2 else (width, 0, 0),
        "gap bytes": (n_gaps, 0, len(data)) if kind == 2 else (n_gaps, 0, 0),
    }
    _check_limits(limits, where)
    _check_limits({"weights": (rows * cols, 1, MAX_WEIGHTS)}, where)
    _check_limits({"entries": (entries, 0 if kind == 2 else rows * cols, rows * cols)}, where)
    sizes = (n_gaps, packed_bytes(entries, code_bits(n_codes)), 4 * n_codes, 4 * rows)
    if offset + sum(sizes) > len(data):
        raise FormatError(
            f"{where}: needs {sum(sizes)} bytes but {len(data) - offset} are left; {AGAIN}"
        )
    ends = [offset, *(offset + int(end) for end in np.cumsum(sizes))]
    gaps, codes, book, bias = (data[a:b] for a, b in pairwise(ends))
    if kind == 2:
        places = decode_gaps(gaps, width, entries, rows, cols, where)
    else:
        places = Places.dense(rows, cols)
    codebook = np.frombuffer(book, "<f4").astype(np.float32)
    if not np.isfinite(codebook).all():
        raise FormatError(f"{where}: a codebook value is not finite; {AGAIN}")
    if kind == 1 and codebook[0] != 0:
        raise FormatError(f"{where}: code 0 is {codebook[0]}, expected 0; {AGAIN}")
    matrix = Matrix(
        KINDS[kind].split()[0],
        places,
        decode_codes(codes, n_codes, entries, where),
        codebook,
        kind == 1,
    )
    vector = np.frombuffer(bias, "<f4").astype(np.float32)
    after, clip = _parse_activation(activation, where)
    layer = CompressedLayer(name, matrix, vector, after, _parse_range(output), clip)
    return layer, ends[-1]


def _check_limits(limits: dict[str, tuple[Any, int, int]], where: str) -> None:
    for what, (value, low, high) in limits.items():
        if type(value) is not int or not low <= value <= high:
            raise FormatError(f"{where}: {what} is {value!r}, expected {low}..{high}; {AGAIN}")


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
    _check_limits({"activation": (mark, 0, ACTIVATIONS.index("clip") - 1)}, where)
    return ACTIVATIONS[mark], None


def _range_line(one: TensorRange) -> list[float]:
    """Numbers of a range; zeros at the end are left out."""
    values = [one.low, one.high, one.origin, one.levels, one.share, SOURCES.index(one.source)]
    while len(values) > 2 and not values[-1]:
        values.pop()
    return [int(value) if value == int(value) else value for value in values]


def _parse_range(line: list[Any]) -> TensorRange:
    low, high, origin, levels, share, source = line + [0] * (6 - len(line))
    return TensorRange(
        low=float(low),
        high=float(high),
        origin=float(origin),
        levels=int(levels),
        share=float(share),
        source=SOURCES[source],
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _crc(text: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(text.encode(errors="surrogatepass")))
