# SPDX-License-Identifier: BSD-2-Clause
"""Pruning and sharing inside a training loop of PyTorch; what compress makes of it."""

import copy

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.compression.pruning import prune_layers
from gossamer.host.compression.recipe import LayerRecipe, parse_recipe
from gossamer.host.compression.retrain import finish, prune, share
from gossamer.host.errors import InputError, RecipeError
from gossamer.host.importers import from_torch

torch = pytest.importorskip("torch")
torch_prune = pytest.importorskip("torch.nn.utils.prune")
nn = torch.nn

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:.*jit")

RECIPE = parse_recipe(
    """
    [default]
    codes = 8
    structure = "unstructured"
    density = 0.2
    [layers.2]
    structure = "2:4"
    density = 1.0
    [layers.4]
    structure = "auto"
    density = 0.6
    """
)
X = torch.randn(64, 24, generator=torch.Generator().manual_seed(5))
Y = X[:, :10].argmax(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def network(bias=True):
    return nn.Sequential(
        nn.Linear(24, 40, bias), nn.ReLU(), nn.Linear(40, 22, bias), nn.ReLU(), nn.Linear(22, 10)
    )


def train(module, optimizer, steps=5):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(X), Y).backward()
        optimizer.step()


def weights(module):
    return [
        layer.weight.detach().numpy().copy() for layer in module if isinstance(layer, nn.Linear)
    ]


def adam(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)


def zeros(arrays):
    return [array == 0 for array in arrays]


def loss(module):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(module(X), Y))


def same(ours, theirs):
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("early", [True, False])
def test_whole_way_to_a_compressed_model(early):
    """Prune while training, share, train the values: compress then changes no weight."""
    module = network()
    optimizer = adam(module) if early else None
    for k in range(5):
        prune(module, RECIPE, k / 4)
        optimizer = optimizer or adam(module)
        train(module, optimizer)
    pruned = weights(module)
    share(module, RECIPE)
    assert same(zeros(weights(module)), zeros(pruned))
    shared = weights(module)
    train(module, adam(module))
    trained = weights(module)
    assert same(zeros(trained), zeros(pruned))
    assert not same(trained, shared)
    model = compress(from_torch(module), RECIPE, X.numpy())
    assert same([layer.matrix.weight() for layer in model.layers], trained)
    assert set(finish(module).state_dict()) == set(network().state_dict())
    assert same(weights(module), trained)
    model = compress(from_torch(module), RECIPE, X.numpy())
    assert same([layer.matrix.weight() for layer in model.layers], trained)
    assert [len(layer.matrix.codebook) for layer in model.layers][:2] == [8, 8]
    assert [layer.matrix.structure for layer in model.layers][:2] == ["unstructured", "2:4"]


def test_counts_are_those_of_the_recipe():
    module = network()
    dense = weights(module)
    prune(module, RECIPE)
    first, second, third = weights(module)
    assert np.count_nonzero(first) == 192
    assert (second.reshape(22, 10, 4) != 0).sum(axis=2).tolist() == [[2] * 10] * 22
    assert np.count_nonzero(third) == 132
    plans = RECIPE.for_layers(["0", "2", "4"])
    assert same((first, second, third), prune_layers(dense, plans))


