# SPDX-License-Identifier: BSD-2-Clause
"""Recipes that are found: within their goals, the same every time, and judged by unseen labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress, share_layer
from gossamer.host.compression.matrix_parts import encode_matrix
from gossamer.host.compression.pruning import prune_layers
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.errors import InputError, TargetError
from gossamer.host.network import Layer, Network
from gossamer.host.search.search import search_recipe
from gossamer.host.search.search_report import Goal, recipe_text
from gossamer.host.search.sensitivity import CODES, Sensitivity
from gossamer.host.search.trials import HELD_OUT, Trials
from gossamer.host.session import Session

N = 400
SIZE = 800
LIMITS = (2.0, 8.0, 100.0)


def teacher(final: str = "none") -> Network:
    """A network of two layers, the last of them pruned; its answers are all about as frequent."""
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(20, 24)) / 5, rng.normal(size=(5, 20)) / 4
    second[rng.random(second.shape) < 0.6] = 0
    usual = second @ np.maximum(rng.normal(size=(N, 24)) @ first.T, 0).mean(axis=0)
    layers = (Layer("fc1", first, None, "relu"), Layer("fc2", second, -usual))
    return Network(layers, final=final)


@pytest.fixture(scope="module")
def data():
    """Inputs, and their classes, some of them wrong."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, 24)).astype(np.float32)
    y = teacher().run(x).argmax(axis=1)
    return x, np.where(rng.random(N) < 0.1, rng.integers(0, 5, N), y)


@pytest.fixture(scope="module")
def within_size(data):
    return search_recipe(teacher(), *data, target_bytes=SIZE)


@pytest.fixture(scope="module")
def within_drop(data):
    """Results by drop, and what each told of its progress."""
    found = {}
    for limit in LIMITS:
        heard = {}

        def track(items, what, total, heard=heard):
            for k, item in enumerate(items, 1):
                heard[what] = k, total
                yield item

        found[limit] = search_recipe(teacher(), *data, max_drop=limit, track=track), heard
    return found


def percent_right(model, x, y):
    return 100 * float((Session(model).run(x).argmax(axis=1) == y).mean())


def test_size_is_that_of_the_file_and_within_the_target(within_size):
    assert within_size.bytes == len(model_file.dump(within_size.model)) <= SIZE
    assert within_size.bytes > 0.9 * SIZE  # room is used
    assert {one.bytes for one in within_size.trail} >= {within_size.bytes}
    assert all(one.bytes <= SIZE for one in within_size.trail)


def test_recipe_gives_the_same_file(within_size, data):
    again = compress(teacher(), within_size.recipe, data[0])
    assert model_file.dump(again) == model_file.dump(within_size.model)


def test_accuracies_are_those_of_golden_on_both_parts(within_size, data):
    found, (x, y) = within_size, data
    trials = Trials(teacher(), x, y)
    assert (found.samples, found.held_out) == (300, 100)
    assert sorted([*trials.seen, *trials.held_out]) == list(range(N))
    assert found.held_out == HELD_OUT * N
    for which, before, drop in (
        (trials.seen, found.accuracy, found.drop),
        (trials.held_out, found.held_out_accuracy, found.held_out_drop),
    ):
        right = float((teacher().run(x[which]).argmax(axis=1) == y[which]).mean())
        assert before == pytest.approx(100 * right)
        assert before - drop == pytest.approx(percent_right(found.model, x[which], y[which]))


def test_labels_held_out_change_nothing_but_their_own_figures(within_size, data):
    x, y = data
    wrong = y.copy()
    unseen = Trials(teacher(), x, y).held_out
    wrong[unseen] = (y[unseen] + 1) % 5
    other = search_recipe(teacher(), x, wrong, target_bytes=SIZE)
    assert other.recipe == within_size.recipe
    assert (other.trail, other.layers) == (within_size.trail, within_size.layers)
    assert model_file.dump(other.model) == model_file.dump(within_size.model)
    assert other.held_out_accuracy != within_size.held_out_accuracy


@pytest.mark.parametrize("limit", LIMITS)
def test_drop_is_within_the_limit(within_drop, limit):
    found, heard = within_drop[limit]
    assert found.drop <= limit
    assert found.bytes == min(one.bytes for one in found.trail if one.drop <= limit)
    if limit < 100:
        assert any(one.bytes < found.bytes for one in found.trail if one.drop > limit)
    assert list(heard) == ["measuring layers", "trying recipes"]
    assert all(0 < count <= total for count, total in heard.values())


def test_a_larger_drop_buys_a_smaller_file(within_drop, data):
    sizes = [within_drop[limit][0].bytes for limit in LIMITS]
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(TargetError, match=f"without retraining has {sizes[2]:,} and loses"):
        search_recipe(teacher(), *data, target_bytes=sizes[2] - 1)


