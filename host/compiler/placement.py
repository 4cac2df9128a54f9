# SPDX-License-Identifier: BSD-2-Clause
"""Placement: which unit each layer runs on, and where its rows and its output vector go.

A layer runs on the tile if that is faster by an estimate and the tile has room, or if the sparse
array has none. The integers are the same on both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...rtl.config import EngineConfig, ceil_log2
from ...rtl.formats import Unit
from .array_memory import column_words, slice_counts
from .capacity import Claim, enter, first_short
from .dealing import deal_groups, deal_rows, grouped_slots
from .quantize import Ints, QuantizedLayer, QuantizedNetwork
from .tile_memory import TileForm

__all__ = ["Placement", "array_cycles", "place", "tile_cycles"]

ARRAY, TILE = Unit.SPARSE_ARRAY, Unit.TENSOR_TILE


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a layer runs, what it reads and where its outputs go.

    Parameters
    ----------
    unit : Unit
    form : TileForm, optional
        How the tile holds it; None on the array.
    slots : (n_rows,) int64
        Slot of each output row.
    n_slots : int
        Slots that the layer writes.
    column_slots : (n_cols,) int64
        Slot of each input.
    n_columns : int
        Slots that the layer reads.
    from_merge : bool
        It reads what the layer before sends through the merge tree.
    source_bank, target_bank : int, optional
        Bank that it reads, else the input slot or the merge tree; bank that takes its outputs, else
        the merge tree or the results.
    """

    unit: Unit
    form: TileForm | None
    slots: Ints
    n_slots: int
    column_slots: Ints
    n_columns: int
    from_merge: bool
    source_bank: int | None
    target_bank: int | None


def array_cycles(layer: QuantizedLayer, config: EngineConfig) -> int:
    """Estimated cycles of a full run on the sparse array, all activations nonzero.

    Its busiest PE takes an entry per cycle, and an input takes a cycle even if no row uses it.
    """
    nonzeros = np.bincount(layer.row_indices, minlength=layer.n_rows)
    pes = deal_rows(nonzeros, config.n_pes) % config.n_pes
    busiest = int(np.bincount(pes, weights=nonzeros).max())
    return max(busiest, layer.n_cols) * config.batch


def tile_cycles(layer: QuantizedLayer, config: EngineConfig) -> int:
    """Estimated cycles of a full run on the tile, all groups nonzero: a word per cycle."""
    return TileForm.of(layer, config).words


def place(
    network: QuantizedNetwork, config: EngineConfig, ledger: dict[str, tuple[int, int]]
) -> list[Placement]:
    """Choose units and places for all layers of a network.

    Parameters
    ----------
    network : QuantizedNetwork
    config : EngineConfig
    ledger : dict
        Gets an entry per memory: (used, available), of the PE that uses most.

    Raises
    ------
    CapacityError
        Layers fit neither unit: says what is short, by how much, and what would help.
    """
    layers = network.layers
    enter(
        ledger,
        [
            Claim("layers", len(layers), config.max_layers, "fewer layers"),
            Claim("inputs", layers[0].n_cols, config.input_depth, "fewer inputs"),
        ],
    )
    choice = _Choice(layers, config)
    choice.fill_tile()
    placements = _deal(layers, choice, config)
    claims = _array_totals(layers, placements, config)
    while first_short(claims) and choice.relieve_array():
        placements = _deal(layers, choice, config)
        claims = _array_totals(layers, placements, config)
    on_array = [k for k, unit in enumerate(choice.units) if unit == ARRAY]
    for k in range(len(layers)):
        enter(ledger, choice.claims(k), choice.why_not_tile(k) if k in on_array else "")
    enter(ledger, choice.totals())
    largest = max(on_array, key=lambda k: len(layers[k].codes), default=None)
    enter(ledger, claims, choice.why_not_tile(largest) if largest is not None else "")
    return placements


