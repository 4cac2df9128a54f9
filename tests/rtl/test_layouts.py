# SPDX-License-Identifier: BSD-2-Clause
"""Payload layouts: widths follow the config, fields follow the formats."""

from dataclasses import replace

import pytest
from amaranth import Module, Signal
from amaranth.lib import data
from gossamer.rtl.config import EngineConfig
from gossamer.rtl.formats import program_fields, sections_of
from gossamer.rtl.layouts import (
    WriteBus,
    WriteSignature,
    activation_layout,
    layer_layout,
    select_layer,
    slice_layout,
    tile_activity_layout,
    token_layout,
    vector_layout,
    work_layout,
)
from rtl_models import SMALL, TILED, TINY, layer_values, simulate

CONFIGS = [TINY, SMALL, replace(SMALL, n_pes=5), EngineConfig(count_bits=8, n_pes=64)]


@pytest.mark.parametrize("config", CONFIGS)
def test_widths(config):
    widths = {name: width for name, _, _, width in program_fields(config)}
    assert {name: field.width for name, field in layer_layout(config)} == widths
    activation = {name: field.width for name, field in activation_layout(config)}
    assert activation == {"slot": config.slot_bits, "value": 8, "last": 1}
    slice_ = {name: field.width for name, field in slice_layout(config)}
    assert slice_ == {"base": config.base_bits, "count": 2 * config.count_bits, "value": 8}
    work = {name: field.width for name, field in work_layout(config)}
    assert work == {"body": max(sum(slice_.values()), config.bias_bits), "drain": 1}
    for pe_bits in (0, 1, 6):
        token = {name: field.width for name, field in token_layout(config, pe_bits)}
        assert token == {"value": 8, "row": config.row_bits, "last": 1, "pe": pe_bits}


@pytest.mark.parametrize(
    ("config", "width"),
    [
        (TINY, 32),
        (SMALL, 40),
        (EngineConfig(count_bits=8, weight_depth=65536), 80),
        (replace(TILED, n_pes=1, tile_rows=8, activation_bits=16, sum_bits=36), 48),
    ],
    ids=["tiny", "small", "widest", "tile"],
)
def test_write_bus_holds_the_widest_word(config, width):
    bus = WriteSignature(config).create()
    assert isinstance(bus, WriteBus)
    assert len(bus.data) == width
    assert len(bus.address) == 16
    assert max(sections_of(config).values()) - 1 < 1 << len(bus.pe)
    assert max(sections_of(config)) < 1 << len(bus.kind)


def test_tile_layouts():
    vector = {name: field.width for name, field in vector_layout(TILED)}
    assert vector == {"slot": TILED.slot_bits, "values": 16, "images": 2}
    activity = {name: field.width for name, field in tile_activity_layout(TILED)}
    assert activity == dict.fromkeys(("busy", "filler", "imbalance", "drain"), 4)


def test_select_layer():
    layers = Signal(data.ArrayLayout(layer_layout(SMALL), 2))
    parity = Signal()
    found = Signal(layer_layout(SMALL))
    m = Module()
    m.d.comb += found.eq(select_layer(layers, parity))
    got = []
    records = [layer_values({"low": -3, "last_input": 7}, SMALL), layer_values({"high": 9}, SMALL)]

    async def bench(ctx):
        ctx.set(layers, records)
        for value in (0, 1, 0):
            ctx.set(parity, value)
            got.append({name: ctx.get(getattr(found, name)) for name in records[0]})

    simulate(m, bench)
    assert got == [records[0], records[1], records[0]]
