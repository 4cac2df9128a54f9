# SPDX-License-Identifier: BSD-2-Clause
"""Compiler: a network in integers and an engine's config become the image that the engine loads.

A row's place is its slot, and the next layer numbers its columns by slot, so the engine needs no
index table between layers. `placement` says where everything goes, the two memories hold it.
"""

import zlib
from dataclasses import dataclass, field, replace

import numpy as np

from ...rtl.arith import activation_limits
from ...rtl.config import EngineConfig, ceil_log2
from ...rtl.formats import Section, Unit, pack_record, program_fields, section
from ..errors import CapacityError
from .array_memory import ArrayMemory
from .capacity import Claim, enter
from .placement import Placement, place
from .quantize import Ints, QuantizedLayer, QuantizedNetwork, row_bounds
from .tile_memory import TileMemory

__all__ = ["Image", "PlacedLayer", "compile_network", "program_image"]


@dataclass(frozen=True, eq=False)
class PlacedLayer:
    """Where a layer lies in the engine.

    Parameters
    ----------
    name : str
    record : dict
        Its program record (`formats.program_fields`).
    slots : (n_rows,) int64
        Slot of each output row.
    result_slots : int
        Slots of the layer: whole local rows of all PEs, or whole blocks of the tile.
    """

    name: str
    record: dict[str, int]
    slots: Ints
    result_slots: int

    @property
    def unit(self) -> Unit:
        """What it runs on."""
        return Unit(self.record.get("unit", Unit.SPARSE_ARRAY))


@dataclass(frozen=True, eq=False)
class Image:
    """A compiled model, or a new program for one that is loaded.

    Parameters
    ----------
    config : EngineConfig
        The only config it fits.
    data : bytes
        Sections for the loader (docs/format.md).
    n_inputs : int
    layers : tuple of PlacedLayer
        Up to the layer whose outputs are the results.
    ledger : dict
        Per memory (used, available), of the PE that uses most.
    """

    config: EngineConfig
    data: bytes
    n_inputs: int
    layers: tuple[PlacedLayer, ...]
    ledger: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return len(self.layers[-1].slots)

    @property
    def output_slots(self) -> Ints:
        """Place of each output in the results, (n_outputs,) int64."""
        return self.layers[-1].slots

    @property
    def result_slots(self) -> int:
        """Number of values the engine returns."""
        return self.layers[-1].result_slots

    @property
    def crc32(self) -> int:
        """CRC-32 of `data`, as the engine counts it."""
        return zlib.crc32(self.data)


def compile_network(network: QuantizedNetwork, config: EngineConfig) -> Image:
    """Compile a network for an engine.

    Raises
    ------
    CapacityError
        It does not fit: says what is short, by how much, and what would help.
    """
    ledger: dict[str, tuple[int, int]] = {}
    _check_widths(network, config)
    layers = network.layers
    placements = place(network, config, ledger)
    forms = [at.form or layer for at, layer in zip(placements, layers, strict=True)]
    codebook_bases = _place_codebooks([form.code_bits for form in forms])
    array, tile = ArrayMemory(config), TileMemory(config)
    bias_bases = [
        0 if at.form else array.add_biases(layer, at.slots, at.n_slots)
        for layer, at in zip(layers, placements, strict=True)
    ]
    placed: list[PlacedLayer] = []
    for k, (layer, at) in enumerate(zip(layers, placements, strict=True)):
        is_last = k == len(layers) - 1
        fields = _shared_fields(layer, at, codebook_bases[k], is_last)
        if at.form:
            fields |= tile.add(layer, at.form, at.column_slots)
        else:
            fields |= array.add_entries(layer, at.slots, at.column_slots, at.n_columns)
            fields |= _array_fields(at, bias_bases[k], config.n_pes)
        # Fields of the other unit are 0; those of the tile do not exist without one.
        record = {name: fields.get(name, 0) for name, *_ in program_fields(config)}
        placed.append(PlacedLayer(layer.name, record, at.slots, at.n_slots))

    sections = [section(Section.PROGRAM, 0, 0, _program(placed, config), config)]
    for base, form in zip(codebook_bases, forms, strict=True):
        values = [int(v) & 0xFFFF for v in form.codebook]
        sections.append(section(Section.CODEBOOK, 0, base, values, config))
    sections += array.sections() + tile.sections()
    return Image(config, b"".join(sections), layers[0].n_cols, tuple(placed), ledger)


