# SPDX-License-Identifier: BSD-2-Clause
"""A model as one HTML page: the tables of `info` and pictures, nothing to load from elsewhere."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..compression.compress import CompressedLayer, CompressedModel
from ..console import cell_text
from ..files import open_atomic
from ..importers.extras import import_extra
from .pictures import sparsity_pattern, waterfall, weight_histogram
from .report import TitledTable

__all__ = ["render_page", "write_page"]

TEMPLATE = "page.html"
"""Beside this module; its values are escaped, but for pictures."""

PURPOSE = "an HTML page"


def write_page(
    path: Path,
    model: CompressedModel,
    document: dict[str, Any],
    tables: list[TitledTable],
    remarks: list[str],
) -> None:
    """Write the page of a model, whole or not at all.

    Parameters
    ----------
    path : Path
    model, document, tables, remarks
        See `render_page`.

    Raises
    ------
    InputError
        The file cannot be written.
    ToolError
        The extra that draws is not installed.
    """
    text = render_page(model, document, tables, remarks)
    with open_atomic(path) as stream:
        stream.write(text.encode(errors="xmlcharrefreplace"))


def render_page(
    model: CompressedModel,
    document: dict[str, Any],
    tables: list[TitledTable],
    remarks: list[str],
) -> str:
    """The page of a model.

    Parameters
    ----------
    model : CompressedModel
    document : dict
        As `show.model_document`.
    tables : list of TitledTable
        As on a terminal.
    remarks : list of str
        What stands below them.
    """
    jinja2 = import_extra("plot", PURPOSE, "jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = cell_text
    template = environment.from_string(
        files("gossamer.host.report").joinpath(TEMPLATE).read_text("utf-8")
    )
    picture = import_extra("plot", PURPOSE, "markupsafe").Markup
    return template.render(
        document=document,
        tables=tables,
        remarks=remarks,
        steps=picture(waterfall(document["steps"], "steps")),
        layers=[
            _layer(layer, row, k, picture)
            for k, (layer, row) in enumerate(zip(model.layers, document["sizes"], strict=False))
        ],
    )


def _layer(
    layer: CompressedLayer, row: dict[str, Any], number: int, picture: Callable[[str], str]
) -> dict[str, Any]:
    """What the template shows of a layer; no histogram of a layer without weights."""
    matrix = layer.matrix
    histogram = weight_histogram(matrix, f"weights{number}") if row["nonzeros"] else ""
    return {
        "sizes": row,
        "activation": layer.activation,
        "codes": len(matrix.codebook),
        "huffman": [name for name in ("index", "codes") if getattr(matrix.coding, name)],
        "histogram": picture(histogram),
        "pattern": picture(sparsity_pattern(matrix, f"places{number}")),
    }
