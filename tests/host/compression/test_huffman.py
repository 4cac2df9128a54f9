# SPDX-License-Identifier: BSD-2-Clause
import heapq

import numpy as np
import pytest
from gossamer.host.compression.bits import pack_fields
from gossamer.host.compression.huffman import (
    MAX_LENGTH,
    canonical_codes,
    code_lengths,
    decode,
    encode,
)
from gossamer.host.errors import FormatError
from hypothesis import given, settings
from hypothesis import strategies as st


def ints(*values):
    return np.array(values, dtype=np.int64)


def fibonacci(n):
    values = [1, 1]
    while len(values) < n:
        values.append(values[-1] + values[-2])
    return ints(*values)


def bits_of(symbols, lengths):
    """The stream as text, by the definition, symbol by symbol."""
    code, codes = 0, {}
    for length in range(1, MAX_LENGTH + 1):
        code *= 2
        for symbol, own in enumerate(lengths.tolist()):
            if own == length:
                codes[symbol] = f"{code:0{length}b}"
                code += 1
    return "".join(codes[s] for s in symbols.tolist())


def to_bytes(text):
    text += "0" * (-len(text) % 8)
    return bytes(int(text[at : at + 8][::-1], 2) for at in range(0, len(text), 8))


def unbounded_cost(counts):
    """Bits that Huffman's own algorithm needs for all symbols."""
    heap = [c for c in counts.tolist() if c]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        cost += both
        heapq.heappush(heap, both)
    return cost


@pytest.mark.parametrize(
    ("counts", "lengths"),
    [
        ([], []),
        ([0, 0], [0, 0]),
        ([0, 7, 0], [0, 1, 0]),
        ([9, 0, 1], [1, 0, 1]),
        ([4, 2, 1, 1], [1, 2, 3, 3]),
        ([1] * 8, [3] * 8),
        ([5, 1, 1, 1], [1, 3, 3, 2]),
    ],
)
def test_lengths(counts, lengths):
    assert code_lengths(ints(*counts)).tolist() == lengths


def test_longest_codes_are_bounded():
    free = code_lengths(fibonacci(16))
    assert sorted(free.tolist()) == [*range(1, 16), 15]
    for counts in (fibonacci(40), ints(*([1] * 100), 1 << 15), ints(*(2 ** np.arange(30)))):
        lengths = code_lengths(counts)
        assert lengths.max() <= MAX_LENGTH
        assert sum(2.0**-lengths) == 1
        assert int(counts @ lengths) >= unbounded_cost(counts)
    assert code_lengths(fibonacci(8), 3).tolist() == [3] * 8
    assert code_lengths(np.ones(1 << 15, np.int64)).tolist() == [15] * (1 << 15)
    with pytest.raises(ValueError, match="symbols must be at most 32768, not 32769"):
        code_lengths(np.ones((1 << 15) + 1, np.int64))


def test_bounded_code_is_the_best():
    """Against every complete code of five symbols with lengths up to three."""
    rng = np.random.default_rng(0)
    shapes = np.array(np.meshgrid(*[[1, 2, 3]] * 5)).reshape(5, -1).T
    shapes = shapes[(2.0**-shapes).sum(axis=1) <= 1]
    for _ in range(50):
        counts = np.sort(rng.geometric(0.01, 5)) ** 2
        best = (shapes @ counts).min()
        assert int(counts @ code_lengths(counts, 3)) == best


@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_as_short_as_huffman(counts):
    counts = ints(*counts)
    lengths = code_lengths(counts)
    assert np.array_equal(lengths > 0, counts > 0)
    if np.count_nonzero(counts) > 1:
        assert sum(2.0 ** -lengths[lengths > 0]) == 1
        assert int(counts @ code_lengths(counts, 40)) == unbounded_cost(counts)


def test_codes_rise_with_length_and_symbol():
    # the example of RFC 1951, section 3.2.2
    lengths = ints(3, 3, 3, 3, 3, 2, 4, 4)
    assert canonical_codes(lengths).tolist() == [2, 3, 4, 5, 6, 0, 14, 15]
    assert canonical_codes(ints(0, 1, 0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["even", "skewed", "fibonacci", "sole", "pair", "none", "wide"])
def test_round_trip(kind):
    rng = np.random.default_rng(1)
    symbols = {
        "even": rng.integers(16, size=3000),
        "skewed": np.minimum(rng.geometric(0.5, 4000), 200),
        "fibonacci": rng.permutation(np.repeat(np.arange(20), fibonacci(20))),
        "sole": np.full(37, 5),
        "pair": rng.integers(2, size=99) * 7,
        "none": ints(),
        "wide": rng.permutation(np.repeat(np.arange(9000), rng.geometric(0.3, 9000))),
    }[kind]
    lengths = code_lengths(np.bincount(symbols))
    data = encode(symbols, lengths)
    assert data == to_bytes(bits_of(symbols, lengths))
    assert np.array_equal(decode(data, lengths, len(symbols), "t"), symbols)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 32), st.integers(0, 2**32 - 1)), max_size=60))
def test_fields(pairs):
    widths = ints(*(w for w, _ in pairs))
    values = ints(*(v & ((1 << w) - 1) for w, v in pairs))
    text = "".join(f"{v:0{w}b}" if w else "" for v, w in zip(values, widths, strict=True))
    assert pack_fields(values, widths) == to_bytes(text)


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ([1, 2], "only 0.75 of all codes"),
        ([2], "only 0.25 of all codes"),
        ([1, 1, 15], "more than 1 of all codes"),
        ([1, 2, 2, 2], "more than 1.25 of all codes"),
        ([1, 16], r"1..16, expected 0..15"),
        ([-1, 1], r"-1..1, expected 0..15"),
    ],
)
def test_damaged_lengths(lengths, text):
    with pytest.raises(FormatError, match=f"here: .*{text}"):
        decode(b"\0\0\0", ints(*lengths), 3, "here")


def test_damaged_streams():
    lengths = code_lengths(ints(40, 3, 2, 1))
    symbols = np.repeat(np.arange(4), [40, 3, 2, 1])
    data = encode(symbols, lengths)
    assert len(data) == 7
    with pytest.raises(FormatError, match="here: 6 bytes are cut off"):
        decode(data[:-1], lengths, 46, "here")
    with pytest.raises(FormatError, match=r"here: 8 bytes for 46 codes .* expected 7"):
        decode(data + b"\0", lengths, 46, "here")
    with pytest.raises(FormatError, match="with 0 in the bits left over"):
        decode(data[:-1] + bytes([data[-1] | 0x80]), lengths, 46, "here")
    with pytest.raises(FormatError, match="too short for 1000000000000 codes"):
        decode(data, lengths, 10**12, "here")
    with pytest.raises(FormatError, match="what is no code"):
        decode(b"\x02", ints(0, 1), 3, "here")
    with pytest.raises(FormatError, match="what is no code"):
        decode(b"\0", ints(0, 0), 3, "here")


@settings(deadline=None)
@given(st.binary(max_size=20), st.lists(st.integers(0, 15), max_size=8), st.integers(0, 200))
def test_any_bytes_decode_or_are_refused(data, lengths, n):
    try:
        symbols = decode(data, ints(*lengths), n, "t")
    except FormatError:
        return
    assert encode(symbols, ints(*lengths)) == data
