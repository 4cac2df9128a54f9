# SPDX-License-Identifier: BSD-2-Clause
"""Ratio against error of LeNet-300-100 as a picture."""

from pathlib import Path

import numpy as np

from ..host.errors import InputError
from ..host.files import open_atomic
from ..host.importers.extras import import_extra
from .lenet import Result

__all__ = ["check_target", "plot_curve"]

KINDS = (".png", ".svg")
PAPER = (40.0, 1.58)
"""Ratio and error on the test images in table 1 of Han et al., Deep Compression."""


def check_target(path: Path) -> None:
    """Say before hours of work that a picture cannot be written.

    Raises
    ------
    InputError
        Neither .png nor .svg, or no such folder.
    ToolError
        matplotlib is not installed.
    """
    import_extra("plot", f"{path}: drawing", "matplotlib")
    if path.suffix not in KINDS:
        raise InputError(f"{path}: ends in {path.suffix!r}, expected {' or '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: no such folder, expected one to write the picture to")


def plot_curve(result: Result, path: Path) -> None:
    """Draw the stages of all seeds, their mean, the dense networks and the chosen stage."""
    figure_kind = import_extra("plot", f"{path}: drawing", "matplotlib.figure").Figure
    figure = figure_kind(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    ratios = np.array([[point.ratio for point in seed.curve] for seed in result.seeds])
    errors = np.array([[point.error for point in seed.curve] for seed in result.seeds])
    for seed, x, y in zip(result.seeds, ratios, errors, strict=True):
        label = "held out, each seed" if seed is result.seeds[0] else None
        axes.plot(x, y, "o-", color="tab:blue", alpha=0.3, markersize=4, label=label)
    axes.plot(ratios.mean(0), errors.mean(0), "o-", color="tab:blue", label="held out, mean")
    dense = float(np.mean([seed.held_out_dense for seed in result.seeds]))
    axes.axhline(dense, color="tab:blue", linestyle=":", label="held out, dense float32")
    axes.axhline(result.dense_error, color="tab:orange", linestyle=":", label="test, dense float32")
    axes.plot(
        [seed.ratio for seed in result.seeds], [seed.error for seed in result.seeds], "*",
        color="tab:orange", alpha=0.4, markersize=9, label="test, chosen stage, each seed",
    )  # fmt: skip
    axes.plot(
        result.ratio, result.error, "*", color="tab:orange", markersize=15,
        label=f"test, chosen stage, mean: {result.ratio:.1f}x, {result.error:.2f} %",
    )  # fmt: skip
    axes.plot(*PAPER, "x", color="black", label="Deep Compression (paper), test")
    axes.set_xlabel("ratio: bytes of the dense float32 network / bytes of the .gossamer file")
    axes.set_ylabel("error in %, 8-bit integers")
    axes.set_title("LeNet-300-100 on MNIST: size against error")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    with open_atomic(path) as stream:
        figure.savefig(stream, format=path.suffix[1:], dpi=150)
