# SPDX-License-Identifier: BSD-2-Clause
"""LeNet-300-100 on MNIST from training to hardware: bytes on disk, error, and the RTL's answers.

Each seed trains on 55,000 images. One stage of pruning is chosen for all seeds on the 5,000 images
held out: the smallest whose mean error is at most MARGIN above that of the dense networks. Then the
10,000 test images are read once: by the dense network in float32, by the compressed one in the
golden model's integers and, every output compared, by the simulated RTL.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..host import golden
from ..host.compression import model_file
from ..host.compression.compress import CompressedModel, compress
from ..host.errors import DeviceError
from ..host.importers import from_torch
from ..host.network import Network
from ..host.session import Session
from .lenet_training import PLAN, STAGES, Plan, Stage, fit, make_network, stages, torch
from .mnist import Digits, load_mnist

__all__ = ["DENSE_BYTES", "Point", "Result", "Seed", "choose", "measure"]

DENSE_BYTES = 1_066_440
"""Weights and biases of the dense network in float32."""
SEEDS = (0, 1, 2)
HELD_OUT = 5000
"""Images at the end of the training set that are not trained on."""
CALIBRATION = 1000
MARGIN = 0.05
"""Percentage points of error that the chosen stage may have more than the dense networks."""
CHUNK = 500

Note = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One stage of one seed; `error` in percent of the held-out images, in the golden integers."""

    stage: int
    nonzeros: int
    bytes: int
    ratio: float
    error: float


@dataclass(frozen=True)
class Seed:
    """What one seed came to.

    Parameters
    ----------
    seed, stage : int
    held_out_dense : float
        Error of the dense network on the held-out images, percent.
    curve : list of Point
    bytes : int
        Of the `.gossamer` file of the chosen stage.
    ratio : float
        `DENSE_BYTES` over `bytes`.
    dense_error, float_error, error, rtl_error : float
        Percent of the test images: dense and compressed network in float32, golden model, RTL.
    cycles_per_image : float
        Of the simulated engine.
    """

    seed: int
    stage: int
    held_out_dense: float
    curve: list[Point]
    bytes: int
    ratio: float
    dense_error: float
    float_error: float
    error: float
    rtl_error: float
    cycles_per_image: float


@dataclass(frozen=True)
class Result:
    """Means over the seeds, and the seeds."""

    ratio: float
    error: float
    dense_error: float
    rtl_error: float
    bytes: float
    seeds: list[Seed]


@dataclass(frozen=True)
class _Trained:
    """A seed's networks before one of the stages is chosen."""

    seed: int
    dense: Network
    held_out_dense: float
    models: list[CompressedModel]
    curve: list[Point]


def measure(
    folder: Path | None,
    note: Note,
    *,
    device: str = "sim",
    seeds: tuple[int, ...] = SEEDS,
    plan: Plan = PLAN,
    steps: tuple[Stage, ...] = STAGES,
) -> Result:
    """Train, compress and run; `note` is told what goes on.

    Raises
    ------
    DeviceError
        The device fails, or its outputs are not those of the golden model.
    InputError, FormatError, ToolError
        The images cannot be read or fetched, see `mnist.load_mnist`.
    """
    images, test = load_mnist(folder)
    train, held_out = images[:-HELD_OUT], images[-HELD_OUT:]
    with _one_thread():
        trained = [_train(seed, train, held_out, plan, steps, note) for seed in seeds]
    stage = choose([(one.held_out_dense, one.curve) for one in trained])
    found = [_test(one, stage, test, device, note) for one in trained]
    keys = ("ratio", "error", "dense_error", "rtl_error", "bytes")
    means = {key: float(np.mean([getattr(one, key) for one in found])) for key in keys}
    return Result(**means, seeds=found)


