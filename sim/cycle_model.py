# SPDX-License-Identifier: BSD-2-Clause
"""Exact cycles of a run on the sparse array, without RTL: one image through a chain of layers.

The run is the first one after a reset: later runs find the merge tree's turns as they were left.

Cycle by cycle, but a PE is no more than the cycle in which it will have finished all that it was
given: what is pushed to its queue is taken one cycle later or when the PE is free, and a queue of
depth d has room once the d-th item before has been taken. Numbers of cycles come from the gateware:
`scan`, `sequencer`, `sparse_array`, `fetch`, `drain` and `merge` of `rtl/`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..host import golden
from ..host.compiler.array_memory import slice_counts
from ..host.compiler.compiler import Image
from ..host.compiler.quantize import QuantizedNetwork
from ..rtl.arith import requantize
from ..rtl.config import EngineConfig
from ..rtl.formats import Unit, program_fields

__all__ = ["ArrayLayer", "array_layers", "run_cycles", "simulate"]

SCAN_LATENCY = 3
"""Cycles from the start of a run to the first activation of its input."""
LOOKUP = 3
"""Advances of the broadcast from its input queue to the PEs' queues."""
SUM_LATENCY = 7
"""Cycles from the fetch of a row's bias to the row's place in the output list."""
LIST_LATENCY = 2
"""Cycles from there to the merge tree."""
INPUT_DEPTH = 2
"""Tokens in the queues before the broadcast and behind the merge tree."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ArrayLayer:
    """What the cycles of a layer depend on.

    Parameters
    ----------
    counts : (n_columns, n_pes) int64
        Entries of each column's slices.
    listed : (rows per PE, n_pes) bool
        Which outputs go to the output lists.
    nonzero : (rows per PE, n_pes) bool
        Which outputs are not 0.
    """

    counts: Ints
    listed: Bools
    nonzero: Bools

    @property
    def rows(self) -> int:
        """Rows that each PE drains."""
        return len(self.listed)


def run_cycles(network: QuantizedNetwork, image: Image, q: Ints) -> int:
    """Cycles of the first run after a reset, as the engine counts them: up to the last drained row.

    Parameters
    ----------
    network : QuantizedNetwork
    image : Image
        The network, compiled for the engine; all layers on the sparse array.
    q : (n_inputs,) int64
        Input of one image.
    """
    return simulate(array_layers(network, image, q), q, image.config)


def array_layers(network: QuantizedNetwork, image: Image, q: Ints) -> list[ArrayLayer]:
    """The layers of a network as the array sees them for the input `q`, (n_inputs,)."""
    n_pes = image.config.n_pes
    outputs = golden.run_layers(network, q[None])
    column_slots, n_columns = np.arange(len(q)), len(q)
    layers = []
    for layer, placed, values in zip(network.layers, image.layers, outputs, strict=True):
        assert placed.unit == Unit.SPARSE_ARRAY
        counts = slice_counts(layer, placed.slots, column_slots, (n_pes, n_columns))
        zero = np.zeros(1, dtype=np.int64)
        padding = requantize(zero, zero, zero, layer.low, layer.high)[0]
        by_slot = np.full(placed.result_slots, padding)
        by_slot[placed.slots] = values[0]
        nonzero = by_slot.reshape(-1, n_pes) != 0
        listed = nonzero | bool(placed.record["keep_zeros"])
        listed[-1] = True
        layers.append(ArrayLayer(np.ascontiguousarray(counts.T), listed, nonzero))
        column_slots, n_columns = placed.slots, placed.result_slots
    return layers


def simulate(layers: list[ArrayLayer], q: Ints, config: EngineConfig) -> int:
    """Cycles of one run of `layers` on the input `q`, (n_inputs,) int64."""
    array = _Array(layers, config)
    record_cycles = max(word for _, word, _, _ in program_fields(config)) + 2
    array.feed(_Scanner(q))
    for _ in layers[1:]:
        for _ in range(record_cycles):
            array.step()
        array.feed(array.outputs)
    fed = array.cycle - 1
    while array.last_drained is None:
        array.step()
    return max(array.last_drained, fed + record_cycles + 1) + 1


@dataclass(frozen=True)
class _Token:
    """An activation; the array's outputs are the next layer's inputs."""

    slot: int
    nonzero: bool
    last: bool


class _Source(Protocol):
    """Where tokens come from."""

    def offered(self, cycle: int) -> _Token | None:
        """The token that can be taken in a cycle."""
        ...

    def take(self, cycle: int) -> None:
        """Take it."""
        ...


class _Scanner:
    """Nonzeros of the stored input; a group of four zeros takes a cycle (`rtl/scan.py`)."""

    def __init__(self, q: Ints) -> None:
        nonzero = q != 0
        nonzero[-1] = True
        slots = np.flatnonzero(nonzero)
        groups = slots // 4
        # From one token to the next: a cycle, and one for each group of zeros in between.
        gaps = np.maximum(np.diff(groups, prepend=-1) - 1, 0)
        last = len(slots) - 1
        self._tokens = deque(
            (_Token(int(slot), bool(q[slot]), k == last), int(gap))
            for k, (slot, gap) in enumerate(zip(slots, gaps, strict=True))
        )
        self._ready = SCAN_LATENCY + self._tokens[0][1]

    def offered(self, cycle: int) -> _Token | None:
        return self._tokens[0][0] if self._tokens and cycle >= self._ready else None

    def take(self, cycle: int) -> None:
        self._tokens.popleft()
        self._ready = cycle + 1 + (self._tokens[0][1] if self._tokens else 0)


class _List:
    """Output list of a PE: tokens and the cycles in which they can be seen."""

    def __init__(self) -> None:
        self.tokens: deque[tuple[int, _Token]] = deque()
        self._free = 0

    def offered(self, cycle: int) -> _Token | None:
        if not self.tokens:
            return None
        seen, token = self.tokens[0]
        return token if cycle >= max(seen, self._free) else None

    def take(self, cycle: int) -> None:
        self.tokens.popleft()
        self._free = cycle + 1

    def step(self, cycle: int) -> None:
        """Nothing happens unless a token is taken."""


class _Node:
    """A node of the merge tree (`rtl/merge.py`); `step` after what was offered has been taken."""

    def __init__(self, a: "_Tree", b: "_Tree") -> None:
        self._inputs = (a, b)
        self._token: _Token | None = None
        self._ended = [False, False]
        self._first = 0

    def offered(self, cycle: int) -> _Token | None:
        return self._token

    def take(self, cycle: int) -> None:
        self._token = None

    def step(self, cycle: int) -> None:
        """Fill the register, if it is free, from the inputs as they were before this cycle."""
        taken = None
        if self._token is None:
            for k in (self._first, 1 - self._first):
                token = None if self._ended[k] else self._inputs[k].offered(cycle)
                if token is not None:
                    taken = token, k
                    break
        if taken is not None:
            self._inputs[taken[1]].take(cycle)
        for tree in self._inputs:
            tree.step(cycle)
        if taken is not None:
            self._fill(*taken)

    def _fill(self, token: _Token, k: int) -> None:
        ending = token.last and self._ended[1 - k]
        self._token = _Token(token.slot, token.nonzero, ending)
        self._first = 1 - k
        if ending:
            self._ended = [False, False]
        elif token.last:
            self._ended[k] = True


_Tree = _List | _Node


class _Outputs:
    """Merge tree and the queue behind it."""

    def __init__(self, lists: list[_List]) -> None:
        level: list[_Tree] = [*lists]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            odd = level[len(level) - len(level) % 2 :]
            level = [*(_Node(a, b) for a, b in pairs), *odd]
        self._root = level[0]
        self._queue: deque[_Token] = deque()
        self._level = 0

    def offered(self, cycle: int) -> _Token | None:
        return self._queue[0] if self._queue else None

    def take(self, cycle: int) -> None:
        self._queue.popleft()

    def begin(self, cycle: int) -> None:
        """Note how full the queue is before anything is taken in this cycle."""
        self._level = len(self._queue)

    def step(self, cycle: int) -> None:
        token = self._root.offered(cycle) if self._level < INPUT_DEPTH else None
        if token is not None:
            self._root.take(cycle)
        self._root.step(cycle)
        if token is not None:
            self._queue.append(token)


@dataclass(frozen=True, eq=False)
class _Broadcast:
    """What goes to the queues of all PEs at once.

    Parameters
    ----------
    work : (n_pes,) int64
        Cycles that it takes each PE; those with 0 do not get it.
    row : int, optional
        Local row that it drains.
    """

    work: Ints
    row: int | None = None


class _Array:
    """Broadcast, PEs and output lists, cycle by cycle (`rtl/sparse_array.py`)."""

    def __init__(self, layers: list[ArrayLayer], config: EngineConfig) -> None:
        n_pes = config.n_pes
        self._layers = layers
        self._config = config
        self._lists = [_List() for _ in range(n_pes)]
        self.outputs = _Outputs(self._lists)
        self.cycle = 0
        self.last_drained: int | None = None
        self._fed = 0  # layers whose last token came in
        self._read = 0  # layers that have entered the look-up with all their rows
        self._ended = 0  # layers whose rows are drained
        self._inputs: deque[_Token] = deque()
        self._row: int | None = None  # next to drain
        self._listed = False  # whether there has been an output
        self._stages: deque[_Broadcast | None] = deque([None] * LOOKUP)
        self._room = 0  # cycle from which all have room for the last stage
        self._pes = np.arange(n_pes)
        self._free = np.zeros(n_pes, dtype=np.int64)  # cycle in which a PE can take what is next
        self._pushed = np.zeros(n_pes, dtype=np.int64)
        # Cycles in which each PE took its latest items.
        self._taken = np.full((config.queue_depth, n_pes), -1, dtype=np.int64)

    def feed(self, source: _Source) -> None:
        """Step until the last token of a layer has come in."""
        target = self._fed + 1
        while self._fed < target:
            self.step(source)

    def step(self, source: _Source | None = None) -> None:
        """One cycle, in which a token comes from `source`, if it has one."""
        cycle, outputs = self.cycle, self.outputs
        outputs.begin(cycle)
        token = None
        if source is not None and len(self._inputs) < INPUT_DEPTH:
            token = source.offered(cycle)
        if token is not None:
            assert source is not None
            source.take(cycle)
            self._fed += token.last
        if self._listed and self._ended < len(self._layers):
            outputs.step(cycle)
        if cycle >= self._room:
            self._advance()
        if token is not None:
            self._inputs.append(token)
        self.cycle += 1

    def _advance(self) -> None:
        last = self._stages.pop()
        if last is not None:
            self._push(last)
        self._stages.appendleft(self._next())
        waiting = self._stages[-1]
        if waiting is not None:
            before = self._taken[self._pushed % len(self._taken), self._pes]
            self._room = int(np.where(waiting.work > 0, before, -1).max()) + 1

    def _next(self) -> _Broadcast | None:
        """What enters the look-up."""
        if self._row is not None:
            return self._next_row(self._row)
        if not self._inputs:
            return None
        token = self._inputs[0]
        layer = self._layers[self._read]
        if token.last:
            self._row = 0
        else:
            self._inputs.popleft()
        if token.nonzero:
            return _Broadcast(layer.counts[token.slot])
        return None if self._row is None else self._next_row(self._row)

    def _next_row(self, row: int) -> _Broadcast:
        """A row to drain; the last token of the layer stays in front until they all are on."""
        self._row = row + 1
        if self._row == self._layers[self._read].rows:
            self._row = None
            self._read += 1
            self._inputs.popleft()
        return _Broadcast(np.ones(len(self._pes), dtype=np.int64), row)

    def _push(self, broadcast: _Broadcast) -> None:
        wanted = broadcast.work > 0
        taken = np.maximum(self._free, self.cycle + 1)
        place = self._pushed % len(self._taken), self._pes
        self._taken[place] = np.where(wanted, taken, self._taken[place])
        self._free = np.where(wanted, taken + broadcast.work, self._free)
        self._pushed += wanted
        if broadcast.row is not None:
            self._drain(taken, broadcast.row)

    def _drain(self, taken: Ints, row: int) -> None:
        """Enter a row of each PE in the output lists."""
        self._listed = True
        layer = self._layers[self._ended]
        last = row == layer.rows - 1
        seen = taken + 1 + SUM_LATENCY + LIST_LATENCY
        for pe in np.flatnonzero(layer.listed[row]):
            slot = row * len(self._pes) + int(pe)
            token = _Token(slot, bool(layer.nonzero[row, pe]), last)
            self._lists[pe].tokens.append((int(seen[pe]), token))
        if last:
            self._ended += 1
            if self._ended == len(self._layers):
                self.last_drained = int(self._free.max()) + SUM_LATENCY
