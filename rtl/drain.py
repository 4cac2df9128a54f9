# SPDX-License-Identifier: BSD-2-Clause
"""Drain of a PE: sums become activations and wait in the output list.

The list has room for every row of the PE, so draining never waits and the PE goes on to the next
layer at once; the merge tree empties the list meanwhile.
"""

from amaranth import Module, Signal, signed
from amaranth.hdl import Assert
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .arith import Ints
from .config import EngineConfig
from .layouts import layer_layout, token_layout
from .pipeline import delay
from .requantize import Requantizer
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

    LATENCY = Requantizer.LATENCY

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
        """Activations of all rows, zeros included (`Requantizer.model`)."""
        return Requantizer.model(sums, bias, shift, low, high)

    def elaborate(self, platform: object) -> Module:
        """Requantize, then list what is not dropped."""
        m = Module()
        config, layer = self._config, self.layer
        m.submodules.requantizer = requantizer = Requantizer(config)
        m.submodules.list = rows = Queue(
            token_layout(config, 0), depth=config.rows_per_pe + 1, block=True
        )
        # Layers may change once their last row is listed: `keep` is taken with the clamp.
        last_q2 = delay(m, self.last, self.LATENCY - 1)
        keep_q3 = delay(m, layer.keep_zeros | last_q2, 1)
        m.d.comb += [
            requantizer.sum.eq(self.sum),
            requantizer.bias.eq(self.bias),
            requantizer.shift.eq(self.shift),
            requantizer.layer.eq(layer),
            rows.i.p.value.eq(requantizer.value),
            rows.i.p.row.eq(delay(m, self.row, self.LATENCY)),
            rows.i.p.last.eq(delay(m, last_q2, 1)),
            rows.i.valid.eq(delay(m, self.valid, self.LATENCY) & (requantizer.nonzero | keep_q3)),
        ]
        with m.If(rows.i.valid):
            m.d.sync += Assert(rows.i.ready, "output list overflows")
        connect(m, rows.o, flipped(self.o))
        return m
