# SPDX-License-Identifier: BSD-2-Clause
"""What the commands do: read files, call the library, print the result as text or JSON.

`info` and `trace`, which explain a model, are in `host/show.py`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .compression import model_file
from .compression.compress import compress
from .compression.recipe import load_recipe
from .console import note, print_json, print_lines, print_table, track
from .device.device import RunStats, open_device
from .device.selftest import selftest
from .errors import InputError
from .files import open_atomic, read_npy
from .importers import load_network
from .score import score
from .search.search import search_recipe
from .search.search_report import Goal, print_search, search_document, write_recipe
from .session import Session
from .show import model_document, print_model
from .verify import verify

__all__ = [
    "build_board",
    "compress_file",
    "compress_to_goal",
    "cosim_benches",
    "run_file",
    "selftest_device",
    "verify_file",
]

CHUNK = 200
"""Inputs per call of a device, between two steps of the progress bar."""
COSIM_FOLDER = Path("cosim")
"""Where benches leave logs, results and waveforms."""


def compress_file(
    model: Path,
    output: Path,
    recipe: Path | None,
    calibrate: Path | None,
    masks: Path | None,
    as_json: bool,
) -> None:
    """`gossamer compress`."""
    network = load_network(model, masks=masks)
    plan = None if recipe is None else load_recipe(recipe)
    samples = None if calibrate is None else read_npy(calibrate)
    compressed = compress(network, plan, samples)
    model_file.save(compressed, output)
    for warning in compressed.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(model_document(compressed, output))
    else:
        print_model(compressed, output)


def compress_to_goal(
    model: Path, output: Path, calibrate: Path, goal: Goal, masks: Path | None, as_json: bool
) -> None:
    """`gossamer compress` with `--target-size` or `--max-drop`."""
    found = search_recipe(
        load_network(model, masks=masks),
        read_npy(calibrate),
        read_npy(goal.labels),
        target_bytes=goal.target_bytes,
        max_drop=goal.max_drop,
        track=track,
    )
    model_file.save(found.model, output)
    write_recipe(found, goal)
    if as_json:
        print_json(model_document(found.model, output) | {"search": search_document(found, goal)})
    else:
        print_search(found, goal)
        print_model(found.model, output)


def run_file(
    model: Path,
    inputs: Path,
    output: Path | None,
    labels: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """`gossamer run`."""
    x = read_npy(inputs)
    classes = None if labels is None else read_npy(labels)
    with _open_session(model, device) as session:
        outputs, stats = _run_all(session, x)
        document = _run_document(session, device, np.atleast_2d(outputs), stats)
    document["score"] = None
    if classes is not None:
        final = session.network.final
        document["score"] = score(np.atleast_2d(outputs), classes, final)
    if output is not None:
        with open_atomic(output) as stream:
            np.save(stream, outputs, allow_pickle=False)
    if as_json:
        print_json(document)
    else:
        _print_run(document, output)


def _open_session(model: Path, device: str) -> Session:
    if device.partition("://")[0] == "sim":
        _show_simulator()
    session = Session(model, device)
    for warning in session.network.warnings:
        note(f"warning: {warning}")
    return session


def _show_simulator() -> None:
    """Have simulated boards say when they are built."""
    from ..sim.protocol_sim import Serial

    Serial.progress = note


def _run_all(session: Session, x: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], RunStats]:
    """Outputs of all inputs, in chunks for the sake of the progress bar, and the summed cost."""
    if x.ndim != 2:
        outputs = session.run(x)
        assert session.last_stats is not None
        return outputs, session.last_stats
    parts, costs = [], []
    starts = range(0, len(x), CHUNK)
    for start in track(starts, "running", len(starts)):
        parts.append(session.run(x[start : start + CHUNK]))
        assert session.last_stats is not None
        costs.append(session.last_stats)
    total = RunStats(
        sum(cost.images for cost in costs),
        sum(cost.cycles for cost in costs),
        {name: sum(cost.counters[name] for cost in costs) for name in costs[0].counters},
        {name: sum(cost.seconds[name] for cost in costs) for name in costs[0].seconds},
    )
    return np.concatenate(parts), total


def _run_document(
    session: Session, device: str, outputs: npt.NDArray[np.float32], stats: RunStats
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "device": device,
        "images": stats.images,
        "outputs": outputs,
        "cycles": stats.cycles,
        "counters": stats.counters,
        "seconds": stats.seconds,
        "pes": None,
        "multipliers": None,
        "clock_mhz": None,
        "cycles_per_image": None,
        "milliseconds_per_image": None,
        "slot_efficiency": None,
    }
    if session.device is not None and stats.cycles:
        identity = session.device.identity
        multipliers = identity.config.multipliers
        document |= {
            "pes": identity.config.n_pes,
            "multipliers": multipliers,
            "clock_mhz": identity.clock_hz / 1e6,
            "cycles_per_image": stats.cycles / stats.images,
            "milliseconds_per_image": 1e3 * stats.cycles / stats.images / identity.clock_hz,
        }
        if identity.config.counters:
            document["slot_efficiency"] = stats.counters["busy"] / (multipliers * stats.cycles)
    return document


def _print_run(document: dict[str, Any], output: Path | None) -> None:
    n, width = document["outputs"].shape
    seconds = document["seconds"]
    where = "use --output to write them" if output is None else f"written to {output}"
    lines = [f"{n:,} images on {document['device']}, {width} outputs each ({where})"]
    if document["score"] is not None:
        score = document["score"]
        lines.append(f"score: {score:.2%} ({round(score * n):,} of {n:,} right)")
    lines.append(
        f"seconds: host {seconds['host']:.3f}, link {seconds['link']:.3f}, "
        f"engine {seconds['engine']:.6f}"
    )
    if document["cycles_per_image"] is not None:
        lines.append(
            f"per image: {document['cycles_per_image']:,.1f} cycles, "
            f"{document['milliseconds_per_image']:.4f} ms at {document['clock_mhz']:g} MHz"
        )
    if document["slot_efficiency"] is not None:
        slots = document["multipliers"] * document["cycles"]
        shares = {name: count / slots for name, count in document["counters"].items()}
        lines.append(f"slot efficiency: {document['slot_efficiency']:.1%}; multiplier cycles:")
        lines.append("  " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    print_lines(*lines)


def verify_file(model: Path, inputs: Path, device: str, as_json: bool) -> bool:
    """`gossamer verify`; whether all is equal."""
    x = read_npy(inputs)
    with _open_session(model, device) as session:
        found = verify(session, x)
        images = len(np.atleast_2d(x))
        rows = {layer.name: layer.n_rows for layer in session.network.layers}
    values = images * sum(rows.values())
    counts = {"device": device, "images": images, "layers": len(rows), "values": values}
    if as_json:
        print_json({"equal": found is None, **counts, "first": found and asdict(found)})
    elif found is None:
        print_lines(
            f"equal: {images:,} images, {len(rows)} layers, {values:,} activations on {device}"
        )
    else:
        print_lines(
            f"different: layer {found.layer}, row {found.row}, image {found.image}: golden model "
            f"{found.expected}, {device} {found.got}; {found.count:,} of "
            f"{images * rows[found.layer]:,} activations of this layer differ"
        )
    return found is None


def cosim_benches(name: str | None, waves: bool, as_json: bool) -> bool:
    """`gossamer cosim`; whether all benches passed."""
    from ..sim.benches.runner import BENCHES, run_bench

    results = []
    for one in track(BENCHES if name is None else (name,), "benches", len(BENCHES)):
        result = run_bench(one, folder=COSIM_FOLDER, waves=waves, progress=note)
        results.append(result)
        if not as_json:
            files = f"{result.log}" if result.waves is None else f"{result.log}, {result.waves}"
            print_lines(f"{one}: {result.passed} passed, {result.failed} failed; {files}")
    if as_json:
        print_json({"benches": [{**asdict(r), "log": str(r.log)} for r in results]})
    return all(result.failed == 0 for result in results)


def selftest_device(device: str, as_json: bool) -> bool:
    """`gossamer selftest`; whether the device computes what the golden model does."""
    if device == "golden":
        raise InputError("golden has no memories to test, expected sim, sim://BOARD or a port")
    if device.partition("://")[0] == "sim":
        _show_simulator()
    with open_device(device) as opened:
        found = selftest(opened, track)
    good = not any(one.wrong for one in found)
    if as_json:
        print_json({"device": device, "good": good, "findings": [asdict(one) for one in found]})
        return good
    rows = [
        [one.memory, one.patterns, one.outputs, one.wrong, ", ".join(map(str, one.pes)) or "-"]
        for one in found
    ]
    print_table(["what", "networks", "outputs", "wrong", "on PEs"], rows, title=f"{device}")
    print_lines("", "good" if good else "faulty: build the bitstream again, or replace the board")
    return good


def build_board(board: str, as_json: bool) -> None:
    """`gossamer build`."""
    from ..boards.build import build

    report = build(board, progress=note)
    if as_json:
        print_json(asdict(report))
        return
    rows = [
        [name, used, available, f"{used / available:.1%}"]
        for name, available in report.available.items()
        for used in [getattr(report, name)]
    ]
    print_table(["resource", "used", "available", "share"], rows, title=f"Bitstream for {board}")
    print_lines(
        "",
        f"timing met: {report.fmax_mhz:g} MHz reached, {report.clock_mhz:g} MHz needed "
        f"(seed {report.seed})",
        f"{report.bitstream}, id {report.bitstream_id}",
    )
