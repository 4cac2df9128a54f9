# SPDX-License-Identifier: BSD-2-Clause
from itertools import product

import numpy as np
import pytest
from gossamer.host.compression.nm import (
    check_nm,
    decode_nm,
    encode_nm,
    group_counts,
    group_pairs,
    is_nm,
    pair_count,
    parse_nm,
    position_symbols,
    select_nm,
    symbol_count,
)
from gossamer.host.compression.structure import Places
from gossamer.host.errors import FormatError, InputError
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPES = [(1, 1), (1, 2), (1, 37), (37, 1), (3, 5), (6, 6), (5, 127), (4, 128), (3, 129), (1, 4096)]
PAIRS = [(1, 2), (2, 4), (1, 4), (3, 4), (2, 5), (4, 8), (1, 32), (31, 32)]
MASKS = list(product([0, 1], repeat=4))


def by_hand(weight, n, m):
    """N:M selection, one group at a time."""
    kept = np.zeros_like(weight)
    for row in range(weight.shape[0]):
        for start in range(0, weight.shape[1], m):
            group = range(start, min(start + m, weight.shape[1]))
            for col in sorted(group, key=lambda c: (-abs(weight[row, c]), c))[:n]:
                kept[row, col] = weight[row, col]
    return kept


def valid_weight(rng, shape, n, m):
    """Random N:M weights with groups of every count from 0 to N, and an empty row."""
    weight = rng.normal(size=shape).astype(np.float32)
    weight[rng.random(shape) < 0.4] = 0
    if shape[0] > 2:
        weight[1] = 0
    return select_nm(weight, n, m)


def numbered(weight):
    """Places of the nonzeros and a code for each, 1..255 in turn."""
    places = Places.of_mask(weight != 0)
    return places, np.arange(len(places.row_indices)) % 255 + 1


def assert_round_trip(weight, n, m):
    places, codes = numbered(weight)
    symbols, of_pairs = encode_nm(places, codes, n, m)
    assert len(symbols) == symbol_count(*weight.shape, n, m)
    assert symbols.max() < position_symbols(n, m)
    assert len(of_pairs) == pair_count(*weight.shape, n, m)
    again, codes_again = decode_nm(symbols, of_pairs, n, m, *weight.shape, "t")
    assert np.array_equal(again.column_starts, places.column_starts)
    assert np.array_equal(again.row_indices, places.row_indices)
    assert np.array_equal(codes_again, codes)
    return symbols


def test_names():
    assert parse_nm("2:4") == (2, 4)
    assert parse_nm("31:32") == (31, 32)
    good = {f"{n}:{m}" for m in range(2, 33) for n in range(1, m)}
    assert {f"{n}:{m}" for n in range(100) for m in range(100) if is_nm(f"{n}:{m}")} == good
    for bad in ("", "dense", "2:4 ", " 2:4", "2:4\n", "02:4", "+2:4", "2:4:8", "2", "2:", "٢:4"):
        assert not is_nm(bad), bad
    with pytest.raises(ValueError, match=r"must be N:M with 1 <= N < M <= 32, not '4:4'"):
        parse_nm("4:4")


@pytest.mark.parametrize("group", [0, 1, 2])
def test_every_mask_in_every_place(group):
    """All 16 masks of a group in each of three groups of a row, all rows at once."""
    weight = np.zeros((16, 12), np.float32)
    values = np.array([-4, 3, 2, -1], np.float32)
    weight[:, 4 * group : 4 * group + 4] = np.array(MASKS) * values + 0
    for row, mask in enumerate(MASKS):
        line = weight[row : row + 1]
        if sum(mask) > 2:
            columns = f"columns {4 * group} to {4 * group + 3}"
            with pytest.raises(InputError, match=f"row 0, {columns} hold {sum(mask)} nonzeros"):
                check_nm(line, 2, 4, "a")
            kept = select_nm(line, 2, 4)
            assert np.flatnonzero(kept).tolist() == np.flatnonzero(line)[:2].tolist()
        else:
            check_nm(line, 2, 4, "a")
            kept = select_nm(line, 2, 4)
            assert kept.tobytes() == line.tobytes()
        assert_round_trip(kept, 2, 4)
    assert_round_trip(select_nm(weight, 2, 4), 2, 4)


