# SPDX-License-Identifier: BSD-2-Clause
"""Densities below which pruning pays: an unstructured layer is smaller or faster than dense."""

from collections.abc import Callable

from ..compression.structure import MAX_GAP_BITS

__all__ = ["highest_density", "unstructured_bits"]

STEPS = 20
"""Halvings of the interval: more digits than anyone reads."""


def highest_density(cost: Callable[[float], float], limit: float, smallest: float) -> float | None:
    """Highest density from `smallest` to 1 whose cost is below `limit`; None if there is none.

    Parameters
    ----------
    cost : callable
        Cost at a density; must not fall as the density rises.
    limit : float
        What the cost is compared with.
    smallest : float
        Lowest density to consider, above 0.
    """
    if cost(1.0) < limit:
        return 1.0
    if cost(smallest) >= limit:
        return None
    low, high = smallest, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) < limit else (low, middle)
    return low


def unstructured_bits(density: float, n_weights: int, code_bits: int) -> float:
    """Expected bits of gaps and codes, plain, if every weight is there with the same chance.

    A gap then takes ``1 / (1 - (1 - density)**(2**k - 1))`` symbols of k bits on average.
    """
    gap = min(
        k / (1 - (1 - density) ** (2**k - 1)) if density < 1 else float(k)
        for k in range(1, MAX_GAP_BITS + 1)
    )
    return density * n_weights * (code_bits + gap)
