# SPDX-License-Identifier: BSD-2-Clause
"""Merge tree: the output lists of all PEs become one stream of activations."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import EngineConfig, ceil_log2
from .layouts import token_layout

__all__ = ["MergeNode", "MergeTree"]


class MergeNode(wiring.Component):
    """Merge two streams of tokens, in turn where both have one; after reset `a` goes first.

    Each input brings the tokens of one layer after another, each layer ended by `last`; the output
    does likewise, with `last` on the later of the two ends. No input gets ahead by a layer.

    **Latency**: one cycle. **Throughput**: one token per cycle.

    Parameters
    ----------
    config : EngineConfig
    pe_bits : int
        Bits of `pe` at the inputs; the output has one more, 0 for tokens of `a`.

    Members
    -------
    a, b : In(stream of token_layout)
    o : Out(stream of token_layout)
    """

    a: stream.Interface
    b: stream.Interface
    o: stream.Interface

    def __init__(self, config: EngineConfig, *, pe_bits: int) -> None:
        self._layout = layout = token_layout(config, pe_bits)
        super().__init__(
            {
                "a": In(stream.Signature(layout)),
                "b": In(stream.Signature(layout)),
                "o": Out(stream.Signature(token_layout(config, pe_bits + 1))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Pick an input, register its token, remember which input has ended."""
        m = Module()
        a, b, o = self.a, self.b, self.o
        ended_a, ended_b, b_first = Signal(), Signal(), Signal()
        can_a, can_b, take_b, free = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            can_a.eq(a.valid & ~ended_a),
            can_b.eq(b.valid & ~ended_b),
            take_b.eq(can_b & (b_first | ~can_a)),
            a.ready.eq(free & can_a & ~take_b),
            b.ready.eq(free & take_b),
        ]
        with m.If(free):
            m.d.sync += o.valid.eq(can_a | can_b)
            with m.If(can_a | can_b):
                token = self._layout(Mux(take_b, b.p.as_value(), a.p.as_value()))
                ending = token.last & Mux(take_b, ended_a, ended_b)
                m.d.sync += [
                    o.p.value.eq(token.value),
                    o.p.row.eq(token.row),
                    o.p.pe.eq(Cat(token.pe, take_b)),
                    o.p.last.eq(ending),
                    b_first.eq(~take_b),
                ]
                with m.If(ending):
                    m.d.sync += [ended_a.eq(0), ended_b.eq(0)]
                with m.Elif(token.last):
                    m.d.sync += [ended_a.eq(~take_b), ended_b.eq(take_b)]
        return m


class MergeTree(wiring.Component):
    """Merge `n_pes` streams of tokens in a binary tree of `MergeNode`.

    **Latency**: one cycle per level. **Throughput**: one token per cycle.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i0, i1, ... : In(stream of token_layout)
        Output lists, PE 0 first.
    o : Out(stream of token_layout)
        With the PE's number in `pe`.
    """

    o: stream.Interface

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        leaf = stream.Signature(token_layout(config, 0))
        super().__init__(
            {f"i{k}": In(leaf) for k in range(config.n_pes)}
            | {"o": Out(stream.Signature(token_layout(config, config.pe_bits)))}
        )

    def elaborate(self, platform: object) -> Module:
        """Pair neighbours level by level; an odd one goes up with a 0 in front of its number."""
        m = Module()
        config = self._config
        level = [flipped(getattr(self, f"i{k}")) for k in range(config.n_pes)]
        for pe_bits in range(ceil_log2(config.n_pes)):
            above = []
            for k in range(0, len(level), 2):
                if k + 1 < len(level):
                    node = MergeNode(config, pe_bits=pe_bits)
                    m.submodules[f"node_{pe_bits}_{k // 2}"] = node
                    connect(m, level[k], node.a)
                    connect(m, level[k + 1], node.b)
                    above.append(node.o)
                else:
                    above.append(self._widen(m, level[k], pe_bits))
            level = above
        connect(m, level[0], flipped(self.o))
        return m

    def _widen(self, m: Module, narrow: stream.Interface, pe_bits: int) -> stream.Interface:
        wide = stream.Signature(token_layout(self._config, pe_bits + 1)).create()
        m.d.comb += [
            wide.p.value.eq(narrow.p.value),
            wide.p.row.eq(narrow.p.row),
            wide.p.last.eq(narrow.p.last),
            wide.p.pe.eq(narrow.p.pe),
            wide.valid.eq(narrow.valid),
            narrow.ready.eq(wide.ready),
        ]
        return wide