def test_all_masks_side_by_side():
    """Each pair of neighbouring masks: no group leaks into the next one or the next row."""
    valid = [mask for mask in MASKS if sum(mask) <= 2]
    weight = np.array([a + b for a, b in product(valid, repeat=2)], np.float32)
    check_nm(weight, 2, 4, "a")
    assert_round_trip(weight, 2, 4)
    straddling = np.array([[0, 0, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1]], np.float32)
    check_nm(straddling, 2, 4, "a")
    with pytest.raises(InputError, match="row 0, columns 2 to 3"):
        check_nm(straddling[:1, :4], 1, 2, "a")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n", "m"), PAIRS)
def test_shapes(shape, n, m):
    rng = np.random.default_rng(shape[1] + m)
    weight = rng.normal(size=shape).astype(np.float32)
    kept = select_nm(weight, n, m)
    assert np.array_equal(kept, by_hand(weight, n, m))
    check_nm(kept, n, m, "a")
    assert_round_trip(kept, n, m)
    assert_round_trip(valid_weight(rng, shape, n, m), n, m)
    assert_round_trip(np.zeros(shape, np.float32), n, m)


@pytest.mark.parametrize(
    ("n", "m", "count", "bits"),
    [(2, 4, 1, 4), (1, 2, 1, 1), (4, 8, 1, 12), (3, 16, 1, 12), (4, 16, 4, 4), (31, 32, 31, 5)],
)
def test_a_group_is_one_symbol_if_few_bits_hold_it(n, m, count, bits):
    assert symbol_count(300, 4 * m - 1, n, m) == 300 * 4 * count
    assert position_symbols(n, m) == 1 << bits


def test_symbols_by_hand():
    places, codes = numbered(np.array([[0, 5, 0, 6, 7], [0, 0, 8, 0, 0]]))
    symbols, of_pairs = encode_nm(places, codes, 2, 4)
    assert symbols.tolist() == [0b11_01, 0b00_00, 0b00_10, 0b00_00]
    assert of_pairs.tolist() == [1, 3, 4, 0, 2, 0, 0, 0]
    positions, by_group = group_pairs(places, codes, 2, 4)
    assert positions.tolist() == [[[1, 3], [0, 0]], [[2, 0], [0, 0]]]
    assert by_group.reshape(-1).tolist() == of_pairs.tolist()
    assert group_counts(places, 4).tolist() == [[2, 1], [1, 0]]


def test_ties_go_to_the_lowest_columns():
    weight = np.array([[1, -1, 1, -1], [-2, 2, 3, -2], [0, 0, 0, 0]], np.float32)
    assert select_nm(weight, 2, 4).tolist() == [[1, -1, 0, 0], [-2, 0, 3, 0], [0, 0, 0, 0]]
    wide = np.ones((2, 64), np.float32)
    assert np.flatnonzero(select_nm(wide, 3, 32)[1]).tolist() == [0, 1, 2, 32, 33, 34]


def test_extremes():
    big = np.finfo(np.float32).max
    tiny = np.float32(1e-45)
    weight = np.array([[-big, big, -big, tiny], [tiny, -tiny, 0, -1]], np.float32)
    expected = np.array([[-big, big, 0, 0], [tiny, 0, 0, -1]], np.float32)
    assert np.array_equal(select_nm(weight, 2, 4), expected)
    assert np.abs(weight).min() == 0, "the argument must not change"


def test_negative_zero_is_a_zero():
    weight = np.array([[-0.0, 1, -0.0, 2, -0.0, -0.0, -0.0, -3]], np.float32)
    check_nm(weight, 2, 4, "a")
    kept = select_nm(weight, 2, 4)
    assert np.array_equal(kept, weight)
    assert Places.of_mask(kept != 0).columns.tolist() == [1, 3, 7]


def test_strided_and_transposed():
    rng = np.random.default_rng(5)
    square = rng.normal(size=(24, 24)).astype(np.float32)
    for view in (square.T, square[::-1, ::-2], square[1::3].T, np.asfortranarray(square)):
        plain = np.ascontiguousarray(view)
        kept = select_nm(view, 2, 4)
        assert np.array_equal(kept, select_nm(plain, 2, 4))
        assert np.array_equal(kept, by_hand(plain, 2, 4))
        check_nm(kept[::-1], 2, 4, "a")


