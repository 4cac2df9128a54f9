# SPDX-License-Identifier: BSD-2-Clause
"""Pictures of a compressed model as SVG to stand within HTML: text in the page's colour and font.

They hold no names, so nothing in them needs escaping, and no identifier twice, so that many can
stand on one page. The same model gives the same text.
"""

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compression.matrix import Matrix
from ..importers.extras import import_extra

__all__ = ["sparsity_pattern", "waterfall", "weight_histogram"]

INK = "#010203"
"""Stands for the colour of the page's text while a picture is drawn."""

FILL, LINE = "#4a8fd4", "#e07b20"
"""Colours that are readable on light and on dark pages."""

STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "font.size": 9.0,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

PIXELS = 160, 280
"""Most rows and columns of a sparsity pattern's image; larger matrices are averaged."""

SHADES = 32
THIN, TALL = 0.12, 0.8
"""Least and most height of a pattern as a share of its width: a layer may have one row."""

Doubles = npt.NDArray[np.float64]


def weight_histogram(matrix: Matrix, key: str) -> str:
    """How dense the nonzero weights lie, with the values that they share as lines.

    Between two neighbouring values of the codebook the border is half-way. `key` tells the
    pictures of a page apart.
    """
    counts = np.bincount(matrix.codes, minlength=len(matrix.codebook))
    stored = (matrix.codebook != 0) & (counts > 0)
    order = np.argsort(matrix.codebook[stored])
    values = matrix.codebook[stored][order].astype(np.float64)
    borders = _borders(values)
    heights = counts[stored][order] / np.diff(borders)

    def draw(axes: Any) -> None:
        axes.stairs(heights, borders, fill=True, color=FILL, alpha=0.6)
        axes.vlines(values, 0, heights, color=LINE, linewidth=max(0.6, 3 - len(values) / 16))
        axes.set_xlabel(f"{len(values)} values that weights share")
        axes.set_ylabel("weights per unit")
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=False)

    return _picture(draw, (4.6, 2.5), key)


def _borders(values: Doubles) -> Doubles:
    """Borders (k + 1,) of the rising `values` (k,): half-way, the outer ones as far outwards."""
    if len(values) == 1:
        half = abs(values[0]) / 2
        return np.array([values[0] - half, values[0] + half])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate(
        ([2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]),
    )


def sparsity_pattern(matrix: Matrix, key: str) -> str:
    """Where the nonzero weights stand: rows downwards, columns to the right."""
    mask = matrix.weight() != 0
    shares = _average(mask.astype(np.float64))
    most = max(float(shares.max()), 1e-9)
    image = np.empty((*shares.shape, 4))
    image[..., :3] = [int(FILL[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    image[..., 3] = np.rint(shares / most * SHADES) / SHADES
    rows, cols = mask.shape
    height = float(np.clip(rows / cols, THIN, TALL))

    def draw(axes: Any) -> None:
        axes.imshow(image, aspect="auto", interpolation="none", extent=(0, cols, rows, 0))
        axes.set_xlabel("inputs")
        axes.set_ylabel("outputs")
        axes.locator_params(integer=True, nbins=5)

    return _picture(draw, (4.2, 0.8 + 3.2 * height), key)


def _average(values: Doubles) -> Doubles:
    """Means of blocks, so that at most `PIXELS` rows and columns are left."""
    for axis, most in enumerate(PIXELS):
        length = values.shape[axis]
        if length > most:
            starts = np.arange(most) * length // most
            sums = np.add.reduceat(values, starts, axis=axis)
            counts = np.diff(np.append(starts, length))
            values = sums / (counts[:, None] if axis == 0 else counts)
    return values


def waterfall(steps: list[dict[str, Any]], key: str) -> str:
    """How the model becomes smaller, a bar for each step of `report.size_steps`."""
    names = [row["step"] for row in steps]
    sizes = [row["bytes"] for row in steps]

    def draw(axes: Any) -> None:
        axes.barh(names, sizes, color=[FILL] * (len(sizes) - 1) + [LINE], height=0.7)
        for k, size in enumerate(sizes):
            text = f"{size:,} ({sizes[0] / size:.1f}x)"
            axes.text(size + 0.01 * max(sizes), k, text, va="center")
        axes.set_xlim(0, 1.32 * max(sizes))
        axes.invert_yaxis()
        axes.set_xlabel("bytes")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=5)

    return _picture(draw, (8, 2.6), key)


def _picture(draw: Callable[[Any], None], size: tuple[float, float], key: str) -> str:
    """SVG of what `draw` puts into axes, `size` in inches."""
    matplotlib = import_extra("plot", "an HTML page", "matplotlib")
    figure_kind = import_extra("plot", "an HTML page", "matplotlib.figure").Figure
    stream = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": key}):
        figure = figure_kind(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(stream.getvalue())


def _embedded(svg: str) -> str:
    """Only the element itself, as HTML wants it: no prolog, name spaces, metadata, group names."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return svg.replace(INK, "currentColor")
