# SPDX-License-Identifier: BSD-2-Clause
"""Counters: every multiplier-cycle of a run falls in exactly one class."""

from amaranth import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig
from .formats import COUNTER_NAMES
from .layouts import tile_activity_layout
from .pe import Activity

__all__ = ["Counters"]


class Counters(wiring.Component):
    """Cycles of a run, and what each multiplier did in them.

    A PE is `busy`, works on a stored zero weight (`filler`), drains (`drain`), or is idle. Idle PEs
    of a cycle all count in one class, the first that holds: `queue_full` (a full queue of another
    PE holds up the broadcast), `broadcast` (activations arrive, but none with work for the PE),
    `imbalance` (another PE still works), `starved` (nothing to do for any PE). The tile says itself
    how many of its multipliers are `busy`, `filler`, `imbalance` or `drain`; the rest are
    `starved`. Hence the classes add up to ``config.multipliers x cycles``. PEs report two cycles
    late, the tile one, and all are idle in the last cycles of a run.

    Without `config.counters` only cycles are counted and the classes read 0.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    clear, running, save : In(1)
        Start of a run; a run is going on; keep its counts (the next run may begin then).
    activities, blocked, broadcasting : In
        From the sparse array.
    tile : In(tile_activity_layout)
        From the tile; only with `config.tile_rows`.
    counts : Out(ArrayLayout(32, 8))
        What was saved, in the order of `formats.COUNTER_NAMES`.
    """

    clear: Signal
    running: Signal
    save: Signal
    activities: data.View
    blocked: Signal
    broadcasting: Signal
    tile: data.View
    counts: data.View

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        tile = {"tile": In(tile_activity_layout(config))} if config.tile_rows else {}
        super().__init__(
            {
                "clear": In(1),
                "running": In(1),
                "save": In(1),
                "activities": In(data.ArrayLayout(Activity, config.n_pes)),
                "blocked": In(1),
                "broadcasting": In(1),
                **tile,
                "counts": Out(data.ArrayLayout(32, len(COUNTER_NAMES))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Population counts per activity, then one adder per counter."""
        m = Module()
        increments = {"cycles": 1}
        if self._config.counters:
            increments |= self._classes(m)
        for index, name in enumerate(COUNTER_NAMES):
            if name in increments:
                count = Signal(32, name=f"count_{name}")
                with m.If(self.clear):
                    m.d.sync += count.eq(0)
                with m.Elif(self.running):
                    m.d.sync += count.eq(count + increments[name])
                with m.If(self.save):
                    m.d.sync += self.counts[index].eq(count)
        return m

    def _classes(self, m: Module) -> dict[str, Value]:
        numbers = {}
        for activity in Activity:
            number = Signal(range(self._config.n_pes + 1), name=activity.name.lower())
            m.d.sync += number.eq(
                sum(self.activities[k] == activity for k in range(self._config.n_pes))
            )
            numbers[activity] = number
        working = numbers[Activity.IDLE] != self._config.n_pes
        classes = {
            name: Signal(range(self._config.n_pes + 1), name=name) for name in COUNTER_NAMES[1:]
        }
        blocked_q, broadcasting_q = Signal(), Signal()
        m.d.sync += [blocked_q.eq(self.blocked), broadcasting_q.eq(self.broadcasting)]
        m.d.comb += [
            classes["busy"].eq(numbers[Activity.BUSY]),
            classes["filler"].eq(numbers[Activity.FILLER]),
            classes["drain"].eq(numbers[Activity.DRAIN]),
        ]
        idle = numbers[Activity.IDLE]
        with m.If(blocked_q):
            m.d.comb += classes["queue_full"].eq(idle)
        with m.Elif(broadcasting_q):
            m.d.comb += classes["broadcast"].eq(idle)
        with m.Elif(working):
            m.d.comb += classes["imbalance"].eq(idle)
        with m.Else():
            m.d.comb += classes["starved"].eq(idle)
        return self._with_tile(m, classes) if self._config.tile_rows else {**classes}

    def _with_tile(self, m: Module, classes: dict[str, Signal]) -> dict[str, Value]:
        """Add the multipliers of the tile, a cycle late as those of the PEs."""
        multipliers = self._config.multipliers - self._config.n_pes
        reported = {name: self.tile[name] for name in tile_activity_layout(self._config).members}
        reported["starved"] = multipliers - sum(reported.values())
        added: dict[str, Value] = {**classes}
        for name, value in reported.items():
            number = Signal(range(multipliers + 1), name=f"tile_{name}")
            m.d.sync += number.eq(value)
            added[name] = classes[name] + number
        return added
