# SPDX-License-Identifier: BSD-2-Clause
"""Memories of the tensor tile, filled layer by layer: one word holds two weights of a group.

A row's nonzeros in a group of four inputs fill one word, or two words if any group of the layer has
more than two. Places that no nonzero fills are padding: code 0, which must then stand for zero.
"""

from dataclasses import dataclass

import numpy as np

from ...rtl.config import EngineConfig, ceil_log2
from ...rtl.formats import Section, pack_bias, pack_tile_words, section
from .quantize import Ints, QuantizedLayer

__all__ = ["GROUP", "TileForm", "TileMemory", "stored_entries"]

GROUP = 4
"""Inputs that the tile takes at once."""


def stored_entries(layer: QuantizedLayer) -> tuple[Ints, Ints, Ints]:
    """Row, column and code of the entries that the tile stores: all but the zeros of code 0."""
    kept = layer.codes != 0 if layer.zero_code else np.ones(len(layer.codes), dtype=bool)
    return layer.row_indices[kept], layer.columns()[kept], layer.codes[kept]


@dataclass(frozen=True, eq=False)
class TileForm:
    """A layer as the tile holds it, whatever the order of its source.

    Parameters
    ----------
    groups : int
        Groups of four inputs.
    blocks : int
        Blocks of `tile_rows` rows.
    passes : int
        Words per row and group: 1 or 2.
    codebook : (k,) int64
        The layer's; with 0 ahead of it if padding needs a zero and code 0 is none.
    first_code : int
        Code that the layer's code 0 has become: 1 if a zero stands ahead, else 0.
    code_bits : int
    zero_code : bool
        Code 0 is a zero weight.
    """

    groups: int
    blocks: int
    passes: int
    codebook: Ints
    first_code: int
    code_bits: int
    zero_code: bool

    @classmethod
    def of(cls, layer: QuantizedLayer, config: EngineConfig) -> "TileForm":
        """The layer's form on a config with a tile; whether it fits is not asked."""
        rows, columns, _ = stored_entries(layer)
        groups, blocks = -(-layer.n_cols // GROUP), -(-layer.n_rows // config.tile_rows)
        counts = np.bincount(rows * groups + columns // GROUP, minlength=1)
        passes = 1 if counts.max() <= 2 else 2
        padded = len(rows) < blocks * config.tile_rows * groups * passes * 2
        needs_zero = padded and layer.codebook[0] != 0
        codebook = np.concatenate(([0], layer.codebook)) if needs_zero else layer.codebook
        return cls(
            groups=groups,
            blocks=blocks,
            passes=passes,
            codebook=codebook,
            first_code=int(needs_zero),
            code_bits=max(layer.code_bits, ceil_log2(len(codebook))),
            zero_code=padded or layer.zero_code,
        )

    @property
    def words(self) -> int:
        """Words in the memory of each row of the tile: cycles of one walk over the layer."""
        return self.blocks * self.groups * self.passes


class TileMemory:
    """Weight memories of the tile's rows, and its biases."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._weights: list[Ints] = []  # (tile_rows, words)
        self._biases: list[int] = []

    def add(self, layer: QuantizedLayer, form: TileForm, column_slots: Ints) -> dict[str, int]:
        """Append a layer.

        Parameters
        ----------
        layer : QuantizedLayer
        form : TileForm
        column_slots : (n_cols,) int64
            Slot of each of the layer's inputs; each group of four columns fills a group of slots.

        Returns
        -------
        dict
            The fields of its program record that are the tile's.
        """
        config = self._config
        fields = {
            "zero_code": int(form.zero_code),
            "two_pass": form.passes - 1,
            "tile_base": sum(words.shape[1] for words in self._weights),
            "tile_bias_base": len(self._biases),
            "last_block": form.blocks - 1,
        }
        lanes = config.tile_rows
        rows, columns, codes = stored_entries(layer)
        slots = column_slots[columns]
        order = np.lexsort((slots, rows))
        rows, slots, codes = rows[order], slots[order], codes[order]
        place = rows * form.groups + slots // GROUP
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        positions = np.zeros((form.blocks * lanes * form.groups, 2 * form.passes), dtype=np.int64)
        stored = np.zeros_like(positions)
        positions[place, rank] = slots % GROUP
        stored[place, rank] = codes + form.first_code
        shape = (form.blocks, lanes, form.groups, form.passes, 2)
        words = pack_tile_words(positions.reshape(shape), stored.reshape(shape), config)
        self._weights.append(words.transpose(1, 0, 2, 3).reshape(lanes, -1))
        self._biases += [
            pack_bias(int(bias), int(shift), config)
            for bias, shift in zip(layer.bias, layer.shift, strict=True)
        ]
        self._biases += [0] * (form.blocks * lanes - layer.n_rows)
        return fields

    def sections(self) -> list[bytes]:
        """Sections of the image: the weights lane by lane, then the biases."""
        if not self._weights:
            return []
        config = self._config
        weights = np.concatenate(self._weights, axis=1)
        made = [
            section(Section.TILE_WEIGHTS, lane, 0, words.tolist(), config)
            for lane, words in enumerate(weights)
        ]
        return [*made, section(Section.TILE_BIASES, 0, 0, self._biases, config)]
