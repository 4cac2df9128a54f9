# SPDX-License-Identifier: BSD-2-Clause
"""An engine that reads packed images bit by bit and computes from its memories alone, in numpy.

It executes the program as the sequencer does: chains of sparse layers image by image, a layer on
the tile for all images at once. Nothing is shared with the compiler but the field lists. Banks
start with random bits, as memories may, and keep what earlier runs left in them.
"""

import struct

import numpy as np
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import RECORD_STRIDE, Section, Unit, bytes_per_word, program_fields


class ImageModel:
    """Load images, then run batches of inputs."""

    def __init__(self, config: EngineConfig):
        self.config = config
        self.memories: dict = {}
        self.layers: dict = {}  # matrices already read from the memories
        shape = (2, config.batch, config.input_depth)
        rng = np.random.default_rng(1)
        self.banks = rng.integers(0, 1 << config.activation_bits, shape)

    def load(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            kind, pe, address, count = struct.unpack_from("<BBHI", data, at)
            size = bytes_per_word(Section(kind), self.config)
            at += 8
            if kind != Section.PROGRAM:
                self.layers.clear()
            if kind == Section.CODED_ENTRIES:
                self.decode(pe, address, data[at : at + count])
                at += count
                continue
            memory = self.memories.setdefault((kind, pe), {})
            for k in range(count):
                memory[address + k] = int.from_bytes(data[at : at + size], "little")
                at += size
        assert at == len(data)

    def decode(self, pe: int, address: int, data: bytes) -> None:
        """Write a coded section's entries and records, bit by bit."""
        config = self.config
        table = [self.memories[Section.CODE_TABLE, 0][k] for k in range(36)]
        row_word, record, last_column, escape = table[32:]
        rows, wide, n_gaps = (row_word & 0x7FFF) + 1, row_word >> 15, sum(table[:16])
        bits = iter("".join(f"{byte:08b}"[::-1] for byte in data[2:]))
        first, place, counts = address, -1, [0] * (last_column + 1)
        for _ in range(int.from_bytes(data[:2], "little")):
            gap, number = self.symbol(table[:16], 0, bits)
            while number == escape:
                place += gap
                gap, number = self.symbol(table[:16], 0, bits)
            place += gap + 1
            code, _ = self.symbol(table[16:32], n_gaps, bits)
            top = int(f"{code:08b}"[::-1], 2) << config.entry_bits - 8
            self.memories.setdefault((Section.WEIGHTS, pe), {})[address] = top | place % rows
            counts[place // rows] += 1
            address += 1
        rest = "".join(bits)
        assert len(rest) < 8
        assert "1" not in rest
        size, width = (4, 2 * config.count_bits) if wide else (8, config.count_bits)
        for k in range(0, len(counts), size):
            word = (first + sum(counts[:k])) % (1 << config.base_bits)
            for field, count in enumerate(counts[k : k + size]):
                assert count < 1 << width
                word |= count << config.base_bits + field * width
            self.memories.setdefault((Section.COLUMNS, pe), {})[record + k // size] = word

    def symbol(self, counts, base: int, bits) -> tuple[int, int]:
        """The next symbol of a table, and its number there."""
        code = first = number = 0
        for count in counts:
            code = 2 * code + int(next(bits))
            if code < first + count:
                number += code - first
                return self.memories[Section.CODE_SYMBOLS, 0][base + number], number
            number += count
            first = 2 * (first + count)
        raise AssertionError("no such code")

    def run(self, inputs: np.ndarray) -> np.ndarray:
        """Results (images, result slots) of inputs (images, columns)."""
        config = self.config
        assert 1 <= len(inputs) <= config.batch
        padded = np.zeros((len(inputs), -(-inputs.shape[1] // 4) * 4), dtype=np.int64)
        padded[:, : inputs.shape[1]] = inputs
        number = 0
        while True:
            chain = self.chain(number)
            head, tail = chain[0][0], chain[-1][0]
            groups = self.banks[head["source_bank"]] if head.get("from_bank") else padded
            whole_groups = head.get("unit") == Unit.TENSOR_TILE
            width = (head["last_input"] | 3 if whole_groups else head["last_input"]) + 1
            assert width <= groups.shape[1]
            outputs = np.array([self.image(chain, row[:width]) for row in groups[: len(inputs)]])
            if tail["last"]:
                assert outputs.shape[1] <= config.output_depth
                return outputs
            assert tail["to_bank"]
            assert not (head["from_bank"] and head["source_bank"] == tail["target_bank"])
            assert outputs.shape[1] <= config.input_depth
            bits = outputs & ((1 << config.activation_bits) - 1)
            self.banks[tail["target_bank"], : len(inputs), : outputs.shape[1]] = bits
            number += len(chain)

    def image(self, chain, values: np.ndarray) -> np.ndarray:
        """Outputs by slot of a chain of layers for one image."""
        bits = self.config.activation_bits
        for record, weights, bias, shift in chain:
            values = values & ((1 << bits) - 1)
            if record["signed_in"]:
                values = values - (values >> bits - 1 << bits)
            sums = weights @ values
            assert np.abs(sums).max() < 1 << self.config.sum_bits - 1
            values = np.clip(sums + bias >> shift, *self.clamp(record))
        return values

    def chain(self, number: int) -> list:
        """Layers from `number` on that one image walks through before the next."""
        layers = []
        columns = 0
        while True:
            record = self.record(number)
            assert bool(record["from_merge"]) == bool(layers)
            columns = columns if layers else record["last_input"] + 1
            if record.get("unit") == Unit.TENSOR_TILE:
                return [(record, *self.layer(record, columns))]
            layers.append((record, *self.layer(record, columns)))
            if record["last"] or record.get("to_bank"):
                assert record["keep_zeros"]
                return layers
            columns = len(layers[-1][1])
            number += 1

    def layer(self, record, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        on_tile = record.get("unit") == Unit.TENSOR_TILE
        place = on_tile, record["tile_base"] if on_tile else record["columns_base"]
        if place not in self.layers:
            read = self.tile_layer(record) if on_tile else self.array_layer(record, columns)
            self.layers[place] = read
        return self.layers[place]

    def record(self, number: int) -> dict[str, int]:
        words = self.memories[Section.PROGRAM, 0]
        return {
            name: words[number * RECORD_STRIDE + word] >> low & ((1 << width) - 1)
            for name, word, low, width in program_fields(self.config)
        }

    def clamp(self, record) -> tuple[int, int]:
        limits = record["low"], record["high"]
        bits = self.config.activation_bits
        signs = tuple(value - (value >> bits - 1 << bits) for value in limits)
        return signs if record["signed_out"] else limits

    def weight(self, record, code: int) -> int:
        assert record["codebook_base"] & code == 0
        value = self.memories[Section.CODEBOOK, 0][record["codebook_base"] | code]
        return value - (value >> 15 << 16)

    def bias(self, value: int) -> tuple[int, int]:
        width = self.config.sum_bits - 1
        bias = value & ((1 << width) - 1)
        return bias - (bias >> width - 1 << width), value >> width

    def array_layer(self, record, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (slots, columns), bias and shift (slots,) as the PEs see them."""
        config = self.config
        rows, n_pes = record["last_row"] + 1, config.n_pes
        weights = np.zeros((rows * n_pes, columns), dtype=np.int64)
        biases = []
        for slot in range(rows * n_pes):
            memory = self.memories[Section.COLUMNS, slot % n_pes]
            biases.append(self.bias(memory[record["bias_base"] + slot // n_pes]))
        for pe in range(n_pes):
            memory = self.memories.get((Section.WEIGHTS, pe), {})
            for column in range(columns):
                for address in self.entries(record, pe, column):
                    entry = memory[address]
                    code = int(f"{entry:0{config.entry_bits}b}"[:8][::-1], 2) & record["code_mask"]
                    slot = (entry & record["row_mask"]) * n_pes + pe
                    weights[slot, column] += self.weight(record, code)
        bias, shift = np.array(biases).T
        return weights, bias, shift

    def entries(self, record, pe: int, column: int) -> range:
        """Addresses of one slice."""
        narrow, base_bits = self.config.count_bits, self.config.base_bits
        size, width = (4, 2 * narrow) if record["wide_counts"] else (8, narrow)
        word = self.memories[Section.COLUMNS, pe][record["columns_base"] + column // size]
        counts = [
            word >> base_bits + k * width & ((1 << width) - 1) for k in range(column % size + 1)
        ]
        first = (word & ((1 << base_bits) - 1)) + sum(counts[:-1])
        return range(first, first + counts[-1])

    def tile_layer(self, record) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (slots, columns of whole groups), bias and shift (slots,)."""
        config = self.config
        groups = (record["last_input"] >> 2) + 1
        rows, passes = (record["last_block"] + 1) * config.tile_rows, record["two_pass"] + 1
        weights = np.zeros((rows, 4 * groups), dtype=np.int64)
        biases = []
        width = 2 + config.tile_code_bits
        for row in range(rows):
            block, lane = divmod(row, config.tile_rows)
            memory = self.memories[Section.TILE_WEIGHTS, lane]
            for step in range(groups * passes):
                word = memory[record["tile_base"] + block * groups * passes + step]
                assert word < 1 << 2 * width
                for pair in (word & ((1 << width) - 1), word >> width):
                    column = step // passes * 4 + (pair & 3)
                    weights[row, column] += self.weight(record, pair >> 2)
            word = self.memories[Section.TILE_BIASES, 0][record["tile_bias_base"] + row]
            biases.append(self.bias(word))
        bias, shift = np.array(biases).T
        return weights, bias, shift
