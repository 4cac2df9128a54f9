# SPDX-License-Identifier: BSD-2-Clause
"""What `gossamer bench` prints: measured figures as tables or JSON; cycles are simulated RTL's."""

from dataclasses import asdict
from pathlib import Path

from .console import note, print_json, print_lines, print_table

__all__ = [
    "compression", "eie", "faults", "lenet", "lenet_cycles", "minilm", "sim", "soak", "sparsity",
    "tile",
]  # fmt: skip


def compression(as_json: bool) -> None:
    """`gossamer bench compress`."""
    from ..bench import compress

    result = compress.measure(progress=note)
    if as_json:
        print_json(asdict(result))
        return
    heads = ["layer", "codes", "bytes", "bound", "% of fp32", "paper %", "bits each", "floor"]
    rows = [
        [
            one.layer, one.codes, one.bytes, round(one.bound_bytes), one.percent_of_fp32,
            one.paper_percent, one.bits_per_nonzero, one.position_entropy + one.code_entropy,
            one.sqnr_db,
        ]
        for one in result.layers
    ]  # fmt: skip
    title = "AlexNet's fully connected layers, everything counted; bits per nonzero weight"
    print_table([*heads, "SQNR dB"], rows, title=title)
    print_lines(
        "",
        f"{result.seconds:.1f} s ({result.cpu_seconds:.1f} s of processor) and "
        f"{result.peak_bytes / 1e9:.2f} GB beyond the weights to compress and save all three",
        f"weights are shared {result.speedup_over_sklearn:.0f} times as fast as by scikit-learn's "
        "k-means from the same start",
    )


def faults(runs: int, seed: int, only: str | None, no_crc: bool, as_json: bool) -> bool:
    """`gossamer bench faults`; whether nothing went wrong, or with `no_crc` something did."""
    from ..bench import faults

    if only is not None:
        outcome = faults.repeat(only, right_crcs=no_crc, progress=note)
        document = {"ending": outcome.ending, "after": outcome.after, "error": outcome.error}
        if as_json:
            print_json(document)
        else:
            print_lines(*(f"{name}: {value or '-'}" for name, value in document.items()))
        return not outcome.failed
    result = faults.measure(runs, seed, right_crcs=no_crc, progress=note)
    if as_json:
        print_json(asdict(result))
        return result.good != no_crc
    heads = ["frames hit", *result.phases, "all", "in runs"]
    rows = [
        [
            kind, *(kinds[kind] for kinds in result.phases.values()), result.injected[kind],
            result.runs_with[kind],
        ]
        for kind in result.injected
    ]  # fmt: skip
    print_table(heads, rows, title=f"{runs:,} sessions over a bad line, seed {seed}")
    errors = ", ".join(f"{count:,} {name}" for name, count in result.errors.items()) or "none"
    print_lines(
        "",
        f"right answers: {result.recovered:,} of {runs:,}; without a reset of the device "
        f"{result.transient_recovered:,} of {result.transient:,}",
        f"typed errors: {errors}",
        f"wrong {result.wrong}, hangs {result.hangs}, crashes {result.crashes}, next call failed "
        f"{result.stuck}",
        *(
            f"stuck bits in {memory}: {bits['planted']}, found by selftest {bits['found']}"
            for memory, bits in result.corrupted.items()
        ),
        *(f"not found: {bit}" for bit in result.missed),
        f"{result.seconds:.1f} s, {runs / result.seconds:.1f} runs per second",
        *(f"gossamer bench faults --only '{failure}'" for failure in result.failures),
    )
    return result.good != no_crc


def eie(as_json: bool) -> None:
    """`gossamer bench eie`."""
    from ..bench import eie

    result = eie.measure(note)
    if as_json:
        print_json(asdict(result))
        return
    heads = ["layer", "active", "cycles", "slots busy", "bits each"]
    losses = ["drain", "queue_full", "broadcast", "imbalance", "starved"]
    for title, rows, geomean in (
        ("uniform", result.layers, result.geomean),
        ("rows and columns of uneven density", result.uneven, result.uneven_geomean),
    ):
        table = [
            [
                row.name, round(row.active_nonzeros), round(row.cycles),
                f"{row.slot_efficiency:.2%}", row.bits_per_nonzero,
                *(f"{row.losses[kind] / result.multipliers / row.cycles:.2%}" for kind in losses),
            ]
            for row in rows
        ]  # fmt: skip
        table.append(["geomean", "", "", f"{geomean:.2%}", *[""] * (1 + len(losses))])
        title = f"EIE's layers on {result.multipliers} PEs, {title}, mean of {eie.N_SEEDS} seeds"
        print_table([*heads, *losses], table, title=title)


def lenet(data: Path | None, plot: Path | None, as_json: bool) -> None:
    """`gossamer bench lenet`."""
    from ..bench import lenet, lenet_cycles, lenet_plot, mnist
    from ..sim.protocol_sim import Serial

    Serial.progress = note
    if plot is not None:
        lenet_plot.check_target(plot)
    result = lenet.measure(data, note)
    if plot is not None:
        lenet_plot.plot_curve(result, plot)
    cycles = lenet_cycles.measure_cycles(mnist.load_mnist(data)[1], "sim", note)
    if as_json:
        same = {"pes": cycles.pes, "cycles_per_image": cycles.cycles_per_image}
        print_json({**asdict(result), **same})
        return
    heads = ["seed", "weights", "bytes", "ratio", "dense %", "float32 %", "golden %", "RTL %"]
    rows = [
        [
            seed.seed, seed.curve[seed.stage].nonzeros, seed.bytes, seed.ratio, seed.dense_error,
            seed.float_error, seed.error, seed.rtl_error, f"{seed.cycles_per_image:.0f}",
        ]
        for seed in result.seeds
    ]  # fmt: skip
    title = (
        f"LeNet-300-100 on MNIST: error on 10,000 test images, {lenet.DENSE_BYTES:,} bytes dense"
    )
    print_table([*heads, "cycles"], rows, title=title)
    print_lines(
        "",
        f"mean: {result.ratio:.1f}x, {result.error:.2f} % wrong, dense {result.dense_error:.2f} %; "
        "RTL equal to golden, all outputs",
        f"a network of this shape pruned to 8 %: {cycles.cycles_per_image:.0f} cycles an image on "
        f"{cycles.pes} PEs",
    )