def choose(curves: list[tuple[float, list[Point]]]) -> int:
    """Stage to take for all seeds.

    Parameters
    ----------
    curves : list of (float, list of Point)
        Of each seed the dense network's error on the held-out images, and its stages.

    Returns
    -------
    int
        The smallest of those whose mean error is at most `MARGIN` above the dense one, else the one
        with the least error.
    """
    dense = np.mean([error for error, _ in curves])
    errors = np.mean([[point.error for point in curve] for _, curve in curves], axis=0)
    sizes = np.mean([[point.bytes for point in curve] for _, curve in curves], axis=0)
    fits = np.flatnonzero(errors <= dense + MARGIN + 1e-9)
    return int(fits[np.argmin(sizes[fits])] if len(fits) else np.argmin(errors))


def _train(
    seed: int, train: Digits, held_out: Digits, plan: Plan, steps: tuple[Stage, ...], note: Note
) -> _Trained:
    torch.manual_seed(seed)
    dense = make_network(plan.dropout)
    losses = fit(dense, train, epochs=plan.dense_epochs, rate=plan.dense_rate)
    for epoch, loss in enumerate(losses, 1):
        note(f"seed {seed}: dense, epoch {epoch} of {plan.dense_epochs}, loss {loss:.4f}")
    network = from_torch(dense)
    dense_error = _error(network.run(held_out.images), held_out)
    note(f"seed {seed}: dense, {dense_error:.2f} % of the held-out images wrong")
    models, curve = [], []
    for k, (stage, module) in enumerate(zip(steps, stages(dense, train, plan, steps), strict=True)):
        model = compress(from_torch(module), stage.recipe, train.images[:CALIBRATION])
        size = _file_bytes(model)
        nonzeros = sum(layer.matrix.nonzeros for layer in model.layers)
        error = _error(Session(model).run(held_out.images), held_out)
        models.append(model)
        curve.append(Point(k, nonzeros, size, DENSE_BYTES / size, error))
        note(
            f"seed {seed}: stage {k + 1} of {len(steps)}, {nonzeros:,} weights, {size:,} bytes, "
            f"{DENSE_BYTES / size:.1f}x, {error:.2f} %"
        )
    return _Trained(seed, network, dense_error, models, curve)


def _test(trained: _Trained, stage: int, test: Digits, device: str, note: Note) -> Seed:
    model, point = trained.models[stage], trained.curve[stage]
    with Session(model, device) as session:
        answers, cycles = _run_all(session, test)
        q = session.quantize(test.images)
        expected = golden.run(session.network, q)
    if not np.array_equal(answers, expected):
        raise DeviceError(
            f"{device}: results differ from the golden model for "
            f"{int((answers != expected).any(axis=1).sum())} of {len(q)} images, expected them "
            "equal; run gossamer verify"
        )
    found = Seed(
        seed=trained.seed,
        stage=stage,
        held_out_dense=trained.held_out_dense,
        curve=trained.curve,
        bytes=point.bytes,
        ratio=point.ratio,
        dense_error=_error(trained.dense.run(test.images), test),
        float_error=_error(model.to_network().run(test.images), test),
        error=_error(expected, test),
        rtl_error=_error(answers, test),
        cycles_per_image=cycles / len(q),
    )
    note(
        f"seed {trained.seed}: {found.error:.2f} % of the test images wrong, dense "
        f"{found.dense_error:.2f} %, {device} equal to golden for all {len(q):,}"
    )
    return found


def _run_all(session: Session, test: Digits) -> tuple[np.ndarray, int]:
    """Outputs of the device for all images, and its cycles."""
    outputs, cycles = [], 0
    for start in range(0, len(test.labels), CHUNK):
        outputs.append(session.run_quantized(session.quantize(test.images[start : start + CHUNK])))
        cycles += 0 if session.last_stats is None else session.last_stats.cycles
    return np.concatenate(outputs), cycles


def _error(outputs: np.ndarray, data: Digits) -> float:
    """Wrong answers in percent."""
    return 100 * float((outputs.argmax(axis=1) != data.labels).mean())


def _file_bytes(model: CompressedModel) -> int:
    """Bytes of the model's file on disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lenet.gossamer"
        model_file.save(model, path)
        return path.stat().st_size


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: several wait for each other when other cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
