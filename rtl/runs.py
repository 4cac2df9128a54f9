# SPDX-License-Identifier: BSD-2-Clause
"""Runs: one in the engine, one waiting for it, and the results of the one before."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RunQueue"]


class RunQueue(wiring.Component):
    """Start runs in the order of their requests and keep what their answers need.

    A run starts as soon as the engine is idle and the counters of the run before have been sent.

    **Latency**: a request starts the engine in the next cycle if nothing is in its way.

    Members
    -------
    request, request_slot, request_seq : In
        Queue a run (pulse); only while not `pending`.
    pending, pending_slot : Out
        A run waits, and the input slot it will read.
    current_slot : Out
        Input slot of the run that is going on.
    known : Out(1)
        `request_seq` is that of the waiting or going run: the request is a repetition.
    start, running, done : Out, In, In
        The sequencer.
    occupied : Out(1)
        A run waits or goes on.
    result_waiting, result_seq : Out
        Results are to be sent, in answer to which request.
    counts_sent, result_sent : In(1)
        Pulses: counters, all of the results have been sent.
    """

    request: Signal
    request_slot: Signal
    request_seq: Signal
    pending: Signal
    pending_slot: Signal
    current_slot: Signal
    known: Signal
    start: Signal
    running: Signal
    done: Signal
    occupied: Signal
    result_waiting: Signal
    result_seq: Signal
    counts_sent: Signal
    result_sent: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "request": In(1),
                "request_slot": In(1),
                "request_seq": In(8),
                "pending": Out(1),
                "pending_slot": Out(1),
                "current_slot": Out(1),
                "known": Out(1),
                "start": Out(1),
                "running": In(1),
                "done": In(1),
                "occupied": Out(1),
                "result_waiting": Out(1),
                "result_seq": Out(8),
                "counts_sent": In(1),
                "result_sent": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register for each place a run can be in."""
        m = Module()
        pending_seq, current_seq = Signal(8), Signal(8)
        counts_waiting = Signal()
        m.d.comb += [
            self.known.eq(
                (self.pending & (pending_seq == self.request_seq))
                | (self.running & (current_seq == self.request_seq))
            ),
            self.start.eq(self.pending & ~self.running & ~counts_waiting),
            self.occupied.eq(self.pending | self.running),
        ]
        with m.If(self.start):
            m.d.sync += [
                self.pending.eq(0),
                self.current_slot.eq(self.pending_slot),
                current_seq.eq(pending_seq),
            ]
        with m.If(self.request):
            m.d.sync += [
                self.pending.eq(1),
                self.pending_slot.eq(self.request_slot),
                pending_seq.eq(self.request_seq),
            ]
        with m.If(self.counts_sent):
            m.d.sync += counts_waiting.eq(0)
        with m.If(self.result_sent):
            m.d.sync += self.result_waiting.eq(0)
        with m.If(self.done):
            m.d.sync += [
                counts_waiting.eq(1),
                self.result_waiting.eq(1),
                self.result_seq.eq(current_seq),
            ]
        return m
