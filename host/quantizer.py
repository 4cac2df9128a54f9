# SPDX-License-Identifier: BSD-2-Clause
"""Quantizer: real numbers to integers and back, the only place where the two meet."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import InputError

__all__ = ["Ints", "Quantizer"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Quantizer:
    """Real numbers as integers: ``real = origin + scale * q``.

    Parameters
    ----------
    scale : float
        Real value of one step; negative if integers count downwards.
    origin : float
        The real value that becomes integer 0.
    low, high : int
        Smallest and largest integer, low <= 0 <= high; values beyond saturate.
    signed : bool
        Whether the integers are two's complement.
    """

    scale: float
    origin: float
    low: int
    high: int
    signed: bool

    def __post_init__(self) -> None:
        if not (self.scale and np.isfinite(self.scale) and np.isfinite(self.origin)):
            raise ValueError(f"scale must be finite and not 0, not {self.scale!r}")
        if not self.low <= 0 <= self.high:
            raise ValueError(f"low and high must enclose 0, not {self.low!r} and {self.high!r}")

    def quantize(self, x: npt.ArrayLike) -> Ints:
        """Nearest integers (ties to even), saturating; shape kept.

        Raises
        ------
        InputError
            A value is NaN or infinite.
        """
        values = np.asarray(x, dtype=np.float64)
        bad = ~np.isfinite(values)
        if bad.any():
            place = [int(i) for i in np.argwhere(bad)[0]]
            raise InputError(
                f"input is {values[tuple(place)]} at index {place} ({int(bad.sum())} such "
                "values), expected finite numbers"
            )
        steps = np.rint((values - self.origin) / self.scale)
        return np.clip(steps, self.low, self.high).astype(np.int64)

    def dequantize(self, q: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Real values as float32; shape kept."""
        return (self.origin + self.scale * np.asarray(q, dtype=np.float64)).astype(np.float32)
