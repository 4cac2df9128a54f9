# SPDX-License-Identifier: BSD-2-Clause
"""EngineConfig: every parameter of an engine, its derived widths and all cross-checks.

One frozen object is shared by gateware, compiler, simulation and boards, and travels in the
bitstream's ROM (`rtl/formats.py`, `IDENTITY`). Nothing here imports amaranth.
"""

from dataclasses import dataclass, fields

__all__ = ["EngineConfig", "ceil_log2"]


def ceil_log2(n: int) -> int:
    """Bits that number `n` things: smallest b with 2**b >= n (n >= 1)."""
    return (n - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Parameters of one engine.

    Parameters
    ----------
    n_pes : int
        Processing elements of the sparse array, 1..64. One multiplier each.
    activation_bits : int
        Width A of an activation: 8 or 16.
    sum_bits : int
        Width P of a partial sum: 24 or 32 with A = 8, 36 with A = 16.
    entry_bits : int
        Width of a word of weight memory: 10..36. It holds one entry: row index from bit 0 up, code
        from the top bit down, split per layer.
    weight_depth : int
        Words of weight memory per PE, 16..65536.
    rows_per_pe : int
        Rows (partial sums) one PE can hold in one layer, 2..1024.
    column_words : int
        Words of column records, 2..65536. A word covers 8 columns with narrow counts or 4 with
        wide ones, or holds the bias and shift of one row of each PE.
    count_bits : int
        Width F of a narrow count, 2..8; a wide count has 2 F bits.
    codebook_depth : int
        16-bit codebook values, over all layers: a power of two in 4..4096.
    queue_depth : int
        Slices each PE's queue holds, 2..64.
    max_layers : int
        Program records, 1..64.
    input_depth : int
        Activations of one image in an input slot, a power of two in 4..32768. There are two slots,
        and with a tile two banks of the same size for vectors between layers.
    output_depth : int
        Values of one image in the result buffer, a power of two in 2..32768.
    rx_bytes : int
        Receive buffer of the link in bytes, a power of two in 128..4096.
    counters : bool
        Whether the classes of multiplier cycles are counted (cycles are, always).
    spram : bool
        Weight memory in iCE40 UltraPlus single-port RAM; needs entry_bits=16, weight_depth=16384.
    tile_rows : int
        Rows R of the tensor tile: 0 (no tile), 1, 2, 4 or 8. It has 2 R C multipliers.
    tile_columns : int
        Columns C of the tensor tile: 1, 2 or 4; 1 without a tile. So many images make one run.
    tile_code_bits : int
        Bits of a code in the tile's weight memory, 1..8.
    tile_depth : int
        Words of the tile's weight memory, per row of the tile, 2..65536: one word holds two
        weights of a group of four inputs.
    tile_bias_depth : int
        Rows, over all layers that run on the tile, 2..65536.
    decoder_bits : int
        Bits of a Huffman code that the loader decodes in a cycle: 0 (no decoder: images hold plain
        sections only), 1, 2 or 4.

    Raises
    ------
    TypeError
        A value is not of the stated kind.
    ValueError
        A value is out of range, or two do not go together.
    """

    n_pes: int = 16
    activation_bits: int = 8
    sum_bits: int = 32
    entry_bits: int = 18
    weight_depth: int = 32768
    rows_per_pe: int = 256
    column_words: int = 2048
    count_bits: int = 5
    codebook_depth: int = 1024
    queue_depth: int = 32
    max_layers: int = 16
    input_depth: int = 4096
    output_depth: int = 1024
    rx_bytes: int = 1024
    counters: bool = True
    spram: bool = False
    tile_rows: int = 0
    tile_columns: int = 1
    tile_code_bits: int = 4
    tile_depth: int = 16384
    tile_bias_depth: int = 1024
    decoder_bits: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind = type(field.default)
            if type(value) is not kind:
                raise TypeError(f"{field.name} must be {kind.__name__}, not {value!r}")
        self._check_range("n_pes", 1, 64)
        self._check_choice("activation_bits", (8, 16))
        self._check_choice("sum_bits", (24, 32) if self.activation_bits == 8 else (36,))
        self._check_range("entry_bits", 10, 36)
        self._check_range("weight_depth", 16, 65536)
        self._check_range("rows_per_pe", 2, 1024)
        self._check_range("column_words", 2, 65536)
        self._check_range("count_bits", 2, 8)
        self._check_power("codebook_depth", 4, 4096)
        self._check_range("queue_depth", 2, 64)
        self._check_range("max_layers", 1, 64)
        self._check_power("input_depth", 4, 32768)
        self._check_power("output_depth", 2, 32768)
        self._check_power("rx_bytes", 128, 4096)
        self._check_choice("tile_rows", (0, 1, 2, 4, 8))
        self._check_choice("tile_columns", (1, 2, 4) if self.tile_rows else (1,))
        self._check_range("tile_code_bits", 1, 8)
        self._check_range("tile_depth", 2, 65536)
        self._check_range("tile_bias_depth", 2, 65536)
        self._check_choice("decoder_bits", (0, 1, 2, 4))
        if self.result_bytes > 61440:
            raise ValueError(
                "output_depth must leave the results of one run at most 61440 bytes, not "
                f"{self.result_bytes}"
            )
        if self.row_bits + 1 > self.entry_bits:
            raise ValueError(
                f"entry_bits must exceed the {self.row_bits} bits of "
                f"rows_per_pe={self.rows_per_pe}, not {self.entry_bits}"
            )
        if self.rows_per_pe > 2 ** (2 * self.count_bits) - 1:
            raise ValueError(
                f"rows_per_pe must fit a wide count of {2 * self.count_bits} bits, "
                f"not {self.rows_per_pe}"
            )
        if self.spram and (self.entry_bits, self.weight_depth) != (16, 16384):
            raise ValueError(
                "spram needs entry_bits=16 and weight_depth=16384, "
                f"not {self.entry_bits} and {self.weight_depth}"
            )

    def _check_range(self, name: str, low: int, high: int) -> None:
        if not low <= getattr(self, name) <= high:
            raise ValueError(f"{name} must be in {low}..{high}, not {getattr(self, name)!r}")

    def _check_choice(self, name: str, choices: tuple[int, ...]) -> None:
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")

    def _check_power(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if value & (value - 1) or not low <= value <= high:
            raise ValueError(f"{name} must be a power of two in {low}..{high}, not {value!r}")

    @property
    def row_bits(self) -> int:
        """Bits of a local row index."""
        return ceil_log2(self.rows_per_pe)

    @property
    def pe_bits(self) -> int:
        """Bits of a PE number."""
        return ceil_log2(self.n_pes)

    @property
    def base_bits(self) -> int:
        """Bits of an address in weight memory."""
        return ceil_log2(self.weight_depth)

    @property
    def shift_bits(self) -> int:
        """Bits of a right shift."""
        return ceil_log2(self.sum_bits)

    @property
    def bias_bits(self) -> int:
        """Bits of one row's bias and shift."""
        return self.sum_bits - 1 + self.shift_bits

    @property
    def wide_count_bits(self) -> int:
        """Bits of a wide count: how many entries one slice can have."""
        return 2 * self.count_bits

    @property
    def column_bits(self) -> int:
        """Bits of one PE's column record: a base and its counts, or a bias."""
        return max(self.base_bits + 8 * self.count_bits, self.bias_bits)

    @property
    def slot_bits(self) -> int:
        """Bits that number an activation of any layer: input, row of the array or of the tile."""
        slots = max(self.input_depth, self.rows_per_pe * self.n_pes)
        return ceil_log2(max(slots, self.output_depth if self.tile_rows else 0))

    @property
    def image_bits(self) -> int:
        """Bits that count the images of a run, 1..batch."""
        return self.batch.bit_length()

    @property
    def activation_bytes(self) -> int:
        """Bytes of an activation on the link."""
        return self.activation_bits // 8

    @property
    def batch(self) -> int:
        """Images that one run can hold."""
        return self.tile_columns

    @property
    def result_bytes(self) -> int:
        """Bytes of the results of a full run."""
        return self.output_depth * self.batch * self.activation_bytes

    @property
    def multipliers(self) -> int:
        """Multipliers of all units."""
        return self.n_pes + 2 * self.tile_rows * self.tile_columns

    @property
    def tile_word_bits(self) -> int:
        """Bits of a word of the tile's weight memory: two pairs of position and code."""
        return 2 * (2 + self.tile_code_bits)

    @property
    def max_payload(self) -> int:
        """Payload bytes of the longest frame the engine takes: two frames fit its buffer."""
        return self.rx_bytes // 2 - 16
