# SPDX-License-Identifier: BSD-2-Clause
"""A text task of twelve classes: sections of Debian packages, told from one-line descriptions.

Packages come from the lists of apt, or a table in a folder; which of them are taken follows from
their texts alone, and no text occurs twice.
"""

import re
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..host.errors import FormatError, InputError, ToolError

__all__ = ["SECTIONS", "TABLE", "Texts", "load_texts"]

SECTIONS = (
    "admin", "database", "editors", "electronics", "fonts", "games", "graphics", "mail", "math",
    "science", "sound", "video",
)  # fmt: skip
TABLE = "packages.tsv"
"""Of a folder: lines of section, package and description, parted by tabs."""
EACH = 60
"""Texts of a section for training, and for the test."""
FIELDS = re.compile("^(Section|Package|Description): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Texts:
    """Texts and their classes (n,), 0 to 11, in the order of `SECTIONS`."""

    texts: list[str]
    labels: npt.NDArray[np.int64]


def load_texts(folder: Path | None = None) -> tuple[Texts, Texts]:
    """Texts to train with and to test, from `TABLE` in a folder, else from apt's lists.

    Raises
    ------
    InputError, FormatError
        The table cannot be read or is none.
    ToolError
        apt-cache is missing or fails, or a section has too few packages.
    """
    rows = _from_apt() if folder is None else _from_table(folder / TABLE)
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for section, package, text in sorted(rows):
        if section in found:
            found[section].setdefault(package, text)
    train, test = [], []
    for label, (section, packages) in enumerate(found.items()):
        distinct = sorted({*packages.values()}, key=lambda text: (zlib.crc32(text.encode()), text))
        if len(distinct) < 2 * EACH:
            raise ToolError(
                f"section {section}: {len(distinct)} descriptions, expected {2 * EACH} or more; "
                f"run apt-get update, or take a folder with {TABLE}: --data DIR"
            )
        train += [(text, label) for text in distinct[:EACH]]
        test += [(text, label) for text in distinct[EACH : 2 * EACH]]
    return _texts(train), _texts(test)


def _texts(rows: list[tuple[str, int]]) -> Texts:
    return Texts([text for text, _ in rows], np.array([label for _, label in rows]))


def _from_apt() -> list[tuple[str, str, str]]:
    tool = shutil.which("apt-cache")
    advice = f"take a folder with {TABLE} (section, package, description): --data DIR"
    if tool is None:
        raise ToolError(f"apt-cache is not there, expected a Debian system; {advice}")
    done = subprocess.run(
        [tool, "dumpavail"], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        reason = " ".join(done.stderr.split())[-200:]
        raise ToolError(f"apt-cache dumpavail failed ({reason}); {advice}")
    packages = [dict(FIELDS.findall(part)) for part in done.stdout.split("\n\n")]
    keys = ("Section", "Package", "Description")
    return [(one[keys[0]], one[keys[1]], one[keys[2]]) for one in packages if len(one) == len(keys)]


def _from_table(path: Path) -> list[tuple[str, str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}), expected lines of section, package and description"
        ) from None
    rows = []
    for number, line in enumerate(lines, 1):
        parts = line.split("\t")
        if len(parts) != 3:
            raise FormatError(
                f"{path}: line {number} has {len(parts)} fields, expected section, package and "
                "description, parted by tabs"
            )
        rows.append((parts[0], parts[1], parts[2]))
    return rows