def lenet_cycles(data: Path | None, board: str, as_json: bool) -> None:
    """`gossamer bench lenet --board`."""
    from ..bench import lenet_cycles, mnist
    from ..sim.protocol_sim import Serial

    Serial.progress = note
    result = lenet_cycles.measure_cycles(mnist.load_mnist(data)[1], f"sim://{board}", note)
    if as_json:
        print_json(asdict(result))
        return
    print_lines(
        f"LeNet-300-100 pruned to 8 %, {result.images:,} images of MNIST, {result.error:.2f} % "
        "wrong",
        f"{board}: {result.pes} PEs, {result.cycles_per_image:.1f} cycles and "
        f"{result.active_nonzeros_per_image:.0f} active nonzeros an image, "
        f"{result.slot_efficiency:.1%} of the slots",
        f"at {result.clock_mhz:g} MHz: {result.active_nonzeros_per_second / 1e6:.1f} million "
        "active nonzeros per second; RTL equal to golden, all outputs",
    )


def minilm(data: Path | None, as_json: bool) -> None:
    """`gossamer bench minilm`."""
    from ..bench import minilm

    result = minilm.measure(data, note)
    if as_json:
        print_json(asdict(result))
        return
    heads = ["fit", "codes", "bytes", "of fp32", "of int8", "seconds", "right %"]
    rows = [
        [
            p.fit, p.codes, p.bytes, f"1/{p.ratio_fp32:.2f}", f"1/{p.ratio_int8:.2f}",
            f"{p.seconds:.1f}", p.accuracy,
        ]
        for p in result.points
    ]  # fmt: skip
    title = (
        f"MiniLM's 12 feed-forward matrices in {minilm.STRUCTURE}, not retrained; 12-way text task"
    )
    print_table(heads, rows, title=title)
    print_lines("", f"dense, float32: {result.dense_accuracy:.2f} % right")


def soak(inferences: int, as_json: bool) -> bool:
    """`gossamer bench soak`; whether every output was right and memory flat."""
    from ..bench import soak

    result = soak.measure(inferences, progress=note)
    if as_json:
        print_json(asdict(result))
        return result.good
    print_lines(
        f"{result.inferences:,} inferences in one session: {result.wrong:,} wrong, "
        f"{result.repeats:,} requests repeated",
        f"memory: {result.early_bytes / 1e6:.1f} MB at most in the first tenth, "
        f"{result.late_bytes / 1e6:.1f} MB at the end",
        f"{result.seconds:.1f} s, {inferences / result.seconds:,.0f} per second",
    )
    return result.good


def sim(as_json: bool) -> None:
    """`gossamer bench sim`."""
    from ..bench import sim

    result = sim.measure(note)
    if as_json:
        print_json(asdict(result))
        return
    print_lines(
        f"{result.pes} PEs, {result.images} images: {result.cycles:,} clock cycles in "
        f"{result.seconds:.2f} s of processor: {result.cycles_per_second:,.0f} per second"
    )


def sparsity(as_json: bool) -> None:
    """`gossamer bench sparsity`."""
    from ..bench import sparsity
    from ..sim.protocol_sim import Serial

    Serial.progress = note
    points = sparsity.measure()
    even = sparsity.break_even(points)
    if as_json:
        print_json({"points": [asdict(point) for point in points], "break_even": even})
        return
    heads = ["structure", "unit", "weights", "activations", "active", "cycles", "dense"]
    rows = [
        [
            p.structure, p.unit, f"{p.weight_density:.0%}", f"{p.activation_density:.0%}",
            p.active_nonzeros, p.cycles, p.dense_cycles, p.bytes, p.dense_bytes,
        ]
        for p in points
    ]  # fmt: skip
    size = sparsity.SIZE
    title = f"One {size}x{size} layer, {points[0].multipliers} multipliers"
    print_table([*heads, "bytes", "dense"], rows, title=title)
    print_lines(
        "",
        *(
            f"{what}: dense wins at every density"
            if density is None
            else f"{what}: fewer than dense below {density:.0%} of the weights"
            for what, density in even.items()
        ),
    )


def tile(as_json: bool) -> None:
    """`gossamer bench tile`."""
    from ..bench import tile
    from ..sim.protocol_sim import Serial

    Serial.progress = note
    points = tile.measure()
    if as_json:
        print_json({"points": [asdict(point) for point in points]})
        return
    heads = ["tile", "batch", "structure", "cycles", "per image", "slots busy"]
    rows = [
        [
            p.tile, p.batch, p.structure, p.cycles, f"{p.cycles / p.batch:,.0f}",
            f"{p.slot_efficiency:.2%}",
        ]
        for p in points
    ]  # fmt: skip
    print_table(heads, rows, title=f"One {tile.SIZE}x{tile.SIZE} layer on the tensor tile")
