# SPDX-License-Identifier: BSD-2-Clause
"""EngineConfig: limits, cross-checks, derived widths."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from gossamer.rtl.config import EngineConfig, ceil_log2
from rtl_models import SMALL, TINY

RANGES = {
    "n_pes": (1, 64),
    "entry_bits": (10, 36),
    "weight_depth": (16, 65536),
    "rows_per_pe": (2, 1024),
    "column_words": (2, 65536),
    "count_bits": (2, 8),
    "queue_depth": (2, 64),
    "max_layers": (1, 64),
    "tile_code_bits": (1, 8),
    "tile_depth": (2, 65536),
    "tile_bias_depth": (2, 65536),
}
POWERS = {
    "codebook_depth": (4, 4096),
    "input_depth": (4, 32768),
    "output_depth": (2, 32768),
    "rx_bytes": (128, 4096),
}
# Wide enough that any single parameter can go to its limits.
ROOMY = EngineConfig(entry_bits=20, count_bits=6, rows_per_pe=3)


@pytest.mark.parametrize(("name", "low", "high"), [(n, *r) for n, r in RANGES.items()])
def test_ranges(name, low, high):
    for value in (low, high):
        assert getattr(replace(ROOMY, **{name: value}), name) == value
    for value in (low - 1, high + 1, -high):
        with pytest.raises(ValueError, match=rf"{name} must be in {low}\.\.{high}, not {value}"):
            replace(ROOMY, **{name: value})


@pytest.mark.parametrize(("name", "low", "high"), [(n, *r) for n, r in POWERS.items()])
def test_powers_of_two(name, low, high):
    for value in (low, high):
        assert getattr(replace(ROOMY, **{name: value}), name) == value
    for value in (0, low // 2, low + 1, 3 * low, high * 2, -low):
        text = rf"{name} must be a power of two in {low}\.\.{high}, not {value}"
        with pytest.raises(ValueError, match=text):
            replace(ROOMY, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("activation_bits", 12, r"activation_bits must be one of \(8, 16\), not 12"),
        ("activation_bits", 16, r"sum_bits must be one of \(36,\), not 32"),
        ("sum_bits", 36, r"sum_bits must be one of \(24, 32\), not 36"),
        ("tile_rows", 3, r"tile_rows must be one of \(0, 1, 2, 4, 8\), not 3"),
        ("decoder_bits", 3, r"decoder_bits must be one of \(0, 1, 2, 4\), not 3"),
        ("tile_columns", 2, r"tile_columns must be one of \(1,\), not 2"),
        ("sum_bits", 28, r"sum_bits must be one of \(24, 32\), not 28"),
    ],
)
def test_choices(name, value, text):
    with pytest.raises(ValueError, match=text):
        replace(ROOMY, **{name: value})


@pytest.mark.parametrize("field", fields(EngineConfig), ids=lambda field: field.name)
def test_kinds(field):
    kind = type(field.default).__name__
    for value in ("8", 8.0, None, 1 if kind == "bool" else True):
        text = rf"{field.name} must be {kind}, not {value!r}"
        with pytest.raises(TypeError, match=text):
            EngineConfig(**{field.name: value})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows_per_pe": 4096 // 4, "entry_bits": 12, "count_bits": 4}, "wide count of 8 bits"),
        ({"rows_per_pe": 16, "count_bits": 2}, "wide count of 4 bits, not 16"),
        ({"rows_per_pe": 64, "count_bits": 3}, "wide count of 6 bits, not 64"),
        ({"spram": True, "entry_bits": 16}, "spram needs entry_bits=16 and weight_depth=16384"),
        ({"spram": True, "weight_depth": 16384}, "not 18 and 16384"),
        ({"tile_rows": 2, "tile_columns": 8}, r"tile_columns must be one of \(1, 2, 4\), not 8"),
        (
            {"tile_rows": 8, "tile_columns": 4, "output_depth": 16384},
            "at most 61440 bytes, not 65536",
        ),
    ],
)
def test_parameters_that_do_not_go_together(options, text):
    with pytest.raises(ValueError, match=text):
        EngineConfig(**options)


def test_largest_number_of_rows_for_a_count():
    assert replace(ROOMY, rows_per_pe=15, count_bits=2).wide_count_bits == 4
    assert replace(ROOMY, rows_per_pe=1023, count_bits=5).row_bits == 10


def test_derived_widths():
    assert (SMALL.row_bits, SMALL.pe_bits, SMALL.base_bits, SMALL.shift_bits) == (4, 0, 9, 5)
    assert (SMALL.bias_bits, SMALL.wide_count_bits, SMALL.column_bits) == (36, 6, 36)
    assert (SMALL.slot_bits, SMALL.max_payload) == (5, 112)
    assert (TINY.row_bits, TINY.base_bits, TINY.bias_bits, TINY.slot_bits) == (1, 4, 28, 2)
    default = EngineConfig()
    assert (default.row_bits, default.pe_bits, default.base_bits) == (8, 4, 15)
    assert (default.slot_bits, default.column_bits) == (12, 55)
    assert replace(SMALL, n_pes=5).slot_bits == 7
    assert replace(SMALL, weight_depth=513).base_bits == 10


def test_derived_sizes_of_a_tile():
    plain = EngineConfig()
    assert (plain.batch, plain.image_bits, plain.multipliers, plain.activation_bytes) == (
        1, 1, 16, 1,
    )  # fmt: skip
    tiled = replace(plain, tile_rows=8, tile_columns=4, tile_code_bits=6, output_depth=256)
    assert (tiled.batch, tiled.image_bits, tiled.multipliers, tiled.tile_word_bits) == (
        4, 3, 80, 16,
    )  # fmt: skip
    assert replace(SMALL, output_depth=1024).slot_bits == 5
    assert replace(SMALL, output_depth=1024, tile_rows=1).slot_bits == 10, "rows of the tile"
    wide = replace(tiled, activation_bits=16, sum_bits=36)
    assert (wide.activation_bytes, wide.result_bytes, wide.shift_bits) == (2, 2048, 6)


def test_config_is_frozen_and_hashable():
    with pytest.raises(FrozenInstanceError):
        SMALL.n_pes = 2
    assert len({SMALL, replace(SMALL), TINY}) == 2


def test_ceil_log2():
    assert [ceil_log2(n) for n in (1, 2, 3, 4, 5, 8, 9, 1024, 1025)] == [
        0, 1, 2, 2, 3, 3, 4, 10, 11,
    ]  # fmt: skip


def test_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        EngineConfig(4)
