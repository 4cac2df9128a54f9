# SPDX-License-Identifier: BSD-2-Clause
"""Networks of scikit-learn compute what the estimators compute."""

import sys

import numpy as np
import pytest
from gossamer.host.errors import InputError, ToolError
from gossamer.host.importers import from_sklearn

pytest.importorskip("sklearn")
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline

X = np.random.default_rng(0).normal(size=(90, 5))
Y = np.digitize(X[:, 0] + X[:, 1], (-0.5, 0.5))

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")


def classifier(labels=Y, **options):
    options = {"hidden_layer_sizes": (7, 6), "max_iter": 20, "random_state": 0, **options}
    return MLPClassifier(**options).fit(X, labels)


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("sizes", [(), (7,), (7, 6)])
def test_classifier(activation, sizes):
    estimator = classifier(hidden_layer_sizes=sizes, activation=activation)
    network = from_sklearn(estimator)
    assert network.final == "softmax"
    assert [layer.name for layer in network.layers] == [f"fc{k + 1}" for k in range(len(sizes) + 1)]
    hidden = "relu" if activation == "relu" else "none"
    assert [layer.activation for layer in network.layers] == [hidden] * len(sizes) + ["none"]
    assert np.abs(network.run(X) - estimator.predict_proba(X)).max() < 1e-5


def test_two_classes_and_many_labels():
    estimator = classifier(Y > 0)
    network = from_sklearn(estimator)
    assert network.final == "sigmoid"
    assert np.abs(network.run(X)[:, 0] - estimator.predict_proba(X)[:, 1]).max() < 1e-5
    estimator = classifier(np.stack((Y > 0, Y > 1), axis=1))
    assert np.abs(from_sklearn(estimator).run(X) - estimator.predict_proba(X)).max() < 1e-5


def test_regressor():
    for target in (X[:, 0], X[:, :2]):
        estimator = MLPRegressor(hidden_layer_sizes=7, max_iter=20, random_state=0).fit(X, target)
        network = from_sklearn(estimator)
        assert network.final == "none"
        expected = estimator.predict(X).reshape(len(X), -1)
        assert np.abs(network.run(X) - expected).max() < 1e-5


def test_hidden_activation_does_not_matter_without_hidden_layers():
    estimator = classifier(hidden_layer_sizes=(), activation="tanh")
    assert np.abs(from_sklearn(estimator).run(X) - estimator.predict_proba(X)).max() < 1e-5


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_other_activations_are_refused(activation):
    text = f"hidden activation is '{activation}', expected 'relu' or 'identity'; train it with"
    with pytest.raises(InputError, match=text):
        from_sklearn(classifier(activation=activation))


def test_other_outputs_are_refused():
    estimator = MLPRegressor(hidden_layer_sizes=7, max_iter=5, random_state=0).fit(X, X[:, 0])
    estimator.out_activation_ = "exp"  # as loss="poisson" makes it, in newer versions
    with pytest.raises(InputError, match="outputs pass through 'exp', expected one of identity"):
        from_sklearn(estimator)


def test_what_is_no_fitted_network_is_refused():
    with pytest.raises(InputError, match=r"MLPClassifier is not fitted.*call its fit\(x, y\)"):
        from_sklearn(MLPClassifier())
    with pytest.raises(InputError, match=r"is a Pipeline, expected an MLPClassifier.*last step"):
        from_sklearn(make_pipeline(classifier()))


def test_missing_module_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(ToolError, match=r"from_sklearn needs.*sklearn.*'gossamer\[sklearn\]'"):
        from_sklearn(MLPClassifier())
