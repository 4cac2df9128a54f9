# SPDX-License-Identifier: BSD-2-Clause
"""Bench of the sparse array: layers chained through the bench, against the golden model."""

from typing import Any

import cocotb
import numpy as np

from ...host import golden
from ...host.compiler.compiler import PlacedLayer, compile_network
from ...host.compiler.quantize import Ints
from ...rtl.config import EngineConfig
from ...rtl.layouts import activation_layout, token_layout
from ...rtl.sparse_array import SparseArray
from .drive import pauses, receive, reset, send, watch, write_image
from .vectors import pack_layer, random_inputs, random_network

__all__ = ["CONFIG", "layers_match_golden", "top"]

CONFIG = EngineConfig(
    n_pes=5, weight_depth=1024, rows_per_pe=32, column_words=64, codebook_depth=128,
    input_depth=64, output_depth=64, queue_depth=4, decoder_bits=0,
)  # fmt: skip


def top() -> SparseArray:
    """The block under test."""
    return SparseArray(CONFIG)


async def run_layer(
    dut: Any, parity: int, items: list[dict[str, int]], seed: int, share: float
) -> list[dict[str, int]]:
    """Feed one layer's activations; return its outputs (slot, value) up to the closing one."""
    pack, layout = activation_layout(CONFIG), token_layout(CONFIG, CONFIG.pe_bits)
    gaps = [pauses(seed + k, share) if share else None for k in range(2)]
    dut.parity.value = parity
    words = [pack.const({**item}).as_bits() for item in items]
    sender = cocotb.start_soon(send(dut, "i", words, gaps[0]))
    outputs = []
    while not outputs or not outputs[-1]["last"]:
        token = layout.from_bits((await receive(dut, "o", 1, gaps[1]))[0])
        slot = int(token["row"]) * CONFIG.n_pes + int(token["pe"])
        outputs.append({"slot": slot, "value": int(token["value"]), "last": int(token["last"])})
    await sender
    return outputs


def check(outputs: list[dict[str, int]], placed: PlacedLayer, expected: Ints) -> None:
    """Each nonzero row once (all rows, if the layer keeps zeros), in any order, closed once."""
    values = {item["slot"]: item["value"] for item in outputs}
    slots = {int(slot): int(v) & 0xFF for slot, v in zip(placed.slots, expected, strict=True)}
    keeps = placed.record["keep_zeros"]
    found = {slot: value for slot, value in values.items() if slot in slots and (value or keeps)}
    wanted = {slot: value for slot, value in slots.items() if value or keeps}
    assert found == wanted, placed.name
    assert len(values) == len(outputs), f"{placed.name}: a slot came twice"
    assert not keeps or len(values) == placed.result_slots


@cocotb.test(timeout_time=10, timeout_unit="ms")
@cocotb.parametrize(share=[0.0, 0.3, 0.7], density=[0.15, 1.0])
async def layers_match_golden(dut: Any, share: float, density: float) -> None:
    """A network of three layers; what comes out goes back in, as it comes."""
    sizes = (37, 52, 33, 21)
    network = random_network(5, sizes, density=density, codes=32, config=CONFIG)
    image = compile_network(network, CONFIG)
    for signal in (dut.i__valid, dut.o__ready, dut.write__en):
        signal.value = 0
    await reset(dut)
    cocotb.start_soon(watch(dut, "o"))
    await write_image(dut, image)
    half = len(dut.layers) // 2
    layers = [0, 0]
    step = 0
    for index, q in enumerate(random_inputs(6, network, 4, 0.5)):
        nonzero = np.flatnonzero(q)
        items = [{"slot": int(c), "value": int(q[c]) & 0xFF, "last": 0} for c in nonzero]
        items.append({"slot": 0, "value": 0, "last": 1})
        expected = golden.run_layers(network, q[None])
        for placed, values in zip(image.layers, expected, strict=True):
            layers[step % 2] = pack_layer(placed.record, CONFIG)
            dut.layers.value = layers[0] | layers[1] << half
            items = await run_layer(dut, step % 2, items, 100 * index + step, share)
            check(items, placed, values[0])
            step += 1
