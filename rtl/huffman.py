# SPDX-License-Identifier: BSD-2-Clause
"""Canonical Huffman decoder: bytes of a coded section become gaps and codes in turns.

Codes rise with (length, symbol), so a table is the number of codes of each length and the symbols
in that order. What is kept of a code that is read bit by bit is its distance from the first code of
its length: below the count it is the symbol's place among that length, else the next bit doubles
what is above it. In a complete code of 256 symbols that never takes more than eight bits.

Ref: Moffat and Turpin, "On the implementation of minimum redundancy prefix codes", IEEE Trans.
Commun. 45, 1997; Connell, "A Huffman-Shannon-Fano code", Proc. IEEE 61, 1973.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import EngineConfig
from .formats import CODE_LENGTHS, CODE_SETTINGS, CODE_SYMBOLS, CODE_TABLE_WORDS, Section
from .layouts import WriteBus, WriteSignature, symbol_layout

__all__ = ["BitBuffer", "HuffmanDecoder"]

MOST_OPEN = 128
"""Nodes of a level that go on to longer codes, in a code of 256 symbols at most."""


class BitBuffer(wiring.Component):
    """Two bytes of a stream, read by bits.

    **Latency**: two cycles from a byte to its bits. **Throughput**: a byte every other cycle;
    `i.ready` comes from a flip-flop.

    Parameters
    ----------
    bits : int
        Bits in sight, 1..8.

    Members
    -------
    i : In(stream of 8)
    window, there : Out(bits)
        The next bits, the next one of all in bit 0; and which of them are there.
    take : In
        How many of them to drop, 0..bits.
    aligned : Out(1)
        The next bit is the first one of a byte.
    """

    i: stream.Interface
    window: Signal
    there: Signal
    take: Signal
    aligned: Signal

    def __init__(self, bits: int) -> None:
        self._bits = bits
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "window": Out(bits),
                "there": Out(bits),
                "take": In(range(bits + 1)),
                "aligned": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Bytes do not move within the buffer: `place` does, until the first one is used up."""
        m = Module()
        low, high = Signal(8, reset_less=True), Signal(8, reset_less=True)
        low_there, high_there = Signal(), Signal()
        place = Signal(3)
        after = place + self.take
        m.d.comb += [
            self.i.ready.eq(~high_there),
            self.window.eq(Cat(low, high).bit_select(place, self._bits)),
            self.aligned.eq(place == 0),
        ]
        for k in range(self._bits):
            within = 1 if k == 0 else place < 8 - k
            m.d.comb += self.there[k].eq(low_there & (high_there | within))
        m.d.sync += place.eq(after)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [high.eq(self.i.p), high_there.eq(1)]
        with m.If(~low_there | after[3]):
            m.d.sync += [low.eq(high), low_there.eq(high_there)]
            with m.If(high_there):
                m.d.sync += high_there.eq(0)
        return m


class _Match(NamedTuple):
    """What the next bits are: a code that ends among them, or the part of a longer one."""

    hit: Value
    enough: Value  # the bits that this takes are there
    taken: Value
    place: Value  # of the symbol among all
    value: Value
    first: Value


