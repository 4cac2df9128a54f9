# SPDX-License-Identifier: BSD-2-Clause
"""Reading a file that may be damaged: parts in order, numbers within limits, nothing trusted."""

from typing import Any

from ..errors import AGAIN, FormatError

__all__ = ["Reader", "check_limits"]


class Reader:
    """Takes parts of `data` one after the other, from byte `at` on; `where` starts messages."""

    def __init__(self, data: bytes, at: int, where: str) -> None:
        self.data, self.at, self.where = data, at, where

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes.

        Raises
        ------
        FormatError
            Fewer are left.
        """
        left = len(self.data) - self.at
        if size > left:
            raise FormatError(
                f"{self.where}: needs {size} bytes of {what} but {left} are left; {AGAIN}"
            )
        self.at += size
        return self.data[self.at - size : self.at]


def check_limits(limits: dict[str, tuple[Any, int, int]], where: str) -> None:
    """Refuse what is no int or not within its limits; values of `limits`: (found, lowest, highest).

    Raises
    ------
    FormatError
        Names the first one; `where` starts the message.
    """
    for what, (value, low, high) in limits.items():
        if type(value) is not int or not low <= value <= high:
            raise FormatError(f"{where}: {what} is {value!r}, expected {low}..{high}; {AGAIN}")
