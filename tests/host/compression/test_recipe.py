# SPDX-License-Identifier: BSD-2-Clause
import pytest
from gossamer.host.compression.recipe import LayerRecipe, Recipe, load_recipe, parse_recipe
from gossamer.host.errors import RecipeError

FULL = """
[input]
range = [0, 1.5]
[default]
codes = 32
density = 0.25
[layers.fc1]
structure = "unstructured"
threshold = 0.1
[layers."model.out"]
codes = 61
density = 1
structure = "dense"
"""


def test_layers_inherit():
    recipe = parse_recipe(FULL)
    assert recipe.input_range == (0.0, 1.5)
    assert recipe.for_layers(["fc1", "fc2", "model.out"]) == [
        LayerRecipe(structure="unstructured", threshold=0.1, codes=32),
        LayerRecipe(density=0.25, codes=32),
        LayerRecipe(structure="dense", density=1, codes=61),
    ]


@pytest.mark.parametrize("structure", ["2:4", "1:2", "31:32", "auto", "dense", "unstructured"])
def test_structures(structure):
    (only,) = parse_recipe(f"[default]\nstructure = '{structure}'").for_layers(["a"])
    assert only == LayerRecipe(structure=structure)


def test_calibration_of_input_and_layers():
    recipe = parse_recipe(
        "[input]\ncalibration = 'minmax'\n[default]\ncalibration = 99.9\n"
        "[layers.b]\ncalibration = 'error'"
    )
    assert recipe.input_calibration == "minmax"
    assert [one.calibration for one in recipe.for_layers(["a", "b"])] == [99.9, "error"]


def test_no_recipe_prunes_nothing():
    (only,) = Recipe().for_layers(["a"])
    assert only == LayerRecipe(structure="auto", density=None, threshold=None, codes=256)
    assert not only.prunes
    assert parse_recipe("").for_layers(["a"]) == [only]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[default", "r.toml: not valid TOML"),
        ("codes = 3", "r.toml: codes is not a known key, expected default, input, layers"),
        (
            "[default]\nbits = 3",
            r"\[default\] bits is not a known key, expected calibration, codes",
        ),
        ("[layers.a]\ncode = 3", r"\[layers.a\] code is not a known key"),
        ("[input]\nlow = 3", r"\[input\] low is not a known key, expected calibration, range"),
        ("[default]\ncodes = 1", r"codes is 1, expected a whole number in 2\.\.256"),
        ("[default]\ncodes = 257", "codes is 257"),
        ("[default]\ncodes = 16.0", r"codes is 16\.0"),
        ("[default]\ncodes = true", "codes is True"),
        ("[default]\ndensity = 0", "density is 0, expected a number above 0, at most 1"),
        ("[default]\ndensity = 1.1", r"density is 1\.1"),
        ("[default]\ndensity = nan", "density is nan"),
        ("[default]\nthreshold = -1", "threshold is -1"),
        ("[default]\nthreshold = inf", "threshold is inf"),
        (
            "[default]\nstructure = '4:2'",
            r"structure is '4:2', expected auto, dense, unstructured or N:M with 1 <= N < M <= 32",
        ),
        ("[default]\nstructure = '2:33'", "structure is '2:33', expected auto"),
        ("[default]\nstructure = '2:4:8'", "structure is '2:4:8', expected auto"),
        ("[default]\nstructure = ' 2:4'", "structure is ' 2:4', expected auto"),
        ("[default]\nstructure = ['dense']", "structure is"),
        ("[layers.a]\ndensity = 0.1\nthreshold = 1", "has density and threshold"),
        ("layers = 3", r"layers is 3, expected a table \[layers\]"),
        ("layers.a = 3", r"layers.a is 3, expected a table"),
        ("[input]\nrange = [1, 0]", r"range is \[1, 0\], expected two finite numbers"),
        ("[input]\nrange = [0, inf]", "expected two finite numbers"),
        ("[input]\nrange = [0, 1, 2]", "expected two finite numbers"),
        ("[input]\nrange = 'x'", "expected two finite numbers"),
        ("[input]\ncalibration = 50", "calibration is 50, expected error, minmax or a percentile"),
        (
            "[default]\ncalibration = 'max'",
            "calibration is 'max', expected error, minmax or a perc",
        ),
        ("[layers.a]\ncalibration = 100.1", r"\[layers.a\] calibration is 100.1"),
        ("[layers.a]\ncalibration = nan", "calibration is nan"),
        ("[layers.a]\ncalibration = true", "calibration is True"),
        ("[input]\nrange = [0, 1]\ncalibration = 99", "has calibration and range, expected one"),
    ],
)
def test_bad_recipes(text, message):
    with pytest.raises(RecipeError, match=message):
        parse_recipe(text, "r.toml")


def test_unused_parts():
    with pytest.raises(RecipeError, match=r"\[layers.fc3\] names no layer, the layers are a, b"):
        parse_recipe("[layers.fc3]\ncodes = 4").for_layers(["a", "b"])
    text = "[default]\ndensity = 0.5\n[layers.a]\nthreshold = 0.1"
    with pytest.raises(RecipeError, match=r"\[default\] density is unused"):
        parse_recipe(text).for_layers(["a"])
    assert parse_recipe(text).for_layers(["a", "b"])[1].density == 0.5


def test_files(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(FULL)
    assert load_recipe(path) == parse_recipe(FULL)
    with pytest.raises(RecipeError, match=r"nope\.toml: cannot read the recipe"):
        load_recipe(tmp_path / "nope.toml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        load_recipe(path)
