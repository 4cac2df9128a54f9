# SPDX-License-Identifier: BSD-2-Clause
"""One row of the tensor tile: weights of a row times the same group of every image."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, View
from amaranth.lib.wiring import In, Out

from .codebook import Codebook
from .config import EngineConfig, ceil_log2
from .formats import Section
from .layouts import WriteBus, WriteSignature, layer_layout
from .memory import WeightMemory
from .pipeline import delay

__all__ = ["TileLane"]


class TileLane(wiring.Component):
    """``sum[image] += weight0 * data[image][position0] + weight1 * data[image][position1]``.

    A word of weight memory is fetched once for all images; it holds two positions and two codes.

    **Latency**: counted from `read`: the word is there after `WORD_LATENCY` cycles, `data` must
    come after `DATA_LATENCY`, `add` after `ADD_LATENCY`; `sums` are there a cycle after `add`.
    **Throughput**: one word per cycle. **Overflow**: none, the compiler bounds every subset of a
    row's terms. **Memory**: `tile_depth` words and two copies of the codebook.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    layer : In(layer_layout)
        Its `codebook_base` and `signed_in`.
    read, address : In(1), In(ceil_log2(tile_depth))
        Fetch a word.
    data : In(C x 4 x A)
        The word's group of inputs, image after image.
    add, first : In(1)
        Add the word's products; it is the first of its row.
    zero_codes : Out(range(3))
        Codes 0 in the word, `WORD_LATENCY` cycles after `read`.
    sums : Out(C x signed(P))
    write, selected : In
        Loader's bus, and whether it is for this row of the tile.
    """

    WORD_LATENCY = 2
    DATA_LATENCY = WORD_LATENCY + Codebook.LATENCY - 1
    ADD_LATENCY = DATA_LATENCY + 3

    layer: View
    read: Signal
    address: Signal
    data: View
    add: Signal
    first: Signal
    zero_codes: Signal
    sums: View
    write: WriteBus
    selected: Signal

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        images, bits = config.tile_columns, config.activation_bits
        super().__init__(
            {
                "layer": In(layer_layout(config)),
                "read": In(1),
                "address": In(ceil_log2(config.tile_depth)),
                "data": In(ArrayLayout(ArrayLayout(bits, 4), images)),
                "add": In(1),
                "first": In(1),
                "zero_codes": Out(range(3)),
                "sums": Out(ArrayLayout(signed(config.sum_bits), images)),
                "write": In(WriteSignature(config)),
                "selected": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch, look up and select, multiply, add the pair, accumulate."""
        m = Module()
        config, write = self._config, self.write
        images, bits = config.tile_columns, config.activation_bits
        m.submodules.weights = weights = WeightMemory(
            width=config.tile_word_bits, depth=config.tile_depth
        )
        word = Signal(config.tile_word_bits, reset_less=True)
        m.d.comb += [
            weights.address.eq(Mux(write.en, write.address, self.address)),
            weights.read.eq(self.read),
            weights.write.eq(write.en & self.selected & (write.kind == Section.TILE_WEIGHTS)),
            weights.write_data.eq(write.data),
        ]
        m.d.sync += word.eq(weights.data)

        # |weight| <= 2**15 and |operand| < 2**A bound a product.
        codes, products = [], []
        for k in range(2):
            pair = word.word_select(k, 2 + config.tile_code_bits)
            position = delay(m, pair[:2], Codebook.LATENCY - 1)
            codes.append(pair[2:])
            m.submodules[f"codebook{k}"] = codebook = Codebook(config)
            m.d.comb += [
                codebook.code.eq(self.layer.codebook_base | pair[2:]),
                codebook.write.eq(write.en & (write.kind == Section.CODEBOOK)),
                codebook.write_address.eq(write.address),
                codebook.write_data.eq(write.data),
            ]
            for image in range(images):
                value = self.data[image][position]
                operand = Signal(signed(bits + 1), name=f"operand{k}_{image}", reset_less=True)
                product = Signal(signed(bits + 16), name=f"product{k}_{image}", reset_less=True)
                m.d.sync += [
                    operand.eq(Cat(value, self.layer.signed_in & value[-1])),
                    product.eq(codebook.weight * operand),
                ]
                products.append(product)
        m.d.comb += self.zero_codes.eq(sum(~code.any() for code in codes))

        for image in range(images):
            both = Signal(signed(bits + 17), name=f"both{image}", reset_less=True)
            m.d.sync += both.eq(products[image] + products[images + image])
            with m.If(self.add):
                m.d.sync += self.sums[image].eq(Mux(self.first, 0, self.sums[image]) + both)
        return m
