# SPDX-License-Identifier: BSD-2-Clause
"""A scikit-learn classifier, trained, imported, compressed and run, on 8x8 digits.

``python examples/sklearn_digits.py [--device sim]``; needs ``pip install gossamer[demo]``.
"""

import argparse

from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.importers import from_sklearn
from gossamer.host.session import Session
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

__all__ = ["main"]

RECIPE = "default.codes = 32\nlayers.fc1.density = 0.5"


def main(arguments: list[str] | None = None) -> None:
    """Print how many of the held-out digits the classifier and the device get right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="golden", help="golden, sim or a serial port")
    device = parser.parse_args(arguments).device
    pixels, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(pixels, labels, test_size=360, random_state=1)

    classifier = MLPClassifier((64, 32), learning_rate_init=0.01, tol=0.01, random_state=1)
    classifier.fit(x / 16, y)
    network = from_sklearn(classifier)
    model = compress(network, parse_recipe(RECIPE), calibration=x / 16)
    with Session(model, device=device) as session:
        predicted = classifier.classes_[session.run(x_test / 16).argmax(axis=1)]
    before, after = classifier.score(x_test / 16, y_test), (predicted == y_test).mean()
    print(f"{len(y_test)} digits: scikit-learn {before:.1%} right, {device} {after:.1%} right")


if __name__ == "__main__":
    main()
