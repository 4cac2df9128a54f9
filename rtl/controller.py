# SPDX-License-Identifier: BSD-2-Clause
"""Controller: requests from the host become loads, inputs and runs.

Every request is idempotent, so a host may repeat one whose answer it missed. docs/protocol.md
describes requests and answers.
"""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .formats import Command, State, Status
from .packets import Crc32, frame_byte

__all__ = ["Controller"]

_ARGUMENT_BYTES = {Command.LOAD: 4, Command.COMMIT: 8, Command.INPUT: 3, Command.RUN: 2}
"""Argument bytes in front of a request's data; no entry: none."""


class Controller(wiring.Component):
    """Read one request at a time, check it, carry it out, have it answered.

    **Latency**: four cycles from a request's last byte to `answer`, two if it has data behind its
    arguments. **Throughput**: one byte per cycle, but for two cycles between arguments and data;
    bytes of an image as fast as the loader takes them.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of frame_byte)
        Requests: good frames only.
    answer, answered : Out(1), In(1)
        Have the request answered; held until the pulse of `answered`.
    type, seq, status, state, loaded : Out
        What to answer.
    result_waiting, result_seq, result_sent : In, In, Out
        Results have to be sent, before the next request is read; pulse when they are.
    o_image, image_restart, image_busy, image_complete : Out, Out, In, In
        The loader. While it is busy no request goes on to its decision.
    store_write, store_slot, store_image, store_group, store_data : Out
        Write port of the activation store.
    request, request_slot, request_images : Out
        Queue a run (pulse) of so many images, its number being `seq`.
    pending, pending_slot, known, occupied, current_slot : In
        The run queue.
    holds_input : In(1)
        The going run still reads its input slot.
    reset_engine, cleared : Out(1), In(1)
        Reset all that computes (pulse); the sums are cleared since.
    """

    i: stream.Interface
    answer: Signal
    answered: Signal
    type: Signal
    seq: Signal
    status: Signal
    state: Signal
    loaded: Signal
    result_waiting: Signal
    result_seq: Signal
    result_sent: Signal
    o_image: stream.Interface
    image_restart: Signal
    image_busy: Signal
    image_complete: Signal
    store_write: Signal
    store_slot: Signal
    store_image: Signal
    store_group: Signal
    store_data: Signal
    request: Signal
    request_slot: Signal
    request_images: Signal
    pending: Signal
    pending_slot: Signal
    known: Signal
    occupied: Signal
    holds_input: Signal
    current_slot: Signal
    reset_engine: Signal
    cleared: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(frame_byte)),
                "answer": Out(1),
                "answered": In(1),
                "type": Out(8),
                "seq": Out(8),
                "status": Out(Status),
                "state": Out(State),
                "loaded": Out(32),
                "result_waiting": In(1),
                "result_seq": In(8),
                "result_sent": Out(1),
                "o_image": Out(stream.Signature(8)),
                "image_restart": Out(1),
                "image_busy": In(1),
                "image_complete": In(1),
                "store_write": Out(1),
                "store_slot": Out(1),
                "store_image": Out(max(ceil_log2(config.batch), 1)),
                "store_group": Out(ceil_log2(config.input_depth // 4)),
                "store_data": Out(4 * config.activation_bits),
                "request": Out(1),
                "request_slot": Out(1),
                "request_images": Out(config.image_bits),
                "pending": In(1),
                "pending_slot": In(1),
                "known": In(1),
                "occupied": In(1),
                "holds_input": In(1),
                "current_slot": In(1),
                "reset_engine": Out(1),
                "cleared": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Head, arguments, decision, data, answer."""
        m = Module()
        arguments = Signal(64)
        arguments_left = Signal(range(9))
        place = Signal(2)
        more, accepted = Signal(), Signal()
        group_bytes = 4 * self._config.activation_bytes
        lane = Signal(range(group_bytes))
        group = Signal(len(self.store_group) + 1)  # the top bit: beyond the store
        image_crc = self._image_crc(m)
        verdict = Signal(Status)
        loading, has_image, reset = Signal(), Signal(), Signal()
        m.d.sync += self.reset_engine.eq(reset)
        with m.If(self.reset_engine | ~self.cleared):
            m.d.comb += self.state.eq(State.CLEARING)
        with m.Elif(self.occupied):
            m.d.comb += self.state.eq(State.RUNNING)
        with m.Elif(has_image):
            m.d.comb += self.state.eq(State.READY)
        with m.Elif(loading):
            m.d.comb += self.state.eq(State.LOADING)

        def argument(command: Command, offset: int, size: int):
            start = 64 - 8 * _ARGUMENT_BYTES[command] + 8 * offset
            return arguments[start : start + 8 * size]

        with m.FSM():
            with m.State("HEAD"):
                with m.If(self.result_waiting & (place == 0)):
                    m.d.sync += [
                        self.type.eq(Command.RUN),
                        self.seq.eq(self.result_seq),
                        self.status.eq(Status.OK),
                    ]
                    m.next = "RESULT"
                with m.Else():
                    m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += [place.eq(place + 1), more.eq(~self.i.p.last)]
                    with m.Switch(place):
                        with m.Case(0):
                            m.d.sync += self.type.eq(self.i.p.data)
                        with m.Case(1):
                            m.d.sync += self.seq.eq(self.i.p.data)
                        with m.Case(3):
                            m.next = "ARGUMENTS"
                with m.Switch(self.type):
                    for command in Command:
                        with m.Case(command):
                            m.d.sync += arguments_left.eq(_ARGUMENT_BYTES.get(command, 0))
                    with m.Default():
                        m.d.sync += arguments_left.eq(0)
            with m.State("ARGUMENTS"):
                m.d.comb += self.i.ready.eq(more & (arguments_left != 0))
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += [
                        arguments.eq(Cat(arguments[8:], self.i.p.data)),
                        arguments_left.eq(arguments_left - 1),
                        more.eq(~self.i.p.last),
                    ]
                with m.If(~self.i.ready & ~self.image_busy):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += [self.status.eq(verdict), accepted.eq(0), lane.eq(0)]
                m.next = "DATA"
                with m.If(arguments_left != 0):
                    m.d.comb += verdict.eq(Status.BAD_LENGTH)
                with m.Else():
                    flags = loading, has_image, reset
                    self._decide(m, argument, verdict, accepted, image_crc, flags)
                    m.d.sync += group.eq(argument(Command.INPUT, 1, 2))
            with m.State("DATA"):
                to_image = accepted & (self.type == Command.LOAD)
                m.d.comb += [
                    self.i.ready.eq(more & (self.o_image.ready | ~to_image)),
                    self.o_image.valid.eq(self.i.valid & more & to_image),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += more.eq(~self.i.p.last)
                    with m.If(accepted & (self.type == Command.INPUT)):
                        m.d.sync += lane.eq(lane + 1)
                        with m.If(lane == group_bytes - 1):
                            m.d.comb += self.store_write.eq(~group[-1])
                            with m.If(group[-1]):
                                m.d.sync += self.status.eq(Status.BAD_ARGUMENT)
                            with m.Else():
                                m.d.sync += group.eq(group + 1)
                        with m.Else():
                            m.d.sync += arguments.eq(Cat(arguments[8:], self.i.p.data))
                with m.If(~more):
                    m.next = "ANSWER"
                    with m.If((self.type == Command.RUN) & (self.status == Status.OK)):
                        m.next = "HEAD"
            with m.State("RESULT"):
                m.d.comb += [self.answer.eq(1), self.result_sent.eq(self.answered)]
                with m.If(self.answered):
                    m.next = "HEAD"
            with m.State("ANSWER"):
                m.d.comb += self.answer.eq(1)
                with m.If(self.answered):
                    m.next = "HEAD"

        m.d.comb += [
            self.o_image.payload.eq(self.i.p.data),
            self.store_group.eq(group),
            self.store_data.eq(Cat(arguments[8 - 8 * group_bytes :], self.i.p.data)),
        ]
        return m

    def _image_crc(self, m: Module):
        """CRC-32 and length of the image bytes taken since the last restart."""
        m.submodules.image_crc = crc = Crc32()
        taken = self.o_image.valid & self.o_image.ready
        m.d.comb += [
            crc.data.eq(self.i.p.data),
            crc.en.eq(taken),
            crc.start.eq(self.image_restart),
        ]
        with m.If(self.image_restart):
            m.d.sync += self.loaded.eq(0)
        with m.Elif(taken):
            m.d.sync += self.loaded.eq(self.loaded + 1)
        return ~crc.value

    def _decide(
        self, m: Module, argument, status: Signal, accepted: Signal, image_crc, flags
    ) -> None:
        """Choose the status of a request whose arguments are there, and begin it if it is OK."""
        loading, has_image, reset = flags
        with m.Switch(self.type):
            with m.Case(Command.HELLO, Command.STATUS):
                m.d.comb += status.eq(Status.OK)
            with m.Case(Command.LOAD):
                offset = argument(Command.LOAD, 0, 4)
                with m.If(self.occupied):
                    m.d.comb += status.eq(Status.BUSY)
                with m.Elif(offset == 0):
                    m.d.comb += self.image_restart.eq(1)
                    m.d.sync += [accepted.eq(1), has_image.eq(0), loading.eq(1)]
                with m.Elif(~loading):
                    m.d.comb += status.eq(Status.BAD_STATE)
                with m.Elif(offset > self.loaded):
                    m.d.comb += status.eq(Status.BAD_OFFSET)
                with m.Else():
                    m.d.sync += accepted.eq(offset == self.loaded)
            with m.Case(Command.COMMIT):
                same = (argument(Command.COMMIT, 0, 4) == self.loaded) & (
                    argument(Command.COMMIT, 4, 4) == image_crc
                )
                with m.If(self.occupied):
                    m.d.comb += status.eq(Status.BUSY)
                with m.Elif(~same | ~self.image_complete | ~(loading | has_image)):
                    m.d.comb += status.eq(Status.BAD_IMAGE)
                    m.d.sync += loading.eq(0)
                with m.Elif(loading):
                    m.d.comb += reset.eq(1)
                    m.d.sync += [loading.eq(0), has_image.eq(1)]
            with m.Case(Command.INPUT):
                place = argument(Command.INPUT, 0, 1)
                slot, image = place[0], place[1:]
                beyond = image >= self._config.batch
                beyond |= argument(Command.INPUT, 1, 2)[len(self.store_group) :].any()
                waiting = self.pending & (self.pending_slot == slot)
                reading = self.holds_input & (self.current_slot == slot)
                m.d.sync += [
                    accepted.eq(has_image & ~beyond & ~waiting & ~reading),
                    self.store_slot.eq(slot),
                ]
                if self._config.batch > 1:
                    m.d.sync += self.store_image.eq(image)
                with m.If(~has_image):
                    m.d.comb += status.eq(Status.BAD_STATE)
                with m.Elif(beyond):
                    m.d.comb += status.eq(Status.BAD_ARGUMENT)
                with m.Elif(waiting | reading):
                    m.d.comb += status.eq(Status.BUSY)
            with m.Case(Command.RUN):
                slot, images = argument(Command.RUN, 0, 1), argument(Command.RUN, 1, 1)
                m.d.comb += [self.request_slot.eq(slot[0]), self.request_images.eq(images)]
                with m.If(~has_image):
                    m.d.comb += status.eq(Status.BAD_STATE)
                with m.Elif(slot[1:].any() | (images == 0) | (images > self._config.batch)):
                    m.d.comb += status.eq(Status.BAD_ARGUMENT)
                with m.Elif(~self.known & self.pending):
                    m.d.comb += status.eq(Status.BUSY)
                with m.Else():
                    m.d.comb += self.request.eq(~self.known)
            with m.Case(Command.ABORT):
                m.d.comb += reset.eq(1)
                m.d.sync += loading.eq(0)
            with m.Default():
                m.d.comb += status.eq(Status.UNKNOWN)