class HuffmanDecoder(wiring.Component):
    """Decode one section after each reset: check the tables, read the count, then gap, code, ...

    A section is the number of entries (two bytes, the low one first), then the bits, the first one
    the lowest of its byte. Before each code stand one gap symbol or more: the escape is followed by
    another one.

    **Latency**: `START_CYCLES` from `run` to the first bit of a code; an item is valid 2 cycles
    after its last bit was taken. **Throughput**: `decoder_bits` bits of one code per cycle (so a
    bit in every cycle if that is 1), as long as bytes come and items go; `i.ready` comes from a
    flip-flop. **Memory**: `CODE_TABLE_WORDS` x 16 bits, read by `decoder_bits` words, and 512 x 8.

    Parameters
    ----------
    config : EngineConfig
        `decoder_bits` is not 0.

    Members
    -------
    i : In(stream of 8)
        Bytes of the section.
    o : Out(stream of symbol_layout)
        `last` is set on the last code only.
    write : In
        Loader's bus: CODE_TABLE and CODE_SYMBOLS.
    run : In(1)
        A section is there; held until it is over.
    more : In(1)
        Bytes of the section are still to come into `i`.
    set, number, setting : Out
        A setting of the table is there (pulse), its place in `formats.CODE_SETTINGS`, and its
        value; all come before the first item.
    empty : Out(1)
        The section has no entries (pulse).
    done : Out(1)
        The section is over, up to its last bit.
    error : Out(1)
        A table is no complete code (nor a sole symbol of one bit), bits are no code, the section is
        too short or too long, or has unused bits that are not 0. Holds until reset.
    """

    START_CYCLES = CODE_TABLE_WORDS + 16

    i: stream.Interface
    o: stream.Interface
    write: WriteBus
    run: Signal
    more: Signal
    set: Signal
    number: Signal
    setting: Signal
    empty: Signal
    done: Signal
    error: Signal

    def __init__(self, config: EngineConfig) -> None:
        if not config.decoder_bits:
            raise ValueError(f"decoder_bits must not be 0, not {config.decoder_bits!r}")
        self._bits = config.decoder_bits
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(symbol_layout)),
                "write": In(WriteSignature(config)),
                "run": In(1),
                "more": In(1),
                "set": Out(1),
                "number": Out(range(len(CODE_SETTINGS))),
                "setting": Out(16),
                "empty": Out(1),
                "done": Out(1),
                "error": Out(1),
            }
        )

    @staticmethod
    def model(
        table: Sequence[int], symbols: Sequence[int], data: bytes
    ) -> tuple[list[tuple[int, int, int]], bool]:
        """Items (value, code, last) of a section, and whether it is right to its end."""
        counts = [table[:CODE_LENGTHS], table[CODE_LENGTHS : 2 * CODE_LENGTHS]]
        if not all(_is_code(lengths) for lengths in counts) or len(data) < 2:
            return [], False
        bases, escape = (0, sum(counts[0])), table[-1]
        left = int.from_bytes(data[:2], "little")
        bits = (byte >> k & 1 for byte in data[2:] for k in range(8))
        items, is_code = [], 0
        while left:
            place = _place(counts[is_code], bits)
            if place is None:
                return items, False
            left -= is_code
            last = int(is_code and left == 0)
            items.append((symbols[(bases[is_code] + place) % CODE_SYMBOLS], is_code, last))
            is_code = int(not is_code and place != escape)
        rest = list(bits)
        return items, len(rest) < 8 and not any(rest)

    def elaborate(self, platform: object) -> Module:
        """Check of the tables, then the count, then the loop over bits; symbols follow behind."""
        m = Module()
        bits = self._bits
        m.submodules.buffer = buffer = BitBuffer(bits)
        connect(m, flipped(self.i), buffer.i)
        address, read, words = self._table(m)
        number, checked = Signal(range(CODE_TABLE_WORDS)), Signal(range(CODE_TABLE_WORDS))
        checking = Signal()
        m.d.sync += [checked.eq(number), checking.eq(0)]
        code_base, escape = self._check(m, words, checking, checked)

        value, first = Signal(7), Signal(9)
        in_codes, group = Signal(), Signal(range(CODE_LENGTHS // bits))
        match = self._match(words, buffer, value, first)
        codes_next, free, found = Signal(), Signal(), Signal()
        left = Signal(16)
        is_last = in_codes & (left == 1)
        dry = ~match.enough & ~self.more & buffer.i.ready
        m.d.comb += codes_next.eq(~in_codes & (match.place != escape))

        with m.FSM():
            with m.State("CHECK"):
                m.d.comb += [address.eq(number), read.eq(1)]
                with m.If(self.run):
                    m.d.sync += [checking.eq(1), number.eq(number + 1)]
                    with m.If(number == CODE_TABLE_WORDS - 1):
                        m.d.sync += number.eq(0)
                        m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += read.eq(1)
                with m.If(buffer.there[0]):
                    m.d.comb += buffer.take.eq(1)
                    m.d.sync += [left.eq(Cat(left[1:], buffer.window[0])), number.eq(number + 1)]
                    with m.If(number == 15):
                        m.next = "BITS"
                with m.Elif(dry):
                    m.d.sync += self.error.eq(1)
            with m.State("BITS"):
                with m.If(left == 0):
                    m.d.comb += self.empty.eq(1)
                    m.next = "REST"
                with m.Elif(match.enough & (free | ~match.hit)):
                    m.d.comb += [buffer.take.eq(match.taken), read.eq(1)]
                    with m.If(match.hit):
                        m.d.comb += [address.eq(codes_next << 4), found.eq(1)]
                        m.d.sync += [
                            value.eq(0),
                            first.eq(Mux(codes_next, code_base, 0)),
                            group.eq(0),
                            in_codes.eq(codes_next),
                            left.eq(left - in_codes),
                        ]
                        with m.If(is_last):
                            m.next = "REST"
                    with m.Else():
                        m.d.comb += address.eq(in_codes << 4 | (group + 1) * bits)
                        m.d.sync += [
                            value.eq(match.value),
                            first.eq(match.first),
                            group.eq(group + 1),
                        ]
                        with m.If(group == CODE_LENGTHS // bits - 1):
                            m.d.sync += self.error.eq(1)
                with m.Elif(dry):
                    m.d.sync += self.error.eq(1)
            with m.State("REST"):
                # Less than a byte may be left, and only zeros.
                over = self.more | ~buffer.i.ready | (buffer.there[0] & buffer.aligned)
                with m.If(over | (buffer.there[0] & buffer.window[0])):
                    m.d.sync += self.error.eq(1)
                with m.Elif(buffer.there[0]):
                    m.d.comb += buffer.take.eq(1)
                with m.Else():
                    m.d.comb += self.done.eq(1)
        m.d.comb += free.eq(self._look_up(m, found, match.place, in_codes, is_last))
        return m

    def _table(self, m: Module) -> tuple[Signal, Signal, Value]:
        """Memory of the tables: address of a word, read, and the words from there on."""
        bits, write = self._bits, self.write
        lanes = bits.bit_length() - 1
        m.submodules.table = table = memory.Memory(
            shape=16 * bits, depth=CODE_TABLE_WORDS // bits, init=[]
        )
        write_port, read_port = table.write_port(granularity=16), table.read_port()
        address, read = Signal(range(CODE_TABLE_WORDS)), Signal()
        lane_q1 = Signal(max(lanes, 1))
        is_table = write.en & (write.kind == Section.CODE_TABLE)
        m.d.comb += [
            write_port.addr.eq(write.address >> lanes),
            write_port.data.eq(write.data[:16].replicate(bits)),
            write_port.en.eq(Mux(is_table, 1 << write.address[:lanes], 0)),
            read_port.addr.eq(address >> lanes),
            read_port.en.eq(read),
        ]
        with m.If(read):
            m.d.sync += lane_q1.eq(address[:lanes])
        words = Cat(
            read_port.data.word_select(lane_q1[:lanes], 16) if lanes else read_port.data,
            read_port.data[16:],
        )
        return address, read, words

    def _check(
        self, m: Module, words: Value, checking: Signal, number: Signal
    ) -> tuple[Signal, Signal]:
        """Follow the words of the table one by one; return where codes begin, and the escape.

        The nodes of a level that have no symbol open two nodes each on the next one.
        """
        count = words[:9]
        is_count, is_first = number < 2 * CODE_LENGTHS, number[:4] == 0
        open_before, open_now = Signal(8), Signal(signed(11))
        wrong_before, wrong, sole_before, sole = Signal(), Signal(), Signal(), Signal()
        code_base, escape = Signal(9), Signal(9)
        m.d.comb += [
            open_now.eq((Mux(is_first, 1, open_before) << 1) - count),
            wrong.eq((wrong_before & ~is_first) | (open_now < 0) | (open_now > MOST_OPEN)),
            sole.eq(Mux(is_first, count == 1, sole_before & (count == 0))),
            self.set.eq(checking & ~is_count),
            self.number.eq(number[: len(self.number)]),
            self.setting.eq(words[:16]),
        ]
        with m.If(checking):
            m.d.sync += [open_before.eq(open_now), wrong_before.eq(wrong), sole_before.eq(sole)]
            with m.If(is_count & (number[:4] == CODE_LENGTHS - 1)):
                with m.If(~sole & (wrong | (open_now != 0))):
                    m.d.sync += self.error.eq(1)
            with m.If(number < CODE_LENGTHS):
                m.d.sync += code_base.eq(code_base + count)
            with m.If(number == CODE_TABLE_WORDS - 1):
                m.d.sync += escape.eq(words)
        return code_base, escape

    def _match(self, words: Value, buffer: BitBuffer, value: Value, first: Value) -> _Match:
        """Lengthen a code by the bits in sight; the first length that has it is right."""
        lanes = []
        for k in range(self._bits):
            count = words[16 * k : 16 * k + 9]
            longer = Cat(buffer.window[k], value[:7])
            above = longer - count
            lanes.append((above < 0, buffer.there[k], (first + longer)[:9]))
            value, first = above[:7], (first + count)[:9]
        hit, enough, taken, place = lanes[-1][0], lanes[-1][1], Const(self._bits), lanes[-1][2]
        for k, (below, there, at) in reversed(list(enumerate(lanes[:-1]))):
            hit, enough = hit | below, Mux(below, there, enough)
            taken, place = Mux(below, k + 1, taken), Mux(below, at, place)
        return _Match(hit, enough, taken, place, value, first)

    def _look_up(
        self, m: Module, found: Signal, place: Value, in_codes: Signal, is_last: Value
    ) -> Value:
        """Read symbols in two steps; return whether the first one can be taken."""
        m.submodules.symbols = symbols = memory.Memory(shape=8, depth=CODE_SYMBOLS, init=[])
        write_port, read_port = symbols.write_port(), symbols.read_port()
        found_q1, place_q1 = Signal(), Signal(9, reset_less=True)
        code_q1, last_q1 = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [
            write_port.addr.eq(self.write.address),
            write_port.data.eq(self.write.data),
            write_port.en.eq(self.write.en & (self.write.kind == Section.CODE_SYMBOLS)),
            read_port.addr.eq(place_q1),
            read_port.en.eq(~self.o.valid | self.o.ready),
            self.o.p.value.eq(read_port.data),
        ]
        free = ~found_q1 | read_port.en
        with m.If(free):
            m.d.sync += [
                found_q1.eq(found),
                place_q1.eq(place),
                code_q1.eq(in_codes),
                last_q1.eq(is_last),
            ]
        with m.If(read_port.en):
            m.d.sync += [
                self.o.valid.eq(found_q1),
                self.o.p.code.eq(code_q1),
                self.o.p.last.eq(last_q1),
            ]
        return free


def _is_code(counts: Sequence[int]) -> bool:
    """Whether counts by length are those of a complete code, or of a sole symbol of one bit."""
    nodes, fits = 1, True
    for count in counts:
        nodes = 2 * nodes - count
        fits = fits and 0 <= nodes <= MOST_OPEN
    return (fits and nodes == 0) or [*counts] == [1] + [0] * (CODE_LENGTHS - 1)


def _place(counts: Sequence[int], bits: Iterator[int]) -> int | None:
    """Place of the next code's symbol in its table; None if there is no such code."""
    value = first = 0
    for count in counts:
        bit = next(bits, None)
        if bit is None:
            return None
        value = 2 * value + bit
        if value < count:
            return first + value
        value -= count
        first += count
    return None