def program_image(image: Image, stop_after: int | None = None) -> Image:
    """New program for the model of `image`, which must be loaded: weights stay as they are.

    Parameters
    ----------
    image : Image
    stop_after : int, optional
        Layer whose outputs become the results; the last one by default.

    Raises
    ------
    CapacityError
        The layer has more slots than the engine's result buffer.
    """
    n_layers = len(image.layers) if stop_after is None else stop_after + 1
    layers = list(image.layers[:n_layers])
    last = layers[-1]
    fields = {"last": 1, "keep_zeros": 1, "to_bank": 0, "target_bank": 0}
    record = last.record | {name: value for name, value in fields.items() if name in last.record}
    layers[-1] = replace(last, record=record)
    remedy = "an engine with a larger output_depth"
    depth = image.config.output_depth
    enter({}, [Claim(f"results of {last.name}", last.result_slots, depth, remedy)])
    data = section(Section.PROGRAM, 0, 0, _program(layers, image.config), image.config)
    return replace(image, data=data, layers=tuple(layers))


def _shared_fields(
    layer: QuantizedLayer, at: Placement, codebook_base: int, is_last: bool
) -> dict[str, int]:
    """Fields of a program record that mean the same on both units."""
    to_bank = at.target_bank is not None
    return {
        "last": int(is_last),
        "keep_zeros": int(is_last or to_bank),
        "signed_in": int(layer.signed_in),
        "signed_out": int(layer.signed_out),
        "last_input": at.n_columns - 1,
        "codebook_base": codebook_base,
        "low": layer.low,
        "high": layer.high,
        "unit": at.unit,
        "from_bank": int(at.source_bank is not None),
        "source_bank": at.source_bank or 0,
        "to_bank": int(to_bank),
        "target_bank": at.target_bank or 0,
    }


def _array_fields(at: Placement, bias_base: int, n_pes: int) -> dict[str, int]:
    """Fields that tell the array of a layer's rows."""
    rows = at.n_slots // n_pes
    return {
        "from_merge": int(at.from_merge),
        "last_row": rows - 1,
        "bias_base": bias_base,
        "row_mask": (1 << ceil_log2(rows)) - 1,
    }


def _check_widths(network: QuantizedNetwork, config: EngineConfig) -> None:
    """Refuse integers made for a wider engine: activations would be cut, sums would wrap."""
    limit = 1 << (config.sum_bits - 1)
    for layer in network.layers:
        for what, tensor in (("inputs", layer.input), ("outputs", layer.output)):
            low, high = activation_limits(config.activation_bits, tensor.signed)
            if tensor.low < low or tensor.high > high:
                raise CapacityError(
                    f"layer {layer.name}: its {what} span {tensor.low}..{tensor.high}, the "
                    f"engine's activations {low}..{high}; quantize the model with "
                    f"activation_bits={config.activation_bits}"
                )
        bounds = row_bounds(layer)
        bias = int(np.abs(layer.bias).max())
        if (
            any(least < -limit or most >= limit for least, most in bounds)
            or bias >= limit >> 1
            or int(layer.shift.max()) >= config.sum_bits
        ):
            raise CapacityError(
                f"layer {layer.name}: its sums need more than the engine's {config.sum_bits} bits; "
                f"quantize the model with sum_bits={config.sum_bits}"
            )


def _place_codebooks(code_bits: list[int]) -> list[int]:
    """Base of each codebook, a multiple of its size: largest first leaves no gaps."""
    bases = [0] * len(code_bits)
    used = 0
    for k in sorted(range(len(bases)), key=lambda k: -code_bits[k]):
        bases[k] = used
        used += 1 << code_bits[k]
    return bases


def _program(layers: list[PlacedLayer], config: EngineConfig) -> list[int]:
    return [word for layer in layers for word in pack_record(layer.record, config)]
