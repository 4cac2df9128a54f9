# SPDX-License-Identifier: BSD-2-Clause
"""Ledger of memories: shapes of block RAM, the boards' engines, refusals before a build."""

from dataclasses import replace

import pytest
from gossamer.boards.common import BOARD_NAMES, find_board
from gossamer.boards.devices import LFE5U_85F, UP5K, Resources, ecp5_blocks, ice40_blocks
from gossamer.boards.resources import check_fit, expected
from gossamer.host.errors import CapacityError, InputError
from gossamer.rtl.config import EngineConfig


@pytest.mark.parametrize(
    ("width", "depth", "blocks"),
    [
        (16, 256, 1), (17, 256, 2), (16, 257, 2), (8, 512, 1), (8, 257, 1), (4, 1024, 1),
        (2, 2048, 1), (1, 2049, 2), (32, 512, 4), (108, 256, 7), (1, 1, 1), (24, 256, 2),
    ],
)  # fmt: skip
def test_blocks_of_one_memory_of_an_ice40(width, depth, blocks):
    assert ice40_blocks(width, depth) == blocks


@pytest.mark.parametrize(
    ("width", "depth", "lanes", "blocks"),
    [
        # small memories go to distributed RAM: what yosys 0.70 does with each of these
        (8, 128, 1, 0), (8, 192, 1, 1), (16, 64, 1, 0), (16, 96, 1, 1), (36, 32, 1, 0),
        (36, 48, 1, 1), (36, 256, 1, 1), (36, 512, 1, 1), (37, 512, 1, 2), (18, 1024, 1, 1),
        (18, 2048, 1, 2), (20, 2048, 1, 3), (36, 1024, 1, 2), (9, 4096, 1, 2), (11, 6000, 1, 6),
        (36, 16384, 1, 32), (132, 512, 4, 4), (140, 512, 4, 4), (148, 512, 4, 5), (212, 512, 4, 6),
    ],
)  # fmt: skip
def test_blocks_of_one_memory_of_an_ecp5(width, depth, lanes, blocks):
    assert ecp5_blocks(width, depth, lanes) == blocks


@pytest.mark.parametrize("name", BOARD_NAMES)
def test_engines_of_the_boards_fit(name):
    board = find_board(name)
    check_fit(board.config, board.device)
    assert board.clock_hz / board.divisor == pytest.approx(board.baud, rel=0.02)


def test_what_does_not_fit_is_refused_before_the_build():
    config = find_board("icebreaker").config
    with pytest.raises(CapacityError, match=r"the engine needs 4\d, iCE40UP5K has 30; largest are"):
        check_fit(replace(config, column_words=1024), UP5K)
    roomy = replace(UP5K, resources=Resources(ram=99, spram=4, dsp=8))
    with pytest.raises(CapacityError, match=r"single-port RAM: the engine needs 5, .* has 4"):
        check_fit(replace(config, n_pes=5), roomy)
    with pytest.raises(CapacityError, match=r"multipliers: the engine needs 4, .* has 3"):
        check_fit(replace(config, n_pes=4), replace(UP5K, resources=Resources(99, 4, 3)))
    with pytest.raises(CapacityError, match=r"block RAM: the engine needs \d+, LFE5U-85F has 208"):
        check_fit(EngineConfig(), LFE5U_85F)


def test_a_number_of_pes_that_is_no_power_of_two_takes_a_multiplier_more():
    config = find_board("icebreaker").config
    assert expected(replace(config, n_pes=2), UP5K).dsp == 2
    assert expected(replace(config, n_pes=3), UP5K).dsp == 4


def test_an_unknown_board_is_refused():
    with pytest.raises(InputError, match=r"'nosuch' is unknown; expected one of icebreaker"):
        find_board("nosuch")


def test_a_tile_takes_two_multipliers_per_row_and_column_and_memories_of_its_own():
    config = EngineConfig(
        activation_bits=16, sum_bits=36, entry_bits=14, weight_depth=2048, rows_per_pe=32,
        column_words=512, count_bits=3, codebook_depth=256, input_depth=1024,
    )  # fmt: skip
    without = expected(config, LFE5U_85F)
    tile = replace(config, tile_rows=4, tile_columns=2, tile_depth=2048, tile_bias_depth=512)
    need = expected(tile, LFE5U_85F)
    assert need.dsp == without.dsp + 16
    # Per row two blocks of words and two codebooks; biases; the list of groups; per image a bank of
    # two blocks, results twice as long; the second image's slots and results.
    assert need.ram == without.ram + 4 * (2 + 2) + 2 + 1 + 2 * 2 + 1 + 2 + 2
    with pytest.raises(CapacityError, match=r"multipliers: .* needs 95, .* a smaller tile"):
        check_fit(
            replace(tile, n_pes=30, tile_rows=8, tile_columns=4, tile_depth=2),
            replace(LFE5U_85F, resources=Resources(ram=999, spram=0, dsp=90)),
        )
