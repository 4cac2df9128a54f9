# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.compression.matrix import Matrix
from gossamer.host.compression.nm import select_nm
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.compression.structure import prune
from gossamer.host.errors import InputError, RecipeError
from gossamer.host.network import Layer, Network


def network(density=1.0, distinct=None, seed=0, sizes=(40, 30, 10)):
    rng = np.random.default_rng(seed)
    layers = []
    for k in range(len(sizes) - 1):
        weight = rng.normal(size=(sizes[k + 1], sizes[k]))
        if distinct:
            book = rng.normal(size=distinct).astype(np.float32)
            weight = book[rng.integers(distinct, size=weight.shape)]
        weight = weight * (rng.random(weight.shape) < density)
        layers.append(Layer(f"fc{k + 1}", weight, rng.normal(size=sizes[k + 1]), "relu"))
    return Network(tuple(layers))


X = np.random.default_rng(9).random((50, 40))


def test_no_recipe_prunes_nothing():
    net = network(density=0.2, distinct=60)
    model = compress(net, None, X)
    ranges = [layer.output for layer in model.layers]
    for layer, small, one in zip(net.layers, model.to_network().layers, ranges, strict=True):
        assert np.array_equal(layer.weight, small.weight)
        assert np.abs(layer.bias - small.bias).max() <= (one.high - one.low) / 2**17
        assert layer.activation == small.activation
    assert [layer.matrix.structure for layer in model.layers] == ["unstructured"] * 2
    assert model.warnings == ()


def test_dense_weights_share_256_values_and_hear_what_pruning_buys():
    net = network()
    model = compress(net, None, X)
    first, second = (layer.matrix for layer in model.layers)
    assert (first.structure, len(first.codebook), first.code_bits) == ("dense", 256, 8)
    assert first.nonzeros == 1200
    assert np.abs(first.weight() - net.layers[0].weight).max() < 0.1
    (note,) = model.notes
    assert "nothing was pruned: 100% of the weights are not zero" in note
    assert "pruned to 10%" in note
    assert len(second.codebook) == 256


def test_the_smaller_structure_is_taken():
    for density in (0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97, 1.0):
        weight = network(density, distinct=15).layers[0].weight
        model = compress(Network((Layer("a", weight),)), None, X)
        costs = {
            s: Matrix.share(weight, s, 256, "none").cost_bytes for s in ("dense", "unstructured")
        }
        taken = model.layers[0].matrix
        assert taken.coded("none").cost_bytes == min(costs.values())
        assert taken.cost_bytes <= costs["dense"]
        assert np.array_equal(taken.weight(), weight)


def test_recipe_is_followed():
    recipe = parse_recipe(
        "[default]\ndensity = 0.25\ncodes = 16\n"
        "[layers.fc2]\nstructure = 'dense'\nthreshold = 1.0\ncodes = 9"
    )
    net = network()
    first, second = (layer.matrix for layer in compress(net, recipe, X).layers)
    assert (first.nonzeros, len(first.codebook), first.code_bits) == (300, 16, 4)
    kept = np.abs(net.layers[0].weight) >= np.sort(np.abs(net.layers[0].weight).ravel())[-300]
    assert np.array_equal(first.weight() != 0, kept)
    assert (second.structure, second.zero_code, len(second.codebook)) == ("dense", True, 9)
    assert second.codebook[0] == 0
    assert np.array_equal(second.weight() != 0, np.abs(net.layers[1].weight) >= 1)


def test_sharing_twice_changes_nothing():
    recipe = parse_recipe("[default]\ndensity = 0.3\ncodes = 16")
    once = compress(network(), recipe, X)
    twice = compress(once.to_network(), recipe, X)
    for a, b in zip(once.layers, twice.layers, strict=True):
        assert np.array_equal(a.matrix.codes, b.matrix.codes)
        assert np.array_equal(a.matrix.codebook, b.matrix.codebook)
        assert np.array_equal(a.bias, b.bias)
        moved = np.abs([a.output.low - b.output.low, a.output.high - b.output.high])
        assert moved.max() <= (a.output.high - a.output.low) / 2**12  # by the rounded biases


def test_layers_have_codebooks_of_their_own():
    model = compress(network(), parse_recipe("[default]\ncodes = 4"), X)
    first, second = (layer.matrix.codebook for layer in model.layers)
    assert not np.array_equal(first, second)


def test_all_zero_and_tiny_layers():
    for shape in [(1, 1), (1, 40), (5, 40)]:
        net = Network((Layer("a", np.zeros(shape)),))
        x = np.random.default_rng(1).random((20, shape[1]))
        matrix = compress(net, None, x).layers[0].matrix
        assert matrix.nonzeros == 0
        assert matrix.codebook.tolist() == [0]
        assert not matrix.weight().any()
    one = compress(Network((Layer("a", [[2.5]]),)), None, [[0.0], [1.0]])
    assert one.layers[0].matrix.weight().tolist() == [[2.5]]


