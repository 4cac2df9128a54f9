# SPDX-License-Identifier: BSD-2-Clause
"""How many answers of a classifier are right."""

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .network import Floats

__all__ = ["score"]


def score(outputs: Floats, labels: npt.NDArray[Any], final: str) -> float:
    """Share of inputs whose largest output stands at their label, or whose argmax is the label.

    Parameters
    ----------
    outputs : (n, outputs) float32
        After the final step.
    labels : (n,) or (n, 1) integers
    final : str
        The final step: what `finals.FINALS` names.

    Raises
    ------
    InputError
        Labels of another shape or type, or one that is no output.
    """
    if labels.shape not in ((len(outputs),), (len(outputs), 1)) or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels have shape {labels.shape} and type {labels.dtype}, expected one integer per "
            f"input: ({len(outputs)},)"
        )
    classes = labels.reshape(-1)
    if final == "argmax":
        return float((outputs[:, 0] == classes).mean())
    wrong = (classes < 0) | (classes >= outputs.shape[1])
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InputError(
            f"label {classes[place]} of input {place} is no output, "
            f"expected 0..{outputs.shape[1] - 1}"
        )
    return float((outputs.argmax(axis=1) == classes).mean())
