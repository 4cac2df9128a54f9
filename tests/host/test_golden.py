# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import row_bounds
from gossamer.host.errors import InputError
from networks import random_inputs, random_network

SHAPES = [(1, 7), (7, 1), (1, 1), (5, 3), (6, 6), (33, 31), (64, 65, 63), (127, 129, 128, 3)]


def plain(network, q):
    """The same sums in Python ints, one product at a time."""
    outputs = []
    for layer in network.layers:
        weights = layer.weights().tolist()
        rows = []
        for sample in q.tolist():
            row = []
            for r, line in enumerate(weights):
                total = sum(w * x for w, x in zip(line, sample, strict=True))
                value = (total + int(layer.bias[r])) >> int(layer.shift[r])
                row.append(min(max(value, layer.low), layer.high))
            rows.append(row)
        q = np.array(rows)
        outputs.append(q)
    return outputs


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("structure", ["dense", "unstructured", "2:4", "3:8"])
@pytest.mark.parametrize(("sum_bits", "activation_bits"), [(24, 8), (32, 8), (36, 16)])
def test_equals_python_ints(sizes, structure, sum_bits, activation_bits):
    rng = np.random.default_rng(len(sizes) + sizes[0])
    network = random_network(
        rng, sizes, structure=structure, sum_bits=sum_bits, activation_bits=activation_bits
    )
    q = random_inputs(rng, network, 3)
    got = golden.run_layers(network, q)
    for k, (a, b) in enumerate(zip(got, plain(network, q), strict=True)):
        assert np.array_equal(a, b), f"layer {k}"
    assert np.array_equal(golden.run(network, q), got[-1])


@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("structure", ["dense", "unstructured"])
def test_all_zero_and_full_layers(density, structure):
    rng = np.random.default_rng(1)
    network = random_network(rng, (9, 5, 4), weight_density=density, structure=structure)
    q = random_inputs(rng, network, 4)
    assert np.array_equal(golden.run(network, q), plain(network, q)[-1])


def test_empty_rows_and_columns():
    rng = np.random.default_rng(2)
    network = random_network(
        rng, (12, 10), weight_density=0.8, empty_rows={0: [0, 1, 5, 9]}, empty_cols={0: [0, 6, 11]}
    )
    weights = network.layers[0].weights()
    assert not weights[[0, 1, 5, 9]].any()
    assert not weights[:, [0, 6, 11]].any()
    q = random_inputs(rng, network, 4)
    assert np.array_equal(golden.run(network, q), plain(network, q)[-1])


def test_random_networks_are_lively_and_bounded():
    rng = np.random.default_rng(3)
    for sum_bits, activation_bits in ((24, 8), (32, 8), (36, 16)):
        network = random_network(
            rng, (200, 100, 50), weight_density=0.1, structure=["unstructured", "2:4"],
            sum_bits=sum_bits, activation_bits=activation_bits,
        )  # fmt: skip
        for layer in network.layers:
            for least, most in row_bounds(layer):
                assert -(1 << sum_bits - 1) <= least <= most < 1 << sum_bits - 1
        out = golden.run(network, random_inputs(rng, network, 20))
        assert len(np.unique(out)) > 30
        assert activation_bits == 8 or np.abs(out).max() > 255


def test_no_samples():
    network = random_network(np.random.default_rng(4), (40, 30, 20))
    assert golden.run(network, np.zeros((0, 40), dtype=np.int64)).shape == (0, 20)


def test_bad_inputs():
    rng = np.random.default_rng(5)
    network = random_network(rng, (4, 3), signed=[False, True])
    with pytest.raises(InputError, match=r"shape \(2, 5\).*expected integers \(n, 4\)"):
        golden.run(network, np.zeros((2, 5), dtype=np.int64))
    with pytest.raises(InputError, match="type float64"):
        golden.run(network, np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"spans 0\.\.256, expected 0\.\.255"):
        golden.run(network, np.array([[0, 1, 2, 256]]))
