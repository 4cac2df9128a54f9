# SPDX-License-Identifier: BSD-2-Clause
"""Payloads of the streams and buses inside the engine; both ends of each call the same function.

`connect()` compares neither signedness nor fields, so a layout is never written out twice.
"""

from amaranth.lib import data
from amaranth.lib.wiring import Out, Signature

from .config import EngineConfig
from .formats import Section, bytes_per_word, program_fields

__all__ = [
    "activation_layout",
    "layer_layout",
    "slice_layout",
    "token_layout",
    "write_signature",
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
    """What a PE's queue holds: one slice of a column, or END (then only `end` counts)."""
    return data.StructLayout(
        {
            "base": config.base_bits,
            "count": config.wide_count_bits,
            "value": config.activation_bits,
            "end": 1,
        }
    )


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


def write_signature(config: EngineConfig) -> Signature:
    """Write bus of the loader: one word for one memory of one PE, `en` for one cycle.

    `kind` is a `formats.Section`; memories narrower than the bus take its lower bits.
    """
    width = 8 * max(bytes_per_word(kind, config) for kind in Section)
    return Signature(
        {
            "en": Out(1),
            "kind": Out(3),
            "pe": Out(max(config.pe_bits, 1)),
            "address": Out(16),
            "data": Out(width),
        }
    )
