# SPDX-License-Identifier: BSD-2-Clause
"""Drain of a PE: sums become activations and wait in the output list.

The list has room for every row of the PE, so draining never waits and the PE goes on to the next
layer at once; the merge tree empties the list meanwhile.
"""

from amaranth import Module, Mux, Signal, signed
from amaranth.hdl import Assert
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .arith import Ints, requantize
from .config import EngineConfig
from .layouts import layer_layout, token_layout
from .streams import Queue

__all__ = ["Drain"]


class Drain(wiring.Component):
    """Requantize rows: ``clamp((sum + bias) >> shift, low, high)``, zeros dropped.

    **Latency**: `LATENCY` cycles from `valid` to the list, two more to `o`. **Throughput**: one
    row per cycle. **Rounding**: arithmetic shift; the bias holds the rounding constant
    (`rtl/arith.py`).
    The row with `last` is always listed, even if zero, so that the merge tree sees the end.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    valid : In(1)
        A row is handed over; there is no back-pressure.
    sum, bias, shift, row, last : In
        The row: signed(P), signed(P - 1), bits, local row index, whether it is the layer's last.
    layer : In(layer_layout)
        Parameters of the row's layer; steady until its last row has left.
    o : Out(stream of token_layout)
    """

    LATENCY = 3

    valid: Signal
    sum: Signal
    bias: Signal
    shift: Signal
    row: Signal
    last: Signal
    layer: data.View
    o: stream.Interface

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "valid": In(1),
                "sum": In(signed(config.sum_bits)),
                "bias": In(signed(config.sum_bits - 1)),
                "shift": In(config.shift_bits),
                "row": In(config.row_bits),
                "last": In(1),
                "layer": In(layer_layout(config)),
                "o": Out(stream.Signature(token_layout(config, 0))),
            }
        )

    @staticmethod
    def model(sums: Ints, bias: Ints, shift: Ints, low: int, high: int) -> Ints:
        """Activations of all rows, zeros included (`arith.requantize`)."""
        return requantize(sums, bias, shift, low, high)

    def elaborate(self, platform: object) -> Module:
        """Add, shift and clamp in three stages, then the list."""
        m = Module()
        config = self._config
        layer = self.layer
        width = config.sum_bits

        biased_q1 = Signal(signed(width), reset_less=True)
        shift_q1 = Signal.like(self.shift, reset_less=True)
        shifted_q2 = Signal(signed(width), reset_less=True)
        m.d.sync += [
            biased_q1.eq(self.sum + self.bias),
            shift_q1.eq(self.shift),
            shifted_q2.eq(biased_q1 >> shift_q1),
        ]

        valid, row, last = self.valid, self.row, self.last
        for stage in (1, 2):
            valid_q = Signal(name=f"valid_q{stage}")
            row_q = Signal.like(row, name=f"row_q{stage}", reset_less=True)
            last_q = Signal(name=f"last_q{stage}", reset_less=True)
            m.d.sync += [valid_q.eq(valid), row_q.eq(row), last_q.eq(last)]
            valid, row, last = valid_q, row_q, last_q

        limit = signed(config.activation_bits + 1)
        low, high = Signal(limit), Signal(limit)
        for value, field in ((low, layer.low), (high, layer.high)):
            m.d.comb += value.eq(Mux(layer.signed_out, field.as_signed(), field.as_unsigned()))
        clamped = Signal(config.activation_bits)
        with m.If(shifted_q2 < low):
            m.d.comb += clamped.eq(low)
        with m.Elif(shifted_q2 > high):
            m.d.comb += clamped.eq(high)
        with m.Else():
            m.d.comb += clamped.eq(shifted_q2)

        m.submodules.list = rows = Queue(
            token_layout(config, 0), depth=config.rows_per_pe + 1, block=True
        )
        listed = Signal()
        m.d.sync += [
            rows.i.p.value.eq(clamped),
            rows.i.p.row.eq(row),
            rows.i.p.last.eq(last),
            listed.eq(valid & (clamped.any() | layer.keep_zeros | last)),
        ]
        m.d.comb += rows.i.valid.eq(listed)
        with m.If(listed):
            m.d.sync += Assert(rows.i.ready, "output list overflows")
        connect(m, rows.o, flipped(self.o))
        return m