def test_a_drop_that_is_out_of_reach_says_what_was_reached():
    # the first feature is worth a thousand steps of the others, which 8 bits cannot hold
    rng = np.random.default_rng(0)
    x = rng.random((N, 8)) * np.array([4000, *[1] * 7])
    weight = rng.normal(size=(4, 8)) * np.array([0.001, *[1] * 7])
    net = Network((Layer("fc1", weight, np.zeros(4)),))
    y = net.run(x).argmax(axis=1)
    with pytest.raises(TargetError, match=r"loses \d+\.\d\d \(of 100\.00 %.*gossamer trace"):
        search_recipe(net, x, y, max_drop=0.5)


def test_each_layer_has_its_step_down(within_size):
    for one in within_size.layers:
        step = one.smaller
        assert step is None or step.bytes <= 0.9 * one.chosen.bytes
        settings = within_size.recipe.layers[one.layer]
        assert settings["codes"] == one.chosen.plan.codes
        assert settings.get("density") == one.chosen.plan.density
    assert any(one.smaller for one in within_size.layers)


def test_final_step_changes_nothing(within_drop, data):
    x, y = data
    expected, _ = within_drop[LIMITS[1]]
    found = search_recipe(teacher("argmax"), x, y[:, None], max_drop=LIMITS[1])
    assert found.recipe == expected.recipe
    assert (found.drop, found.held_out_drop) == (expected.drop, expected.held_out_drop)


def test_odd_layers():
    # one row, one column, nothing but zeros
    rng = np.random.default_rng(1)
    layers = (
        Layer('one row\n\x7f"[a]\\', rng.normal(size=(1, 6)), None, "relu"),
        Layer("one column", rng.normal(size=(6, 1))),
        Layer("zeros", np.zeros((3, 6)), np.array([0.0, 1.0, 0.5])),
    )
    x = rng.random((40, 6))
    found = search_recipe(Network(layers), x, np.ones(40, dtype=np.int64), max_drop=0)
    assert found.drop == found.held_out_drop == 0
    assert found.layers[2].chosen.density == 0
    goal = Goal(labels=Path("y.npy"), target_bytes=None, max_drop=0, recipe_out=None)
    assert parse_recipe(recipe_text(found, goal)).layers == found.recipe.layers


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.eye(24)[:19], np.zeros(19, int), "19 labelled samples, expected at least 20"),
        (np.eye(24), np.zeros(23, int), r"labels have shape \(23,\)"),
        (np.eye(24), np.zeros(24), "type float64"),
        (np.eye(24), np.full(24, 5), "label 5 of input 0 is no output"),
        (np.eye(23), np.zeros(23, int), r"expected \(n, 24\)"),
    ],
)
def test_unfit_samples_are_refused(x, y, message):
    with pytest.raises(InputError, match=message):
        search_recipe(teacher(), x, y, max_drop=1)


def test_one_goal_is_expected(data):
    for goals in ({}, {"target_bytes": 9, "max_drop": 1.0}):
        with pytest.raises(ValueError, match="target_bytes or max_drop"):
            search_recipe(teacher(), *data, **goals)


def test_candidates_are_measured_one_layer_at_a_time(data):
    net, (x, y) = teacher(), data
    found = list(Sensitivity(net, x, y).measure())
    for index in range(2):
        own = [one for k, one in found if k == index]
        plans = {(one.plan.structure, one.plan.density, one.plan.codes) for one in own}
        assert len(plans) == len(own)  # none twice
        assert {one.plan.structure for one in own} == (
            {"unstructured", "2:4"} if index == 1 else {"dense", "unstructured", "2:4"}
        )
        for one in own[:: len(own) // 6]:
            changed = with_plan(net, index, one.plan)
            weight = changed.layers[index].weight
            stored = encode_matrix(share_layer(weight, replace(one.plan, density=None)))
            assert one.bytes == len(stored.data)
            right = (changed.run(x).argmax(axis=1) == y).mean()
            before = (net.run(x).argmax(axis=1) == y).mean()
            assert one.drop == pytest.approx(100 * (before - right))
            assert one.damage >= 0
            assert one.density == np.count_nonzero(weight) / weight.size
    sizes = [one.bytes for _, one in found]
    assert len(set(sizes)) > len(sizes) // 2


def with_plan(net, index, plan):
    """The network with one layer's weights as a plan makes them."""
    layers = list(net.layers)
    old = layers[index]
    (weight,) = prune_layers([old.weight], [plan])
    layers[index] = Layer(old.name, share_layer(weight, plan).weight(), old.bias, old.activation)
    return replace(net, layers=tuple(layers))


def test_weights_that_few_codes_hold_are_tried_with_these():
    weight = np.array([[1, 2, 0, 0, 3, 0, 0, 1]] * 4)
    net = Network((Layer("a", weight),))
    found = [
        one for _, one in Sensitivity(net, np.eye(8, dtype=np.float32), np.zeros(8, int)).measure()
    ]
    assert found[0].plan.structure == "unstructured"
    assert found[0].damage == 0
    assert max(one.plan.codes for one in found) == 4  # three values, and 2:4's zero
    assert max(CODES) == 256
