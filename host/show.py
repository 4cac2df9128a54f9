# SPDX-License-Identifier: BSD-2-Clause
"""What `info` and `trace` print of a model."""

from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

from .compression import model_file
from .compression.compress import CompressedModel
from .console import WIDTH, print_json, print_lines, print_table
from .files import read_npy
from .importers import load_network
from .report.explain import FORMS, Engine, Explanation, explain
from .report.report import (
    Cells,
    TitledTable,
    bit_table,
    range_rows,
    range_table,
    size_rows,
    size_steps,
    size_table,
    structure_table,
)
from .report.trace import Trace, trace

__all__ = ["model_document", "print_model", "show_file", "trace_file"]

CAUSES = 5
"""Causes that `trace` lists on a terminal; JSON has them all."""


def show_file(model: Path, board: str | None, page: Path | None, as_json: bool) -> None:
    """`gossamer info`."""
    compressed = model_file.load(model)
    explanation = explain(compressed, _engine(board))
    document = model_document(compressed, model) | {"engine": asdict(explanation)}
    if page is not None:
        from .report.page import write_page

        tables = [*_model_tables(document), *_engine_tables(explanation)]
        write_page(page, compressed, document, tables, _remarks(explanation))
    if as_json:
        print_json(document)
        return
    print_model(compressed, model)
    print_lines("")
    _print_tables(_engine_tables(explanation))
    remarks = (fill(line, WIDTH, subsequent_indent="  ") for line in _remarks(explanation))
    print_lines("", *remarks, *([] if page is None else [f"page written to {page}"]))


def _engine(board: str | None) -> Engine:
    if board is None:
        return Engine()
    from ..boards.common import find_board

    found = find_board(board)
    return Engine(name=board, config=found.config, clock_hz=found.clock_hz, baud=found.baud)


def _print_tables(tables: list[TitledTable]) -> None:
    for k, (title, heads, body) in enumerate(tables):
        if k:
            print_lines("")
        print_table(heads, body, title=title)


def _engine_tables(found: Explanation) -> list[TitledTable]:
    cycles = f"Estimated cycles per image on {found.engine}: {found.multipliers} multipliers"
    return [
        (cycles, *_cycles_table(found)),
        ("Bytes of the weights, and the density below which pruning pays", *_forms_table(found)),
    ]


def _cycles_table(found: Explanation) -> Cells:
    heads = ["layer", "runs on", "waits for", "zero inputs", "as stored", *FORMS]
    body = [
        [
            one.layer,
            one.unit,
            one.limit,
            f"{one.zero_share:.1%}",
            round(one.cycles),
            *(
                f"{form.cycles:,.0f}{'*' if form.dropped else ''}"
                for form in (one.forms[name] for name in FORMS)
            ),
        ]
        for one in found.layers
    ]
    return heads, body


def _forms_table(found: Explanation) -> Cells:
    heads = ["layer", "density", "as stored", *FORMS, "pays below", "faster below", "bits lost"]
    body = [
        [
            one.layer,
            f"{one.density:.1%}",
            one.bytes,
            *(f"{one.forms[name].bytes:,}" for name in FORMS),
            "never" if one.bytes_below is None else f"{one.bytes_below:.0%}",
            "never" if one.cycles_below is None else f"{one.cycles_below:.0%}",
            " / ".join(str(bits) for bits in one.lost_bits.values()),
        ]
        for one in found.layers
    ]
    return heads, body


def _remarks(found: Explanation) -> list[str]:
    widths = " / ".join(str(bits) for bits in found.layers[0].lost_bits)
    lines = [f"bits lost: of 16 codebook bits, to sums of {widths} bits that must not overflow"]
    if any(form.dropped for one in found.layers for form in one.forms.values()):
        lines.append("*: 2:4 has no place for some of the nonzero weights")
    if found.misfit:
        lines.append(f"{found.misfit}; figures are as if it did, on the sparse array")
    lines.append(
        f"an image takes {found.cycles:,.0f} cycles, {found.milliseconds:.4f} ms at "
        f"{found.clock_hz / 1e6:g} MHz, and {found.link_milliseconds:.4f} ms on the link at "
        f"{found.baud:,} baud"
        + ("; the link limits, fewer cycles change little" if found.limit == "link" else "")
    )
    return lines + [one.advice for one in found.layers if one.advice]


def model_document(model: CompressedModel, path: Path) -> dict[str, Any]:
    """What a model holds, for JSON."""
    sizes = size_rows(model)
    total = sizes[-1]
    return {
        "file": str(path),
        "inputs": model.n_inputs,
        "outputs": model.n_outputs,
        "final": model.final,
        "bytes": total["ours"],
        "ratio": total["dense_fp32"] / total["ours"],
        "sizes": sizes,
        "steps": size_steps(model),
        "tensors": range_rows(model),
        "notes": model.notes,
        "warnings": model.warnings,
    }


def _model_tables(document: dict[str, Any]) -> list[TitledTable]:
    return [
        ("Weights", *structure_table(document["sizes"])),
        ("Bytes", *size_table(document["sizes"])),
        ("Bits per nonzero weight", *bit_table(document["sizes"])),
        ("Activations", *range_table(document["tensors"])),
    ]


def print_model(model: CompressedModel, path: Path) -> None:
    """What a model holds, as tables."""
    document = model_document(model, path)
    _print_tables(_model_tables(document))
    print_lines(
        "",
        f"{path}: {document['bytes']:,} bytes, {document['ratio']:.1f}x smaller than dense fp32, "
        f"{model.n_inputs} inputs, {model.n_outputs} outputs",
        *([] if model.final == "none" else [f"{model.final} of the outputs: done on the host"]),
        *model.notes,
    )


def trace_file(model: Path, inputs: Path, network: Path | None, bits: int, as_json: bool) -> None:
    """`gossamer trace`."""
    original = None if network is None else load_network(network)
    found = trace(model_file.load(model), read_npy(inputs), original, activation_bits=bits)
    if as_json:
        print_json(asdict(found))
        return
    against = "the model's own weights" if network is None else str(network)
    print_lines(f"{found.images:,} inputs, {bits}-bit golden model against {against} in floats", "")
    heads = ["tensor", "max error", "rms error", "rms", "SQNR dB", "saturated", "codebook bits"]
    body = [
        [
            one.tensor,
            f"{one.max_error:.4g}",
            f"{one.rms_error:.4g}",
            f"{one.rms:.4g}",
            "" if one.sqnr_db is None else f"{one.sqnr_db:.1f}",
            f"{one.saturated:.2%}",
            "" if one.codebook_bits is None else one.codebook_bits,
        ]
        for one in found.tensors
    ]
    print_table(heads, body)
    _print_causes(found)
    print_lines("", fill(found.verdict, WIDTH, subsequent_indent="  "))


def _print_causes(found: Trace) -> None:
    if not found.causes:
        return
    print_lines("")
    body = [[one.factor, one.tensor, f"{one.left:.1%}"] for one in found.causes[:CAUSES]]
    heads = ["exact", "of tensor", "squared error left"]
    print_table(heads, body, title=f"Error of {found.first_wrong} when one thing is exact")
