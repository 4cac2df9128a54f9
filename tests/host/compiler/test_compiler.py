# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import replace

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network, program_image
from gossamer.host.errors import CapacityError
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import RECORD_STRIDE, Section, Unit
from hypothesis import given, settings
from hypothesis import strategies as st
from image_model import ImageModel
from networks import mask_cases, network_cases, random_inputs, random_network

CONFIGS = {
    "1 PE": EngineConfig(n_pes=1, sum_bits=24, entry_bits=16, count_bits=4, rows_per_pe=200),
    "5 PEs": EngineConfig(n_pes=5, entry_bits=20, count_bits=3, rows_per_pe=60),
    "64 PEs": EngineConfig(n_pes=64, count_bits=2, rows_per_pe=8),
}

MIXED = EngineConfig(
    n_pes=3, count_bits=4, rows_per_pe=129, tile_rows=2, tile_columns=2, tile_code_bits=5
)
"""Both units, and two images per run."""


def example(config, sizes, seed, n=3, **options):
    rng = np.random.default_rng(seed)
    options = {"activation_bits": config.activation_bits, "sum_bits": config.sum_bits} | options
    network = random_network(rng, sizes, **options)
    return network, random_inputs(rng, network, n)


def run(model, image, q):
    """Outputs of all inputs, in batches; the last one may be short."""
    batch = model.config.batch
    results = [model.run(q[k : k + batch]) for k in range(0, len(q), batch)]
    return np.concatenate(results)[:, image.output_slots]


def check(config, network, q):
    """The image computes what golden does, stopped after any layer; returns the image."""
    image = compile_network(network, config)
    model = ImageModel(config)
    model.load(image.data)
    for k, want in enumerate(golden.run_layers(network, q)):
        part = program_image(image, k)
        model.load(part.data)
        assert np.array_equal(run(model, part, q), want), f"layer {k}"
    model.load(program_image(image).data)
    assert np.array_equal(run(model, image, q), golden.run(network, q))
    return image


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sizes", [(40, 33, 17, 5), (1, 1), (7, 1, 9), (65, 3)])
def test_image_holds_the_network(name, sizes):
    config = CONFIGS[name]
    for structure, density in (
        ("unstructured", 0.2), ("dense", 0.7), ("unstructured", 1.0), ("2:4", 0.9)
    ):  # fmt: skip
        network, q = example(config, sizes, 3, structure=structure, weight_density=density)
        image = check(config, network, q)
        assert image.data == compile_network(network, config).data


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    n_pes=st.sampled_from([1, 3, 5, 16]),
    tile=st.sampled_from([(1, 1), (2, 2), (8, 4)]),
    bits=st.sampled_from([(8, 24), (8, 32), (16, 36)]),
    tile_depth=st.sampled_from([40, 16384]),
    data=st.data(),
)
def test_random_networks_on_both_units(n_pes, tile, bits, tile_depth, data):
    config = replace(
        MIXED, n_pes=n_pes, tile_rows=tile[0], tile_columns=tile[1], tile_depth=tile_depth,
        activation_bits=bits[0], sum_bits=bits[1],
    )  # fmt: skip
    network, seed = data.draw(network_cases(config, 36))
    q = random_inputs(np.random.default_rng(seed), network, config.batch + 1)
    check(config, network, q)


@pytest.mark.parametrize("activation_bits", [8, 16])
@pytest.mark.parametrize("n_pes", [1, 3, 5, 16])
def test_units_take_turns(n_pes, activation_bits):
    config = replace(
        MIXED, n_pes=n_pes, activation_bits=activation_bits,
        sum_bits=32 if activation_bits == 8 else 36,
        rows_per_pe=132, tile_rows=8,
    )  # fmt: skip
    sizes = (34, 129, 41, 127, 30, 23, 9)
    network, q = example(
        config, sizes, 5, n=3, weight_density=[0.02, 1.0, 0.01, 1.0, 0.04, 1.0],
        structure=["unstructured", "2:4", "unstructured", "dense", "unstructured", "dense"],
        code_bits=[6, 4, 6, 4, 6, 4],
    )  # fmt: skip
    image = check(config, network, q)
    array, tile = Unit.SPARSE_ARRAY, Unit.TENSOR_TILE
    assert [layer.unit for layer in image.layers] == [array, tile] * 3


