# SPDX-License-Identifier: BSD-2-Clause
import struct
from dataclasses import replace

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler import compile_network, deal_rows, program_image
from gossamer.host.errors import CapacityError
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import RECORD_STRIDE, Section, bytes_per_word, program_fields
from networks import random_inputs, random_network

CONFIGS = {
    "1 PE": EngineConfig(n_pes=1, sum_bits=24, entry_bits=16, count_bits=4, rows_per_pe=200),
    "5 PEs": EngineConfig(n_pes=5, entry_bits=20, count_bits=3, rows_per_pe=60),
    "64 PEs": EngineConfig(n_pes=64, count_bits=2, rows_per_pe=8),
}


class Engine:
    """Interpreter of images: reads the sections and computes from the memories alone."""

    def __init__(self, config: EngineConfig):
        self.config = config
        self.memories: dict = {}

    def load(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            kind, pe, address, count = struct.unpack_from("<BBHI", data, at)
            size = bytes_per_word(Section(kind), self.config)
            memory = self.memories.setdefault((kind, pe), {})
            at += 8
            for k in range(count):
                memory[address + k] = int.from_bytes(data[at : at + size], "little")
                at += size
        assert at == len(data)

    def run(self, q: np.ndarray) -> np.ndarray:
        """Results of one input, by slot."""
        values = {slot: int(value) for slot, value in enumerate(q)}
        for number in range(self.config.max_layers):
            record = self.record(number)
            outputs = {}
            for pe in range(self.config.n_pes):
                sums = [0] * (record["last_row"] + 1)
                for slot, value in values.items():
                    if value:
                        self.accumulate(record, pe, slot, value, sums)
                for row, total in enumerate(sums):
                    bias, shift = self.bias(record, pe, row)
                    low, high = self.clamp(record)
                    outputs[row * self.config.n_pes + pe] = min(
                        max((total + bias) >> shift, low), high
                    )
            if record["last"]:
                assert record["keep_zeros"] == 1
                return np.array([outputs[slot] for slot in range(len(outputs))])
            values = outputs
        raise AssertionError("no record says last")

    def record(self, number: int) -> dict[str, int]:
        words = self.memories[Section.PROGRAM, 0]
        return {
            name: words[number * RECORD_STRIDE + word] >> low & ((1 << width) - 1)
            for name, word, low, width in program_fields(self.config)
        }

    def clamp(self, record) -> tuple[int, int]:
        signs = (record[name] - (record[name] >> 7 << 8) for name in ("low", "high"))
        return tuple(signs) if record["signed_out"] else (record["low"], record["high"])

    def bias(self, record, pe: int, row: int) -> tuple[int, int]:
        config = self.config
        first = record["bias_base"] + row * config.bias_words
        memory = self.memories[Section.WEIGHTS, pe]
        value = sum(memory[first + k] << k * config.entry_bits for k in range(config.bias_words))
        width = config.sum_bits - 1
        bias = value & ((1 << width) - 1)
        return bias - (bias >> width - 1 << width), value >> width

    def accumulate(self, record, pe: int, slot: int, value: int, sums: list[int]) -> None:
        config = self.config
        group, width = (
            (4, 2 * config.count_bits) if record["wide_counts"] else (8, config.count_bits)
        )
        word = self.memories[Section.COLUMNS, pe][record["columns_base"] + slot // group]
        counts = [
            word >> config.base_bits + k * width & ((1 << width) - 1)
            for k in range(slot % group + 1)
        ]
        first = (word & ((1 << config.base_bits) - 1)) + sum(counts[:-1])
        for address in range(first, first + counts[-1]):
            entry = self.memories[Section.WEIGHTS, pe][address]
            code = int(f"{entry:0{config.entry_bits}b}"[:8][::-1], 2) & record["code_mask"]
            weight = self.memories[Section.CODEBOOK, 0][record["codebook_base"] | code]
            sums[entry & record["row_mask"]] += (weight - (weight >> 15 << 16)) * value


def example(config, sizes, seed, **options):
    rng = np.random.default_rng(seed)
    network = random_network(rng, sizes, sum_bits=config.sum_bits, **options)
    return network, random_inputs(rng, network, 3)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sizes", [(40, 33, 17, 5), (1, 1), (7, 1, 9), (65, 3)])
def test_image_holds_the_network(name, sizes):
    config = CONFIGS[name]
    for structure, density in (("unstructured", 0.2), ("dense", 0.7), ("unstructured", 1.0)):
        network, q = example(config, sizes, 3, structure=structure, weight_density=density)
        image = compile_network(network, config)
        engine = Engine(config)
        engine.load(image.data)
        got = [engine.run(row)[image.output_slots].tolist() for row in q]
        assert got == golden.run(network, q).tolist()
        assert image.data == compile_network(network, config).data


def test_new_program_stops_after_any_layer():
    config = CONFIGS["5 PEs"]
    network, q = example(config, (30, 22, 11, 6), 4)
    image = compile_network(network, config)
    engine = Engine(config)
    engine.load(image.data)
    for k, want in enumerate(golden.run_layers(network, q)):
        part = program_image(image, k)
        assert len(part.data) == 8 + 2 * RECORD_STRIDE * (k + 1)
        engine.load(part.data)
        got = engine.run(q[0])
        assert len(got) == part.result_slots
        assert got[part.output_slots].tolist() == want[0].tolist()
    engine.load(program_image(image).data)
    assert engine.run(q[0])[image.output_slots].tolist() == golden.run(network, q)[0].tolist()


def test_rows_are_dealt_evenly():
    rng = np.random.default_rng(5)
    for rows, pes in ((300, 16), (7, 3), (5, 64), (64, 64), (1, 1)):
        nonzeros = rng.integers(0, 60, rows)
        slots = deal_rows(nonzeros, pes)
        assert len(set(slots.tolist())) == rows
        assert slots.max() < -(-rows // pes) * pes
        work = np.bincount(slots % pes, weights=nonzeros, minlength=pes)
        assert work.max() <= max(nonzeros.max(), nonzeros.sum() / pes) + nonzeros.max()
    work = np.bincount(deal_rows(np.arange(300), 16) % 16, weights=np.arange(300))
    assert work.max() - work.min() < 0.03 * work.mean()


TIGHT = EngineConfig(
    n_pes=4, sum_bits=24, entry_bits=16, weight_depth=256, rows_per_pe=8, column_words=8,
    codebook_depth=32, max_layers=3, input_depth=32, output_depth=16,
)  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "options", "change", "message"),
    [
        ((8, 8, 8, 8, 8), {}, {}, r"layers: 4 needed, 3 available \(1 too many\)"),
        ((33, 8), {}, {}, "inputs: 33 needed, 32 available"),
        ((8, 33), {}, {}, "rows of layer0: 9 needed, 8 available"),
        ((8, 32), {}, {}, "results: 32 needed, 16 available"),
        ((8, 8), {"code_bits": 6}, {}, "codebook values: 64 needed, 32 available.*fewer codes"),
        ((32, 16), {"weight_density": 1.0}, {"weight_depth": 64}, "words per PE: 136 needed"),
        ((32, 16, 16), {}, {"column_words": 4}, "column words: 6 needed, 4 available"),
        ((8, 32), {"code_bits": 8}, {"entry_bits": 12, "rows_per_pe": 64, "n_pes": 1},
         "entry bits of layer0: 13 needed, 12 available.*at most 128 codes"),
    ],
)  # fmt: skip
def test_what_is_short_by_how_much(sizes, options, change, message):
    config = replace(TIGHT, **change)
    network, _ = example(config, sizes, 6, **options)
    with pytest.raises(CapacityError, match=message):
        compile_network(network, config)


def test_integers_for_a_wider_engine_are_refused():
    network, _ = example(EngineConfig(), (30, 8), 7, weight_density=1.0)
    with pytest.raises(CapacityError, match="sums need more than the engine's 24 bits"):
        compile_network(network, TIGHT)


def test_result_buffer_too_small_for_an_inner_layer():
    network, _ = example(TIGHT, (8, 32, 8), 8)
    image = compile_network(network, TIGHT)
    with pytest.raises(CapacityError, match="results of layer0: 32 needed, 16 available"):
        program_image(image, 0)
