# SPDX-License-Identifier: BSD-2-Clause
"""Where the bytes of a model go, beside what the same layers take elsewhere; ranges of tensors.

Rows are plain dicts for JSON; the tables are heads and cells that `console.print_table` prints in
100 columns.
"""

import zlib
from typing import Any

import numpy as np

from ..compression.compress import CompressedLayer, CompressedModel
from ..compression.entropy import SymbolCounts
from ..compression.matrix import Matrix
from ..compression.model_file import dump, layer_parts

__all__ = [
    "PARTS",
    "Cells",
    "TitledTable",
    "bit_table",
    "range_rows",
    "range_table",
    "size_rows",
    "size_steps",
    "size_table",
    "structure_table",
]

Row = dict[str, Any]
Cells = tuple[list[str], list[list[object]]]
"""Heads and rows of a table."""

TitledTable = tuple[str, list[str], list[list[object]]]

PARTS = ("indices", "codes", "tables", "codebook", "biases", "header", "padding")
FLOORS = ("index_floor", "code_floor")
SUMS = (
    "weights", "nonzeros", "fillers", "dense_fp32", "dense_int8", "pruned_gzip", "ours",
    *PARTS, *FLOORS,
)  # fmt: skip


def size_rows(model: CompressedModel) -> list[Row]:
    """Bytes per layer, of the file around them (layer ``"file"``), and in total.

    Keys: ``layer``; of layers also ``rows``, ``cols``, ``structure``, ``code_bits`` and
    ``padded_cols`` (columns that the last group of an N:M layer lacks); ``weights``, ``nonzeros``,
    ``fillers`` (stored pairs of N:M layers that hold no weight, for want of one or of a column;
    their bits are in ``indices`` and ``codes``); for comparison ``dense_fp32`` and ``dense_int8``
    (weights of that type, biases of 4 bytes) and ``pruned_gzip`` (zlib level 9 of the fp32 weights
    as pruned and shared, biases of 4 bytes); then ``ours``, the sum of ``indices``, ``codes``,
    ``tables`` (of Huffman codes), ``codebook``, ``biases`` (and exponents of rows), ``header`` (of
    a layer: its line of the description, which holds its name, shape, counts and range) and
    ``padding``. Indices and codes end on whole bytes. The total of ``ours`` is the file's size.

    ``index_floor`` and ``code_floor`` are the entropies, in bytes, of which places are not zero and
    of the codes of those that are not: what an ideal coder would need that knows how often each
    occurs and takes one by one. ``bits_per_nonzero`` has all parts, both floors and ``ours`` as
    bits per nonzero weight; None where there is none.
    """
    rows = [_layer_row(layer) for layer in model.layers]
    raw = dump(model)
    text = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    around: Row = {"layer": "file", **dict.fromkeys(SUMS, 0)}
    around["ours"] = len(raw) - sum(row["ours"] for row in rows)
    around["padding"] = len(text) - len(text.rstrip(b" "))
    around["header"] = around["ours"] - around["padding"]
    rows.append(around)
    total: Row = {"layer": "total", **{key: sum(row[key] for row in rows) for key in SUMS}}
    return [row | {"bits_per_nonzero": _bits(row)} for row in (*rows, total)]


def _layer_row(layer: CompressedLayer) -> Row:
    matrix, parts = layer.matrix, layer_parts(layer)
    weight = matrix.weight()
    biases = 4 * layer.n_rows
    own = parts.matrix
    sizes = {
        "indices": len(own.index),
        "codes": len(own.codes),
        "tables": len(own.index_table) + len(own.code_table),
        "codebook": len(own.codebook),
        "biases": len(parts.bias) + len(own.exponents),
        "header": parts.line_bytes,
        "padding": 0,
    }
    return {
        "layer": layer.name,
        "rows": layer.n_rows,
        "cols": layer.n_cols,
        "structure": matrix.structure,
        "code_bits": matrix.code_bits,
        "padded_cols": matrix.padded_cols,
        "weights": weight.size,
        "nonzeros": matrix.nonzeros,
        "fillers": matrix.fillers,
        "dense_fp32": 4 * weight.size + biases,
        "dense_int8": weight.size + biases,
        "pruned_gzip": len(zlib.compress(weight.astype("<f4").tobytes(), 9)) + biases,
        "ours": sum(sizes.values()),
        **sizes,
        **_floors(matrix, weight.size),
    }


def _floors(matrix: Matrix, places: int) -> Row:
    """Entropies in bytes: of which places are not zero, and of the codes of those."""
    codes = matrix.codes[matrix.codebook[matrix.codes] != 0]
    masks = np.array([places - len(codes), len(codes)])
    return {
        "index_floor": SymbolCounts(masks).floor_bits / 8,
        "code_floor": SymbolCounts(np.bincount(codes, minlength=1)).floor_bits / 8,
    }


