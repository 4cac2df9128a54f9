# SPDX-License-Identifier: BSD-2-Clause
"""Exact products of integer matrices from files with integer vectors, on a device.

    python examples/exact_products.py FILE... [--device golden] [--scale 1]

FILE is MatrixMarket (.mtx) or MATLAB (.mat: its first sparse matrix). Of complex values the real
part is taken; entries are multiplied by --scale and rounded, which changes nothing where they are
integers. Each matrix meets four random vectors of 0..255. Exit status 1 if a product differs from
scipy's.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from gossamer.host.errors import GossamerError
from gossamer.host.linear_operator import ExactProduct
from scipy import io, sparse

__all__ = ["main", "read_matrix"]

SEED = 1
VECTORS = 4


def read_matrix(path: Path) -> sparse.csr_matrix:
    """The matrix of a file, (rows, cols) float64."""
    if path.suffix == ".mat":
        found = io.loadmat(path).values()
        matrix = next(value for value in found if sparse.issparse(value))
    else:
        matrix = io.mmread(path)
    return sparse.csr_matrix(matrix).real


def main(arguments: list[str] | None = None) -> int:
    """Print a line per matrix; 1 if a product is not exact."""
    parser = argparse.ArgumentParser(description="Exact products of integer matrices.")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--device", default="golden")
    parser.add_argument("--scale", type=float, default=1)
    options = parser.parse_args(arguments)

    different = 0
    rng = np.random.default_rng(SEED)
    for path in options.files:
        matrix = read_matrix(path)
        matrix.data = np.rint(matrix.data * options.scale)
        matrix = matrix.astype(np.int64)
        x = rng.integers(0, 256, (VECTORS, matrix.shape[1]))
        try:
            with ExactProduct(matrix, (0, 255), options.device) as product:
                wrong = int((product.run(x) != (matrix @ x.T).T).sum())
            verdict = f"{wrong} of {VECTORS * matrix.shape[0]} values DIFFER" if wrong else "exact"
        except GossamerError as error:
            wrong, verdict = 0, f"refused: {error}"
        different += wrong
        rows, cols = matrix.shape
        print(f"{path.stem}: {rows}x{cols}, {matrix.nnz} nonzeros, {options.device}: {verdict}")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
