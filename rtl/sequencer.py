# SPDX-License-Identifier: BSD-2-Clause
"""Sequencer: program records make the units work through a network, layer by layer."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import RECORD_STRIDE, Section, program_fields
from .layouts import (
    WriteBus,
    WriteSignature,
    activation_layout,
    layer_layout,
    select_layer,
    token_layout,
)

__all__ = ["Sequencer"]


class Sequencer(wiring.Component):
    """Run a program: for each layer read its record, feed the sparse array, go on.

    The first layer is fed from an input slot. Every later one takes the outputs of the layer before
    straight from the merge tree, so it starts while that layer still drains. The outputs of the
    layer whose record says `last` go to the result buffer.

    A record goes to one of two parameter sets, by the layer's parity. Overwriting layer l-1's set
    for layer l+1 is safe: l+1 is read after l's last input, which came after l-1's last output.

    A run is computed when every PE has drained its last layer. The next one can start then, while
    the results still leave the PEs' lists; only its END waits until they have.

    **Latency**: the input is scanned in the cycle after `start`. Reading a record takes
    `RECORD_CYCLES`, which pass while the layer before still works; the first layer's record is read
    ahead.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start, slot : In
        Run the program on an input slot; only while `idle`.
    idle : Out(1)
    computing, computed : Out(1)
        A run is computed; pulse: it is done, all sums are drained.
    running, collected : Out(1)
        A run is computed or its results collected; pulse: the results are complete.
    holds_input : Out(1)
        The input slot is still needed.
    drained : In(1)
        All PEs have drained the layer before the current one.
    result_slots : Out(16)
        Number of results of the run that is collected.
    layers, parity : Out
        Parameter sets for the units, and which is the current layer's.
    scan, scan_slot, last_input, i_store : Out, Out, Out, In(stream)
        The activation store.
    i_merge, o_array : In(stream), Out(stream)
        The sparse array's outputs and inputs.
    o_results : Out(stream of activation_layout)
        Outputs of the last layer.
    write : In
        Loader's bus.
    """

    RECORD_CYCLES = 12

    start: Signal
    slot: Signal
    idle: Signal
    computing: Signal
    running: Signal
    holds_input: Signal
    drained: Signal
    computed: Signal
    collected: Signal
    result_slots: Signal
    layers: data.View
    parity: Signal
    scan: Signal
    scan_slot: Signal
    last_input: Signal
    i_store: stream.Interface
    i_merge: stream.Interface
    o_array: stream.Interface
    o_results: stream.Interface
    write: WriteBus

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        activations = stream.Signature(activation_layout(config))
        super().__init__(
            {
                "start": In(1),
                "slot": In(1),
                "idle": Out(1),
                "computing": Out(1),
                "running": Out(1),
                "holds_input": Out(1),
                "drained": In(1),
                "computed": Out(1),
                "collected": Out(1),
                "result_slots": Out(16),
                "layers": Out(data.ArrayLayout(layer_layout(config), 2)),
                "parity": Out(1),
                "scan": Out(1),
                "scan_slot": Out(1),
                "last_input": Out(16),
                "i_store": In(activations),
                "i_merge": In(stream.Signature(token_layout(config, config.pe_bits))),
                "o_array": Out(activations),
                "o_results": Out(activations),
                "write": In(WriteSignature(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Read a record, feed a layer, collect the results."""
        m = Module()
        config = self._config
        m.submodules.program = program = memory.Memory(
            shape=16, depth=config.max_layers * RECORD_STRIDE, init=[]
        )
        read_port, write_port = program.read_port(), program.write_port()
        m.d.comb += [
            write_port.addr.eq(self.write.address),
            write_port.data.eq(self.write.data),
            write_port.en.eq(self.write.en & (self.write.kind == Section.PROGRAM)),
        ]

        collecting = Signal()
        layer = Signal(range(max(config.max_layers, 2)))
        word, word_q1 = Signal(range(RECORD_STRIDE)), Signal(range(RECORD_STRIDE))
        word_valid_q1 = Signal()
        m.d.comb += read_port.addr.eq(Cat(word, layer))
        m.d.sync += [word_q1.eq(word), word_valid_q1.eq(0)]
        for index in range(2):
            with m.If(word_valid_q1 & (self.parity == index)):
                self._store_word(m, self.layers[index], word_q1, read_port.data)

        current = select_layer(self.layers, self.parity)
        merged = Signal(activation_layout(config))
        m.d.comb += [
            merged.slot.eq(self._slot(self.i_merge.p)),
            merged.value.eq(self.i_merge.p.value),
            merged.last.eq(self.i_merge.p.last),
            self.o_results.p.eq(merged),
            self.last_input.eq(current.last_input),
            self.running.eq(self.computing | collecting),
        ]
        # Results are collected while the next run's first layer is already fed.
        with m.If(collecting):
            m.d.comb += [
                self.o_results.valid.eq(self.i_merge.valid),
                self.i_merge.ready.eq(self.o_results.ready),
                self.collected.eq(self.i_merge.valid & self.o_results.ready & merged.last),
            ]
        with m.If(self.collected):
            m.d.sync += collecting.eq(0)
        m.d.sync += self.scan.eq(0)
        fed = self.o_array.valid & self.o_array.ready & self.o_array.p.last
        with m.FSM():
            with m.State("RECORD"):
                m.d.sync += [word.eq(word + 1), word_valid_q1.eq(1)]
                with m.If(word == self.RECORD_CYCLES - 2):
                    m.next = "RECORD_END"
            with m.State("RECORD_END"):
                m.next = "FEED"
                with m.If(layer == 0):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                with m.If(self.drained):
                    m.d.comb += self.computed.eq(self.computing)
                    m.d.sync += self.computing.eq(0)
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.start):
                    m.d.sync += [
                        self.computing.eq(1),
                        self.holds_input.eq(1),
                        self.scan.eq(1),
                        self.scan_slot.eq(self.slot),
                    ]
                    m.next = "FEED"
            with m.State("FEED"):
                with m.If(current.from_merge):
                    m.d.comb += [
                        self.o_array.p.eq(merged),
                        self.o_array.valid.eq(self.i_merge.valid),
                        self.i_merge.ready.eq(self.o_array.ready),
                    ]
                with m.Else():
                    # The lists must be empty before END makes the PEs fill them again.
                    hold = self.i_store.p.last & collecting
                    m.d.comb += [
                        self.o_array.p.eq(self.i_store.p),
                        self.o_array.valid.eq(self.i_store.valid & ~hold),
                        self.i_store.ready.eq(self.o_array.ready & ~hold),
                    ]
                with m.If(fed):
                    m.d.sync += [
                        self.parity.eq(~self.parity),
                        self.holds_input.eq(0),
                        layer.eq(Mux(current.last, 0, layer + 1)),
                        word.eq(0),
                    ]
                    m.next = "RECORD"
                    with m.If(current.last):
                        m.d.sync += collecting.eq(1)
                        m.d.sync += self.result_slots.eq((current.last_row + 1) * config.n_pes)
        return m

    def _store_word(self, m: Module, layer: data.View, index: Signal, word: Value) -> None:
        with m.Switch(index):
            for number in sorted({word for _, word, _, _ in program_fields(self._config)}):
                with m.Case(number):
                    for name, field_word, low, width in program_fields(self._config):
                        if field_word == number:
                            m.d.sync += getattr(layer, name).eq(word[low : low + width])

    def _slot(self, token: data.View):
        """Slot of an output: local_row * n_pes + pe."""
        n_pes = self._config.n_pes
        if n_pes & (n_pes - 1) == 0:
            return Cat(token.pe, token.row)
        return token.row * n_pes + token.pe