def _bits(row: Row) -> Row | None:
    if not row["nonzeros"]:
        return None
    return {key: 8 * row[key] / row["nonzeros"] for key in (*PARTS, "ours", *FLOORS)}


def size_steps(model: CompressedModel) -> list[Row]:
    """Bytes of the model as it becomes smaller, step by step; the last one is the file's size.

    Keys: ``step`` and ``bytes``. ``pruned``: an 8-bit value for each entry and a plain index;
    ``shared``: plain codes and a codebook instead; ``entropy coded``: Huffman codes and their
    tables where they are shorter, all with biases of 4 bytes; ``file``: biases as stored, and all
    that is around the layers.
    """
    matrices = [layer.matrix for layer in model.layers]
    biases = 4 * sum(layer.n_rows for layer in model.layers)
    weights = sum(layer.n_rows * layer.n_cols for layer in model.layers)
    index = sum(matrix.index_bytes(huffman=False) for matrix in matrices)
    entries = sum(len(matrix.codes) + matrix.fillers for matrix in matrices)
    coded = sum(matrix.cost_bytes for matrix in matrices)
    plain = coded + sum(
        matrix.index_bytes(huffman=False)
        - matrix.index_bytes(huffman=matrix.coding.index)
        + matrix.code_bytes(huffman=False)
        - matrix.code_bytes(huffman=matrix.coding.codes)
        for matrix in matrices
    )
    steps = {
        "dense fp32": 4 * weights + biases,
        "dense int8": weights + biases,
        "pruned": index + entries + biases,
        "shared": plain + biases,
        "entropy coded": coded + biases,
        "file": len(dump(model)),
    }
    return [{"step": step, "bytes": size} for step, size in steps.items()]


def structure_table(rows: list[Row]) -> Cells:
    """Heads and cells of what `size_rows` says of the layers' structure."""
    heads = ["layer", "outputs", "inputs", "padded by", "structure", "nonzeros", "fillers"]
    heads.append("bits per code")
    keys = ("layer", "rows", "cols", "padded_cols", "structure", "nonzeros", "fillers", "code_bits")
    return heads, [[row[key] for key in keys] for row in rows if "structure" in row]


def size_table(rows: list[Row]) -> Cells:
    """Heads and cells of what `size_rows` compares."""
    heads = ["layer", "density", "dense fp32", "dense int8", "pruned gzip", "ours", "smaller"]
    body = []
    for row in rows:
        density = f"{row['nonzeros'] / row['weights']:.1%}" if row["weights"] else ""
        sizes = [row[key] for key in ("dense_fp32", "dense_int8", "pruned_gzip", "ours")]
        ratio = f"{row['dense_fp32'] / row['ours']:.1f}x" if row["weights"] else ""
        body.append([row["layer"], density, *sizes, ratio])
    return heads, body


def bit_table(rows: list[Row]) -> Cells:
    """Heads and cells of the bits per nonzero weight, the floors last."""
    heads = ["layer", "index", *PARTS[1:], "sum", "index floor", "code floor"]
    body = []
    for row in rows:
        bits = row["bits_per_nonzero"]
        if bits is not None:
            body.append([row["layer"], *(bits[key] for key in (*PARTS, "ours", *FLOORS))])
    return heads, body


def range_rows(model: CompressedModel) -> list[Row]:
    """Range of each tensor: the input, then each layer's output.

    Keys: ``tensor``, ``low``, ``high`` (clip limits), ``origin`` (the value that becomes integer
    0), ``share`` (of calibration values that equal it), ``levels`` (steps of an exact grid, or 0),
    ``source`` (``calibrated``, ``declared`` or ``bounds``), ``saturated`` (share of calibration
    values beyond the limits).
    """
    tensors = [("input", model.input), *((layer.name, layer.output) for layer in model.layers)]
    keys = ("low", "high", "origin", "share", "levels", "source", "saturated")
    return [{"tensor": name, **{key: getattr(one, key) for key in keys}} for name, one in tensors]


def range_table(rows: list[Row]) -> Cells:
    """Heads and cells of `range_rows`."""
    heads = ["tensor", "low", "high", "integer 0 is", "share of it", "saturated", "grid steps"]
    heads.append("source")
    body: list[list[object]] = [
        [
            row["tensor"],
            f"{row['low']:.5g}",
            f"{row['high']:.5g}",
            f"{row['origin']:.5g}",
            *_shares(row),
            row["levels"] or "",
            row["source"],
        ]
        for row in rows
    ]
    return heads, body


def _shares(row: Row) -> tuple[str, str]:
    """Share of integer 0 and of saturated values, where there were calibration values."""
    if row["source"] == "calibrated" or row["share"] or row["saturated"]:
        return f"{row['share']:.1%}", f"{row['saturated']:.2%}"
    return "", ""
