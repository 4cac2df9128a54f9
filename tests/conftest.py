# SPDX-License-Identifier: BSD-2-Clause
"""Order of the whole run: quick tests first, so that a plain mistake shows within a minute."""

import pytest

SLOWER = ("formal", "slow", "cocotb", "synth")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the slowest marker of each test; within one kind the order stays as collected."""

    def rank(item: pytest.Item) -> int:
        return max(
            (SLOWER.index(name) + 1 for name in SLOWER if item.get_closest_marker(name)), default=0
        )

    items.sort(key=rank)
