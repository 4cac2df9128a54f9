# SPDX-License-Identifier: BSD-2-Clause
"""Structure N:M: at most N nonzeros in each group of M consecutive inputs of a row.

Groups start at column 0 and never span rows; the last one of a row may be shorter.
"""

import re

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_GROUP", "group_counts", "is_nm", "parse_nm"]

MAX_GROUP = 32
"""Largest M."""

Ints = npt.NDArray[np.int64]


def is_nm(structure: str) -> bool:
    """Whether `structure` is N:M, such as ``"2:4"``, with 1 <= N < M <= 32."""
    found = re.fullmatch("([1-9][0-9]?):([1-9][0-9]?)", structure)
    return found is not None and int(found[1]) < int(found[2]) <= MAX_GROUP


def parse_nm(structure: str) -> tuple[int, int]:
    """N and M of a structure such as ``"2:4"``.

    Raises
    ------
    ValueError
        It is not N:M; ask `is_nm` first where it may be another.
    """
    if not is_nm(structure):
        raise ValueError(f"structure must be N:M with 1 <= N < M <= {MAX_GROUP}, not {structure!r}")
    n, m = structure.split(":")
    return int(n), int(m)


def group_counts(rows: Ints, columns: Ints, n_rows: int, n_cols: int, m: int) -> Ints:
    """Entries in each group, (n_rows, groups) int64, from the row and column of each entry."""
    groups = -(-n_cols // m)
    counts = np.bincount(rows * groups + columns // m, minlength=n_rows * groups)
    return counts.reshape(n_rows, groups)
