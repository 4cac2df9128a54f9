# SPDX-License-Identifier: BSD-2-Clause
"""What a compiled model takes of an engine's memories, and what is short by how much."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import CapacityError

__all__ = ["Claim", "enter", "first_short"]


@dataclass(frozen=True)
class Claim:
    """A need and what there is for it.

    Parameters
    ----------
    what : str
        The memory or limit, with the layer's name where it is one layer's need.
    used, available : int
    remedy : str
        What would help if it is short.
    """

    what: str
    used: int
    available: int
    remedy: str

    @property
    def short(self) -> bool:
        """Whether more is needed than there is."""
        return self.used > self.available

    def __str__(self) -> str:
        text = f"{self.what}: {self.used} needed, {self.available} available"
        return f"{text} ({self.used - self.available} too many)" if self.short else text


def first_short(claims: Iterable[Claim]) -> Claim | None:
    """The first claim that cannot be met."""
    return next((claim for claim in claims if claim.short), None)


def enter(ledger: dict[str, tuple[int, int]], claims: Iterable[Claim], tile: str = "") -> None:
    """Enter claims in a ledger, ``{what: (used, available)}``.

    Parameters
    ----------
    ledger : dict
        Changed.
    claims : iterable of Claim
    tile : str
        Why the tile is no way out, for the message; nothing on an engine without one.

    Raises
    ------
    CapacityError
        At the first claim that is short.
    """
    for claim in claims:
        ledger[claim.what] = (claim.used, claim.available)
        if claim.short:
            raise CapacityError(
                f"model does not fit the engine: {claim}{tile}; what would help: {claim.remedy}"
            )
