# SPDX-License-Identifier: BSD-2-Clause
"""Networks from scikit-learn's `MLPClassifier` and `MLPRegressor`."""

from typing import Any

from ..errors import InputError
from ..network import Layer, Network
from .extras import import_extra

__all__ = ["from_sklearn"]

ACTIVATIONS = {"relu": "relu", "identity": "none"}
FINALS = {"identity": "none", "softmax": "softmax", "logistic": "sigmoid"}
"""Final step of the network for scikit-learn's `out_activation_`."""


def from_sklearn(estimator: Any) -> Network:
    """Turn a fitted estimator into a network.

    Outputs are those of `predict_proba` (a single column, the second class's probability, if there
    are two classes) or of `predict` for a regressor. Class labels stay with the estimator:
    ``estimator.classes_[outputs.argmax(axis=1)]``.

    Parameters
    ----------
    estimator : MLPClassifier or MLPRegressor
        Hidden activation ``relu`` or ``identity``. Not changed.

    Returns
    -------
    Network
        Layers ``fc1``, ``fc2``, ...

    Raises
    ------
    InputError
        Another estimator, not fitted, or an activation the engine does not have.
    ToolError
        scikit-learn is not installed.
    """
    kinds = import_extra("sklearn", "from_sklearn", "sklearn.neural_network")
    name = type(estimator).__name__
    if not isinstance(estimator, kinds.MLPClassifier | kinds.MLPRegressor):
        raise InputError(
            f"estimator is a {name}, expected an MLPClassifier or MLPRegressor; of a pipeline hand "
            "over the last step, and scale inputs before they are run"
        )
    if not hasattr(estimator, "coefs_"):
        raise InputError(f"{name} is not fitted, expected trained weights; call its fit(x, y)")
    n_hidden = len(estimator.coefs_) - 1
    if n_hidden and estimator.activation not in ACTIVATIONS:
        raise InputError(
            f"{name}: hidden activation is {estimator.activation!r}, expected 'relu' or "
            "'identity'; train it with activation='relu'"
        )
    final = FINALS.get(estimator.out_activation_)
    if final is None:
        raise InputError(
            f"{name}: outputs pass through {estimator.out_activation_!r}, expected one of "
            f"{', '.join(FINALS)}; train it with another loss"
        )
    activations = [ACTIVATIONS.get(estimator.activation, "none")] * n_hidden + ["none"]
    return Network(
        tuple(
            Layer(f"fc{k}", weight.T, bias, activation)
            for k, (weight, bias, activation) in enumerate(
                zip(estimator.coefs_, estimator.intercepts_, activations, strict=True), 1
            )
        ),
        final=final,
    )
