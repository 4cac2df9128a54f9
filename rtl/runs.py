# SPDX-License-Identifier: BSD-2-Clause
"""Runs: one in the engine, one waiting for it, and the results of the one before."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig

__all__ = ["RunQueue"]


class RunQueue(wiring.Component):
    """Start runs in the order of their requests and keep what their answers need.

    A run starts as soon as the engine is idle. What its answer says beside the results (counters,
    seq) is saved when it is computed, or, while the answer before is being sent, right after that;
    until then the next run waits.

    **Latency**: a request starts an idle engine in the next cycle.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    request, request_slot, request_images, request_seq : In
        Queue a run (pulse); only while not `pending`.
    pending, pending_slot, pending_images : Out
        A run waits, the input slot it will read, and how many images of it.
    current_slot : Out
        Input slot of the run that is computed.
    known : Out(1)
        `request_seq` is that of a run whose answer is still to come: the request is a repetition.
    start, idle, computing, running, computed : Out, In...
        The sequencer.
    results_ready : In(1)
        Results are complete, those of the oldest run that was not answered.
    occupied : Out(1)
        A run waits or goes on.
    save : Out(1)
        Pulse: save the counters.
    result_waiting, result_seq, result_images : Out
        Results are to be sent, in answer to which request, and of how many images.
    result_sent : In(1)
        Pulse: they are.
    """

    request: Signal
    request_slot: Signal
    request_images: Signal
    request_seq: Signal
    pending: Signal
    pending_slot: Signal
    pending_images: Signal
    current_slot: Signal
    known: Signal
    start: Signal
    idle: Signal
    computing: Signal
    running: Signal
    computed: Signal
    results_ready: Signal
    occupied: Signal
    result_waiting: Signal
    result_seq: Signal
    result_images: Signal
    save: Signal
    result_sent: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "request": In(1),
                "request_slot": In(1),
                "request_images": In(config.image_bits),
                "request_seq": In(8),
                "pending": Out(1),
                "pending_slot": Out(1),
                "pending_images": Out(config.image_bits),
                "current_slot": Out(1),
                "known": Out(1),
                "start": Out(1),
                "idle": In(1),
                "computing": In(1),
                "running": In(1),
                "computed": In(1),
                "results_ready": In(1),
                "occupied": Out(1),
                "result_waiting": Out(1),
                "result_seq": Out(8),
                "result_images": Out(config.image_bits),
                "save": Out(1),
                "result_sent": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register for each place a run can be in."""
        m = Module()
        pending_seq, current_seq = Signal(8), Signal(8)
        unsaved, saved = Signal(), Signal()
        m.d.comb += [
            self.known.eq(
                (self.pending & (pending_seq == self.request_seq))
                | ((self.computing | unsaved) & (current_seq == self.request_seq))
                | (saved & (self.result_seq == self.request_seq))
            ),
            self.start.eq(self.pending & self.idle & ~unsaved),
            self.occupied.eq(self.pending | self.running),
            self.save.eq(unsaved & ~saved),
            self.result_waiting.eq(saved & self.results_ready),
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
        self._keep_images(m)
        with m.If(self.computed):
            m.d.sync += unsaved.eq(1)
        with m.If(self.save):
            m.d.sync += [unsaved.eq(0), saved.eq(1), self.result_seq.eq(current_seq)]
        with m.If(self.result_sent):
            m.d.sync += saved.eq(0)
        return m

    def _keep_images(self, m: Module) -> None:
        if self._config.batch == 1:
            m.d.comb += [self.pending_images.eq(1), self.result_images.eq(1)]
            return
        current_images = Signal.like(self.pending_images)
        with m.If(self.start):
            m.d.sync += current_images.eq(self.pending_images)
        with m.If(self.request):
            m.d.sync += self.pending_images.eq(self.request_images)
        with m.If(self.save):
            m.d.sync += self.result_images.eq(current_images)
