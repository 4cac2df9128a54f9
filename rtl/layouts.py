# SPDX-License-Identifier: BSD-2-Clause
"""Payloads of the streams and buses inside the engine; both ends of each call the same function.

`connect()` compares neither signedness nor fields, so a layout is never written out twice.
"""

from amaranth import Mux, Signal
from amaranth.hdl import ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from .config import EngineConfig, ceil_log2
from .formats import bytes_per_word, program_fields, sections_of

__all__ = [
    "WriteBus",
    "WriteSignature",
    "activation_layout",
    "layer_layout",
    "select_layer",
    "slice_layout",
    "symbol_layout",
    "tile_activity_layout",
    "token_layout",
    "vector_layout",
    "work_layout",
]


def layer_layout(config: EngineConfig) -> data.StructLayout:
    """One layer's parameters: the fields of its program record (`formats.program_fields`)."""
    return data.StructLayout({name: width for name, _, _, width in program_fields(config)})


def activation_layout(config: EngineConfig) -> data.StructLayout:
    """An activation on its way to the PEs: slot (= column of the layer), value, last of its vector.

    A zero with `last` set closes a vector whose last nonzero is not known in time.
    """
    return data.StructLayout({"slot": config.slot_bits, "value": config.activation_bits, "last": 1})


def slice_layout(config: EngineConfig) -> data.StructLayout:
    """One slice of a column: where its entries lie, how many, and the activation they meet."""
    return data.StructLayout(
        {
            "value": config.activation_bits,
            "count": config.wide_count_bits,
            "base": config.base_bits,
        }
    )


def work_layout(config: EngineConfig) -> data.StructLayout:
    """What a PE's queue holds: a slice, or (`drain`) bias and shift of the next row to drain."""
    return data.StructLayout(
        {
            "body": data.UnionLayout({"slice": slice_layout(config), "bias": config.bias_bits}),
            "drain": 1,
        }
    )


symbol_layout = data.StructLayout({"value": 8, "code": 1, "last": 1})
"""A decoded symbol: a number of places to skip, or (`code`) the code of an entry, `last` of its
section."""


def token_layout(config: EngineConfig, pe_bits: int) -> data.StructLayout:
    """An output activation on its way through the merge tree; `pe` grows by a bit a level."""
    return data.StructLayout(
        {
            "value": config.activation_bits,
            "row": config.row_bits,
            "last": 1,
            "pe": pe_bits,
        }
    )


def vector_layout(config: EngineConfig) -> data.StructLayout:
    """Outputs of one row for a run's images, on their way to a bank or the results.

    `images` marks the images whose value is there; `slot` is the row's place in the vector.
    """
    return data.StructLayout(
        {
            "slot": config.slot_bits,
            "values": data.ArrayLayout(config.activation_bits, config.batch),
            "images": config.batch,
        }
    )


def tile_activity_layout(config: EngineConfig) -> data.StructLayout:
    """Multipliers of the tile by class in a cycle; the rest are starved."""
    count = range(2 * config.tile_rows * config.tile_columns + 1)
    return data.StructLayout({"busy": count, "filler": count, "imbalance": count, "drain": count})


def select_layer(layers: data.View, parity: ValueLike) -> data.View:
    """Pick one of the two layers' parameters that are in use."""
    return layers.shape().elem_shape(Mux(parity, layers[1].as_value(), layers[0].as_value()))


class WriteBus(wiring.PureInterface):
    """Loader's bus: one word for one memory of one PE or row of the tile."""

    en: Signal
    kind: Signal
    pe: Signal
    address: Signal
    data: Signal


class WriteSignature(wiring.Signature):
    """Signature of `WriteBus`: `en` for one cycle, `kind` a `formats.Section`.

    Memories narrower than the bus take its lower bits.
    """

    def __init__(self, config: EngineConfig) -> None:
        kinds = sections_of(config)
        width = 8 * max(bytes_per_word(kind, config) for kind in kinds)
        super().__init__(
            {
                "en": Out(1),
                "kind": Out(range(max(kinds) + 1)),
                "pe": Out(max(ceil_log2(max(kinds.values())), 1)),
                "address": Out(16),
                "data": Out(width),
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> WriteBus:
        """The bus itself."""
        return WriteBus(self, path=path, src_loc_at=1 + src_loc_at)