SHAPES = [
    (1, 7), (7, 1), (1, 1), (3, 5), (6, 6), (1, 129), (129, 1), (4, 4), (8, 16),
    (9, 127), (9, 128), (9, 129), (127, 9), (128, 9), (129, 9),
]  # fmt: skip
"""Rows and columns of a layer."""


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (8, 4)])
def test_shapes_that_hurt(tile):
    """Alone on the tile, lowered to the array, and between layers of the other unit."""
    config = replace(MIXED, tile_rows=tile[0], tile_columns=tile[1])
    for seed, (rows, columns) in enumerate(SHAPES):
        structure = ["2:4", "dense", "3:8"][seed % 3]
        network, q = example(config, (columns, rows), seed, structure=structure)
        check(config, network, q)
        lowered = compile_network(network, replace(config, tile_rows=0, tile_columns=1))
        model = ImageModel(lowered.config)
        model.load(lowered.data)
        assert np.array_equal(run(model, lowered, q), golden.run(network, q))
        chain, q = example(
            config, (11, columns, rows, 6), seed, weight_density=[0.1, 1.0, 0.1],
            structure=["unstructured", structure, "unstructured"],
        )  # fmt: skip
        check(config, chain, q)


@pytest.mark.parametrize("n_pes", [1, 5, 64])
@pytest.mark.parametrize("activation_bits", [8, 16])
def test_every_mask_of_a_group(n_pes, activation_bits):
    config = replace(
        MIXED, n_pes=n_pes, tile_rows=4, activation_bits=activation_bits,
        sum_bits=32 if activation_bits == 8 else 36,
    )  # fmt: skip
    for network, q in mask_cases(config):
        placed = check(config, network, q).layers[0]
        assert n_pes > 16 or placed.unit == Unit.TENSOR_TILE
        two_pass = placed.unit == Unit.TENSOR_TILE and network.layers[0].structure != "2:4"
        assert placed.record["two_pass"] == two_pass


def test_new_program_is_short():
    network, _ = example(MIXED, (30, 22, 11, 6), 4, structure=["unstructured", "2:4", "dense"])
    image = compile_network(network, MIXED)
    for k in range(3):
        part = program_image(image, k)
        assert len(part.data) == 8 + 2 * RECORD_STRIDE * (k + 1)
        record = part.layers[k].record
        assert (record["last"], record["keep_zeros"], record["to_bank"]) == (1, 1, 0)
    assert [layer.record["last"] for layer in image.layers] == [0, 0, 1]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("density", "code_bits"), [(0.1, 6), (0.01, 3), (0.7, 8), (0.3, 1)])
def test_coded_entries_are_the_plain_ones(name, density, code_bits):
    """The same words in every memory, fewer bytes; an engine without decoder gets plain ones."""
    config = CONFIGS[name]
    network, _ = example(
        config, (200, 150, 20), 9, structure="unstructured", weight_density=density,
        code_bits=code_bits,
    )  # fmt: skip
    images = [compile_network(network, replace(config, decoder_bits=bits)) for bits in (0, 1)]
    models = [ImageModel(config), ImageModel(config)]
    for model, image in zip(models, images, strict=True):
        model.load(image.data)
    plain, coded = (model.memories for model in models)
    assert {key: coded[key] for key in plain} == plain
    assert {kind for kind, _ in coded} - {kind for kind, _ in plain} == {
        Section.CODE_TABLE, Section.CODE_SYMBOLS,
    }  # fmt: skip
    assert len(images[1].data) < len(images[0].data)


