# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.bits import pack_bits, packed_bytes, unpack_bits
from gossamer.host.compression.entropy import SymbolCounts
from gossamer.host.compression.structure import (
    MAX_CODED_GAP_BITS,
    Places,
    best_gaps,
    decode_gaps,
    gap_symbols,
    prune,
)
from gossamer.host.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st

SHAPES = [(1, 1), (1, 9), (9, 1), (3, 5), (6, 6), (31, 33), (64, 65), (129, 127)]


def equal(a: Places, b: Places) -> bool:
    same = np.array_equal(a.column_starts, b.column_starts)
    return same and np.array_equal(a.row_indices, b.row_indices)


@given(st.integers(1, 16), st.lists(st.integers(0, 65535), max_size=40))
def test_bits_round_trip(width, values):
    array = np.array([v & ((1 << width) - 1) for v in values], dtype=np.int64)
    data = pack_bits(array, width)
    assert len(data) == packed_bytes(len(array), width)
    assert np.array_equal(unpack_bits(data, width, len(array)), array)


def test_bits_are_least_significant_first():
    assert pack_bits(np.array([1, 2, 3, 0b101]), 3) == bytes([0b11010001, 0b1010])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 1.0])
def test_gaps_round_trip(shape, density):
    rng = np.random.default_rng(shape[0])
    mask = rng.random(shape) < density
    places = Places.of_mask(mask)
    width, counts = best_gaps(places, huffman=False)
    symbols = gap_symbols(places, width)
    assert np.array_equal(np.bincount(symbols, minlength=1 << width), counts.counts)
    again = decode_gaps(symbols, width, *shape, "test")
    assert equal(again, places)
    back = np.zeros(shape, bool)
    back[again.row_indices, again.columns] = True
    assert np.array_equal(back, mask)


def test_places_are_column_major():
    places = Places.of_mask(np.array([[1, 0, 0], [1, 0, 1]], bool))
    assert places.column_starts.tolist() == [0, 2, 2, 3]
    assert places.row_indices.tolist() == [0, 1, 1]
    assert places.columns.tolist() == [0, 0, 2]
    assert places.positions.tolist() == [0, 1, 5]
    assert equal(Places.dense(2, 3), Places.of_mask(np.ones((2, 3), bool)))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
def test_gaps_around_the_escape(width):
    full = (1 << width) - 1
    for gap in (0, full - 1, full, full + 1, 3 * full, 3 * full + 1):
        mask = np.zeros((gap + 2, 1), bool)
        mask[[0, gap + 1]] = True
        symbols = [0, *[full] * (gap // full), gap % full]
        assert gap_symbols(Places.of_mask(mask), width).tolist() == symbols
        assert equal(decode_gaps(np.array(symbols), width, gap + 2, 1, "t"), Places.of_mask(mask))


def test_symbol_width_is_the_cheapest():
    rng = np.random.default_rng(1)
    places = Places.of_mask(rng.random((300, 784)) < 0.08)
    gaps = np.diff(places.positions, prepend=-1) - 1
    costs = [sum(k * (g // (2**k - 1) + 1) for g in gaps.tolist()) for k in range(1, 17)]
    width, counts = best_gaps(places, huffman=False)
    assert width == int(np.argmin(costs)) + 1
    assert counts.bytes_as(huffman=False) == packed_bytes(min(costs), 1)
    width, counts = best_gaps(places, huffman=True)
    sizes = [
        SymbolCounts(np.bincount(gap_symbols(places, k), minlength=1 << k)).bytes_as(huffman=True)
        for k in range(1, MAX_CODED_GAP_BITS + 1)
    ]
    assert width == int(np.argmin(sizes)) + 1
    assert counts.bytes_as(huffman=True) == min(sizes)


@pytest.mark.parametrize("density", [0.04, 0.09, 0.25])
def test_coded_gaps_are_near_the_entropy_of_places(density):
    places = Places.of_mask(np.random.default_rng(2).random((1000, 1000)) < density)
    p = len(places.row_indices) / 1e6
    floor = -1e6 * (p * np.log2(p) + (1 - p) * np.log2(1 - p)) / 8
    size = best_gaps(places, huffman=True)[1].bytes_as(huffman=True)
    assert floor < size < 1.02 * floor
    assert best_gaps(places, huffman=False)[1].bytes_as(huffman=False) > 1.03 * floor


def test_a_few_far_entries():
    mask = np.zeros((65536, 4096), bool)
    mask[[5, 6, 65535], [0, 3000, 4095]] = True
    places = Places.of_mask(mask)
    for huffman in (False, True):
        width, counts = best_gaps(places, huffman=huffman)
        assert np.array_equal(
            np.bincount(gap_symbols(places, width), minlength=1 << width), counts.counts
        )


def test_damaged_gaps():
    symbols = gap_symbols(Places.of_mask(np.eye(9, dtype=bool)), 4)
    with pytest.raises(FormatError, match="position 80, expected below 40"):
        decode_gaps(symbols, 4, 8, 5, "here")
    with pytest.raises(FormatError, match="here: the last gap has no end"):
        decode_gaps(np.append(symbols, 15), 4, 9, 9, "here")


def test_prune_to_a_density():
    weight = np.array([[3, -1, 2], [-5, 0, 4]], np.float32)
    assert prune(weight, density=0.5).tolist() == [[3, 0, 0], [-5, 0, 4]]
    assert prune(weight, density=1.0).tolist() == weight.tolist()
    assert not prune(weight, density=0.05).any()
    assert weight[0, 1] == -1, "the argument must not change"


def test_prune_breaks_ties_in_order():
    weight = np.array([[1, -1, 1, -1]], np.float32)
    assert prune(weight, density=0.5).tolist() == [[1, -1, 0, 0]]


def test_prune_by_threshold():
    weight = np.array([[0.5, -0.25, 0.2, -0.1]], np.float32)
    assert prune(weight, threshold=0.25).tolist() == [[0.5, -0.25, 0, 0]]


def test_zeros_stay_zeros():
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(20, 20)).astype(np.float32)
    weight[rng.random((20, 20)) < 0.9] = 0
    assert np.array_equal(prune(weight, density=0.5), weight)
