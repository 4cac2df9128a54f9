# SPDX-License-Identifier: BSD-2-Clause
"""Pruning and rounding by the outputs: what must hold whatever the weights, and what it gains."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import quantize
from gossamer.host.compression import model_file
from gossamer.host.compression.compensate import Compensation
from gossamer.host.compression.compress import compress
from gossamer.host.compression.nm import select_nm
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.compression.structure import prune
from gossamer.host.errors import RecipeError
from gossamer.host.importers import load_network
from gossamer.host.network import Layer, Network
from hypothesis import given, settings
from hypothesis import strategies as st

DIGITS = Path(__file__).parents[3] / "examples" / "digits.npz"


def correlated(rng, n, cols, rank=6, noise=0.3):
    """Inputs that follow from a few causes, with a mean."""
    causes = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, cols))
    return (np.abs(causes + noise * rng.normal(size=(n, cols)))).astype(np.float32)


def one_layer(rng, rows, cols, density=1.0):
    weight = rng.standard_t(4, size=(rows, cols)) * (rng.random((rows, cols)) < density)
    return Network((Layer("a", weight, rng.normal(size=rows), "relu"),))


def matrix_of(network, x, text):
    recipe = parse_recipe(f"[input]\nrange = [0, 9]\n[default]\n{text}")
    return compress(network, recipe, x).layers[0].matrix


def change(network, matrix, x):
    """Squared change of the sums."""
    difference = network.layers[0].weight.astype(np.float64) - matrix.weight()
    return float(np.square(x.astype(np.float64) @ difference.T).sum())


def both(network, x, text):
    by_weights, by_outputs = (matrix_of(network, x, f"{text}\nfit = '{f}'") for f in FITS)
    return by_weights, by_outputs


FITS = ("weights", "outputs")
PRUNING = {
    "dense": "structure = 'dense'",
    "half": "density = 0.5",
    "tenth": "structure = 'unstructured'\ndensity = 0.1",
    "threshold": "threshold = 0.6",
    "2:4": "structure = '2:4'\ndensity = 1.0",
    "1:4": "structure = '1:4'\ndensity = 1.0",
    "3:5": "structure = '3:5'\ndensity = 0.3",
    "8:32": "structure = '8:32'\nthreshold = 0.5",
}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted(PRUNING)),
    st.sampled_from([2, 3, 16, 256]),
    st.integers(1, 40),
    st.sampled_from([1, 2, 5, 31, 128, 141]),
    st.sampled_from([1, 3, 200]),
    st.sampled_from([0.3, 1.0]),
)
def test_what_always_holds(seed, how, codes, rows, cols, n, density):
    """Never worse than by magnitude; as many weights, of the same structure; zeros stay."""
    rng = np.random.default_rng(seed)
    network = one_layer(rng, rows, cols, density)
    x = correlated(rng, n, cols)
    x[:, rng.random(cols) < 0.2] = 0
    plain, found = both(network, x, f"{PRUNING[how]}\ncodes = {codes}")
    weight, original = found.weight(), network.layers[0].weight
    assert change(network, found, x) <= change(network, plain, x) * (1 + 1e-9)
    assert not weight[original == 0].any()
    assert len(found.codebook) <= codes
    assert found.nonzeros == plain.nonzeros
    assert np.isfinite(weight).all()
    used = np.unique(found.codes)
    assert set(range(len(found.codebook))) - set(used.tolist()) <= {0}
    if ":" in how:
        top, group = map(int, how.split(":"))
        assert np.array_equal(select_nm(weight, top, group), weight)
        assert found.codes.all()


@pytest.mark.parametrize("how", sorted(PRUNING))
def test_much_better_on_correlated_inputs(how):
    rng = np.random.default_rng(5)
    network, x = one_layer(rng, 64, 96), correlated(rng, 500, 96)
    plain, found = both(network, x, PRUNING[how] + "\ncodes = 16")
    assert change(network, found, x) < 0.7 * change(network, plain, x)
    again, seen = (correlated(np.random.default_rng(5), 900, 96)[part] for part in FRESH)
    plain, found = both(network, seen, PRUNING[how] + "\ncodes = 16")
    assert change(network, found, again) < 0.8 * change(network, plain, again)


FRESH = (slice(500, None), slice(500))


def test_one_weight_takes_over_from_its_twin():
    """Of two equal inputs one weight can do the work of both."""
    x = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    x[:, 1] = x[:, 0]
    compensation = Compensation(x, "unstructured")
    weight = np.array([[1.0, 1.1, 3.0, -3.0]], np.float32)
    kept = compensation.prune(weight, 3)
    assert np.count_nonzero(kept) == 3
    assert np.count_nonzero(kept[0, :2]) == 1
    assert kept[0, :2].sum() == pytest.approx(2.1, rel=0.03)
    assert kept[0, 2:] == pytest.approx([3.0, -3.0], abs=0.06)
    assert compensation.error(weight, kept) < 0.01 * compensation.error(weight, [[0, 1.1, 3, -3]])


def test_error_is_that_of_the_outputs():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5000, 7)).astype(np.float32)
    a, b = rng.normal(size=(2, 3, 7)).astype(np.float32)
    expected = np.square(x.astype(np.float64) @ (a.astype(np.float64) - b).T).sum(axis=1).mean()
    assert Compensation(x, "dense").error(a, b) == pytest.approx(expected)


def test_weights_that_need_no_change_get_none():
    rng = np.random.default_rng(2)
    x = correlated(rng, 100, 40)
    book = np.array([-1.5, -0.25, 0.5, 2.0], np.float32)
    weight = select_nm(book[rng.integers(4, size=(20, 40))], 2, 4)
    network = Network((Layer("a", weight),))
    for text in ("", "structure = '2:4'", "density = 0.5", "density = 1.0\nstructure = '2:4'"):
        matrix = matrix_of(network, x, f"{text}\ncodes = 5\nfit = 'outputs'")
        assert matrix.weight().tobytes() == weight.tobytes()


def test_compressing_twice_changes_nothing():
    rng = np.random.default_rng(3)
    sizes = (40, 30, 10)
    layers = tuple(
        Layer(f"fc{k}", rng.normal(size=shape[::-1]), None, "relu")
        for k, shape in enumerate(pairwise(sizes))
    )
    x = correlated(rng, 200, 40)
    for text in ("density = 0.4", "structure = '2:4'\ndensity = 1.0", "structure = 'dense'"):
        recipe = parse_recipe(f"[default]\n{text}\ncodes = 16\nfit = 'outputs'")
        once = compress(Network(layers), recipe, x)
        twice = compress(once.to_network(), recipe, x)
        same = compress(Network(layers), recipe, x)
        assert model_file.dump(once) == model_file.dump(same)
        for a, b in zip(once.layers, twice.layers, strict=True):
            assert np.array_equal(a.matrix.weight(), b.matrix.weight())


def test_rows_of_other_magnitude():
    """Exponents of rows are used as without the fit, and rounding heeds them."""
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(30, 48)) * np.repeat([1.0, 1 / 16, 1 / 64], 10)[:, None]
    network = Network((Layer("a", weight, None, "relu"),))
    x = correlated(rng, 300, 48)
    plain, found = both(network, x, "structure = 'dense'\ncodes = 16")
    assert found.row_exponents.max() >= 4
    assert change(network, found, x) < 0.6 * change(network, plain, x)
    small = network.layers[0].weight[20:] - found.weight()[20:]
    assert np.abs(small).max() < 0.02
    book = np.unique(np.ldexp(found.weight(), found.row_exponents[:, None]))
    assert len(book) <= 16


def test_layers_hear_what_the_ones_before_became():
    """The second layer is fitted to inputs as the first one gives them compressed."""
    rng = np.random.default_rng(6)
    first = Layer("a", rng.normal(size=(24, 32)), rng.normal(size=24), "relu")
    second = Layer("b", rng.normal(size=(8, 24)))
    x = correlated(rng, 300, 32)
    text = "[layers.a]\nthreshold = 9\n[layers.b]\ndensity = 0.5\nfit = 'outputs'"
    matrix = compress(Network((first, second)), parse_recipe(text), x).layers[1].matrix
    hidden = np.tile(np.maximum(first.bias, 0), (300, 1))  # all weights of the first are gone
    alone = matrix_of(Network((second,)), hidden, "density = 0.5\nfit = 'outputs'")
    assert np.array_equal(matrix.weight(), alone.weight())


def test_scope_network_keeps_its_counts():
    network = load_network(DIGITS)
    x = correlated(np.random.default_rng(7), 100, 64)
    text = "[default]\ndensity = 0.2\nscope = 'network'\nfit = '{}'"
    counts = [
        [la.matrix.nonzeros for la in compress(network, parse_recipe(text.format(f)), x).layers]
        for f in FITS
    ]
    assert counts[0] == counts[1]


def test_files_and_golden_integers(tmp_path):
    network = load_network(DIGITS)
    x = correlated(np.random.default_rng(8), 200, 64) / 30
    recipe = parse_recipe(
        "[default]\nstructure = '2:4'\ndensity = 1.0\ncodes = 16\nfit = 'outputs'"
    )
    model = compress(network, recipe, x)
    model_file.save(model, tmp_path / "a.gossamer")
    loaded = model_file.load(tmp_path / "a.gossamer")
    answers = []
    for one in (model, loaded):
        integers = quantize(one, activation_bits=8, sum_bits=32)
        answers.append(golden.run(integers, integers.input.quantize(x)))
    assert np.array_equal(*answers)
    for a, b in zip(model.layers, loaded.layers, strict=True):
        assert a.matrix.weight().tobytes() == b.matrix.weight().tobytes()


def test_few_samples_and_inputs_that_are_always_zero():
    rng = np.random.default_rng(9)
    weight = rng.normal(size=(10, 40)).astype(np.float32)
    for x in (np.zeros((3, 40)), correlated(rng, 2, 40), np.full((1, 40), 1e-20)):
        compensation = Compensation(x.astype(np.float32), "2:4")
        kept = compensation.prune(weight, 200)
        assert np.isfinite(kept).all()
        assert np.count_nonzero(kept) == 200
    dead = correlated(rng, 300, 40)
    dead[:, ::2] = 0
    kept = Compensation(dead, "unstructured").prune(weight, 200)
    assert not kept[:, ::2].any()
    assert kept[:, 1::2] == pytest.approx(weight[:, 1::2])


def test_without_calibration_data():
    recipe = parse_recipe("[input]\nrange = [0, 1]\n[default]\nfit = 'outputs'")
    network = one_layer(np.random.default_rng(0), 3, 4)
    text = "fit is 'outputs' but there is no calibration data, expected some .--calibrate x.npy"
    with pytest.raises(RecipeError, match=text):
        compress(network, recipe)
    with pytest.raises(RecipeError, match=r"fit is 'output', expected weights or outputs"):
        parse_recipe("[layers.a]\nfit = 'output'")


@pytest.mark.parametrize("codes", [16, 256])
def test_digits_keep_their_accuracy(codes):
    datasets = pytest.importorskip("sklearn.datasets")
    selection = pytest.importorskip("sklearn.model_selection")
    pixels, labels = datasets.load_digits(return_X_y=True)
    x, unseen, _, answers = selection.train_test_split(
        pixels / 16, labels, test_size=360, random_state=1, stratify=labels
    )
    network = load_network(DIGITS)
    right = []
    for fit in FITS:
        text = f"structure = '2:4'\ndensity = 1.0\ncodes = {codes}\nfit = '{fit}'"
        model = compress(network, parse_recipe(f"[default]\n{text}"), x)
        right.append((model.to_network().run(unseen).argmax(axis=1) == answers).mean())
    assert right[1] > right[0] + 0.01


def test_equal_counts_where_groups_are_short():
    """The last group of a row is shorter and stays the last one."""
    rng = np.random.default_rng(10)
    x = correlated(rng, 100, 7)
    x[:, 4:] *= 10
    weight = rng.normal(size=(9, 7)).astype(np.float32)
    kept = Compensation(x, "2:4").prune(weight, 36)
    assert np.array_equal(select_nm(kept, 2, 4), kept)
    assert np.count_nonzero(prune(kept, density=1.0)) == 36