def test_short_layers_stay_plain():
    network, _ = example(CONFIGS["5 PEs"], (6, 7, 3), 9, structure="unstructured")
    images = [
        compile_network(network, replace(CONFIGS["5 PEs"], decoder_bits=bits)) for bits in (0, 4)
    ]
    assert images[0].data == images[1].data


TIGHT = EngineConfig(
    n_pes=4, sum_bits=24, entry_bits=16, weight_depth=256, rows_per_pe=8, column_words=24,
    codebook_depth=32, max_layers=3, input_depth=32, output_depth=16,
)  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "options", "change", "message"),
    [
        ((8, 8, 8, 8, 8), {}, {}, r"layers: 4 needed, 3 available \(1 too many\)"),
        ((33, 8), {}, {}, "inputs: 33 needed, 32 available"),
        ((8, 33), {}, {}, "rows of layer0: 9 needed, 8 available"),
        ((8, 32), {}, {}, "results: 32 needed, 16 available"),
        ((8, 8), {"code_bits": 6}, {}, "codebook values: 64 needed, 32 available.*fewer codes"),
        ((32, 16), {"weight_density": 1.0}, {"weight_depth": 64}, "words per PE: 128 needed"),
        ((32, 16, 16), {}, {"column_words": 4}, "column words: 14 needed, 4 available"),
        ((8, 32), {"code_bits": 8}, {"entry_bits": 12, "rows_per_pe": 64, "n_pes": 1},
         "entry bits of layer0: 13 needed, 12 available.*at most 128 codes"),
    ],
)  # fmt: skip
def test_what_is_short_by_how_much(sizes, options, change, message):
    config = replace(TIGHT, **change)
    network, _ = example(config, sizes, 6, **options)
    with pytest.raises(CapacityError, match=message):
        compile_network(network, config)


@pytest.mark.parametrize(
    ("sizes", "options", "change", "message"),
    [
        ((8, 40), {}, {"tile_code_bits": 3},
         r"rows of layer0: 10 needed, 8 .*; the tile cannot take layer0: tile code bits .*: 5 n"),
        ((32, 16, 16), {"code_bits": 5}, {"weight_depth": 48},
         r"weight words per PE: .* available .*; the tile cannot take layer0: tile code bits"),
        ((32, 16, 16), {"code_bits": 3}, {"weight_depth": 32, "tile_depth": 20},
         r"weight words per PE: .* tile cannot take layer0: tile words per row: 128 needed, 20 av"),
        ((32, 16, 16), {"code_bits": 3}, {"weight_depth": 32, "tile_bias_depth": 4},
         r"weight words per PE: .*; the tile cannot take layer0: tile biases: 16 needed, 4 avail"),
        ((8, 17), {"structure": "2:4"}, {}, r"results: 20 needed, 16 available.*tile cannot.*18"),
    ],
)  # fmt: skip
def test_both_units_are_named(sizes, options, change, message):
    config = replace(TIGHT, tile_rows=2, tile_columns=1, codebook_depth=128, **change)
    network, _ = example(config, sizes, 6, **options)
    with pytest.raises(CapacityError, match=message):
        compile_network(network, config)


def test_wider_activations_are_refused():
    network, _ = example(EngineConfig(activation_bits=16, sum_bits=36), (5, 4), 1)
    with pytest.raises(CapacityError, match=r"layer0: its inputs span .*activation_bits=8"):
        compile_network(network, EngineConfig())


def test_integers_for_a_wider_engine_are_refused():
    network, _ = example(EngineConfig(), (30, 8), 7, weight_density=1.0)
    with pytest.raises(CapacityError, match="sums need more than the engine's 24 bits"):
        compile_network(network, TIGHT)


def test_result_buffer_too_small_for_an_inner_layer():
    network, _ = example(TIGHT, (8, 32, 8), 8)
    image = compile_network(network, TIGHT)
    with pytest.raises(CapacityError, match="results of layer0: 32 needed, 16 available"):
        program_image(image, 0)
