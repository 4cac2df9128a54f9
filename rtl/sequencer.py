# SPDX-License-Identifier: BSD-2-Clause
"""Sequencer: program records make the units work through a network, layer by layer."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig, ceil_log2
from .formats import RECORD_STRIDE, Section, Unit, program_fields
from .layouts import (
    WriteBus,
    WriteSignature,
    activation_layout,
    layer_layout,
    select_layer,
    token_layout,
    vector_layout,
)

__all__ = ["Sequencer"]


class Sequencer(wiring.Component):
    """Run a program: for each layer read its record, feed its unit, go on.

    A layer of the sparse array is fed from an input slot, from a bank, or straight from the merge
    tree with the outputs of the layer before, so that it starts while that one still drains. Layers
    linked in that way form a segment, which is run image by image. A layer of the tile takes all
    images at once. The outputs of a segment or of a tile's layer are collected in a bank or, from
    the layer whose record says `last`, in the result buffer.

    A record goes to one of two parameter sets, by the parity of the layers that the array has done.
    Overwriting the set of the layer before the last is safe: a record is read after the last
    layer's last input, which came after the outputs of the one before had left. The tile runs
    alone, on the set that the array's next layer will get.

    A run is computed when every PE has drained its last layer, or the tile is done. The next one
    can start then, while results still leave the PEs' lists; only its drain waits until they have.

    **Latency**: the input is scanned in the cycle after `start`. Reading a record takes
    `record_cycles`, which pass while the layer before still works; the first layer's record is read
    ahead.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    start, slot, images : In
        Run the program on so many images of an input slot; only while `idle`.
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
        Number of results per image of the run that is collected.
    layers, parity : Out
        Parameter sets for the units, and which is the current layer's.
    from_bank, source, image : Out
        Vector that is read: whether from a bank or slot, which of the two, which image's.
    scan, last_input, i_store : Out, Out, In(stream)
        The scanner.
    i_merge, o_array : In(stream), Out(stream)
        The sparse array's outputs and inputs.
    o_results : Out(stream of vector_layout)
        Outputs of the last layer.
    tile_start, tile_images, tile_done, tile_valid, tile_vector : Out, Out, In, In, In
        With a tile: have it run the current layer; its outputs.
    bank_write, bank : Out
        With a tile: the payload of `o_results` belongs into a bank.
    write : In
        Loader's bus.
    """

    start: Signal
    slot: Signal
    images: Signal
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
    from_bank: Signal
    source: Signal
    image: Signal
    scan: Signal
    last_input: Signal
    i_store: stream.Interface
    i_merge: stream.Interface
    o_array: stream.Interface
    o_results: stream.Interface
    tile_start: Signal
    tile_images: Signal
    tile_done: Signal
    tile_valid: Signal
    tile_vector: data.View
    bank_write: Signal
    bank: Signal
    write: WriteBus

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        activations = stream.Signature(activation_layout(config))
        super().__init__(
            {
                "start": In(1),
                "slot": In(1),
                "images": In(config.image_bits),
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
                "from_bank": Out(1),
                "source": Out(1),
                "image": Out(max(ceil_log2(config.batch), 1)),
                "scan": Out(1),
                "last_input": Out(16),
                "i_store": In(activations),
                "i_merge": In(stream.Signature(token_layout(config, config.pe_bits))),
                "o_array": Out(activations),
                "o_results": Out(stream.Signature(vector_layout(config))),
                "write": In(WriteSignature(config)),
            }
            | (
                {
                    "tile_start": Out(1),
                    "tile_images": Out(config.image_bits),
                    "tile_done": In(1),
                    "tile_valid": In(1),
                    "tile_vector": In(vector_layout(config)),
                    "bank_write": Out(1),
                    "bank": Out(1),
                }
                if config.tile_rows
                else {}
            )
        )

    @property
    def record_cycles(self) -> int:
        """Cycles from a layer's last input to the moment the next layer's record is there."""
        return max(word for _, word, _, _ in program_fields(self._config)) + 2

    def elaborate(self, platform: object) -> Module:
        """Read a record, feed a layer, collect its outputs."""
        m = Module()
        config = self._config
        tile = config.tile_rows > 0
        m.submodules.program = program = memory.Memory(
            shape=16, depth=config.max_layers * RECORD_STRIDE, init=[]
        )
        read_port, write_port = program.read_port(), program.write_port()
        m.d.comb += [
            write_port.addr.eq(self.write.address),
            write_port.data.eq(self.write.data),
            write_port.en.eq(self.write.en & (self.write.kind == Section.PROGRAM)),
        ]

        layer, segment = (Signal(range(max(config.max_layers, 2))) for _ in range(2))
        word, word_q1 = Signal(range(RECORD_STRIDE)), Signal(range(RECORD_STRIDE))
        word_valid_q1 = Signal()
        m.d.comb += read_port.addr.eq(Cat(word, layer))
        m.d.sync += [word_q1.eq(word), word_valid_q1.eq(0)]
        for index in range(2):
            with m.If(word_valid_q1 & (self.parity == index)):
                self._store_word(m, self.layers[index], word_q1, read_port.data)

        current = select_layer(self.layers, self.parity)
        slot = Signal()
        images = Signal(config.image_bits)
        last_image = Signal()
        m.d.comb += [
            last_image.eq(self.image == images - 1 if config.batch > 1 else 1),
            self.last_input.eq(current.last_input),
            self.source.eq(slot),
        ]
        if tile:
            m.d.comb += [
                self.from_bank.eq(current.from_bank),
                self.source.eq(Mux(current.from_bank, current.source_bank, slot)),
                self.tile_images.eq(images),
            ]
        collecting = self._collect(m, current)
        m.d.comb += self.running.eq(self.computing | collecting)

        merged = Signal(activation_layout(config))
        m.d.comb += [
            merged.slot.eq(self._slot(self.i_merge.p)),
            merged.value.eq(self.i_merge.p.value),
            merged.last.eq(self.i_merge.p.last),
        ]
        ends_segment = current.last | (current.to_bank if tile else 0)
        tile_collected = Signal()  # a cycle after `computed`: the counters are saved then
        m.d.sync += [self.scan.eq(0), tile_collected.eq(0)]
        with m.If(tile_collected):
            m.d.comb += self.collected.eq(1)
        fed = self.o_array.valid & self.o_array.ready & self.o_array.p.last
        with m.FSM():
            with m.State("RECORD"):
                m.d.sync += [word.eq(word + 1), word_valid_q1.eq(1)]
                with m.If(word == self.record_cycles - 2):
                    m.next = "RECORD_END"
            with m.State("RECORD_END"):
                m.next = "FEED"
                with m.If((layer == 0) & (self.image == 0)):
                    m.next = "DRAIN"
                if tile:
                    with m.Elif(current.unit == Unit.TENSOR_TILE):
                        m.next = "TILE"
                    with m.Elif(~current.from_merge):
                        m.next = "SCAN"
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
                        slot.eq(self.slot),
                        images.eq(self.images),
                    ]
                    m.next = "FEED"
                    if tile:
                        with m.If(current.unit == Unit.TENSOR_TILE):
                            m.next = "TILE"
                        with m.Else():
                            m.d.sync += self.scan.eq(1)
                    else:
                        m.d.sync += self.scan.eq(1)
            with m.State("FEED"):
                with m.If(current.from_merge):
                    m.d.comb += [
                        self.o_array.p.eq(merged),
                        self.o_array.valid.eq(self.i_merge.valid),
                        self.i_merge.ready.eq(self.o_array.ready),
                    ]
                with m.Else():
                    # The lists must be empty before a drain fills them again.
                    hold = self.i_store.p.last & collecting
                    m.d.comb += [
                        self.o_array.p.eq(self.i_store.p),
                        self.o_array.valid.eq(self.i_store.valid & ~hold),
                        self.i_store.ready.eq(self.o_array.ready & ~hold),
                    ]
                with m.If(fed):
                    m.d.sync += [self.parity.eq(~self.parity), word.eq(0), layer.eq(layer + 1)]
                    m.next = "RECORD"
                    with m.If(ends_segment):
                        m.d.sync += collecting.eq(1)
                        with m.If(last_image):
                            following = Mux(current.last, 0, layer + 1)
                            m.d.sync += [
                                layer.eq(following),
                                segment.eq(following),
                                self.image.eq(0),
                            ]
                        with m.Else():
                            m.d.sync += [layer.eq(segment), self.image.eq(self.image + 1)]
                    with m.If(last_image & ~current.from_merge):
                        m.d.sync += self.holds_input.eq(0)
                    with m.If(current.last):
                        m.d.sync += self.result_slots.eq((current.last_row + 1) * config.n_pes)
            if tile:
                with m.State("SCAN"):
                    # A bank is complete when the layer before has been collected.
                    with m.If(~collecting | (self.image != 0)):
                        m.d.sync += self.scan.eq(1)
                        m.next = "FEED"
                self._run_tile(m, current, collecting, layer, segment, word, tile_collected)
        return m

    def _collect(self, m: Module, current: data.View) -> Signal:
        """Outputs on their way to a bank or the results; returns whether the array's are."""
        config = self._config
        collecting = Signal()
        image = Signal.like(self.image, name="collected_image")
        to_results, final = Signal(init=1), Signal(init=1)
        ready = self.o_results.ready
        vector = Signal(vector_layout(config))
        token = self.i_merge.p
        m.d.comb += [
            vector.slot.eq(self._slot(token)),
            vector.values.eq(token.value.replicate(config.batch)),
            vector.images.eq(1 << image if config.batch > 1 else 1),
            self.o_results.p.eq(vector),
        ]
        if config.tile_rows:
            bank = Signal()
            ready = self.o_results.ready | ~to_results
            m.d.comb += self.bank.eq(bank)
            # Taken over while a layer is fed; steady while its outputs are collected.
            with m.If(~collecting):
                m.d.sync += [
                    to_results.eq(current.last),
                    bank.eq(current.target_bank),
                    image.eq(self.image),
                    final.eq(self.image == self.tile_images - 1),
                ]
        done = collecting & self.i_merge.valid & ready & token.last
        with m.If(collecting):
            m.d.comb += [
                self.o_results.valid.eq(self.i_merge.valid & to_results),
                self.i_merge.ready.eq(ready),
                self.collected.eq(done & to_results & final),
            ]
            if config.tile_rows:
                m.d.comb += self.bank_write.eq(self.i_merge.valid & ~to_results)
        with m.If(done):
            m.d.sync += collecting.eq(0)
        return collecting

    def _run_tile(
        self,
        m: Module,
        current: data.View,
        collecting: Signal,
        layer: Signal,
        segment: Signal,
        word: Signal,
        tile_collected: Signal,
    ) -> None:
        """States of a layer on the tile, which starts when its input and its target are free."""
        with m.State("TILE"):
            with m.If(self.drained & ~collecting & (self.o_results.ready | ~current.last)):
                m.d.comb += self.tile_start.eq(1)
                m.next = "TILE_RUN"
        with m.State("TILE_RUN"):
            m.d.comb += [
                self.o_results.p.eq(self.tile_vector),
                self.o_results.valid.eq(self.tile_valid & current.last),
                self.bank_write.eq(self.tile_valid & ~current.last),
                self.bank.eq(current.target_bank),
            ]
            with m.If(self.tile_done):
                following = Mux(current.last, 0, layer + 1)
                m.d.sync += [
                    layer.eq(following),
                    segment.eq(following),
                    word.eq(0),
                    self.holds_input.eq(0),
                ]
                m.next = "RECORD"
                with m.If(current.last):
                    m.d.comb += self.computed.eq(1)
                    m.d.sync += [
                        self.computing.eq(0),
                        tile_collected.eq(1),
                        self.result_slots.eq((current.last_block + 1) * self._config.tile_rows),
                    ]

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
