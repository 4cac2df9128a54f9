# SPDX-License-Identifier: BSD-2-Clause
"""Exact products of a sparse integer matrix and integer vectors, on any device.

    with ExactProduct(matrix, (0, 255), device="sim") as product:
        y = product.run(x)

`host/limbs.py` says how an engine with outputs of 8 or 16 bits gives exact sums, and what it costs.
For a matrix of real values, or where eight bits of result are enough, import it as a network of one
layer instead (`importers/scipy.py`).
"""

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..rtl.config import EngineConfig
from .compiler.quantize import CODEBOOK_BITS
from .device.device import Device, open_device
from .errors import InputError
from .importers.extras import import_extra
from .limbs import MAX_CODES, limb_product
from .session import Session
from .triplets import Triplets

__all__ = ["ExactProduct"]

MAX_EXPONENT = 31
"""Factor of the entries, in bits, up to which products of 32 bits fit int64."""


class ExactProduct:
    """``matrix @ x`` without an error, for integers x.

    Parameters
    ----------
    matrix : sparse matrix or array of scipy, or (rows, cols) array
        At most 256 distinct entries (a few less if products are cut into limbs), integers in
        -32768..32767 or such integers times one power of two. Duplicates are added up.
    input_range : (int, int)
        Smallest and largest value of x, at most 255 apart (65535 with 16-bit activations).
    device : str or Device
        As for `Session`.
    timeout : float
        Seconds of silence after which the device counts as lost.

    Attributes
    ----------
    shape : (int, int)
    dtype : dtype
        int64; float64 if entries are fractions or beyond. Either holds every product exactly.
    session : Session
        Computes the limbs of the products.

    Raises
    ------
    InputError
        The matrix or the range does not allow exact products: says why and what would.
    CapacityError
        It does not fit the device.
    DeviceError
        The device is missing, or does not answer as it should.
    """

    def __init__(
        self,
        matrix: Any,
        input_range: tuple[int, int],
        device: str | Device = "golden",
        *,
        timeout: float = 5.0,
    ) -> None:
        self._owned = None
        integers, self._exponent = _as_integers(Triplets.of("matrix", matrix))
        self._low, self._high = _checked_range(input_range)
        self.shape = integers.shape
        whole = 0 <= self._exponent <= MAX_EXPONENT
        self.dtype = np.dtype(np.int64 if whole else np.float64)
        if isinstance(device, str) and device != "golden":
            self._owned = device = open_device(device, timeout=timeout)
        try:
            config = EngineConfig() if device == "golden" else device.identity.config
            self._limbs = limb_product(
                integers,
                (self._low, self._high),
                activation_bits=config.activation_bits,
                sum_bits=config.sum_bits,
            )
            self.session = Session(self._limbs.network, device)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the device, if this object opened it."""
        if self._owned is not None:
            self._owned.close()

    def run(self, x: npt.ArrayLike) -> npt.NDArray[Any]:
        """Products of the matrix and vectors.

        Parameters
        ----------
        x : (cols,) or (n, cols) of integers within the input range
            Floats will do if they are whole numbers. Never changed.

        Returns
        -------
        (rows,) or (n, rows) of `dtype`

        Raises
        ------
        InputError
            Wrong shape or type, a fraction, or a value beyond the input range.
        DeviceError
            The device fails.
        """
        values = np.asarray(x)
        if values.ndim not in (1, 2) or values.shape[-1] != self.shape[1]:
            raise InputError(
                f"x has shape {values.shape}, expected ({self.shape[1]},) or (n, {self.shape[1]})"
            )
        self._check_values(values)
        q = self.session.quantize(values)
        products = self._limbs.join(self.session.run_quantized(np.atleast_2d(q)))
        whole = self.dtype.kind == "i"
        scaled = products << self._exponent if whole else np.ldexp(products, self._exponent)
        return scaled[0] if values.ndim == 1 else scaled

    def linear_operator(self) -> Any:
        """The product as a `scipy.sparse.linalg.LinearOperator`; columns of a matrix are one run.

        Raises
        ------
        ToolError
            scipy is not installed.
        """
        linalg = import_extra("scipy", "linear_operator()", "scipy.sparse.linalg")
        return linalg.LinearOperator(
            self.shape,
            matvec=lambda x: self.run(np.reshape(x, -1)),
            matmat=lambda x: self.run(x.T).T,
            dtype=self.dtype,
        )

    def _check_values(self, values: npt.NDArray[Any]) -> None:
        if values.dtype.kind not in "biuf":
            raise InputError(f"x has type {values.dtype}, expected integers")
        with np.errstate(invalid="ignore"):
            bad = (values != np.rint(values)) | (values < self._low) | (values > self._high)
        if bad.any():
            place = [int(i) for i in np.argwhere(bad)[0]]
            raise InputError(
                f"x is {values[tuple(place)]} at index {place} ({int(bad.sum())} such values), "
                f"expected integers in {self._low}..{self._high}"
            )


def _checked_range(input_range: tuple[int, int]) -> tuple[int, int]:
    low, high = input_range
    if int(low) != low or int(high) != high or low > high:
        raise InputError(f"input_range is {input_range!r}, expected two integers, rising")
    return int(low), int(high)


def _as_integers(matrix: Triplets) -> tuple[Triplets, int]:
    """The matrix as 16-bit integers times two to the power of the exponent."""
    distinct, inverse = np.unique(matrix.values, return_inverse=True)
    if len(distinct) > MAX_CODES:
        raise InputError(
            f"matrix has {len(distinct):,} distinct entries, expected at most {MAX_CODES} for "
            "exact products; round it, e.g. np.rint(matrix * scale), or import it with "
            "from_scipy, which lets entries share 256 values"
        )
    ratios = [value.as_integer_ratio() for value in distinct.tolist()]
    common = max((below for _, below in ratios), default=1)
    wide = [above * (common // below) for above, below in ratios]
    factor = min((value & -value for value in wide), default=1)
    integers = [value // factor for value in wide]
    limit = 1 << (CODEBOOK_BITS - 1)
    if any(not -limit <= value < limit for value in integers):
        raise InputError(
            f"entries between {distinct[0]} and {distinct[-1]} are no 16-bit integers times one "
            f"power of two, expected {-limit}..{limit - 1} for exact products; round them, e.g. "
            "np.rint(matrix * scale)"
        )
    exponent = factor.bit_length() - common.bit_length()
    values = np.array(integers, dtype=np.int64)[inverse]
    return Triplets(matrix.shape, matrix.rows, matrix.columns, values), exponent
