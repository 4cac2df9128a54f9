# SPDX-License-Identifier: BSD-2-Clause
"""GossamerError and its few kinds: every known failure of the product.

A message says where, what was found, what was expected, and what to do.
"""

__all__ = [
    "AGAIN",
    "CapacityError",
    "DeviceError",
    "DeviceTimeout",
    "FormatError",
    "GossamerError",
    "InputError",
    "RecipeError",
    "TargetError",
    "ToolError",
]

AGAIN = "the file is damaged, write it again"
"""End of a message about a file that the project wrote."""


class GossamerError(Exception):
    """Base of all known errors; the command line prints one line and exits with 1."""


class FormatError(GossamerError):
    """A file is not what it should be: truncated, corrupt, too new, or of another kind."""


class InputError(GossamerError):
    """Values handed in cannot be used: NaN, wrong shape, layers that do not chain."""


class RecipeError(GossamerError):
    """A recipe is not valid TOML, or names what does not exist."""


class TargetError(GossamerError):
    """No recipe reaches the size or accuracy that was asked for; says how far it goes."""


class CapacityError(GossamerError):
    """A model does not fit an engine; says by how much and what would help."""


class DeviceError(GossamerError):
    """A device is missing, busy, refuses, or answers wrongly."""


class DeviceTimeout(DeviceError):
    """A device did not answer in time."""


class ToolError(GossamerError):
    """A tool that builds or simulates is missing, too old, or failed."""
