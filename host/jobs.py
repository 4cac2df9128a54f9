# SPDX-License-Identifier: BSD-2-Clause
"""Runs on a device, two in flight: one input is sent while another one runs.

A run is asked for without waiting until its input has been confirmed; the confirmations come before
the results, and a run whose input was not confirmed at the first attempt is repeated step by step.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.arith import activation_limits
from ..rtl.formats import COUNTER_NAMES, Command, Status
from .compiler import Image
from .errors import InputError
from .link import PAUSE, Answer, Link, Ticket

__all__ = ["SLOTS", "run_jobs"]

SLOTS = 2
"""Input slots, so runs in flight."""

NUMBERS = 4 * len(COUNTER_NAMES)
"""Bytes of counters ahead of the results."""

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class Job:
    """One input on its way through a slot."""

    slot: int
    data: bytes
    inputs: list[Ticket]
    run: Ticket


def run_jobs(link: Link, image: Image, rows: Iterable[Ints]) -> Iterator[tuple[Ints, Ints]]:
    """Run inputs one after the other as they come; results in the same order.

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
    (result_slots,) int64, (8,) int64
        Results in slot order, and the counters (`formats.COUNTER_NAMES`).

    Raises
    ------
    InputError
        An input has the wrong shape or type, or a value does not fit an activation.
    DeviceError
        The device refuses, or does not answer.
    """
    jobs: deque[Job] = deque()
    source = enumerate(rows)
    while (item := next(source, None)) is not None:
        k, row = item
        jobs.append(_start(link, k % SLOTS, _pack(row, image, k)))
        if len(jobs) == SLOTS:
            yield _finish(link, image, jobs.popleft())
    while jobs:
        yield _finish(link, image, jobs.popleft())


def _start(link: Link, slot: int, data: bytes) -> Job:
    inputs = [link.submit(Command.INPUT, piece) for piece in _pieces(link, slot, data)]
    return Job(slot, data, inputs, link.submit(Command.RUN, bytes([slot])))


def _pieces(link: Link, slot: int, data: bytes) -> Iterator[bytes]:
    size = link.piece_bytes(head=3)
    for at in range(0, len(data), size):
        yield bytes([slot]) + (at // 4).to_bytes(2, "little") + data[at : at + size]


def _finish(link: Link, image: Image, job: Job) -> tuple[Ints, Ints]:
    answers = [link.wait(ticket) for ticket in [*job.inputs, job.run]]
    # An input sent twice may have come after its run had begun: that run does not count.
    certain = all(ticket.attempts == 1 for ticket in job.inputs)
    if certain and all(answer.status == Status.OK for answer in answers):
        data = answers[-1].data
    else:
        data = _run_again(link, job).data
    if len(data) != NUMBERS + image.result_slots:
        raise link.nonsense(Command.RUN, data, f"{NUMBERS + image.result_slots} bytes")
    counters = np.frombuffer(data, "<u4", len(COUNTER_NAMES)).astype(np.int64)
    signed = image.layers[-1].record["signed_out"]
    results = np.frombuffer(data, np.int8 if signed else np.uint8, offset=NUMBERS)
    return results.astype(np.int64), counters


def _run_again(link: Link, job: Job) -> Answer:
    """Repeat a run step by step, each step only when the one before has been confirmed."""
    deadline = time.monotonic() + link.timeout
    requests = [(Command.INPUT, piece) for piece in _pieces(link, job.slot, job.data)]
    requests.append((Command.RUN, bytes([job.slot])))
    while True:
        answer = Answer(Status.OK)
        for command, payload in requests:
            answer = link.wait(link.submit(command, payload))
            if answer.status == Status.BUSY and time.monotonic() < deadline:
                break
            if answer.status != Status.OK:
                raise link.refusal(command, answer.status)
        else:
            return answer
        time.sleep(PAUSE)


def _pack(row: Ints, image: Image, index: int) -> bytes:
    """Activations as the device takes them: bytes, zeros up to a whole group of four."""
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
    data = (values & 0xFF).astype(np.uint8).tobytes()
    return data + bytes(-len(data) % 4)
