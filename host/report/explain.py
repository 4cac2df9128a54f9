# SPDX-License-Identifier: BSD-2-Clause
"""Why a model is fast, slow or large on an engine: each layer as dense, 2:4 and unstructured.

Cycles are estimates from the structure and from statistics of the calibration data in the file; no
inputs are needed. Where sparse does not win, a sentence says so, and the density at which it would.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...rtl.config import EngineConfig
from ...rtl.formats import Unit
from ..compiler.array_memory import slice_counts
from ..compiler.dealing import deal_rows
from ..compiler.estimate import ArrayLoad, Estimate, array_estimate, link_bytes, tile_estimate
from ..compiler.placement import Placement, place
from ..compiler.quantize import CODEBOOK_BITS, QuantizedLayer, quantize
from ..compression.calibrate import TensorRange
from ..compression.codebook import code_bits
from ..compression.compress import CompressedLayer, CompressedModel
from ..compression.matrix import Matrix
from ..compression.nm import group_counts, select_nm
from ..compression.structure import Places
from ..errors import CapacityError
from .advice import GAIN, Form, LayerExplanation, advise
from .break_even import highest_density, unstructured_bits

__all__ = ["FORMS", "WIDTHS", "Engine", "Explanation", "explain"]

MAX_CODES = 256
FORMS = ("dense", "2:4", "unstructured")

WIDTHS = {32: 8, 36: 16}
"""Bits of an activation by bits of a sum, for which lost codebook bits are listed."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What a model is explained for: the engine of simulations by default.

    Parameters
    ----------
    name : str
    config : EngineConfig
    clock_hz, baud : int
        Of the engine and of its link.
    """

    name: str = "sim"
    config: EngineConfig = field(default_factory=EngineConfig)
    clock_hz: int = 50_000_000
    baud: int = 1_000_000


@dataclass(frozen=True)
class Explanation:
    """A model on an engine.

    Parameters
    ----------
    engine : str
    pes, multipliers, batch : int
    clock_hz, baud : int
    layers : tuple of LayerExplanation
    cycles : float
        Of one image in a full run.
    milliseconds, link_milliseconds : float
        Of one image in the engine and on the link.
    limit : str
        ``"engine"`` or ``"link"``.
    misfit : str
        Why the engine cannot hold the model; empty if it can.
    """

    engine: str
    pes: int
    multipliers: int
    batch: int
    clock_hz: int
    baud: int
    layers: tuple[LayerExplanation, ...]
    cycles: float
    milliseconds: float
    link_milliseconds: float
    limit: str
    misfit: str


def explain(model: CompressedModel, engine: Engine | None = None) -> Explanation:
    """Explain a model on an engine; if it does not fit, as if it did, all on the sparse array."""
    engine = engine or Engine()
    config = engine.config
    integers = quantize(model, activation_bits=config.activation_bits, sum_bits=config.sum_bits)
    placements: list[Placement | None] = [None] * len(model.layers)
    misfit = ""
    try:
        placements = list(place(integers, config, {}))
    except CapacityError as error:
        misfit = str(error)
    lost = {
        sums: [
            CODEBOOK_BITS - layer.codebook_bits if layer.codebook.any() else 0
            for layer in quantize(model, activation_bits=bits, sum_bits=sums).layers
        ]
        for sums, bits in (WIDTHS | {config.sum_bits: config.activation_bits}).items()
    }
    layers: list[LayerExplanation] = []
    before: Estimate | None = None
    for k, (layer, whole, at) in enumerate(
        zip(model.layers, integers.layers, placements, strict=True)
    ):
        view = _Layer(layer, model.layers[k - 1].output if k else model.input, config)
        if at is not None and not at.from_merge:
            before = None
        bits = {sums: values[k] for sums, values in lost.items()}
        explained, before = view.explain(whole, at, before, bits)
        layers.append(explained)
    cycles = sum(layer.cycles for layer in layers)
    last = placements[-1]
    slots = last.n_slots if last else -(-model.n_outputs // config.n_pes) * config.n_pes
    milliseconds = 1e3 * cycles / engine.clock_hz
    link = 1e4 * link_bytes(model.n_inputs, slots, config) / engine.baud
    return Explanation(
        engine=engine.name,
        pes=config.n_pes,
        multipliers=config.multipliers,
        batch=config.batch,
        clock_hz=engine.clock_hz,
        baud=engine.baud,
        layers=tuple(layers),
        cycles=cycles,
        milliseconds=milliseconds,
        link_milliseconds=link,
        limit="link" if link > milliseconds else "engine",
        misfit=misfit,
    )


class _Layer:
    """One layer with the statistics of its input, on one engine."""

    def __init__(self, layer: CompressedLayer, source: TensorRange, config: EngineConfig) -> None:
        self._layer = layer
        self._source = source
        self._config = config
        self._weight = layer.matrix.weight()
        self._rows, self._cols = layer.n_rows, layer.n_cols
        self._active = 1 - source.share
        self._density = layer.matrix.nonzeros / self._weight.size

    def explain(
        self,
        whole: QuantizedLayer,
        at: Placement | None,
        before: Estimate | None,
        lost_bits: dict[int, int],
    ) -> tuple[LayerExplanation, Estimate]:
        """Explain the layer that follows `before` through the merge tree; also its estimate."""
        matrix = self._layer.matrix
        now = self._as_placed(whole, at, before)
        forms = {structure: self._form(structure, before) for structure in FORMS}
        dense = forms["dense"]
        smallest = 1 / self._weight.size
        cycles_below = highest_density(
            lambda density: self._unstructured_cycles(density, before),
            GAIN * dense.cycles,
            smallest,
        )
        plain = self._matrix("dense", self._weight).coded("none")
        codes = max(1, int(np.count_nonzero(plain.codebook)))
        bytes_below = highest_density(
            lambda density: unstructured_bits(density, self._weight.size, code_bits(codes)) / 8,
            plain.cost_bytes - 4 * codes,
            smallest,
        )
        explained = LayerExplanation(
            layer=self._layer.name,
            structure=matrix.structure,
            unit="tile" if at is not None and at.unit == Unit.TENSOR_TILE else "array",
            density=self._density,
            zero_is=self._source.origin,
            zero_share=self._source.share,
            bytes=matrix.cost_bytes,
            cycles=now.cycles,
            parts=now.parts,
            limit=now.limit,
            forms=forms,
            cycles_below=cycles_below,
            bytes_below=bytes_below,
            lost_bits=lost_bits,
            advice="",
        )
        return replace(
            explained, advice=advise(explained, self._rows, self._cols, self._config)
        ), now

    def _matrix(self, structure: str, weight: npt.NDArray[np.float32]) -> Matrix:
        """The layer's weights, or what is left of them, in a structure."""
        own = self._layer.matrix
        return own if own.structure == structure else Matrix.share(weight, structure, MAX_CODES)

    def _as_placed(
        self, whole: QuantizedLayer, at: Placement | None, before: Estimate | None
    ) -> Estimate:
        config = self._config
        if at is not None and at.form is not None:
            return tile_estimate(self._rows, self._cols, at.form.passes, self._active, config)
        met = self._active if whole.structure == "dense" else self._layer.met
        if at is None:
            slots = deal_rows(np.bincount(whole.row_indices, minlength=self._rows), config.n_pes)
            columns, n_columns = np.arange(self._cols), self._cols
        else:
            slots, columns, n_columns = at.slots, at.column_slots, at.n_columns
        # slots between the inputs are never nonzero
        counts = slice_counts(whole, slots, columns, (config.n_pes, n_columns))[:, columns]
        load = ArrayLoad.of_counts(counts, int(slots.max()) // config.n_pes + 1)
        now = array_estimate(load, self._active, met, config, before)
        if at is None or at.target_bank is None:
            return now
        # the tile, or a layer behind it, waits for the last output in the bank
        waits = max(0.0, at.n_slots - now.parts["drain"])
        return replace(now, cycles=now.cycles + waits)

    def _counts(self, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Entries of each PE and column with the nonzeros of `weight`."""
        mask = weight != 0
        pes = deal_rows(mask.sum(axis=1), self._config.n_pes) % self._config.n_pes
        counts = np.zeros((self._config.n_pes, mask.shape[1]), dtype=np.int64)
        np.add.at(counts, pes, mask)
        return counts

    def _form(self, structure: str, before: Estimate | None) -> Form:
        config, weight = self._config, self._weight
        rows = -(-self._rows // config.n_pes)
        if structure == "dense":
            load = ArrayLoad.of_density(self._rows, self._cols, 1.0, config.n_pes)
            cycles = array_estimate(load, self._active, self._active, config, before).cycles
        else:
            if structure == "2:4":
                weight = _two_of_four(weight)
            load = ArrayLoad.of_counts(self._counts(weight), rows)
            cycles = array_estimate(load, self._active, self._layer.met, config, before).cycles
        unit = "array"
        if config.tile_rows and structure != "unstructured":
            passes = 2 if structure == "dense" else 1
            on_tile = tile_estimate(self._rows, self._cols, passes, self._active, config).cycles
            if on_tile < cycles:
                unit, cycles = "tile", on_tile
        size = self._matrix(structure, weight).cost_bytes
        dropped = int(np.count_nonzero(self._weight)) - int(np.count_nonzero(weight))
        return Form(unit, cycles, size, dropped)

    def _unstructured_cycles(self, density: float, before: Estimate | None) -> float:
        load = ArrayLoad.of_density(self._rows, self._cols, density, self._config.n_pes)
        return array_estimate(load, self._active, self._active, self._config, before).cycles


def _two_of_four(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if (group_counts(Places.of_mask(weight != 0), 4) > 2).any():
        return select_nm(weight, 2, 4)
    return weight
