# SPDX-License-Identifier: BSD-2-Clause
"""A sparse matrix as a network of one linear layer: ``run(x)`` is then ``matrix @ x``, quantized.

Products without any error are another matter: `host/linear_operator.py`.
"""

import math
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..network import MAX_WEIGHTS, MAX_WIDTH, Layer, Network
from ..triplets import Triplets
from .extras import import_extra

__all__ = ["from_scipy", "load_matrix_market"]

FEWEST_BYTES = 2
"""Bytes that an entry takes at least: a digit and the end of its line."""


def from_scipy(
    matrix: Any, *, name: str = "matrix", input_range: tuple[float, float] | None = None
) -> Network:
    """Turn a matrix into a linear layer without bias.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array of any format, or (rows, cols) array
        Real. Duplicates are added up. Not changed.
    name : str
        Of the layer.
    input_range : (float, float), optional
        Smallest and largest input. Without it `compress` asks for calibration data.

    Raises
    ------
    InputError
        Not a matrix, complex, empty, too large, or an entry is NaN or infinite.
    """
    triplets = Triplets.of(name, matrix)
    if max(triplets.shape) > MAX_WIDTH or math.prod(triplets.shape) > MAX_WEIGHTS:
        raise InputError(
            f"{name} has shape {triplets.shape}, expected at most {MAX_WIDTH:,} rows and columns "
            f"and {MAX_WEIGHTS:,} places; cut it into blocks and add or join their products"
        )
    return Network((Layer(name, triplets.dense()),), input_range)


def load_matrix_market(path: Path, masks: Path | None = None) -> Network:
    """Read a MatrixMarket file (.mtx) as a linear layer named after the file.

    Raises
    ------
    FormatError
        Not a MatrixMarket file, or damaged.
    InputError
        Missing, `masks` are given, or a matrix that `from_scipy` refuses.
    ToolError
        scipy is not installed.
    """
    io = import_extra("scipy", f"{path}: reading MatrixMarket", "scipy.io")
    if masks is not None:
        raise InputError(
            f"{path}: a MatrixMarket file takes no masks ({masks}); leave pruned entries out of it"
        )
    damaged = f"{path}: not a whole MatrixMarket file ({{}}); write it with scipy.io.mmwrite"
    try:
        with path.open("rb") as stream:
            held = stream.seek(0, 2) // FEWEST_BYTES
        claimed = int(io.mminfo(path)[2])
        if claimed > held:  # before anything is allocated
            raise FormatError(damaged.format(f"it claims {claimed} entries, too many to hold"))
        matrix = io.mmread(path)  # by name: given a stream that was read before, scipy may abort
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected a MatrixMarket file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, OverflowError) as error:
        raise FormatError(damaged.format(error)) from None
    try:
        return from_scipy(matrix, name=path.stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
