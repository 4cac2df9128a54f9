# SPDX-License-Identifier: BSD-2-Clause
"""What the host does to the outputs of a network's last layer, in float32.

The engine ends with the sums of the last layer. Softmax and sigmoid need exponentials, argmax an
index: a few thousand operations of the host, none of which the engine would do faster.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["FINALS", "apply_final", "n_answers"]

FINALS = ("none", "softmax", "argmax", "sigmoid")
"""Final steps by name."""


def apply_final(final: str, y: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The final step of outputs (..., n), along the last axis.

    Parameters
    ----------
    final : str
        One of `FINALS`.
    y : (..., n) float32

    Returns
    -------
    (..., n) float32; (..., 1) for ``argmax``: the first of the largest
    """
    if final == "softmax":
        powers = np.exp(y - y.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
    if final == "argmax":
        return y.argmax(axis=-1, keepdims=True).astype(np.float32)
    if final == "sigmoid":
        small = np.exp(-np.abs(y))  # never overflows
        return (np.where(y < 0, small, 1) / (1 + small)).astype(np.float32)
    return y


def n_answers(final: str, n_outputs: int) -> int:
    """Values per sample after the final step."""
    return 1 if final == "argmax" else n_outputs
