# SPDX-License-Identifier: BSD-2-Clause
"""Nonzeros of a sparse matrix from scipy or numpy, duplicates added up without overflow.

A scipy matrix of uint8 that holds one place twice adds the two in uint8. Here integers are added in
int64 and floats in float64. scipy itself is not imported: any object with `tocoo` will do.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError

__all__ = ["Triplets"]

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

MAX_INTEGER = 1 << 32
"""Magnitude of integer entries from which their sums could overflow."""


@dataclass(frozen=True, eq=False)
class Triplets:
    """Nonzeros of a matrix, column by column.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns, each at least 1.
    rows, columns : (nonzeros,) int64
        Places, no two the same; rows rise within a column.
    values : (nonzeros,) int64 or float64
    """

    shape: tuple[int, int]
    rows: Ints
    columns: Ints
    values: Array

    @classmethod
    def of(cls, where: str, matrix: Any) -> "Triplets":
        """Nonzeros of a scipy.sparse matrix or array of any format, or of a (rows, cols) array.

        Parameters
        ----------
        where : str
            Starts the messages.
        matrix : sparse or dense matrix of integers, booleans or floats
            Not changed.

        Raises
        ------
        InputError
            Not such a matrix, empty, or an entry is NaN, infinite or an integer beyond 32 bits.
        """
        shape, rows, columns, data = _entries(where, matrix)
        if len(shape) != 2 or 0 in shape:
            raise InputError(
                f"{where} has shape {shape}, expected (rows, cols), at least one of each"
            )
        if data.dtype.kind not in "biuf":
            raise InputError(
                f"{where} has type {data.dtype}, expected integers or real floats; of a complex "
                "matrix hand over real and imaginary part on their own"
            )
        bad = np.flatnonzero(~np.isfinite(data) if data.dtype.kind == "f" else data >= MAX_INTEGER)
        if not len(bad) and data.dtype.kind == "i":
            bad = np.flatnonzero(data <= -MAX_INTEGER)
        if len(bad):
            place = int(rows[bad[0]]), int(columns[bad[0]])
            raise InputError(
                f"{where} is {data[bad[0]]} at {place} ({len(bad)} such entries), "
                "expected finite floats, or integers of less than 2**32"
            )
        wide = data.astype(np.float64 if data.dtype.kind == "f" else np.int64)
        n_rows = int(shape[0])
        places = columns.astype(np.int64) * n_rows + rows
        distinct, inverse = np.unique(places, return_inverse=True)
        sums = np.zeros(len(distinct), dtype=wide.dtype)
        np.add.at(sums, inverse, wide)
        kept = sums != 0
        distinct = distinct[kept]
        return cls((n_rows, int(shape[1])), distinct % n_rows, distinct // n_rows, sums[kept])

    def dense(self) -> Array:
        """The whole matrix, (rows, cols) of the type of the values."""
        matrix = np.zeros(self.shape, dtype=self.values.dtype)
        matrix[self.rows, self.columns] = self.values
        return matrix


def _entries(where: str, matrix: Any) -> tuple[tuple[int, ...], Array, Array, Array]:
    """Shape, rows, columns and values, duplicates and zeros included."""
    if hasattr(matrix, "tocoo"):
        coo = matrix.tocoo()
        if len(coo.shape) != 2:
            return coo.shape, np.zeros(0), np.zeros(0), coo.data
        return coo.shape, coo.row, coo.col, coo.data
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        kind = type(matrix).__name__
        found = f"an array of shape {matrix.shape}" if isinstance(matrix, np.ndarray) else kind
        raise InputError(
            f"{where} is {found}, expected a scipy.sparse matrix or a numpy array (rows, cols)"
        )
    rows, columns = np.nonzero(matrix)
    return matrix.shape, rows, columns, matrix[rows, columns]
