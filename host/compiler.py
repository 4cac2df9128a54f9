# SPDX-License-Identifier: BSD-2-Clause
"""Compiler: a network in integers and an engine's config become the image that the engine loads.

Rows are dealt to PEs so that their nonzeros balance; a row's place is its slot, and the next layer
numbers its columns by slot, so the engine needs no index table between layers.
"""

import heapq
import zlib
from dataclasses import dataclass, field, replace

import numpy as np

from ..rtl.config import EngineConfig, ceil_log2
from ..rtl.formats import Section, pack_bias, pack_columns, pack_entries, pack_record, section
from .errors import CapacityError
from .quantize import Ints, QuantizedLayer, QuantizedNetwork, row_bounds

__all__ = ["Image", "PlacedLayer", "compile_network", "deal_rows", "program_image"]


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
        Slots of the layer: rows per PE x PEs.
    """

    name: str
    record: dict[str, int]
    slots: Ints
    result_slots: int


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


def deal_rows(nonzeros: Ints, n_pes: int) -> Ints:
    """Deal rows to PEs: most nonzeros first, each to the PE with the least work and a free place.

    Parameters
    ----------
    nonzeros : (n_rows,) int64
        Entries of each row.
    n_pes : int

    Returns
    -------
    (n_rows,) int64
        Slot of each row: ``local_row * n_pes + pe``.
    """
    places = -(-len(nonzeros) // n_pes)
    slots = np.empty(len(nonzeros), dtype=np.int64)
    heap = [(0, 0, pe) for pe in range(n_pes)]  # work, rows, PE
    for row in np.argsort(-nonzeros, kind="stable"):
        work, rows, pe = heapq.heappop(heap)
        slots[row] = rows * n_pes + pe
        if rows + 1 < places:
            heapq.heappush(heap, (work + int(nonzeros[row]), rows + 1, pe))
    return slots


def compile_network(network: QuantizedNetwork, config: EngineConfig) -> Image:
    """Compile a network for an engine.

    Raises
    ------
    CapacityError
        It does not fit: says what is short, by how much, and what would help.
    """
    ledger: dict[str, tuple[int, int]] = {}
    _check_sums(network, config)
    _claim_sizes(network, config, ledger)
    codebook_bases = _place_codebooks(network, config, ledger)
    slots = [
        deal_rows(np.bincount(layer.row_indices, minlength=layer.n_rows), config.n_pes)
        for layer in network.layers
    ]
    memories = _Memories(config)
    bias_bases = [
        memories.add_biases(layer, places)
        for layer, places in zip(network.layers, slots, strict=True)
    ]
    placed: list[PlacedLayer] = []
    n_columns = network.layers[0].n_cols
    column_slots = np.arange(n_columns)
    for k, layer in enumerate(network.layers):
        columns_base, wide = memories.add_entries(layer, slots[k], column_slots, n_columns)
        rows = _rows_per_pe(layer, config)
        is_last = k == len(network.layers) - 1
        record = {
            "last": int(is_last),
            "keep_zeros": int(is_last),
            "wide_counts": int(wide),
            "zero_code": int(layer.zero_code),
            "signed_in": int(layer.signed_in),
            "signed_out": int(layer.signed_out),
            "from_merge": int(k > 0),
            "last_input": n_columns - 1,
            "last_row": rows - 1,
            "columns_base": columns_base,
            "codebook_base": codebook_bases[k],
            "bias_base": bias_bases[k],
            "code_mask": (1 << layer.code_bits) - 1,
            "row_mask": (1 << ceil_log2(rows)) - 1,
            "low": layer.low,
            "high": layer.high,
            "last_drain_word": rows * config.bias_words - 1,
        }
        n_columns, column_slots = rows * config.n_pes, slots[k]
        placed.append(PlacedLayer(layer.name, record, slots[k], n_columns))

    memories.claim(ledger)
    sections = [section(Section.PROGRAM, 0, 0, _program(placed, config), config)]
    for base, layer in zip(codebook_bases, network.layers, strict=True):
        values = [int(v) & 0xFFFF for v in layer.codebook]
        sections.append(section(Section.CODEBOOK, 0, base, values, config))
    sections += memories.sections()
    return Image(config, b"".join(sections), network.layers[0].n_cols, tuple(placed), ledger)


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
    layers[-1] = replace(last, record=last.record | {"last": 1, "keep_zeros": 1})
    help_ = "an engine with a larger output_depth"
    _claim({}, f"results of {last.name}", last.result_slots, image.config.output_depth, help_)
    data = section(Section.PROGRAM, 0, 0, _program(layers, image.config), image.config)
    return replace(image, data=data, layers=tuple(layers))


def _claim(
    ledger: dict[str, tuple[int, int]], what: str, used: int, available: int, help_: str
) -> None:
    ledger[what] = (used, available)
    if used > available:
        raise CapacityError(
            f"model does not fit the engine: {what}: {used} needed, {available} available "
            f"({used - available} too many); what would help: {help_}"
        )


def _rows_per_pe(layer: QuantizedLayer, config: EngineConfig) -> int:
    return -(-layer.n_rows // config.n_pes)


def _claim_sizes(
    network: QuantizedNetwork, config: EngineConfig, ledger: dict[str, tuple[int, int]]
) -> None:
    """What the number and shapes of the layers need, wherever their rows go."""
    layers = network.layers
    _claim(ledger, "layers", len(layers), config.max_layers, "fewer layers")
    _claim(ledger, "inputs", layers[0].n_cols, config.input_depth, "fewer inputs")
    for layer in layers:
        rows = _rows_per_pe(layer, config)
        help_ = "an engine with more PEs or rows"
        _claim(ledger, f"rows of {layer.name}", rows, config.rows_per_pe, help_)
        bits = ceil_log2(rows) + layer.code_bits
        help_ = f"at most {2 ** max(config.entry_bits - ceil_log2(rows), 0)} codes"
        _claim(ledger, f"entry bits of {layer.name}", bits, config.entry_bits, help_)
    results = _rows_per_pe(layers[-1], config) * config.n_pes
    _claim(ledger, "results", results, config.output_depth, "fewer outputs")


def _check_sums(network: QuantizedNetwork, config: EngineConfig) -> None:
    """Refuse integers made for a wider engine: sums would wrap."""
    limit = 1 << (config.sum_bits - 1)
    for layer in network.layers:
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


def _place_codebooks(
    network: QuantizedNetwork, config: EngineConfig, ledger: dict[str, tuple[int, int]]
) -> list[int]:
    """Base of each codebook, a multiple of its size: largest first leaves no gaps."""
    bases = [0] * len(network.layers)
    used = 0
    for k in sorted(range(len(bases)), key=lambda k: -network.layers[k].code_bits):
        bases[k] = used
        used += 1 << network.layers[k].code_bits
    _claim(ledger, "codebook values", used, config.codebook_depth, "fewer codes per layer")
    return bases


class _Memories:
    """Weight memories and column records of all PEs, filled layer by layer: biases first."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._weights: list[list[Ints]] = [[] for _ in range(config.n_pes)]
        self._columns: list[list[int]] = [[] for _ in range(config.n_pes)]
        self._used = np.zeros(config.n_pes, dtype=np.int64)

    def add_biases(self, layer: QuantizedLayer, slots: Ints) -> int:
        """Append a layer's biases and shifts; places without a row get 0. Returns the base."""
        config = self._config
        rows = _rows_per_pe(layer, config)
        words = np.zeros((rows * config.n_pes, config.bias_words), dtype=np.int64)
        for slot, bias, shift in zip(slots, layer.bias, layer.shift, strict=True):
            words[slot] = pack_bias(int(bias), int(shift), config)
        by_row = words.reshape(rows, config.n_pes, config.bias_words)
        for pe in range(config.n_pes):
            self._weights[pe].append(by_row[:, pe].reshape(-1))
        base = int(self._used[0])
        self._used += rows * config.bias_words
        return base

    def add_entries(
        self, layer: QuantizedLayer, slots: Ints, column_slots: Ints, n_columns: int
    ) -> tuple[int, bool]:
        """Append a layer's entries in column order, and their records.

        Returns
        -------
        (int, bool)
            Base of the column records, and whether their counts are wide.
        """
        config = self._config
        slot = slots[layer.row_indices]
        pe, local_row = slot % config.n_pes, slot // config.n_pes
        column = column_slots[layer.columns()]
        order = np.lexsort((local_row, column, pe))
        words = pack_entries(local_row[order], layer.codes[order], config)
        counts = np.bincount(pe * n_columns + column, minlength=config.n_pes * n_columns)
        counts = counts.reshape(config.n_pes, n_columns)
        wide = bool(counts.max() >= 1 << config.count_bits)
        base = len(self._columns[0])
        for k, entries in enumerate(np.split(words, np.cumsum(counts.sum(axis=1))[:-1])):
            self._weights[k].append(entries)
            self._columns[k] += _column_words(counts[k], int(self._used[k]), wide, config)
        self._used += counts.sum(axis=1)
        return base, wide

    def claim(self, ledger: dict[str, tuple[int, int]]) -> None:
        """Enter what the fullest PE needs; CapacityError if it is too much."""
        config = self._config
        help_ = "a lower density, fewer layers, or an engine with more PEs or memory"
        used = int(self._used.max())
        _claim(ledger, "weight words per PE", used, config.weight_depth, help_)
        _claim(ledger, "column words", len(self._columns[0]), config.column_words, help_)

    def sections(self) -> list[bytes]:
        """Sections of the image, PE by PE."""
        config = self._config
        made = []
        for pe in range(config.n_pes):
            words = np.concatenate(self._weights[pe]).tolist()
            made.append(section(Section.WEIGHTS, pe, 0, words, config))
            made.append(section(Section.COLUMNS, pe, 0, self._columns[pe], config))
        return made


def _column_words(counts: Ints, base: int, wide: bool, config: EngineConfig) -> list[int]:
    """Column records of one PE whose first entry lies at `base`."""
    group = 4 if wide else 8
    padded = np.zeros(-(-len(counts) // group) * group, dtype=np.int64)
    padded[: len(counts)] = counts
    groups = padded.reshape(-1, group)
    bases = base + np.concatenate(([0], np.cumsum(groups.sum(axis=1))[:-1]))
    return pack_columns(bases, groups, wide, config)


def _program(layers: list[PlacedLayer], config: EngineConfig) -> list[int]:
    return [word for layer in layers for word in pack_record(layer.record, config)]
