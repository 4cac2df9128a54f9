# SPDX-License-Identifier: BSD-2-Clause
"""The arithmetic of the engine on Python ints and numpy int64: the one definition of its results.

Golden model, compiler and the `model()` of every gateware block call these functions. Nothing here
imports amaranth, and no float appears.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["activation_limits", "requantize", "sum_bounds"]

Ints = npt.NDArray[np.int64]


def activation_limits(bits: int, signed: bool) -> tuple[int, int]:
    """Smallest and largest activation of `bits` bits."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def requantize(sums: Ints, bias: Ints, shift: Ints, low: int, high: int) -> Ints:
    """Turn sums into activations: ``clamp((sum + bias) >> shift, low, high)``.

    `bias` already holds the rounding constant 2**(shift-1) (0 at shift 0), so that the shift rounds
    to nearest with ties towards plus infinity: -1.5 gives -1, 1.5 gives 2. The shift is arithmetic.

    Parameters
    ----------
    sums, bias, shift : int64 arrays that broadcast together
        Sums of products, and per row the bias with rounding constant and the right shift in bits.
    low, high : int
        The layer's clamp; ReLU is a clamp at the integer that stands for zero.

    Returns
    -------
    int64 array
    """
    return np.clip((sums + bias) >> shift, low, high)


def sum_bounds(positive: int, negative: int, bias: int, low: int, high: int) -> tuple[int, int]:
    """Bound every partial sum of a row, whatever the order and subset of its terms.

    Parameters
    ----------
    positive, negative : int
        S+ and S-: sums of the row's positive weights and of its negated negative weights.
    bias : int
        Bias with rounding constant.
    low, high : int
        Limits of the layer's input, low <= 0 <= high.

    Returns
    -------
    (int, int)
        Smallest and largest value any partial sum can take, with or without the bias.
    """
    most = high * positive - low * negative + max(bias, 0)
    least = -(high * negative - low * positive) + min(bias, 0)
    return least, most
