# SPDX-License-Identifier: BSD-2-Clause
"""Memory ledger: blocks that an engine takes on an iCE40, known before a build.

Ref: Lattice FPGA-TN-02002, "Memory Usage Guide for iCE40 Devices" (4 kbit blocks of 256 x 16,
512 x 8, 1024 x 4 or 2048 x 2); FPGA-DS-02008, "iCE40 UltraPlus Family Data Sheet".
"""

from dataclasses import dataclass

from ..host.errors import CapacityError
from ..rtl.config import EngineConfig
from ..rtl.formats import RECORD_STRIDE

__all__ = ["UP5K", "Block", "Resources", "check_fit", "engine_blocks", "expected", "ice40_blocks"]

_SHAPES = ((256, 16), (512, 8), (1024, 4), (2048, 2))


@dataclass(frozen=True)
class Resources:
    """What a design takes or a device has: block RAMs, single-port RAMs and multipliers."""

    ram: int
    spram: int
    dsp: int


@dataclass(frozen=True)
class Block:
    """Memories of one kind: `copies` of `depth` words of `width` bits."""

    name: str
    width: int
    depth: int
    copies: int = 1


UP5K = Resources(ram=30, spram=4, dsp=8)
"""iCE40UP5K."""


def ice40_blocks(width: int, depth: int) -> int:
    """Block RAMs for a memory of `depth` words of `width` bits."""
    return min(-(-depth // words) * -(-width // bits) for words, bits in _SHAPES)


def engine_blocks(config: EngineConfig) -> list[Block]:
    """Memories of an engine that are block RAM; those of a few words are registers."""
    list_bits = config.activation_bits + config.row_bits + 1
    blocks = [
        Block("column records", config.column_bits * config.n_pes, config.column_words),
        Block("sums", config.sum_bits, config.rows_per_pe, config.n_pes),
        Block("output lists", list_bits, config.rows_per_pe, config.n_pes),
        Block("codebooks", 16, config.codebook_depth, config.n_pes),
        Block("input slots", 4 * config.activation_bits, config.input_depth // 2),
        Block("results", config.activation_bits, config.output_depth),
        Block("program", 16, RECORD_STRIDE * config.max_layers),
        Block("receive buffer", 8, config.rx_bytes),
    ]
    if not config.spram:
        blocks.append(Block("weights", config.entry_bits, config.weight_depth, config.n_pes))
    return blocks


def expected(config: EngineConfig) -> Resources:
    """Resources of an engine on an iCE40.

    A multiplier for each PE, and one to turn a row into a slot where the number of PEs is not a
    power of two.
    """
    return Resources(
        ram=sum(b.copies * ice40_blocks(b.width, b.depth) for b in engine_blocks(config)),
        spram=config.n_pes if config.spram else 0,
        dsp=config.n_pes + (config.n_pes & (config.n_pes - 1) != 0),
    )


def check_fit(config: EngineConfig, device: Resources) -> None:
    """Refuse an engine whose memories or multipliers a device does not have.

    Raises
    ------
    CapacityError
        Says by how much, and which memories are largest.
    """
    need = expected(config)
    if need.ram > device.ram:
        sizes = sorted(
            ((b.copies * ice40_blocks(b.width, b.depth), b.name) for b in engine_blocks(config)),
            reverse=True,
        )
        largest = ", ".join(f"{name} {count}" for count, name in sizes[:3])
        raise CapacityError(
            f"block RAM: the engine needs {need.ram}, the device has {device.ram}; largest are "
            f"{largest}; make one of them smaller"
        )
    for name, wanted, there in (
        ("single-port RAM", need.spram, device.spram),
        ("multipliers", need.dsp, device.dsp),
    ):
        if wanted > there:
            raise CapacityError(
                f"{name}: the engine needs {wanted}, the device has {there}; use fewer PEs"
            )
