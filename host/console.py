# SPDX-License-Identifier: BSD-2-Clause
"""What commands print: JSON, tables of at most 100 columns, notes and progress.

Results go to stdout, everything else to stderr. On a terminal tables have lines and long work has a
progress bar; in a pipe both are plain text without escape codes.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["WIDTH", "cell_text", "note", "print_json", "print_lines", "print_table", "track"]

WIDTH = 100
PATIENCE = 2.0
"""Seconds before a progress bar appears."""

Item = TypeVar("Item")


def print_json(document: object) -> None:
    """One JSON document on stdout; numpy arrays and numbers become lists and numbers."""
    print(json.dumps(document, default=_plain, allow_nan=False))


def print_lines(*lines: str) -> None:
    """Lines of result on stdout."""
    for line in lines:
        print(line)


def note(text: str) -> None:
    """A line beside the result, on stderr."""
    print(text, file=sys.stderr)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on stdout: first column left, the others right; numbers with thousands grouped."""
    terminal = sys.stdout.isatty()
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if terminal else None,
        pad_edge=False,
    )
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell_text, row))
    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if terminal else WIDTH
    console.print(table)


def track(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Hand on `items`; after some seconds a bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=total)
    start = time.monotonic()
    try:
        for item in items:
            yield item
            progress.advance(task)
            if time.monotonic() - start > PATIENCE:
                progress.start()
    finally:
        progress.stop()


def cell_text(value: object) -> str:
    """Text of a table's cell: numbers with thousands grouped, fractions with two digits."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:,.2f}"
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
