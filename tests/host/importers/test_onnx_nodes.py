# SPDX-License-Identifier: BSD-2-Clause
"""onnx's own node tests of the supported operators: floats, then the golden model's integers.

``pytest -s tests/host/test_onnx_nodes.py -k list`` prints which ran and why the others could not.
"""

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.errors import InputError
from gossamer.host.importers import load_network
from gossamer.host.session import Session
from onnx_nodes import node_tests, refusals, write_test

REASONS = refusals()
TESTS = node_tests()
RUN = [name for name in TESTS if name not in REASONS]
EXTREMES = parse_recipe("[input]\ncalibration = 'minmax'\n[default]\ncalibration = 'minmax'")


@pytest.mark.parametrize("name", RUN)
def test_network(name, tmp_path):
    test = TESTS[name]
    network = load_network(write_test(test, tmp_path))
    x, expected = test.samples(), test.expected()
    got = network.run(x)
    low, high = network.layers[-1].output_range or (0, 0)
    rounding = (high - low) / 2 / max(1, network.layers[-1].output_levels)
    np.testing.assert_allclose(got, expected, rtol=test.rtol, atol=test.atol + rounding)

    (layer,) = network.layers
    with Session(compress(network, EXTREMES, x)) as session:
        outputs = session.run_quantized(session.quantize(x))
        real = session.network.output.dequantize(outputs)
        assert session.run(x).shape == expected.shape
    quantizer = session.network.layers[0]
    steps_in, steps_out = abs(quantizer.input.scale), abs(quantizer.output.scale)
    bound = np.abs(layer.weight).sum(axis=1) * steps_in / 2 * 1.01 + steps_out * 0.6
    error = np.abs(real - network.run_layers(x)[-1])
    assert (error <= bound + 1e-6).all(), f"{error.max()} of at most {bound.min()}"


@pytest.mark.parametrize("name", REASONS)
def test_no_network(name, tmp_path):
    with pytest.raises(InputError, match=REASONS[name][1]):
        load_network(write_test(TESTS[name], tmp_path))


def test_list():
    print(f"\n{len(RUN)} node tests of onnx run: {', '.join(RUN)}")
    for why in dict.fromkeys(why for why, _ in REASONS.values()):
        names = [name for name, (reason, _) in REASONS.items() if reason == why]
        print(f"{len(names)} are no networks for this engine, {why}: {', '.join(names)}")
    assert set(REASONS) <= set(TESTS)
    assert len(RUN) >= 50
