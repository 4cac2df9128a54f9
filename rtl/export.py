# SPDX-License-Identifier: BSD-2-Clause
"""Reproducible Verilog of a component: the same source gives the same bytes.

Amaranth writes RTLIL, yosys turns it into Verilog. Source locations hold paths of a machine and are
left out. Memories whose initial words are all zero are initialised by a loop: yosys would write a
line per word, millions for a large engine.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # not in stubs
from amaranth.hdl import UnusedElaboratable
from amaranth.lib import wiring

from ..host.errors import ToolError
from .tools import Progress, find_tool

__all__ = ["export_rtlil", "export_verilog"]

_ARRAY = re.compile(r"^( *)reg (\[\d+:0\] )?(\S+) +\[(\d+):0\];\n(?! *initial begin)", re.MULTILINE)
_SCRIPT = """\
read_rtlil <<rtlil
{text}
rtlil
proc -nomux -norom
memory_collect
attrmap -remove generator -remove src -remove amaranth.hierarchy -remove amaranth.decoding
attrmap -modattr -remove generator -remove src -remove amaranth.hierarchy
write_verilog -norename
"""


def export_rtlil(
    top: wiring.Component, *, name: str = "top", platform: object | None = None
) -> str:
    """RTLIL of `top`, with its members as ports named `a__b` for the member `a.b`.

    When elaboration fails, Amaranth's warnings on unused parts are silenced, because they follow
    from the failure and would hide it.
    """
    try:
        return rtlil.convert(top, name=name, platform=platform, emit_src=False)
    except Exception:
        warnings.simplefilter("ignore", UnusedElaboratable)
        raise


def export_verilog(
    top: wiring.Component, *, name: str = "top", progress: Progress | None = None
) -> str:
    """Verilog of `top`: module `name`, ports `clk`, `rst` and the members as `a__b`.

    Raises
    ------
    ToolError
        yosys is missing or failed.
    """
    yosys = find_tool("yosys")
    with _zeros_left_out():
        text = export_rtlil(top, name=name)
    run = yosys.run(["-q", "-"], stdin=_SCRIPT.format(text=text), progress=progress)
    if run.status != 0 or f"module {name}(" not in run.stdout:
        raise ToolError(
            f"yosys {yosys.version}: exit status {run.status}, expected Verilog of module {name}; "
            f"it said: {run.stderr.strip()[-400:] or 'nothing'}"
        )
    return _ARRAY.sub(_zero_loop, run.stdout)


@contextmanager
def _zeros_left_out() -> Iterator[None]:
    """Let Amaranth leave out the contents of memories that hold zeros only.

    It writes contents bit by bit: for the default engine eleven million bits, in half a minute.
    There is no public way to do it; should the names change, all is written and only time is lost.
    """
    emitter: Any = getattr(rtlil, "ModuleEmitter", None)
    emit = getattr(emitter, "emit_memory", None)
    if emit is None:
        yield
        return

    def emit_contents(self: Any, index: int, cell: Any) -> None:
        if any(cell.init):
            emit(self, index, cell)

    emitter.emit_memory = emit_contents
    try:
        yield
    finally:
        emitter.emit_memory = emit


def _zero_loop(match: re.Match[str]) -> str:
    """Declaration of an array, followed by a loop that zeroes it."""
    indent, width, name, last = match[1], match[2] or "", match[3], int(match[4])
    label = re.sub(r"\W", "_", name)
    return (
        f"{indent}reg {width}{name} [{last}:0];\n"
        f"{indent}initial begin : zero_{label}\n"
        f"{indent}  integer index;\n"
        f"{indent}  for (index = 0; index <= {last}; index = index + 1) {name} [index] = 0;\n"
        f"{indent}end\n"
    )