class _Choice:
    """Units of all layers, changed step by step: all on the array, then some on the tile."""

    def __init__(self, layers: Sequence[QuantizedLayer], config: EngineConfig) -> None:
        self._layers = layers
        self._config = config
        self.units = [ARRAY] * len(layers)
        self.forms = [TileForm.of(layer, config) for layer in layers] if config.tile_rows else []
        self._gains = [
            array_cycles(layers[k], config) - form.words for k, form in enumerate(self.forms)
        ]

    def fill_tile(self) -> None:
        """Move layers that the array cannot hold, then those that gain most, while they fit."""
        forced = [first_short(self.claims(k)) is not None for k in range(len(self.units))]
        wanted = [k for k, gain in enumerate(self._gains) if forced[k] or gain > 0]
        wanted.sort(key=lambda k: (not forced[k], -self._gains[k]))
        while movable := [k for k in wanted if self._can_move(k)]:
            self.units[movable[0]] = TILE

    def relieve_array(self) -> bool:
        """Move the layer that loses least by it; False if none can move."""
        movable = [k for k in range(len(self._gains)) if self._can_move(k)]
        if movable:
            self.units[max(movable, key=lambda k: self._gains[k])] = TILE
        return bool(movable)

    def why_not_tile(self, k: int) -> str:
        """For messages: what keeps a layer off the tile; nothing without a tile."""
        obstacle = self._obstacle(k) if self.forms else None
        return f"; the tile cannot take {self._layers[k].name}: {obstacle}" if obstacle else ""

    def claims(self, k: int) -> list[Claim]:
        """What a layer needs of its unit, whatever the other layers take of the memories."""
        layer, config = self._layers[k], self._config
        name = layer.name
        if self.units[k] == TILE:
            form = self.forms[k]
            remedy = f"at most {1 << config.tile_code_bits} codes, the zero of padding included"
            bits, available = form.code_bits, config.tile_code_bits
            claims = [Claim(f"tile code bits of {name}", bits, available, remedy)]
        else:
            rows = self.n_slots(k) // config.n_pes
            row_bits = ceil_log2(rows)
            remedy = f"at most {2 ** max(config.entry_bits - row_bits, 0)} codes"
            bits, available = row_bits + layer.code_bits, config.entry_bits
            claims = [
                Claim(
                    f"rows of {name}", rows, config.rows_per_pe, "an engine with more PEs or rows"
                ),
                Claim(f"entry bits of {name}", bits, available, remedy),
            ]
        if k == len(self.units) - 1:
            claims.append(Claim("results", self.n_slots(k), config.output_depth, "fewer outputs"))
        elif self.to_bank(k):
            remedy = "an engine with a larger input_depth"
            claims.append(Claim(f"outputs of {name}", self.n_slots(k), config.input_depth, remedy))
        return claims

    def totals(self) -> list[Claim]:
        """What all layers together need of the codebooks and of the tile's memories."""
        config = self._config
        values = sum(
            1 << (self.forms if unit == TILE else self._layers)[k].code_bits
            for k, unit in enumerate(self.units)
        )
        claims = [Claim("codebook values", values, config.codebook_depth, "fewer codes per layer")]
        if self.forms:
            on_tile = [f for f, unit in zip(self.forms, self.units, strict=True) if unit == TILE]
            words = sum(form.words for form in on_tile)
            rows = sum(form.blocks for form in on_tile) * config.tile_rows
            remedy = "fewer layers, or an engine with more memory"
            claims.append(Claim("tile words per row", words, config.tile_depth, remedy))
            claims.append(Claim("tile biases", rows, config.tile_bias_depth, remedy))
        return claims

    def to_bank(self, k: int) -> bool:
        """Whether a layer's outputs go to a bank: those of the tile, and what the tile reads."""
        return k + 1 < len(self.units) and TILE in self.units[k : k + 2]

    def n_slots(self, k: int) -> int:
        """Slots that a layer writes."""
        n_rows, n_pes = self._layers[k].n_rows, self._config.n_pes
        if self.units[k] == TILE:
            return self.forms[k].blocks * self._config.tile_rows
        return grouped_slots(n_rows, n_pes) if self.to_bank(k) else -(-n_rows // n_pes) * n_pes

    def _can_move(self, k: int) -> bool:
        return self.units[k] == ARRAY and self._obstacle(k) is None

    def _obstacle(self, k: int) -> Claim | None:
        """What would be short with this layer on the tile, too."""
        kept = self.units
        self.units = [*kept[:k], TILE, *kept[k + 1 :]]
        before = self.claims(k - 1) if k else []
        obstacle = first_short([*self.claims(k), *before, *self.totals()])
        self.units = kept
        return obstacle


def _deal(
    layers: Sequence[QuantizedLayer], choice: _Choice, config: EngineConfig
) -> list[Placement]:
    """Slots of all layers; banks take turns, so that no layer reads the bank it writes."""
    placements: list[Placement] = []
    column_slots, n_columns = np.arange(layers[0].n_cols), layers[0].n_cols
    source_bank, next_bank = None, 0
    for k, layer in enumerate(layers):
        to_bank = choice.to_bank(k)
        if choice.units[k] == TILE:
            slots = np.arange(layer.n_rows)
        else:
            nonzeros = np.bincount(layer.row_indices, minlength=layer.n_rows)
            slots = (deal_groups if to_bank else deal_rows)(nonzeros, config.n_pes)
        target_bank = next_bank if to_bank else None
        n_slots = choice.n_slots(k)
        form = choice.forms[k] if choice.units[k] == TILE else None
        placements.append(
            Placement(
                unit=choice.units[k],
                form=form,
                slots=slots,
                n_slots=n_slots,
                column_slots=column_slots,
                n_columns=n_columns,
                from_merge=k > 0 and source_bank is None,
                source_bank=source_bank,
                target_bank=target_bank,
            )
        )
        # A bank is read as far as rows stand in it, the merge tree hands on whatever comes.
        column_slots, n_columns = slots, int(slots.max()) + 1 if to_bank else n_slots
        source_bank = target_bank
        next_bank ^= to_bank
    return placements


def _array_totals(
    layers: Sequence[QuantizedLayer], placements: Sequence[Placement], config: EngineConfig
) -> list[Claim]:
    """What the fullest PE needs of weight memory, and all need of column records and biases."""
    weights = np.zeros(config.n_pes, dtype=np.int64)
    columns = 0
    for layer, at in zip(layers, placements, strict=True):
        if at.unit == ARRAY:
            shape = (config.n_pes, at.n_columns)
            counts = slice_counts(layer, at.slots, at.column_slots, shape)
            weights += counts.sum(axis=1)
            columns += column_words(counts, config)[0] + at.n_slots // config.n_pes
    remedy = "a lower density, fewer layers, or an engine with more PEs or memory"
    return [
        Claim("weight words per PE", int(weights.max()), config.weight_depth, remedy),
        Claim("column words", columns, config.column_words, remedy),
    ]