def test_ranges_come_from_somewhere():
    net = network()
    text = r"range of the input is not known.*--calibrate x\.npy.*\[input\]"
    with pytest.raises(InputError, match=text):
        compress(net)
    declared = compress(net, parse_recipe("[input]\nrange = [0, 1]"))
    assert [declared.input.source, declared.layers[0].output.source] == ["declared", "bounds"]
    (warning,) = declared.warnings
    assert "no calibration data" in warning
    stated = compress(Network(net.layers, (0.0, 1.0)))
    assert stated.input == declared.input
    assert compress(Network(net.layers, (0.0, 9.0)), None, X).input.high < 1.1
    assert compress(net, None, X).layers[0].output.high < declared.layers[0].output.high


@pytest.mark.slow
def test_calibration_methods_and_stated_grids():
    net = network()
    x = np.random.default_rng(2).exponential(size=(500, 40))
    names = [layer.name for layer in net.layers]
    text = f"[input]\ncalibration = 'minmax'\n[layers.{names[0]}]\ncalibration = 90"
    model = compress(net, parse_recipe(text), x)
    assert model.input.high == pytest.approx(x.max(), rel=1e-4)
    assert model.input.high > compress(net, None, x).input.high
    assert 0.02 < model.layers[0].output.saturated < 0.12
    assert model.layers[1].output.saturated == 0
    first = net.layers[0]
    stated = Layer("a", first.weight, None, "relu", output_range=(0, 51), output_levels=255)
    qdq = Network((stated, *net.layers[1:]), (-1, 1.55), input_levels=255)
    for samples in (None, X):
        model = compress(qdq, None, samples)
        assert (model.input.low, model.input.high, model.input.levels) == (-1, 1.55, 255)
        assert model.layers[0].output.quantizer(8).scale == pytest.approx(0.2)
    assert compress(qdq, parse_recipe("[layers.a]\ncalibration = 99"), X).layers[0].output.high < 51


def test_share_of_weights_that_meet_a_value():
    rng = np.random.default_rng(3)
    weight = np.zeros((20, 40))
    weight[:, :10] = rng.normal(size=(20, 10))  # half of them at inputs that are always 0
    x = rng.random((100, 40))
    x[:, :5] = 0
    x[:50, 5:10] = 0
    layers = (Layer("a", weight, None, "relu"), Layer("b", np.ones((3, 20))))
    for structure in ("dense", "unstructured"):
        model = compress(Network(layers), parse_recipe(f"[default]\nstructure='{structure}'"), x)
        assert model.layers[0].met == pytest.approx(0.25, abs=0.005)
        hidden = model.layers[0].output
        assert model.layers[1].met == pytest.approx(1 - hidden.share, abs=0.02)
    assert compress(Network(layers, (0, 1))).layers[0].met == 1


def test_bad_recipe_and_calibration():
    text = r"calibration is 99 but there is no calibration data, expected some \(--calibrate x"
    with pytest.raises(RecipeError, match=text):
        compress(Network(network().layers, (0, 1)), parse_recipe("[default]\ncalibration = 99"))
    with pytest.raises(RecipeError, match="names no layer"):
        compress(network(), parse_recipe("[layers.conv]\ncodes = 4"), X)
    with pytest.raises(InputError, match=r"expected \(n, 40\)"):
        compress(network(), None, X[:, :3])


