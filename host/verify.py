# SPDX-License-Identifier: BSD-2-Clause
"""Compare a device with the golden model, layer by layer."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import golden
from .session import Session

__all__ = ["Difference", "verify"]


@dataclass(frozen=True)
class Difference:
    """Where a device and the golden model first differ.

    Parameters
    ----------
    layer : str
        Name of the first layer with a difference.
    row : int
        Output of that layer.
    image : int
        Index of the input.
    expected, got : int
        Activation of the golden model and of the device.
    count : int
        Outputs of that layer that differ, over all inputs.
    """

    layer: str
    row: int
    image: int
    expected: int
    got: int
    count: int


def verify(session: Session, x: npt.ArrayLike) -> Difference | None:
    """Run inputs on the session's device and on the golden model; compare every layer's integers.

    The device has the whole program again afterwards. Layers with more outputs than the device can
    return are covered by those that read them.

    Parameters
    ----------
    session : Session
    x : (n, features) or (features,)
        Real inputs.

    Returns
    -------
    Difference or None
        The first difference: by layer, then input, then row. None: all is equal.

    Raises
    ------
    InputError
        `x` cannot be used.
    DeviceError
        The device fails.
    """
    q = np.atleast_2d(session.quantize(x))
    expected = golden.run_layers(session.network, q)
    for layer, want, got in zip(session.network.layers, expected, session.layers(q), strict=True):
        places = [] if got is None else np.argwhere(want != got)
        if got is not None and len(places):
            image, row = (int(i) for i in places[0])
            return Difference(
                layer.name, row, image, int(want[image, row]), int(got[image, row]), len(places)
            )
    return None
