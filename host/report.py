# SPDX-License-Identifier: BSD-2-Clause
"""Where the bytes of a model go, beside what the same layers take elsewhere; ranges of tensors.

Rows are plain dicts for JSON; `structure_table`, `size_table` and `range_table` give the heads and
cells that `console.print_table` prints in 100 columns.
"""

import zlib
from typing import Any

from .compress import CompressedLayer, CompressedModel
from .model_file import dump, layer_parts

__all__ = ["range_rows", "range_table", "size_rows", "size_table", "structure_table"]

Row = dict[str, Any]
Cells = tuple[list[str], list[list[object]]]

PARTS = ("indices", "codes", "codebook", "biases", "header", "padding")
SUMS = ("weights", "nonzeros", "fillers", "dense_fp32", "dense_int8", "pruned_gzip", "ours", *PARTS)


def size_rows(model: CompressedModel) -> list[Row]:
    """Bytes per layer, of the file around them (layer ``"file"``), and in total.

    Keys: ``layer``; of layers also ``rows``, ``cols``, ``structure``, ``code_bits`` and
    ``padded_cols`` (columns that the last group of an N:M layer lacks); ``weights``, ``nonzeros``,
    ``fillers`` (stored pairs of N:M layers that hold no weight, for want of one or of a column;
    their bits are in ``indices`` and ``codes``); for comparison ``dense_fp32`` and ``dense_int8``
    (weights of that type, biases of 4 bytes) and ``pruned_gzip`` (zlib level 9 of the fp32 weights
    as pruned and shared, biases of 4 bytes); then ``ours``, the sum of ``indices``, ``codes``,
    ``codebook``, ``biases`` (and exponents of rows), ``header`` and ``padding``. Indices and codes
    end on whole bytes. The total of ``ours`` is the file's size.
    """
    rows = [_layer_row(layer) for layer in model.layers]
    raw = dump(model)
    text = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    around: Row = {"layer": "file", **dict.fromkeys(SUMS, 0)}
    around["ours"] = 8 + len(text)
    around["padding"] = len(text) - len(text.rstrip(b" "))
    around["header"] = around["ours"] - around["padding"]
    rows.append(around)
    total: Row = {"layer": "total", **{key: sum(row[key] for row in rows) for key in SUMS}}
    return [*rows, total]


def _layer_row(layer: CompressedLayer) -> Row:
    matrix, parts = layer.matrix, layer_parts(layer)
    weight = matrix.weight()
    biases = len(parts.bias)
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
        "ours": len(parts.data),
        "indices": len(parts.matrix.index),
        "codes": len(parts.matrix.codes),
        "codebook": len(parts.matrix.codebook),
        "biases": biases + len(parts.matrix.exponents),
        "header": 0,
        "padding": 0,
    }


def structure_table(rows: list[Row]) -> Cells:
    """Heads and cells of what `size_rows` says of the layers' structure."""
    heads = ["layer", "outputs", "inputs", "padded by", "structure", "nonzeros", "fillers"]
    heads.append("bits per code")
    keys = ("layer", "rows", "cols", "padded_cols", "structure", "nonzeros", "fillers", "code_bits")
    return heads, [[row[key] for key in keys] for row in rows if "structure" in row]


def size_table(rows: list[Row]) -> Cells:
    """Heads and cells of `size_rows`; header and padding are one column."""
    heads = ["layer", "density", "dense fp32", "dense int8", "pruned gzip", "ours"]
    heads += ["indices", "codes", "codebook", "biases", "header"]
    body = []
    for row in rows:
        density = f"{row['nonzeros'] / row['weights']:.1%}" if row["weights"] else ""
        compared = [row[key] for key in ("dense_fp32", "dense_int8", "pruned_gzip", "ours")]
        parts = [row[key] for key in PARTS[:4]]
        body.append([row["layer"], density, *compared, *parts, row["header"] + row["padding"]])
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
