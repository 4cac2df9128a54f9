# SPDX-License-Identifier: BSD-2-Clause
"""Modules that only some importers need; each comes with an extra of the same name."""

from importlib import import_module
from typing import Any

from ..errors import ToolError

__all__ = ["import_extra"]


def import_extra(extra: str, purpose: str, module: str = "") -> Any:
    """Import what an extra brings.

    Parameters
    ----------
    extra : str
        Name of the extra and, unless stated, of the module.
    purpose : str
        What needs it; starts the message.
    module : str
        Dotted name of the module, if it is another one.

    Raises
    ------
    ToolError
        It is not installed.
    """
    try:
        return import_module(module or extra)
    except ModuleNotFoundError as error:
        missing = (error.name or extra).partition(".")[0]
    raise ToolError(
        f"{purpose} needs the Python module {missing}, which is not installed; "
        f"pip install 'gossamer[{extra}]'"
    )
