# SPDX-License-Identifier: BSD-2-Clause
"""Runs on a device, two in flight: one's inputs are sent while another one goes on.

A run takes as many inputs as the engine computes at once (`EngineConfig.batch`). It is asked for
as soon as its inputs have been confirmed, and not before: the device cannot tell that a RUN has
overtaken an input. A run whose inputs were refused is repeated step by step.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ...rtl.arith import activation_limits
from ...rtl.formats import COUNTER_NAMES, Command, Status
from ..compiler.compiler import Image
from ..errors import InputError
from .link import PAUSE, Answer, Link, Ticket

__all__ = ["SLOTS", "run_jobs"]

SLOTS = 2
"""Input slots, so runs in flight."""

NUMBERS = 4 * len(COUNTER_NAMES)
"""Bytes of counters ahead of the results."""

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class Job:
    """One run on its way through a slot: its inputs, packed, and what was asked for."""

    slot: int
    vectors: list[bytes]
    inputs: list[Ticket]
    run: Ticket | None = None


def run_jobs(link: Link, image: Image, rows: Iterable[Ints]) -> Iterator[tuple[Ints, Ints]]:
    """Run inputs as they come, up to `config.batch` at once; results in the same order.

    Two runs are in flight, so up to 2 x batch inputs are taken before their results are handed out.

    Parameters
    ----------
    link : Link
        To a device that is ready and has nothing to do.
    image : Image
        What it has loaded.
    rows : iterable of (n_inputs,) int
        Activations.

    Yields
    ------
    (images, result_slots) int64, (8,) int64
        For each run: results of its inputs in slot order, and its counters
        (`formats.COUNTER_NAMES`).

    Raises
    ------
    InputError
        An input has the wrong shape or type, or a value does not fit an activation.
    DeviceError
        The device refuses, or does not answer.
    """
    jobs: deque[Job] = deque()
    slots = itertools.cycle(range(SLOTS))
    vectors = (_pack(row, image, k) for k, row in enumerate(rows))
    while batch := list(itertools.islice(vectors, image.config.batch)):
        job = Job(next(slots), batch, [])
        for command, payload in _inputs(link, image, job.slot, batch):
            job.inputs.append(link.submit(command, payload))
            _run_confirmed(link, jobs)
        jobs.append(job)
        if len(jobs) == SLOTS:
            yield _finish(link, image, jobs)
    while jobs:
        yield _finish(link, image, jobs)


def _inputs(
    link: Link, image: Image, slot: int, vectors: list[bytes]
) -> Iterator[tuple[Command, bytes]]:
    """Pieces of the inputs of a run, in whole groups of four."""
    group = 4 * image.config.activation_bytes
    size = link.piece_bytes(head=3) // group * group
    for number, vector in enumerate(vectors):
        for at in range(0, len(vector), size):
            head = bytes([slot | number << 1]) + (at // group).to_bytes(2, "little")
            yield Command.INPUT, head + vector[at : at + size]


def _run_confirmed(link: Link, jobs: Iterable[Job]) -> None:
    """Ask for the runs whose inputs are there."""
    for job in jobs:
        if job.run is None and all(
            ticket.answer is not None and ticket.answer.status == Status.OK for ticket in job.inputs
        ):
            job.run = link.submit(Command.RUN, bytes([job.slot, len(job.vectors)]))


def _finish(link: Link, image: Image, jobs: deque[Job]) -> tuple[Ints, Ints]:
    """Results of the first job; meanwhile the next one may be asked for."""
    for ticket in jobs[0].inputs:
        link.wait(ticket)
    _run_confirmed(link, jobs)
    job = jobs[0]
    answer = Answer(Status.BUSY)
    if job.run is not None:
        answer = link.wait(job.run, meanwhile=partial(_run_confirmed, link, jobs))
    jobs.popleft()
    if answer.status != Status.OK:
        answer = _run_again(link, image, job)
    data = answer.data
    images, width = len(job.vectors), image.config.activation_bytes
    size = NUMBERS + images * image.result_slots * width
    if len(data) != size:
        raise link.nonsense(Command.RUN, data, f"{size} bytes")
    counters = np.frombuffer(data, "<u4", len(COUNTER_NAMES)).astype(np.int64)
    kind = "i" if image.layers[-1].record["signed_out"] else "u"
    results = np.frombuffer(data, f"<{kind}{width}", offset=NUMBERS)
    return results.reshape(images, -1).astype(np.int64), counters


def _run_again(link: Link, image: Image, job: Job) -> Answer:
    """Repeat a run step by step, each step only when the one before has been confirmed."""
    deadline = link.clock.monotonic() + link.timeout
    run = Command.RUN, bytes([job.slot, len(job.vectors)])
    requests = [*_inputs(link, image, job.slot, job.vectors), run]
    while True:
        answer = Answer(Status.OK)
        for command, payload in requests:
            answer = link.wait(link.submit(command, payload))
            if answer.status == Status.BUSY and link.clock.monotonic() < deadline:
                break
            if answer.status != Status.OK:
                raise link.refusal(command, answer.status)
        else:
            return answer
        link.clock.sleep(PAUSE)


def _pack(row: Ints, image: Image, index: int) -> bytes:
    """Activations as the device takes them: little-endian, zeros up to a whole group of four."""
    values = np.asarray(row)
    if values.shape != (image.n_inputs,) or values.dtype.kind not in "iu":
        raise InputError(
            f"quantized input {index} has shape {values.shape} and type {values.dtype}, "
            f"expected integers ({image.n_inputs},)"
        )
    signed = bool(image.layers[0].record["signed_in"])
    low, high = activation_limits(image.config.activation_bits, signed)
    if values.min() < low or values.max() > high:
        raise InputError(
            f"quantized input {index} spans {values.min()}..{values.max()}, expected "
            f"{low}..{high}; use the input's quantizer, which saturates"
        )
    data = values.astype(f"<{'i' if signed else 'u'}{image.config.activation_bytes}").tobytes()
    return data + bytes(-len(data) % (4 * image.config.activation_bytes))
