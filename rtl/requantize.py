# SPDX-License-Identifier: BSD-2-Clause
"""Requantizer: a sum becomes an activation, without a multiplier.

The scales of input, weights and output are in the codebook, up to a power of two: a bias, a shift
and a clamp are left for the hardware.
"""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .arith import Ints, requantize
from .config import EngineConfig
from .layouts import layer_layout

__all__ = ["Requantizer"]


class Requantizer(wiring.Component):
    """``clamp((sum + bias) >> shift, low, high)``.

    **Latency**: `LATENCY` cycles from `sum` to `value`; the clamp is in the last of them.
    **Throughput**: one sum per cycle. **Rounding**: arithmetic shift; the bias holds the rounding
    constant (`rtl/arith.py`). **Overflow**: none in ``sum + bias``, the compiler bounds it.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    sum, bias, shift : In(signed(P)), In(signed(P - 1)), In(shift_bits)
    layer : In(layer_layout)
        Its `low`, `high` and `signed_out` are the clamp.
    value : Out(A)
    nonzero : Out(1)
        Whether any bit of `value` is set.
    """

    LATENCY = 3

    sum: Signal
    bias: Signal
    shift: Signal
    layer: data.View
    value: Signal
    nonzero: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "sum": In(signed(config.sum_bits)),
                "bias": In(signed(config.sum_bits - 1)),
                "shift": In(config.shift_bits),
                "layer": In(layer_layout(config)),
                "value": Out(config.activation_bits),
                "nonzero": Out(1),
            }
        )

    @staticmethod
    def model(sums: Ints, bias: Ints, shift: Ints, low: int, high: int) -> Ints:
        """Activations of sums (`arith.requantize`)."""
        return requantize(sums, bias, shift, low, high)

    def elaborate(self, platform: object) -> Module:
        """Add, shift, clamp: a register after each."""
        m = Module()
        config, layer = self._config, self.layer
        biased_q1 = Signal(signed(config.sum_bits), reset_less=True)
        shift_q1 = Signal.like(self.shift, reset_less=True)
        shifted_q2 = Signal(signed(config.sum_bits), reset_less=True)
        m.d.sync += [
            biased_q1.eq(self.sum + self.bias),
            shift_q1.eq(self.shift),
            shifted_q2.eq(biased_q1 >> shift_q1),
        ]

        limit = signed(config.activation_bits + 1)
        low, high = Signal(limit), Signal(limit)
        for value, field in ((low, layer.low), (high, layer.high)):
            m.d.comb += value.eq(Mux(layer.signed_out, field.as_signed(), field.as_unsigned()))
        # Only what fits a bit more than an activation needs comparing with the limits.
        near = Signal(limit)
        rest = shifted_q2[config.activation_bits :]
        fits = ~rest.any() | rest.all()
        negative = shifted_q2[-1]
        m.d.comb += near.eq(shifted_q2)
        clamped = Signal(config.activation_bits)
        with m.If(Mux(fits, near < low, negative)):
            m.d.comb += clamped.eq(low)
        with m.Elif(Mux(fits, near > high, ~negative)):
            m.d.comb += clamped.eq(high)
        with m.Else():
            m.d.comb += clamped.eq(near)
        m.d.sync += [self.value.eq(clamped), self.nonzero.eq(clamped.any())]
        return m
