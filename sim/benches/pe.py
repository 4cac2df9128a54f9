# SPDX-License-Identifier: BSD-2-Clause
"""Bench of one processing element: whole layers against the golden model."""

from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from ...host import golden
from ...host.compiler.compiler import Image, compile_network
from ...host.compiler.quantize import Ints, QuantizedLayer, QuantizedNetwork
from ...rtl.config import EngineConfig
from ...rtl.formats import pack_bias
from ...rtl.layouts import token_layout, work_layout
from ...rtl.pe import PE
from .drive import pauses, receive, reset, send, watch, write_image
from .vectors import pack_layer, random_inputs, random_network

__all__ = ["CONFIG", "layers_match_golden", "top"]

CONFIG = EngineConfig(
    n_pes=1, weight_depth=4096, rows_per_pe=64, column_words=128, codebook_depth=128,
    input_depth=64, output_depth=64, queue_depth=4, decoder_bits=0,
)  # fmt: skip


def top() -> PE:
    """The block under test."""
    return PE(CONFIG)


def slices(
    layer: QuantizedLayer, q: Ints, column_slots: Ints, first_entry: int
) -> Iterator[dict[str, Any]]:
    """Slices of the nonzero inputs in the order of their columns."""
    counts = np.diff(layer.column_starts)
    base = first_entry
    for column in np.argsort(column_slots):
        if counts[column] and q[column]:
            part = {"value": int(q[column]) & 0xFF, "count": int(counts[column]), "base": base}
            yield {"body": {"slice": part}, "drain": 0}
        base += int(counts[column])


def rows(layer: QuantizedLayer, slots: Ints) -> Iterator[dict[str, Any]]:
    """Rows to drain in the order of their slots."""
    for row in np.argsort(slots):
        bias = pack_bias(int(layer.bias[row]), int(layer.shift[row]), CONFIG)
        yield {"body": {"bias": bias}, "drain": 1}


def tokens(values: Ints, slots: Ints, keep_zeros: bool) -> list[tuple[int, int, int]]:
    """Row, value and `last` of the outputs that a PE lists."""
    by_slot = values[np.argsort(slots)]
    last = len(by_slot) - 1
    return [
        (row, int(value) & 0xFF, int(row == last))
        for row, value in enumerate(by_slot)
        if value or keep_zeros or row == last
    ]


def layer_traffic(
    network: QuantizedNetwork, image: Image, q: Ints
) -> Iterator[tuple[list[dict[str, Any]], list[tuple[int, int, int]]]]:
    """What goes into the PE and what must come out, layer by layer."""
    outputs = golden.run_layers(network, q[None])
    values, column_slots = q, np.arange(len(q))
    entry = 0
    for layer, placed, out in zip(network.layers, image.layers, outputs, strict=True):
        wanted = tokens(out[0], placed.slots, bool(placed.record["keep_zeros"]))
        work = [*slices(layer, values, column_slots, entry), *rows(layer, placed.slots)]
        yield work, wanted
        entry += len(layer.codes)
        values, column_slots = out[0], placed.slots


@cocotb.test(timeout_time=10, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.3, 0.7], density=[0.15, 1.0])
async def layers_match_golden(dut: Any, share: float, density: float) -> None:
    """A network of two layers, several inputs; the second layer starts while the first drains."""
    network = random_network(3, (40, 48, 20), density=density, codes=32, config=CONFIG)
    image = compile_network(network, CONFIG)
    for signal in (dut.i__valid, dut.o__ready, dut.write__en):
        signal.value = 0
    dut.layers.value = sum(
        pack_layer(placed.record, CONFIG) << k * (len(dut.layers) // 2)
        for k, placed in enumerate(image.layers)
    )
    await reset(dut)
    cocotb.start_soon(watch(dut, "o"))
    dut.selected.value = 1
    await write_image(dut, image)
    pack, layout = work_layout(CONFIG), token_layout(CONFIG, 0)
    inputs = random_inputs(4, network, 4, 0.6)
    sent, wanted = [], []
    for q in inputs:
        for into, out in layer_traffic(network, image, q):
            sent += [pack.const({**item}).as_bits() for item in into]
            wanted += out
    gaps = [pauses(50 + k, share) if share else None for k in range(2)]
    cocotb.start_soon(send(dut, "i", sent, gaps[0]))
    found = [layout.from_bits(bits) for bits in await receive(dut, "o", len(wanted), gaps[1])]
    got = [(int(t["row"]), int(t["value"]), int(t["last"])) for t in found]
    assert got == wanted, f"density {density}, pauses {share}"
