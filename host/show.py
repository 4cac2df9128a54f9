# SPDX-License-Identifier: BSD-2-Clause
"""What `info` and `trace` print of a model."""

from dataclasses import asdict
from pathlib import Path

from . import model_file
from .compress import CompressedModel
from .console import print_json, print_lines, print_table
from .files import read_npy
from .importers import load_network
from .report import range_rows, range_table, size_rows, size_table, structure_table
from .trace import Trace, trace

__all__ = ["print_model", "show_file", "trace_file"]

CAUSES = 5
"""Causes that `trace` lists on a terminal; JSON has them all."""


def show_file(model: Path, as_json: bool) -> None:
    """`gossamer info`."""
    print_model(model_file.load(model), model, as_json)


def print_model(model: CompressedModel, path: Path, as_json: bool) -> None:
    """What a model holds, as tables or JSON."""
    sizes, ranges = size_rows(model), range_rows(model)
    total = sizes[-1]
    ratio = total["dense_fp32"] / total["ours"]
    if as_json:
        print_json(
            {
                "file": str(path),
                "inputs": model.n_inputs,
                "outputs": model.n_outputs,
                "final": model.final,
                "bytes": total["ours"],
                "ratio": ratio,
                "sizes": sizes,
                "tensors": ranges,
                "notes": model.notes,
                "warnings": model.warnings,
            }
        )
        return
    print_table(*structure_table(sizes), title="Weights")
    print_lines("")
    print_table(*size_table(sizes), title="Bytes")
    print_lines("")
    print_table(*range_table(ranges), title="Activations")
    print_lines(
        "",
        f"{path}: {total['ours']:,} bytes, {ratio:.1f}x smaller than dense fp32, "
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
    title = f"{found.images:,} inputs, {bits}-bit golden model against {against} in floats"
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
    print_table(heads, body, title=title)
    _print_causes(found)
    print_lines("", found.verdict)


def _print_causes(found: Trace) -> None:
    if not found.causes:
        return
    print_lines("")
    body = [[one.factor, one.tensor, f"{one.left:.1%}"] for one in found.causes[:CAUSES]]
    heads = ["exact", "of tensor", "squared error left"]
    print_table(heads, body, title=f"Error of {found.first_wrong} when one thing is exact")
