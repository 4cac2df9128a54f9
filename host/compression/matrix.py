# SPDX-License-Identifier: BSD-2-Clause
"""A compressed matrix: where entries stand, which values they share, how both are coded."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..network import Floats
from .bits import packed_bytes
from .codebook import code_bits
from .entropy import PLAIN, Coding, SymbolCounts, is_shorter
from .nm import encode_nm, is_nm, pair_count, parse_nm, position_symbols
from .row_exponents import EXPONENT_BITS, share_rows
from .structure import Places, best_gaps

__all__ = ["Matrix"]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight matrix as codes into a codebook.

    Parameters
    ----------
    structure : str
        ``"dense"`` (every weight is an entry), ``"unstructured"`` or N:M such as ``"2:4"``
        (nonzeros are the entries).
    places : Places
        Where the entries stand, column by column.
    codes : (entries,) int64
    codebook : (k,) float32
        1..256 values.
    zero_code : bool
        Code 0 is 0 and stands for pruned weights (some dense ones), or is kept for pairs without
        a weight (all N:M).
    row_exponents : (n_rows,) int64
        A weight is its codebook value times ``2**-exponent`` of its row; mostly all 0.
    coding : Coding
        Which parts a file holds as Huffman codes.
    """

    structure: str
    places: Places
    codes: npt.NDArray[np.int64]
    codebook: Floats
    zero_code: bool
    row_exponents: npt.NDArray[np.int64]
    coding: Coding = PLAIN

    @classmethod
    def share(
        cls, weight: Floats, structure: str, max_codes: int, entropy: str = "auto"
    ) -> "Matrix":
        """Share at most `max_codes` values among the weights (rows, cols) of one structure.

        For N:M the weights must be so already, see `nm.check_nm`. `entropy` is one of `ENTROPIES`.
        """
        mask = weight != 0
        dense = structure == "dense"
        places = Places.dense(*mask.shape) if dense else Places.of_mask(mask)
        zero_code = is_nm(structure) or (dense and not mask.all())
        stored = weight[places.row_indices, places.columns]
        book, codes, exponents = share_rows(
            stored, places.row_indices, places.n_rows, max_codes, zero_code=zero_code
        )
        return cls(structure, places, codes, book, zero_code, exponents).coded(entropy)

    def coded(self, entropy: str) -> "Matrix":
        """The same matrix with its parts coded as a recipe's `entropy` says."""
        coding = Coding(
            index=self.structure != "dense" and is_shorter(self.index_bytes, entropy),
            codes=is_shorter(self.code_bytes, entropy),
        )
        return replace(self, coding=coding)

    @property
    def code_bits(self) -> int:
        """Bits of one code, 1..8."""
        return code_bits(len(self.codebook))

    @property
    def nonzeros(self) -> int:
        """Weights that are not zero."""
        return int(np.count_nonzero(self.codebook[self.codes]))

    @property
    def fillers(self) -> int:
        """Stored pairs without a weight: an N:M layer has N for each group, whatever it holds."""
        if not is_nm(self.structure):
            return 0
        pairs = pair_count(self.places.n_rows, self.places.n_cols, *parse_nm(self.structure))
        return pairs - len(self.codes)

    @property
    def padded_cols(self) -> int:
        """Columns that the last group of an N:M layer lacks."""
        return -self.places.n_cols % parse_nm(self.structure)[1] if is_nm(self.structure) else 0

    def index_counts(self, *, huffman: bool) -> SymbolCounts:
        """Symbols of the index: of gaps or positions, none if dense."""
        if is_nm(self.structure):
            n, m = parse_nm(self.structure)
            symbols, _ = encode_nm(self.places, self.codes, n, m)
            return SymbolCounts(np.bincount(symbols, minlength=position_symbols(n, m)))
        if self.structure == "unstructured":
            return best_gaps(self.places, huffman=huffman)[1]
        return SymbolCounts(np.zeros(0, dtype=np.int64))

    @property
    def code_counts(self) -> SymbolCounts:
        """Codes, those of absent pairs included."""
        counts = np.bincount(self.codes, minlength=len(self.codebook))
        counts[0] += self.fillers
        return SymbolCounts(counts)

    def index_bytes(self, *, huffman: bool) -> int:
        """Bytes of the index with its table."""
        return self.index_counts(huffman=huffman).bytes_as(huffman=huffman)

    def code_bytes(self, *, huffman: bool) -> int:
        """Bytes of the codes with their table."""
        return self.code_counts.bytes_as(huffman=huffman)

    @property
    def cost_bytes(self) -> int:
        """Bytes in a file, without the layer's biases and its line of the description."""
        exponents = EXPONENT_BITS if self.row_exponents.any() else 0
        return (
            self.index_bytes(huffman=self.coding.index)
            + self.code_bytes(huffman=self.coding.codes)
            + 4 * len(self.codebook)
            + packed_bytes(self.places.n_rows, exponents)
        )

    def weight(self) -> Floats:
        """The whole matrix, (rows, cols) float32."""
        places = self.places
        weight = np.zeros((places.n_rows, places.n_cols), dtype=np.float32)
        exponents = self.row_exponents[places.row_indices]
        weight[places.row_indices, places.columns] = np.ldexp(self.codebook[self.codes], -exponents)
        return weight
