# SPDX-License-Identifier: BSD-2-Clause
"""Memory ledger: what an engine takes of a device, known before a build."""

from dataclasses import dataclass

from ..host.errors import CapacityError
from ..rtl.config import EngineConfig, ceil_log2
from ..rtl.formats import CODE_SYMBOLS, CODE_TABLE_WORDS, RECORD_STRIDE
from .devices import Device, Resources

__all__ = ["Block", "check_fit", "engine_blocks", "expected"]


@dataclass(frozen=True)
class Block:
    """Memories of one kind: `copies` of `depth` words of `width` bits.

    A word has `lanes` parts that are written alone.
    """

    name: str
    width: int
    depth: int
    copies: int = 1
    lanes: int = 1


def engine_blocks(config: EngineConfig) -> list[Block]:
    """Memories of an engine that may be block RAM; the others are a few words in logic."""
    vector, batch = 4 * config.activation_bits, config.batch
    list_bits = config.activation_bits + config.row_bits + 1
    groups = config.input_depth // 4
    places = 2 if config.tile_rows else 1
    blocks = [
        Block(
            "column records",
            config.column_bits * config.n_pes,
            config.column_words,
            lanes=config.n_pes,
        ),
        Block("sums", config.sum_bits + 1, config.rows_per_pe, config.n_pes),
        Block("output lists", list_bits, config.rows_per_pe, config.n_pes),
        Block("codebooks", 16, config.codebook_depth, config.n_pes),
        Block("input slots", vector, 2 * groups, batch),
        Block("results", config.activation_bits, places * config.output_depth, batch),
        Block("program", 16, RECORD_STRIDE * config.max_layers),
        Block("receive buffer", 8, config.rx_bytes),
    ]
    if not config.spram:
        blocks.append(Block("weights", config.entry_bits, config.weight_depth, config.n_pes))
    if config.tile_rows:
        blocks += [
            Block("tile weights", config.tile_word_bits, config.tile_depth, config.tile_rows),
            Block("tile codebooks", 16, config.codebook_depth, 2 * config.tile_rows),
            Block("tile biases", config.bias_bits, config.tile_bias_depth),
            Block("tile groups", ceil_log2(max(groups, 2)), max(groups, 2)),
            Block("banks", vector, 2 * groups, batch, lanes=4),
        ]
    if config.decoder_bits:
        lanes = config.decoder_bits
        blocks += [
            Block("code table", 16 * lanes, CODE_TABLE_WORDS // lanes, lanes=lanes),
            Block("code symbols", 8, CODE_SYMBOLS),
        ]
    return blocks


def expected(config: EngineConfig, device: Device) -> Resources:
    """Resources of an engine on a device.

    A multiplier for each PE and two for each row and column of the tile, and one to turn a row into
    a slot where the number of PEs is not a power of two.
    """
    return Resources(
        ram=sum(_counts(config, device).values()),
        spram=config.n_pes if config.spram else 0,
        dsp=config.multipliers + (config.n_pes & (config.n_pes - 1) != 0),
    )


def _counts(config: EngineConfig, device: Device) -> dict[str, int]:
    return {
        b.name: b.copies * device.blocks(b.width, b.depth, b.lanes) for b in engine_blocks(config)
    }


def check_fit(config: EngineConfig, device: Device) -> None:
    """Refuse an engine whose memories or multipliers a device does not have.

    Raises
    ------
    CapacityError
        Says by how much, and which memories are largest.
    """
    need, there = expected(config, device), device.resources
    if need.ram > there.ram:
        counts = _counts(config, device)
        names = sorted(counts, key=lambda name: counts[name], reverse=True)
        largest = ", ".join(f"{name} {counts[name]}" for name in names[:3])
        raise CapacityError(
            f"block RAM: the engine needs {need.ram}, {device.name} has {there.ram}; largest are "
            f"{largest}; make one of them smaller"
        )
    if need.spram > there.spram:
        raise CapacityError(
            f"single-port RAM: the engine needs {need.spram}, {device.name} has {there.spram}; "
            "use fewer PEs, or spram=False"
        )
    if need.dsp > there.dsp:
        raise CapacityError(
            f"multipliers: the engine needs {need.dsp}, {device.name} has {there.dsp}; "
            "use fewer PEs or a smaller tile"
        )