def pairs_network(shape=(30, 40), distinct=15, n=2, m=4):
    """One layer that is N:M already: every group full, up to `distinct` values in turn."""
    rng = np.random.default_rng(shape[0])
    mask = select_nm(rng.random(shape) + 1, n, m) != 0
    book = np.linspace(-2, 2, 2 * distinct)[::2] + 1e-3
    weight = np.zeros(shape)
    weight[mask] = rng.permutation(book[np.arange(mask.sum()) % distinct])
    return Network((Layer("fc", weight),))


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (3, 5), (4, 8)])
@pytest.mark.parametrize("shape", [(3, 5), (6, 6), (1, 40), (40, 1), (9, 127), (9, 128), (9, 129)])
def test_weights_of_the_structure_pass_unchanged(n, m, shape):
    network = pairs_network(shape, 255, n, m)
    x = np.random.default_rng(1).random((20, shape[1]))
    for text in ("", "\ndensity = 1.0", "\nthreshold = 0"):
        recipe = parse_recipe(f"[default]\nstructure = '{n}:{m}'" + text)
        matrix = compress(network, recipe, x).layers[0].matrix
        assert (matrix.structure, matrix.zero_code) == (f"{n}:{m}", True)
        assert matrix.weight().tobytes() == network.layers[0].weight.tobytes()
        assert matrix.codes.all()
        assert matrix.fillers == shape[0] * -(-shape[1] // m) * n - matrix.nonzeros
        assert matrix.padded_cols == -shape[1] % m


def test_weights_of_another_structure_are_refused():
    weight = np.zeros((3, 6))
    weight[1, 1:4] = weight[2, 3:] = 1
    layers = (Layer("fc1", np.eye(6)), Layer("fc2", weight))
    recipe = parse_recipe("[layers.fc2]\nstructure = '2:4'")
    text = "^layer 'fc2': row 1, columns 0 to 3 hold 3 nonzeros, expected at most 2 .*set `density`"
    with pytest.raises(InputError, match=text):
        compress(Network(layers), recipe, np.eye(6))


def test_pruned_to_the_structure_first():
    net = network()
    weight = net.layers[0].weight
    pruned = {}
    for text in ("density = 1.0", "density = 0.5", "density = 0.2", "threshold = 0.8"):
        recipe = parse_recipe("[layers.fc1]\nstructure = '2:4'\n" + text)
        matrix = compress(net, recipe, X).layers[0].matrix
        pruned[text] = matrix.weight() != 0
        assert np.array_equal(np.sign(matrix.weight()), np.sign(weight) * pruned[text])
    valid = select_nm(weight, 2, 4)
    assert np.array_equal(pruned["density = 1.0"], valid != 0)
    assert np.array_equal(pruned["density = 0.5"], valid != 0)
    assert np.array_equal(pruned["density = 0.2"], prune(valid, density=0.2) != 0)
    assert pruned["density = 0.2"].sum() == 240
    assert np.array_equal(pruned["threshold = 0.8"], np.abs(valid) >= 0.8)


def test_zero_is_one_of_the_codes():
    recipe = parse_recipe("[default]\nstructure = '2:4'\ndensity = 1.0\ncodes = 16")
    matrix = compress(network(), recipe, X).layers[0].matrix
    assert (len(matrix.codebook), matrix.code_bits, matrix.codebook[0]) == (16, 4, 0)
    assert matrix.codebook[1:].all()
    recipe = parse_recipe("[default]\nstructure = '2:4'\ndensity = 1.0")
    assert len(compress(network(), recipe, X).layers[0].matrix.codebook) == 256


def test_auto_prefers_pairs_on_a_tie():
    net = pairs_network()
    matrix = compress(net, None, X).layers[0].matrix
    weight = net.layers[0].weight
    costs = {
        s: Matrix.share(weight, s, 256, "none").cost_bytes for s in ("dense", "unstructured", "2:4")
    }
    assert matrix.structure == "2:4"
    assert costs["unstructured"] < costs["2:4"] <= 1.02 * costs["unstructured"] < costs["dense"]
    assert np.array_equal(matrix.weight(), weight)


def test_auto_takes_pairs_only_where_they_pay():
    sparse = pairs_network().layers[0].weight * (np.random.default_rng(1).random((30, 40)) < 0.3)
    sixteen = pairs_network(distinct=16).layers[0].weight
    full = pairs_network(shape=(64, 40), distinct=256).layers[0].weight
    broken = pairs_network().layers[0].weight.copy()
    broken[-1, -4:] = 1
    for weight, why in [
        (sparse, "gaps are smaller"),
        (sixteen, "a code more is a bit more"),
        (full, "a code less would change weights that fit otherwise"),
        (broken, "the last group has four"),
    ]:
        matrix = compress(Network((Layer("a", weight),)), None, X).layers[0].matrix
        assert matrix.structure == "unstructured", why
        assert np.array_equal(matrix.weight(), weight), why
    alone = compress(Network((Layer("a", np.ones((40, 1))),)), None, [[0.0], [1.0]])
    assert alone.layers[0].matrix.structure == "dense"


def test_strided_and_transposed_weights():
    square = pairs_network((40, 40)).layers[0].weight
    recipe = parse_recipe("[default]\nstructure = '2:4'\ndensity = 1.0\ncodes = 16")
    for view in (square.T, square[::-1, ::-1], np.asfortranarray(square), square.astype(">f8")):
        plain = np.array(view, dtype=np.float32, order="C")
        a, b = (
            compress(Network((Layer("a", w),)), recipe, X).layers[0].matrix for w in (view, plain)
        )
        assert np.array_equal(a.weight(), b.weight())
        assert np.array_equal(a.codes, b.codes)
