# SPDX-License-Identifier: BSD-2-Clause
"""FPGAs: what they have, and the tools and options that make a bitstream for them.

The flow is the same for all (`boards/build.py`); what differs stands here.
Ref: Lattice FPGA-TN-02002, "Memory Usage Guide for iCE40 Devices" (4 kbit blocks of 256 x 16,
512 x 8, 1024 x 4 or 2048 x 2); FPGA-DS-02008, "iCE40 UltraPlus Family Data Sheet"; FPGA-TN-02204,
"ECP5 and ECP5-5G Memory Usage Guide" (18 kbit blocks of 512 x 36 to 16384 x 1, distributed RAM of
16 x 4); FPGA-DS-02012, "ECP5 and ECP5-5G Family Data Sheet".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["LFE5U_85F", "UP5K", "Device", "Resources", "ecp5_blocks", "ice40_blocks"]

_ICE40_SHAPES = ((256, 16), (512, 8), (1024, 4), (2048, 2))
_ECP5_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))


@dataclass(frozen=True)
class Resources:
    """What a design takes or a device has: block RAMs, single-port RAMs and multipliers."""

    ram: int
    spram: int
    dsp: int


@dataclass(frozen=True, kw_only=True)
class Device:
    """One FPGA in its package.

    Parameters
    ----------
    name : str
    resources : Resources
        What it has.
    blocks : callable
        Block RAMs for a memory of some width, depth and number of lanes.
    cells : mapping
        Kinds of cells in nextpnr's table, by the names they have in a report.
    synth_options : tuple of str
        Options of yosys' synthesis pass.
    place, pack : tuple of str
        The tool and its arguments that place and route ``top.json``, and that make the bitstream
        of what was placed.
    placed, packed : str
        Files that these two have to write.
    """

    name: str
    resources: Resources
    blocks: Callable[[int, int, int], int]
    cells: Mapping[str, str] = field(hash=False)
    synth_options: tuple[str, ...]
    place: tuple[str, ...]
    placed: str
    pack: tuple[str, ...]
    packed: str

    @property
    def tools(self) -> tuple[str, str, str]:
        """Tools for synthesis, placement and packing."""
        return "yosys", self.place[0], self.pack[0]


def ice40_blocks(width: int, depth: int, lanes: int = 1) -> int:
    """Block RAMs of an iCE40 for a memory of `depth` words of `width` bits.

    Its bits are written one by one, so `lanes` that are written alone cost nothing.
    """
    return min(-(-depth // words) * -(-width // bits) for words, bits in _ICE40_SHAPES)


def ecp5_blocks(width: int, depth: int, lanes: int = 1) -> int:
    """Block RAMs of an ECP5 for a memory of `depth` words of `width` bits, as yosys decides.

    It takes what costs least: 128 for a block RAM, 4 for distributed RAM of 16 x 4 bits, and half a
    point for each two-way multiplexer of one bit. Distributed RAM counts as no block.

    Parameters
    ----------
    lanes : int
        Parts of a word that are written alone; block RAM writes nine bits at least.
    """
    lane = width // lanes
    costs = [(4 * -(-depth // 16) * -(-lane // 4) * lanes + _muxes(width, depth, 16), 0)]
    for words, bits in _ECP5_SHAPES:
        unit = min(9, bits)
        padded = width if lanes == 1 else lanes * unit * -(-lane // unit)
        blocks = -(-depth // words) * -(-padded // bits)
        costs.append((128 * blocks + _muxes(width, depth, words), blocks))
    return min(costs)[1]


def _muxes(width: int, depth: int, words: int) -> float:
    return width * (-(-depth // words) - 1) / 2


UP5K = Device(
    name="iCE40UP5K",
    resources=Resources(ram=30, spram=4, dsp=8),
    blocks=ice40_blocks,
    cells={
        "lut": "ICESTORM_LC",
        "dsp": "ICESTORM_DSP",
        "ram": "ICESTORM_RAM",
        "spram": "ICESTORM_SPRAM",
    },
    synth_options=("-dsp",),
    place=("nextpnr-ice40", "--up5k", "--package", "sg48", "--pcf", "top.pcf", "--asc", "top.asc"),
    placed="top.asc",
    pack=("icepack", "top.asc", "top.bin"),
    packed="top.bin",
)

LFE5U_85F = Device(
    name="LFE5U-85F",
    resources=Resources(ram=208, spram=0, dsp=156),
    blocks=ecp5_blocks,
    cells={"lut": "TRELLIS_COMB", "dsp": "MULT18X18D", "ram": "DP16KD"},
    synth_options=(),
    place=(
        "nextpnr-ecp5", "--85k", "--package", "CABGA381", "--speed", "6", "--lpf", "top.lpf",
        "--textcfg", "top.config",
    ),
    placed="top.config",
    pack=("ecppack", "--compress", "top.config", "top.bit"),
    packed="top.bit",
)  # fmt: skip
