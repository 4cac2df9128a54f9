# SPDX-License-Identifier: BSD-2-Clause
"""Loader: the byte stream of an image becomes writes to the memories."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from .config import EngineConfig
from .formats import SECTION_HEADER, Section, bytes_per_word, sections_of
from .huffman import HuffmanDecoder
from .layouts import WriteBus, WriteSignature
from .slices import SliceWriter

__all__ = ["Loader"]


class Loader(wiring.Component):
    """Parse sections (`formats.section`): a header of eight bytes, then words of whole bytes.

    Words go to their memory as they are; those of CODED_ENTRIES are decoded (`rtl/huffman.py`,
    `rtl/slices.py`) into entries and column records.

    **Latency**: a word is written in the second cycle after its last byte: the bus goes to every
    memory, so it comes from flip-flops. **Throughput**: one byte per cycle; in a coded section
    `decoder_bits` bits of one code per cycle, and besides up to a cycle for each column. A header
    with an unknown kind or a PE or tile row that is not there, or a coded section that is damaged
    or has no table before it, sets `error`, and nothing is written until `restart`.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of 8)
        Ready in every cycle but in coded sections.
    restart : In(1)
        Begin a new image.
    write : Out
        Loader's bus to the memories.
    busy : Out(1)
        A coded section is being decoded, and no byte is needed to go on.
    complete : Out(1)
        No section is unfinished.
    error : Out(1)
        The image is malformed.
    """

    i: stream.Interface
    restart: Signal
    write: WriteBus
    busy: Signal
    complete: Signal
    error: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "restart": In(1),
                "write": Out(WriteSignature(config)),
                "busy": Out(1),
                "complete": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Gather bytes from the top of a shift register; count bytes, then words."""
        m = Module()
        config = self._config
        write = WriteSignature(config).create()
        header = Signal(8 * SECTION_HEADER.size)
        header_left = Signal(range(SECTION_HEADER.size), init=SECTION_HEADER.size - 1)
        memories = sections_of(config)
        word_bytes = {kind: bytes_per_word(kind, config) for kind in memories}
        gathered = Signal.like(write.data)
        size = Signal(range(max(word_bytes.values()) + 1))
        byte_left = Signal.like(size)
        words_left = Signal(32)
        in_words, coded = Signal(), Signal()
        there, starting = Signal(), Signal()
        kind, address = Signal.like(write.kind), Signal.like(write.address)

        whole = ~in_words & (header_left == SECTION_HEADER.size - 1)
        m.d.comb += [
            self.i.ready.eq(1),
            self.complete.eq(whole & ~coded & ~self.error),
            write.en.eq(there),
            write.kind.eq(kind),
            write.address.eq(address),
        ]
        m.d.sync += there.eq(0)
        with m.If(there):
            m.d.sync += address.eq(address + 1)
        with m.If(self.restart):
            m.d.sync += [
                header_left.eq(SECTION_HEADER.size - 1),
                in_words.eq(0),
                self.error.eq(0),
            ]
        with m.Elif(self.i.valid & self.i.ready & ~self.error):
            with m.If(~in_words):
                next_header = Cat(header[8:], self.i.payload)
                m.d.sync += [header.eq(next_header), header_left.eq(header_left - 1)]
                with m.If(header_left == 0):
                    m.d.comb += starting.eq(next_header[:8] == Section.CODED_ENTRIES)
                    m.d.sync += header_left.eq(SECTION_HEADER.size - 1)
                    m.d.sync += in_words.eq(next_header[32:].any())
                    new_kind, new_pe = next_header[:8], next_header[8:16]
                    m.d.sync += [
                        kind.eq(new_kind),
                        write.pe.eq(new_pe),
                        address.eq(next_header[16:32]),
                        words_left.eq(next_header[32:] - 1),
                    ]
                    with m.Switch(new_kind):
                        for known, width in word_bytes.items():
                            with m.Case(known):
                                m.d.sync += [size.eq(width - 1), byte_left.eq(width - 1)]
                                with m.If(new_pe >= memories[known]):
                                    m.d.sync += self.error.eq(1)
                        with m.Default():
                            m.d.sync += self.error.eq(1)
            with m.Else():
                m.d.sync += [
                    gathered.eq(Cat(gathered[8:], self.i.payload)),
                    byte_left.eq(byte_left - 1),
                ]
                with m.If(byte_left == 0):
                    m.d.sync += [
                        byte_left.eq(size),
                        words_left.eq(words_left - 1),
                        in_words.eq(words_left != 0),
                        there.eq(~coded),
                    ]
        # The bytes of a narrow word stand at the top of the register.
        widest = len(write.data) // 8
        with m.Switch(size):
            for width in sorted(set(word_bytes.values())):
                with m.Case(width - 1):
                    m.d.comb += write.data.eq(gathered[8 * (widest - width) :])
        if config.decoder_bits:
            self._decode(m, write, coded, in_words, starting, kind, address)
        m.d.sync += [
            self.write.en.eq(write.en),
            self.write.kind.eq(write.kind),
            self.write.pe.eq(write.pe),
            self.write.address.eq(write.address),
            self.write.data.eq(write.data),
        ]
        return m

    def _decode(
        self,
        m: Module,
        write: WriteBus,
        coded: Signal,
        more: Signal,
        starting: Signal,
        kind: Signal,
        address: Signal,
    ) -> None:
        """Take over input and `write` from the header of a coded section until it is written."""
        clear = Signal()
        reset = ResetInserter(clear)
        decoder, writer = HuffmanDecoder(self._config), SliceWriter(self._config)
        m.submodules.decoder, m.submodules.writer = reset(decoder), reset(writer)
        connect(m, decoder.o, writer.i)
        tables = Signal(2)  # which of the two are there
        m.d.comb += [
            clear.eq(starting | self.restart | self.error),
            decoder.write.en.eq(write.en),
            decoder.write.kind.eq(write.kind),
            decoder.write.address.eq(write.address),
            decoder.write.data.eq(write.data),
            decoder.run.eq(coded),
            decoder.more.eq(more),
            decoder.i.p.eq(self.i.p),
            decoder.i.valid.eq(self.i.valid & coded & more),
            writer.set.eq(decoder.set),
            writer.number.eq(decoder.number),
            writer.setting.eq(decoder.setting),
            writer.empty.eq(decoder.empty),
            writer.address.eq(address),
            self.i.ready.eq(~coded | self.error | (more & decoder.i.ready)),
            self.busy.eq(coded & ~self.i.ready),
        ]
        with m.If(write.en & (write.kind == Section.CODE_TABLE)):
            m.d.sync += tables[0].eq(1)
        with m.If(write.en & (write.kind == Section.CODE_SYMBOLS)):
            m.d.sync += tables[1].eq(1)
        with m.If(starting):
            m.d.sync += [coded.eq(1), kind.eq(Section.WEIGHTS)]
            with m.If(~tables.all()):
                m.d.sync += self.error.eq(1)
        with m.If(coded & (decoder.error | writer.error)):
            m.d.sync += self.error.eq(1)
        with m.Elif(coded & decoder.done & writer.done):
            m.d.sync += coded.eq(0)
        with m.If(self.restart):
            m.d.sync += [self.error.eq(0), coded.eq(0), tables.eq(0)]
        with m.If(writer.entry):
            m.d.sync += address.eq(address + 1)
            m.d.comb += [write.en.eq(1), write.data.eq(writer.entry_word)]
        with m.If(writer.record):
            m.d.comb += [
                write.en.eq(1),
                write.kind.eq(Section.COLUMNS),
                write.address.eq(writer.record_address),
                write.data.eq(writer.record_word),
            ]
