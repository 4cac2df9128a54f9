# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compress import Matrix
from gossamer.host.errors import FormatError
from gossamer.host.matrix_parts import MatrixParts, decode_matrix, encode_matrix
from gossamer.host.nm import is_nm, parse_nm, select_nm
from hypothesis import given, settings
from hypothesis import strategies as st

STRUCTURES = ["dense", "unstructured", "2:4", "1:2", "3:7", "31:32"]
SHAPES = [(1, 1), (1, 9), (9, 1), (3, 5), (6, 6), (5, 127), (5, 128), (5, 129)]


def make(structure, shape, codes=16, density=0.6):
    rng = np.random.default_rng(shape[1])
    weight = rng.normal(size=shape).astype(np.float32)
    weight[rng.random(shape) >= density] = 0
    if is_nm(structure):
        weight = select_nm(weight, *parse_nm(structure))
    return Matrix.share(weight, structure, codes)


def assert_same(a: Matrix, b: Matrix):
    assert (a.structure, a.zero_code) == (b.structure, b.zero_code)
    for x, y in (
        (a.codes, b.codes),
        (a.codebook, b.codebook),
        (a.places.column_starts, b.places.column_starts),
        (a.places.row_indices, b.places.row_indices),
        (a.row_exponents, b.row_exponents),
    ):
        assert np.array_equal(x, y)
        assert x.dtype == y.dtype


def decode(parts: MatrixParts, shape=(4, 8), **change):
    """Decode with some of the numbers or the data changed."""
    names = ("kind", "entries", "codes", "first", "second")
    numbers = dict(zip(names, parts.numbers, strict=True))
    numbers |= {key: value for key, value in change.items() if key in names}
    data = change.get("data", parts.data)
    shape = change.get("shape", shape)
    return decode_matrix(list(numbers.values()), *shape, data, change.get("start", 0), "m: a")


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codes", [2, 16, 256])
def test_round_trip(structure, shape, codes):
    matrix = make(structure, shape, codes)
    parts = encode_matrix(matrix)
    again, end = decode(parts, shape, data=b"xyz" + parts.data + b"next", start=3)
    assert_same(again, matrix)
    assert end == 3 + len(parts.data)
    assert matrix.cost_bytes <= len(parts.data) <= matrix.cost_bytes + 2


@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_empty_and_full(structure, density):
    matrix = make(structure, (4, 9), density=density)
    assert_same(decode(encode_matrix(matrix), (4, 9))[0], matrix)


def test_no_index_wider_than_its_bits():
    """300x784 in 2:4 with 16 codes: 2 bits of position and 4 of code, twice for each four."""
    parts = encode_matrix(make("2:4", (300, 784)))
    pairs = 300 * 196 * 2
    assert parts.numbers == [3, pairs, 16, 2, 4]
    assert len(parts.index) == pairs * 2 // 8
    assert len(parts.codes) == pairs * 4 // 8
    assert len(parts.codebook) == 16 * 4


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": 8}, r"kind is 8, expected 0\.\.7"),
        ({"kind": True}, r"kind is True, expected 0\.\.7"),
        ({"first": 0}, r"N is 0, expected 1\.\.31"),
        ({"first": 32}, r"N is 32, expected 1\.\.31"),
        ({"first": 2.0}, r"N is 2\.0, expected 1\.\.31"),
        ({"first": 4}, r"M is 4, expected 5\.\.32"),
        ({"second": 33}, r"M is 33, expected 3\.\.32"),
        ({"second": "4"}, r"M is '4', expected 3\.\.32"),
        ({"second": 8}, r"entries is 16, expected 8\.\.8"),
        ({"entries": 15}, r"entries is 15, expected 16\.\.16"),
        ({"entries": 17}, r"entries is 17, expected 16\.\.16"),
        ({"codes": 0}, r"codes is 0, expected 1\.\.256"),
        ({"kind": 0}, r"gap bits is 2, expected 0\.\.0"),
        ({"kind": 0, "first": 0, "second": 0}, r"entries is 16, expected 32\.\.32"),
        ({"data": b""}, r"needs \d+ bytes but 0 are left"),
        ({"start": 1}, r"needs \d+ bytes but \d+ are left"),
        ({"shape": (65536, 65536)}, r"weights is 4294967296, expected 1\.\.268435456"),
        ({"shape": (4, 65537)}, r"cols is 65537, expected 1\.\.65536"),
        ({"shape": (4.0, 8)}, r"rows is 4\.0, expected 1\.\.65536"),
    ],
)
def test_bad_numbers(change, text):
    with pytest.raises(FormatError, match=f"^m: a: {text}; the file is damaged, write it again"):
        decode(encode_matrix(make("2:4", (4, 8))), **change)


def test_bad_codebooks():
    matrix = make("2:4", (4, 8))
    parts = encode_matrix(matrix)
    start = len(parts.index + parts.codes)
    head, book = parts.data[:start], np.frombuffer(parts.codebook, "<f4").copy()
    assert_same(decode(parts, data=head + book.tobytes())[0], matrix)
    for code, value, text in [
        (0, 1.5, r"code 0 is 1\.5, expected 0"),
        (3, 0.0, "a code beside 0 is 0, expected only code 0 to be"),
        (3, np.inf, "a codebook value is not finite"),
    ]:
        changed = book.copy()
        changed[code] = value
        with pytest.raises(FormatError, match=f"^m: a: {text}"):
            decode(parts, data=head + changed.tobytes())


def test_codes_beyond_the_codebook():
    parts = encode_matrix(make("2:4", (4, 8), codes=9))
    index = len(parts.index)
    data = parts.data[:index] + b"\xff" + parts.data[index + 1 :]
    with pytest.raises(FormatError, match="code 15 found, expected codes below 9"):
        decode(parts, data=data)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from([s for s in STRUCTURES if is_nm(s)]), st.data())
def test_damage_is_refused_or_another_matrix(structure, data):
    """Parts that fill their bytes: what is accepted is written again byte by byte."""
    shape = (8, 56)
    parts = encode_matrix(make(structure, shape))
    damaged = bytearray(parts.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        matrix, _ = decode(parts, shape, data=bytes(damaged))
    except FormatError as error:
        assert str(error).startswith("m: a: ")  # noqa: PT017 raised or not, both are right
        return
    assert encode_matrix(matrix).data == bytes(damaged)