def test_error_text_in_full():
    weight = np.zeros((4, 10), np.float32)
    weight[2, 8:] = 1
    weight[3] = 1
    with pytest.raises(InputError) as caught:
        check_nm(weight, 1, 4, "fc 1")
    assert str(caught.value) == (
        "layer 'fc 1': row 2, columns 8 to 9 hold 2 nonzeros, expected at most 1 (structure 1:4; "
        "4 of 12 groups have too many); set `density` in the layer's recipe to have them pruned "
        "by magnitude (1.0 prunes no more than the structure asks), or take another structure"
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_weights(data):
    m = data.draw(st.integers(2, 32))
    n = data.draw(st.integers(1, m - 1))
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 40)))
    size = shape[0] * shape[1]
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.5])
    values = data.draw(st.lists(few, min_size=size, max_size=size))
    weight = np.array(values, np.float32).reshape(shape)
    kept = select_nm(weight, n, m)
    assert np.array_equal(kept, by_hand(weight, n, m))
    assert np.array_equal(select_nm(kept, n, m), kept)
    assert_round_trip(kept, n, m)


def pack(pairs, n, m, shape):
    """Try to decode pairs (position, code) of one row."""
    positions, codes = np.array(pairs).T
    bits = (m - 1).bit_length()
    symbols = (positions.reshape(-1, n) << bits * np.arange(n)).sum(axis=1)
    return decode_nm(symbols, codes, n, m, *shape, "m.gossamer: layer 'a'")


@pytest.mark.parametrize(
    ("pairs", "nm", "cols", "text"),
    [
        ([(2, 1), (1, 2)], "2:4", 4, r"expected rising positions"),
        ([(2, 1), (2, 2)], "2:4", 4, r"\[\(2, 1\), \(2, 2\)\], expected rising positions"),
        ([(0, 0), (1, 2)], "2:4", 4, "expected code 0 only behind the others"),
        ([(0, 0), (0, 2)], "2:4", 4, "expected code 0 only behind the others"),
        ([(1, 2), (3, 0)], "2:4", 4, "expected position 0 where code is 0"),
        ([(0, 1), (3, 2)], "2:4", 3, "expected columns below 3"),
        (
            [(0, 1), (1, 2), (1, 1), (0, 0)],
            "2:4",
            5,
            r"\[\(1, 1\), \(0, 0\)\], expected columns below 5",
        ),
        ([(5, 1), (0, 0)], "2:5", 5, "expected positions below 5"),
        ([(5, 0), (0, 0)], "2:5", 5, "expected positions below 5"),
        ([(6, 1)], "1:7", 6, "expected columns below 6"),
    ],
)
def test_non_canonical_pairs(pairs, nm, cols, text):
    with pytest.raises(FormatError, match=rf"^m.gossamer: layer 'a': row 0, group \d .*{text}"):
        pack(pairs, *parse_nm(nm), (1, cols))


def test_the_place_of_a_bad_pair_is_named():
    pairs = [(0, 1), (1, 1)] * 5 + [(1, 1), (1, 1)]
    with pytest.raises(FormatError, match=r"row 2, group 1 holds the pairs .*write it again"):
        pack(pairs, 2, 4, (3, 8))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_read_is_what_is_written(data):
    """Whatever change is accepted, encoding gives the same again: equal models, equal files."""
    weight = valid_weight(np.random.default_rng(data.draw(st.integers(0, 9))), (4, 7), 2, 4)
    symbols, codes = encode_nm(*numbered(weight), 2, 4)
    for place in data.draw(st.lists(st.integers(0, 31), max_size=2)):
        symbols[place // 4] ^= 1 << place % 4
    for place in data.draw(st.lists(st.integers(0, 15), max_size=2)):
        codes[place] = data.draw(st.integers(0, 1))
    try:
        places, entries = decode_nm(symbols, codes, 2, 4, 4, 7, "t")
    except FormatError:
        return
    again, of_pairs = encode_nm(places, entries, 2, 4)
    assert np.array_equal(again, symbols)
    assert np.array_equal(of_pairs, codes)