def test_schedule_is_cubic_and_never_grows():
    module = network()
    densities = []
    for step in (0.0, 0.25, 0.5, 0.75, 1.0, 0.5):
        before = zeros(weights(module))
        prune(module, RECIPE, step)
        after = weights(module)
        assert all((b == 0)[a].all() for a, b in zip(before, after, strict=True))
        densities.append(np.count_nonzero(after[0]) / 960)
        pairs = (after[1].reshape(-1, 4) != 0).sum(axis=1).max()
        assert pairs == {0.0: 4, 0.25: 3, 0.5: 3, 0.75: 3, 1.0: 2}[step] or densities[5:]
    cubic = [0.2 + 0.8 * (1 - step) ** 3 for step in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert densities == pytest.approx([*cubic, 0.2], abs=1e-3)


def test_threshold_grows_with_the_step():
    module = network()
    recipe = parse_recipe("[default]\nthreshold = 0.1\n")
    first = weights(module)[0]
    prune(module, recipe, 0.5)
    assert same([weights(module)[0] == 0], [np.abs(first) < 0.1 * 0.875])
    prune(module, recipe)
    assert same([weights(module)[0] == 0], [np.abs(first) < 0.1])


def test_scope_network():
    module = network()
    dense = weights(module)
    recipe = parse_recipe('[default]\ndensity = 0.1\nscope = "network"\n')
    prune(module, recipe)
    expected = prune_layers(dense, [LayerRecipe(density=0.1, scope="network")] * 3)
    assert same(weights(module), expected)


def test_pruned_weights_get_no_gradient_and_stay_zero():
    module = network()
    prune(module, RECIPE)
    parameter = module[0].parametrizations.weight.original
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    before = weights(module)[0]
    train(module, optimizer, 1)
    assert not parameter.grad.numpy()[before == 0].any()
    assert parameter.grad.numpy()[before != 0].any()
    train(module, optimizer, 20)
    after = weights(module)[0]
    assert not after[before == 0].any()
    assert not np.signbit(after[after == 0]).any()
    assert not np.array_equal(after, before)


def test_masks_and_zeros_that_are_there_are_kept():
    module = network()
    torch_prune.l1_unstructured(module[0], "weight", amount=0.5)
    with torch.no_grad():
        module[4].weight[3] = 0
        module[0].weight_orig.mul_(2)  # the masked weight is computed at the next forward only
    expected = (module[0].weight_orig * module[0].weight_mask).detach().numpy()
    prune(module, RECIPE, 0.0)
    assert same(weights(module)[:1], [expected])
    train(module, adam(module))
    prune(module, RECIPE)
    train(module, adam(module))
    assert not weights(module)[0][expected == 0].any()
    assert np.count_nonzero(weights(module)[0]) == 192
    assert not weights(module)[2][3].any()
    assert not hasattr(module[0], "weight_mask")


def test_share_takes_masks_of_torch():
    module = network()
    torch_prune.l1_unstructured(module[0], "weight", amount=0.9)
    kept = module[0].weight_mask.numpy().copy()
    share(module, parse_recipe("[default]\ncodes = 4\n"))
    train(module, adam(module))
    assert same([weights(module)[0] != 0], [kept != 0])
    assert len(np.unique(weights(module)[0])) == 5


def test_gradient_of_a_value_is_the_sum_over_its_weights():
    module = network()
    prune(module, RECIPE)
    plain = finish(copy.deepcopy(module))
    share(module, RECIPE)
    with torch.no_grad():
        for one, other in zip(plain, module, strict=True):
            if isinstance(one, nn.Linear):
                one.weight.copy_(other.weight)
    for one in (plain, module):
        nn.functional.cross_entropy(one(X), Y).backward()
    for layer, dense in ((module[0], plain[0]), (module[2], plain[2]), (module[4], plain[4])):
        book = layer.parametrizations.weight.original
        for value, gradient in zip(book.tolist(), book.grad.tolist(), strict=True):
            members = dense.weight.detach() == value
            assert members.any()
            assert gradient == pytest.approx(float(dense.weight.grad[members].sum()), abs=1e-6)


def test_shared_weights_pass_unchanged_and_can_share_fewer():
    module = network()
    prune(module, RECIPE)
    share(module, RECIPE)
    train(module, adam(module))
    before = weights(module)
    share(module, RECIPE)
    assert same(weights(module), before)
    share(module, parse_recipe("[default]\ncodes = 3\n"))
    assert [len(np.unique(w[w != 0])) for w in weights(module)[:2]] == [3, 2]  # 2:4 keeps code 0
    assert same(zeros(weights(module)), zeros(before))


def test_pruning_goes_on_after_sharing():
    module = network()
    recipe = parse_recipe("[default]\ncodes = 8\n")
    share(module, recipe)
    prune(module, RECIPE)
    train(module, adam(module))
    assert np.count_nonzero(weights(module)[0]) == 192
    assert len(np.unique(weights(module)[0])) > 20


def test_a_layer_without_weights():
    module = network()
    with torch.no_grad():
        module[0].weight.zero_()
    prune(module, RECIPE)
    share(module, RECIPE)
    train(module, adam(module))
    assert not weights(finish(module))[0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_keep_theirs(dtype):
    module = network().to(dtype)
    prune(module, RECIPE)
    share(module, RECIPE)
    finish(module)
    assert {p.dtype for p in module.parameters()} == {dtype}
    values = module[0].weight.detach().double().numpy()
    assert np.count_nonzero(values) == 192
    assert len(np.unique(values)) <= 9


def test_a_copy_is_independent():
    module = network()
    prune(module, RECIPE)
    best = copy.deepcopy(module)
    train(module, adam(module))
    kept = weights(best)
    assert same(weights(finish(best)), kept)
    train(module, adam(module))
    assert np.count_nonzero(weights(module)[0]) == 192


def test_state_goes_to_a_module_prepared_alike():
    module, other = network(), network()
    for one in (module, other):
        prune(one, RECIPE)
    train(module, adam(module))
    other.load_state_dict(module.state_dict())
    assert same(weights(other), weights(module))


def test_training_with_shared_weights_learns():
    module = network()
    optimizer = adam(module)
    for k in range(30):
        prune(module, RECIPE, min(1.0, k / 15))
        train(module, optimizer)
    share(module, RECIPE)
    start = loss(module)
    train(module, torch.optim.Adam(module.parameters(), lr=3e-3), 60)
    assert loss(module) < 0.7 * start


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m: prune(m, RECIPE, 1.5), InputError, "step is 1.5, expected 0 to 1"),
        (lambda m: prune(m, parse_recipe("")), RecipeError, "prunes no layer"),
        (
            lambda m: prune(m, parse_recipe("[layers.fc9]\ndensity = 0.1\n")),
            RecipeError,
            r"\[layers.fc9\] names no layer, the layers are 0, 2, 4",
        ),
        (lambda m: share(m, RECIPE), RecipeError, "layer '0', of which 960 are not zero; call pr"),
        (lambda m: prune(m[1], RECIPE), InputError, "ReLU has no torch.nn.Linear inside"),
        (lambda m: finish("net"), InputError, "module is a str"),
    ],
)
def test_refusals(change, error, message):
    module = network()
    before = weights(module)
    with pytest.raises(error, match=message):
        change(module)
    assert same(weights(module), before)


def test_weights_that_cannot_be_pruned_are_refused():
    module = network()
    with torch.no_grad():
        module[2].weight[1, 2] = float("nan")
    with pytest.raises(InputError, match=r"layer '2': weight is nan at index \[1, 2\]"):
        prune(module, RECIPE)
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(InputError, match="layers '0' and '1' have the same weight"):
        share(tied, parse_recipe(""))
    lazy = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(InputError, match="layer '0': the weight is no plain parameter"):
        prune(lazy, parse_recipe("[default]\ndensity = 0.5\n"))
    foreign = network()
    nn.utils.parametrizations.weight_norm(foreign[0])
    with pytest.raises(InputError, match="remove parametrizations of others"):
        prune(foreign, RECIPE)
