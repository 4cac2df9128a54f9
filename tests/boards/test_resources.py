# SPDX-License-Identifier: BSD-2-Clause
"""Ledger of memories: shapes of block RAM, the boards' engines, refusals before a build."""

from dataclasses import replace

import pytest
from gossamer.boards.common import BOARD_NAMES, find_board
from gossamer.boards.resources import UP5K, check_fit, expected, ice40_blocks
from gossamer.host.errors import CapacityError, InputError
from gossamer.rtl.config import EngineConfig


@pytest.mark.parametrize(
    ("width", "depth", "blocks"),
    [
        (16, 256, 1), (17, 256, 2), (16, 257, 2), (8, 512, 1), (8, 257, 1), (4, 1024, 1),
        (2, 2048, 1), (1, 2049, 2), (32, 512, 4), (108, 256, 7), (1, 1, 1), (24, 256, 2),
    ],
)  # fmt: skip
def test_blocks_of_one_memory(width, depth, blocks):
    assert ice40_blocks(width, depth) == blocks


@pytest.mark.parametrize("name", BOARD_NAMES)
def test_engines_of_the_boards_fit(name):
    board = find_board(name)
    check_fit(board.config, UP5K)
    assert board.clock_hz / board.divisor == pytest.approx(board.baud, rel=0.02)


def test_what_does_not_fit_is_refused_before_the_build():
    config = find_board("icebreaker").config
    with pytest.raises(
        CapacityError, match=r"the engine needs 4\d, the device has 30; largest are"
    ):
        check_fit(replace(config, column_words=1024), UP5K)
    with pytest.raises(CapacityError, match=r"single-port RAM: the engine needs 5, .* has 4"):
        check_fit(replace(config, n_pes=5), replace(UP5K, ram=99))
    with pytest.raises(CapacityError, match="block RAM: the engine needs"):
        check_fit(EngineConfig(), UP5K)


def test_a_number_of_pes_that_is_no_power_of_two_takes_a_multiplier_more():
    config = find_board("icebreaker").config
    assert expected(replace(config, n_pes=2)).dsp == 2
    assert expected(replace(config, n_pes=3)).dsp == 4


def test_an_unknown_board_is_refused():
    with pytest.raises(InputError, match=r"'nosuch' is unknown; expected one of icebreaker"):
        find_board("nosuch")
