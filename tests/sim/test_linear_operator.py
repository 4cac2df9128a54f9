# SPDX-License-Identifier: BSD-2-Clause
"""Exact products on simulated RTL."""

import numpy as np
import pytest
from gossamer.host.errors import CapacityError
from gossamer.host.linear_operator import ExactProduct

sparse = pytest.importorskip("scipy.sparse")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("default-engine")]


def test_simulated_rtl_gives_the_same():
    rng = np.random.default_rng(0)
    entries = rng.integers(-20, 21, (239, 239)) * (rng.random((239, 239)) < 0.03)
    matrix = sparse.csr_array(entries)
    for low in (0, -128):
        x = rng.integers(low, low + 256, (6, 239))
        with ExactProduct(matrix, (low, low + 255), device="sim") as product:
            assert len(product.session.network.layers) == 2
            assert np.array_equal(product.run(x), (matrix @ x.T).T)
    with pytest.raises(CapacityError, match="inputs: 6000 needed, 4096 available"):
        ExactProduct(sparse.eye_array(6000, dtype=int), (0, 1), device="sim")
