# SPDX-License-Identifier: BSD-2-Clause
"""Patterns reach every usable bit of the memories with both values; selftest sees wrong outputs."""

from dataclasses import replace

import pytest
from fake_device import CONFIG, FakeDevice, FakePort
from gossamer.host import golden
from gossamer.host.compiler.compiler import compile_network
from gossamer.host.device import selftest as module
from gossamer.host.device.device import Device
from gossamer.host.device.patterns import patterns
from gossamer.host.device.selftest import selftest
from gossamer.rtl.config import EngineConfig, ceil_log2
from gossamer.rtl.formats import SECTION_HEADER, Section, bytes_per_word

CONFIGS = {
    "small": EngineConfig(
        n_pes=2, entry_bits=12, weight_depth=512, rows_per_pe=16, column_words=64,
        codebook_depth=256, max_layers=4, input_depth=64, output_depth=32, decoder_bits=0,
    ),
    "four layers of values": EngineConfig(
        n_pes=4, weight_depth=2048, rows_per_pe=64, column_words=128, codebook_depth=1024,
        max_layers=4, input_depth=256, output_depth=256, decoder_bits=0,
    ),
    "wide": EngineConfig(
        n_pes=3, activation_bits=16, sum_bits=36, weight_depth=512, rows_per_pe=32,
        column_words=64, codebook_depth=64, max_layers=4, input_depth=256, output_depth=128,
        decoder_bits=0,
    ),
}  # fmt: skip


def words(image, kind):
    """Words that an image writes to memories of a kind: (memory, address) -> word."""
    data, at, found = image.data, 0, {}
    while at < len(data):
        section, pe, address, count = SECTION_HEADER.unpack_from(data, at)
        at += SECTION_HEADER.size
        size = bytes_per_word(Section(section), image.config)
        for k in range(count):
            if section == kind:
                found[pe, address + k] = int.from_bytes(data[at : at + size], "little")
            at += size
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_every_usable_bit_is_once_0_and_once_1(name):
    config = CONFIGS[name]
    ones, zeros = {}, {}
    for one in patterns(config):
        image = compile_network(one.network, config)
        for kind in (Section.WEIGHTS, Section.CODEBOOK):
            for place, word in words(image, kind).items():
                ones[kind, *place] = ones.get((kind, *place), 0) | word
                zeros[kind, *place] = zeros.get((kind, *place), 0) | ~word
    both = {place: ones[place] & zeros[place] for place in ones}
    code_bits = min(8, ceil_log2(config.codebook_depth))
    free = config.entry_bits - code_bits - config.row_bits
    entry = (1 << config.entry_bits) - 1 & ~((1 << max(free, 0)) - 1 << config.row_bits)
    for pe in range(config.n_pes):
        for address in range(config.weight_depth):
            assert both[Section.WEIGHTS, pe, address] & entry == entry, (pe, address)
    for address in range(config.codebook_depth):
        assert both[Section.CODEBOOK, 0, address] == 0xFFFF, address


@pytest.mark.parametrize("name", CONFIGS)
def test_every_bit_of_the_biases_is_once_0_and_once_1_where_it_counts(name):
    """Biases at shift 0, where no bit is shifted out; shifts, but bits that no sum has room for."""
    config = CONFIGS[name]
    bias_bits = config.sum_bits - 1
    want = (1 << bias_bits) - 1
    values = {}
    for one in patterns(config):
        (layer, *rest) = one.network.layers
        if one.memory == "biases":
            assert not rest
            for row in range(layer.n_rows):
                ones, zeros, shifts = values.get(row, (0, 0, 0))
                bias, shift = int(layer.bias[row]), int(layer.shift[row])
                if shift == 0:
                    ones, zeros = ones | bias & want, zeros | ~bias & want
                values[row] = ones, zeros, shifts | shift
    assert len(values) == config.n_pes * config.rows_per_pe
    reached = sum(1 << bit for bit in range(config.shift_bits) if 1 << bit < config.sum_bits - 2)
    assert set(values.values()) == {(want, want, reached)}


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_between_the_clamps(name):
    config = CONFIGS[name]
    memories = []
    for one in patterns(config):
        memories.append(one.memory)
        outputs = golden.run_layers(one.network, one.inputs)
        if one.memory != "products":
            assert all((values == 1).all() for values in outputs), one.memory
    products = outputs[-1]
    low, high = golden.run_layers(one.network, one.inputs)[-1].min(), products.max()
    assert (low, high) == (one.network.output.low, one.network.output.high)
    assert set(memories) == {"biases", "weights", "codebook", "products"}


def fake(config):
    """A fake device that knows the patterns."""
    device = FakeDevice(next(iter(patterns(config))).network, config)
    known = {}
    for one in patterns(config):
        image = compile_network(one.network, config)
        known[image.data] = one.network
        device.results[image.data] = len(one.network.layers) - 1, image
    finish = device.finish_run

    def finish_run():
        device.network = known.get(device.committed, device.network)
        return finish()

    device.finish_run = finish_run
    return device


def test_a_good_device(monkeypatch):
    config = replace(CONFIG, weight_depth=512, rows_per_pe=16, output_depth=64)
    device = Device(FakePort(fake(config)), "fake", timeout=10.0)
    found = selftest(device, lambda items, *_: iter(items))
    assert [one.memory for one in found] == ["biases", "weights", "codebook", "products"]
    assert all((one.wrong, one.pes) == (0, ()) for one in found)
    assert all(one.outputs >= one.patterns > 0 for one in found)
    wrong = module.run

    def run(network, q):
        outputs = wrong(network, q).copy()
        if network.layers[0].name == "corners":
            outputs[1, 2] += 1
        return outputs

    monkeypatch.setattr(module, "run", run)
    *good, bad = selftest(device, lambda items, *_: iter(items))
    assert not any(one.wrong for one in good)
    assert (bad.memory, bad.wrong, bad.pes) == ("products", 1, (2,))
