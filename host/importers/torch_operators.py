# SPDX-License-Identifier: BSD-2-Clause
"""What PyTorch's modules, functions and methods do to a chain of layers.

One table for all three: a module keeps under the same names what a function takes as arguments.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import apply_mask
from .chain import Chain
from .torch_tensors import to_numpy

__all__ = ["ADVICE", "DEFAULT_ADVICE", "HARMLESS", "OPERATORS", "Call"]

REQUIRED = object()


@dataclass(frozen=True)
class Call:
    """One use of an operator.

    Parameters
    ----------
    name : str
        For the layer that it makes, and for messages.
    module : torch.nn.Module, optional
        Whose attributes are the options; else they are arguments.
    arguments : tuple
        Behind the tensor, by position; tensors in place of the graph's constants.
    keywords : dict
    """

    name: str
    module: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def get(self, option: str, place: int = -1, default: Any = None) -> Any:
        """An option: attribute of the module, or argument by keyword or place behind the tensor."""
        if self.module is not None:
            return getattr(self.module, option, default)
        if 0 <= place < len(self.arguments):
            return self.arguments[place]
        return self.keywords.get(option, default)

    def array(self, chain: Chain, option: str, place: int = -1) -> npt.NDArray[Any] | None:
        """An option that is a tensor; in a pruned module it is multiplied by its mask."""
        where = f"{self.name}: {option}"
        mask = getattr(self.module, f"{option}_mask", None)
        if mask is None:
            value = self.get(option, place)
            return None if value is None else to_numpy(where, value)
        weight = to_numpy(where, getattr(self.module, f"{option}_orig"))
        masked, note = apply_mask(where, weight, to_numpy(where, mask))
        chain.notes.append(f"{where}: {note}")
        return masked


Operator = Callable[[Chain, Call], None]


def _linear(chain: Chain, call: Call) -> None:
    weight, bias = call.array(chain, "weight", 0), call.array(chain, "bias", 1)
    assert weight is not None
    chain.linear(call.name, weight, 0.0 if bias is None else bias)


def _batch_norm(chain: Chain, call: Call) -> None:
    mean, variance = call.array(chain, "running_mean", 0), call.array(chain, "running_var", 1)
    if mean is None or variance is None:
        raise InputError(
            f"{call.name} normalizes by the statistics of each batch, expected running ones; "
            "set track_running_stats=True and train again"
        )
    weight, bias = call.array(chain, "weight", 2), call.array(chain, "bias", 3)
    scale = 1 / np.sqrt(variance.astype(np.float64) + call.get("eps", 6, 1e-5))
    if weight is not None:
        scale = scale * weight
    chain.affine(scale, (0 if bias is None else bias) - mean * scale)


def _clamp_by(low: float, high: float) -> Operator:
    return lambda chain, call: chain.clamp(call.name, low, high)


def _hardtanh(chain: Chain, call: Call) -> None:
    low, high = call.get("min_val", 0, -1.0), call.get("max_val", 1, 1.0)
    chain.clamp(call.name, float(low), float(high))


def _clamp(chain: Chain, call: Call) -> None:
    ends = call.get("min", 0), call.get("max", 1)
    if not all(end is None or isinstance(end, int | float) for end in ends):
        raise InputError(f"{call.name}: limits are tensors, expected two numbers for all features")
    low, high = (None if end is None else float(end) for end in ends)
    chain.clamp(call.name, -np.inf if low is None else low, np.inf if high is None else high)


def _dropout(chain: Chain, call: Call) -> None:
    if call.module is None and call.get("training", 1, True):
        raise InputError(
            f"{call.name} drops features at all times, expected it in training only; "
            "pass training=self.training, or use torch.nn.Dropout"
        )


def _nothing(chain: Chain, call: Call) -> None:
    pass


def _flatten(chain: Chain, call: Call) -> None:
    start, end = call.get("start_dim", 0, 0), call.get("end_dim", 1, -1)
    if start != 1 or end != -1:
        raise InputError(
            f"{call.name} flattens dimensions {start} to {end}, expected 1 to -1: all but the batch"
        )
    _to_vector(chain)


def _view(chain: Chain, call: Call) -> None:
    first = call.arguments[0] if call.arguments else call.get("shape")
    shape = first if isinstance(first, tuple | list) else call.arguments
    if len(shape or ()) != 2 or not isinstance(shape[1], int):
        raise InputError(
            f"{call.name} makes a tensor of {len(shape or ())} dimensions, expected "
            "(batch, features), such as x.view(x.size(0), -1)"
        )
    if chain.shape is None and shape[1] > 0:
        chain.shape = (shape[1],)
    _to_vector(chain)


def _to_vector(chain: Chain) -> None:
    if chain.shape is not None:
        chain.reshape((math.prod(chain.shape),))


def _end(final: str) -> Operator:
    def operator(chain: Chain, call: Call) -> None:
        dim = call.get("dim", 0, None)
        if final != "sigmoid" and dim not in (1, -1) and (dim is not None or final == "argmax"):
            raise InputError(f"{call.name} works along dimension {dim}, expected 1, the features")
        chain.end(call.name, final)

    return operator


def _log_softmax(chain: Chain, call: Call) -> None:
    _end("softmax")(chain, call)
    chain.notes.append(f"{call.name}: outputs are probabilities, not their logarithms")


OPERATORS: dict[str, Operator] = {
    "Linear": _linear, "linear": _linear,
    "BatchNorm1d": _batch_norm, "batch_norm": _batch_norm,
    **dict.fromkeys(("ReLU", "relu", "relu_"), _clamp_by(0.0, np.inf)),
    **dict.fromkeys(("ReLU6", "relu6"), _clamp_by(0.0, 6.0)),
    **dict.fromkeys(("Hardtanh", "hardtanh", "hardtanh_"), _hardtanh),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_"), _clamp),
    **dict.fromkeys(("Dropout", "AlphaDropout", "dropout", "alpha_dropout"), _dropout),
    **dict.fromkeys(("Identity", "contiguous", "float"), _nothing),
    **dict.fromkeys(("Flatten", "flatten"), _flatten),
    **dict.fromkeys(("view", "reshape"), _view),
    **dict.fromkeys(("Softmax", "softmax"), _end("softmax")),
    **dict.fromkeys(("LogSoftmax", "log_softmax"), _log_softmax),
    **dict.fromkeys(("Sigmoid", "sigmoid", "sigmoid_"), _end("sigmoid")),
    "argmax": _end("argmax"),
}  # fmt: skip
"""By class of module or name of function or method."""

HARMLESS = (
    "Identity",
    "Dropout",
    "AlphaDropout",
    "dropout",
    "alpha_dropout",
    "contiguous",
    "float",
)
"""Operators that may stand behind the final step."""

SMOOTH = "train with ReLU, ReLU6 or Hardtanh in its place"
STEPS = "the engine runs layers one after the other, without state"
CONVOLUTION = "only fully connected layers run on the engine"
ADVICE = {
    **dict.fromkeys(("Tanh", "tanh", "GELU", "gelu", "SiLU", "silu", "ELU", "elu", "Hardswish",
                     "LeakyReLU", "leaky_relu", "PReLU", "Softplus", "Mish"), SMOOTH),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "MaxPool2d", "AvgPool2d", "conv1d", "conv2d",
                     "max_pool2d", "avg_pool2d", "AdaptiveAvgPool2d"), CONVOLUTION),
    **dict.fromkeys(("RNN", "LSTM", "GRU", "MultiheadAttention", "Embedding"), STEPS),
    **dict.fromkeys(("LayerNorm", "layer_norm", "GroupNorm", "RMSNorm"),
                    "its factors depend on the input; train with BatchNorm1d in its place"),
}  # fmt: skip
"""What to do about operators that are missing here."""

DEFAULT_ADVICE = "leave it out, or do it before or after the network"
