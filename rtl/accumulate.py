# SPDX-License-Identifier: BSD-2-Clause
"""Multiply and accumulate of a PE, with the partial sums of all its rows."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import EngineConfig

__all__ = ["Accumulator"]


class Accumulator(wiring.Component):
    """``sum[row] += weight * operand``, or hand out a row's sum and clear it.

    A row may come again in the very next cycle: its sum, not yet in memory, is forwarded. A bit
    beside each sum says whether it counts: clearing a row clears that bit, which costs one gate
    where the sum is read instead of one at every bit that is written.

    **Latency**: `LATENCY` = 1 cycle from an operation to `sum`; the sum is in memory one later.
    **Throughput**: one operation per cycle. **Overflow**: none, the compiler bounds every subset of
    a row's terms. **Memory**: `rows_per_pe` x (`sum_bits` + 1).

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    valid, take : In(1)
        An operation; it takes and clears the sum instead of adding to it.
    row, weight, operand : In
        Local row, signed(16), signed(A + 1).
    taken, sum : Out(1), Out(signed(P))
        The sum that `take` wanted, a cycle later.
    clear, clear_row : In
        Clear a row; only while no operation comes.
    """

    LATENCY = 1

    valid: Signal
    take: Signal
    row: Signal
    weight: Signal
    operand: Signal
    taken: Signal
    sum: Signal
    clear: Signal
    clear_row: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "valid": In(1),
                "take": In(1),
                "row": In(config.row_bits),
                "weight": In(signed(16)),
                "operand": In(signed(config.activation_bits + 1)),
                "taken": Out(1),
                "sum": Out(signed(config.sum_bits)),
                "clear": In(1),
                "clear_row": In(config.row_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply while the old sum is read; add and write back in the next cycle."""
        m = Module()
        config = self._config
        entry = data.StructLayout({"sum": signed(config.sum_bits), "counts": 1})
        m.submodules.sums = sums = memory.Memory(shape=entry, depth=config.rows_per_pe, init=[])
        read_port, write_port = sums.read_port(), sums.write_port()
        valid_q1, take_q1, forward_q1 = Signal(), Signal(), Signal()
        row_q1 = Signal(config.row_bits, reset_less=True)
        product_q1 = Signal(signed(config.activation_bits + 17), reset_less=True)
        written_q2 = Signal(entry, reset_less=True)
        counts = Signal()
        m.d.sync += [
            valid_q1.eq(self.valid),
            take_q1.eq(self.take),
            row_q1.eq(self.row),
            product_q1.eq(self.weight * self.operand),
            forward_q1.eq(valid_q1 & (row_q1 == self.row)),
            written_q2.eq(write_port.data),
        ]
        m.d.comb += [
            read_port.addr.eq(self.row),
            counts.eq(Mux(forward_q1, written_q2.counts, read_port.data.counts)),
            self.sum.eq(
                Mux(forward_q1, written_q2.sum, read_port.data.sum)
                & counts.replicate(config.sum_bits)
            ),
            self.taken.eq(valid_q1 & take_q1),
            write_port.addr.eq(Mux(self.clear, self.clear_row, row_q1)),
            write_port.data.sum.eq(self.sum + product_q1),
            write_port.data.counts.eq(~(take_q1 | self.clear)),
            write_port.en.eq(valid_q1 | self.clear),
        ]
        return m
