# SPDX-License-Identifier: BSD-2-Clause
"""Loader: the byte stream of an image becomes writes to the memories."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import SECTION_HEADER, bytes_per_word, sections_of
from .layouts import WriteBus, WriteSignature

__all__ = ["Loader"]


class Loader(wiring.Component):
    """Parse sections (`formats.section`): a header of eight bytes, then words of whole bytes.

    **Latency**: a word is written in the cycle after its last byte. **Throughput**: one byte per
    cycle, never stalls. A header with an unknown kind or a PE or tile row that is not there sets
    `error`, and nothing is written until `restart`.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of 8 bits, always ready)
    restart : In(1)
        Begin a new image.
    write : Out
        Loader's bus to the memories.
    complete : Out(1)
        No section is unfinished.
    error : Out(1)
        The image is malformed.
    """

    i: stream.Interface
    restart: Signal
    write: WriteBus
    complete: Signal
    error: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(8, always_ready=True)),
                "restart": In(1),
                "write": Out(WriteSignature(config)),
                "complete": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Gather bytes from the top of a shift register; count bytes, then words."""
        m = Module()
        config = self._config
        write = self.write
        header = Signal(8 * SECTION_HEADER.size)
        header_left = Signal(range(SECTION_HEADER.size), init=SECTION_HEADER.size - 1)
        memories = sections_of(config)
        word_bytes = {kind: bytes_per_word(kind, config) for kind in memories}
        gathered = Signal.like(write.data)
        size = Signal(range(max(word_bytes.values()) + 1))
        byte_left = Signal.like(size)
        words_left = Signal(32)
        in_words = Signal()

        m.d.comb += self.complete.eq(
            ~in_words & (header_left == SECTION_HEADER.size - 1) & ~self.error
        )
        m.d.sync += write.en.eq(0)
        with m.If(write.en):
            m.d.sync += write.address.eq(write.address + 1)
        with m.If(self.restart):
            m.d.sync += [
                header_left.eq(SECTION_HEADER.size - 1),
                in_words.eq(0),
                self.error.eq(0),
            ]
        with m.Elif(self.i.valid & ~self.error):
            with m.If(~in_words):
                next_header = Cat(header[8:], self.i.payload)
                m.d.sync += [header.eq(next_header), header_left.eq(header_left - 1)]
                with m.If(header_left == 0):
                    m.d.sync += header_left.eq(SECTION_HEADER.size - 1)
                    m.d.sync += in_words.eq(next_header[32:].any())
                    new_kind, new_pe = next_header[:8], next_header[8:16]
                    m.d.sync += [
                        write.kind.eq(new_kind),
                        write.pe.eq(new_pe),
                        write.address.eq(next_header[16:32]),
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
                        write.en.eq(1),
                    ]
        # The bytes of a narrow word stand at the top of the register.
        widest = len(write.data) // 8
        with m.Switch(size):
            for width in sorted(set(word_bytes.values())):
                with m.Case(width - 1):
                    m.d.comb += write.data.eq(gathered[8 * (widest - width) :])
        return m
