# SPDX-License-Identifier: BSD-2-Clause
import numpy as np
import pytest
from gossamer.host.compression.entropy import ENTROPIES, Coding
from gossamer.host.compression.matrix import Matrix
from gossamer.host.compression.matrix_parts import MatrixParts, decode_matrix, encode_matrix
from gossamer.host.compression.nm import is_nm, parse_nm, select_nm
from gossamer.host.compression.reader import Reader
from gossamer.host.errors import FormatError
from hypothesis import given, settings
from hypothesis import strategies as st

STRUCTURES = ["dense", "unstructured", "2:4", "1:2", "3:7", "31:32"]
SHAPES = [(1, 1), (1, 9), (9, 1), (3, 5), (6, 6), (5, 127), (5, 128), (5, 129)]


def make(structure, shape, codes=16, density=0.6, entropy="none"):
    rng = np.random.default_rng(shape[1])
    weight = rng.normal(size=shape).astype(np.float32)
    weight[rng.random(shape) >= density] = 0
    if is_nm(structure):
        weight = select_nm(weight, *parse_nm(structure))
    return Matrix.share(weight, structure, codes, entropy)


def assert_same(a: Matrix, b: Matrix):
    assert (a.structure, a.zero_code, a.coding) == (b.structure, b.zero_code, b.coding)
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
    numbers = list(parts.numbers)
    for place, key in enumerate(("kind", "codes", "first", "second")):
        if key in change:
            numbers[place] = change[key]
    numbers = change.get("numbers", numbers)
    reader = Reader(change.get("data", parts.data), change.get("start", 0), "m: a")
    return decode_matrix(numbers, *change.get("shape", shape), reader), reader.at


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_round_trip(structure, shape, entropy):
    codes = {1: 2, 9: 256, 5: 3, 6: 16}.get(shape[1], shape[1])
    matrix = make(structure, shape, codes, entropy=entropy)
    parts = encode_matrix(matrix)
    again, end = decode(parts, shape, data=b"xyz" + parts.data + b"next", start=3)
    assert_same(again, matrix)
    assert end == 3 + len(parts.data)
    assert len(parts.data) == matrix.cost_bytes


@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_empty_and_full(structure, density, entropy):
    matrix = make(structure, (4, 9), density=density, entropy=entropy)
    assert_same(decode(encode_matrix(matrix), (4, 9))[0], matrix)


def test_no_index_wider_than_its_bits():
    """300x784 in 2:4 with 16 codes: 2 bits of position and 4 of code, twice for each four."""
    parts = encode_matrix(make("2:4", (300, 784)))
    pairs = 300 * 196 * 2
    assert parts.numbers == [3, 16, 2, 4]
    assert len(parts.index) == pairs * 2 // 8
    assert len(parts.codes) == pairs * 4 // 8
    assert len(parts.codebook) == 16 * 4


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": 32}, r"kind is 32, expected 0\.\.31"),
        ({"kind": True}, r"kind is True, expected 0\.\.31"),
        ({"first": 0}, r"N is 0, expected 1\.\.31"),
        ({"first": 32}, r"N is 32, expected 1\.\.31"),
        ({"first": 2.0}, r"N is 2\.0, expected 1\.\.31"),
        ({"first": 4}, r"M is 4, expected 5\.\.32"),
        ({"second": 33}, r"M is 33, expected 3\.\.32"),
        ({"second": "4"}, r"M is '4', expected 3\.\.32"),
        ({"codes": 0}, r"codes is 0, expected 1\.\.256"),
        ({"kind": 0}, "4 numbers of the matrix, expected 2"),
        ({"kind": 8}, "kind 8 has a coded index but no index"),
        ({"kind": 3 + 16}, "4 numbers of the matrix, expected 5"),
        ({"kind": 3 + 8 + 16}, "4 numbers of the matrix, expected 6"),
        ({"numbers": [19, 16, 2, 4, -1]}, r"bytes of Huffman codes is -1, expected 0\.\.\d+"),
        ({"numbers": [19, 16, 2, 4, 10**9]}, r"needs 1000000000 bytes of codes but \d+ are left"),
        ({"numbers": [10, 16, 13, 4, 9]}, r"gap bits is 13, expected 1\.\.12"),
        ({"numbers": [2, 16, 17, 4]}, r"gap bits is 17, expected 1\.\.16"),
        ({"numbers": [2, 16, 4, -1]}, r"gap symbols is -1, expected 0\.\.\d+"),
        ({"numbers": [2, 16, 4, 2**29]}, r"needs \d+ bytes of index but \d+ are left"),
        ({"data": b""}, r"needs \d+ bytes of index but 0 are left"),
        ({"start": 1}, r"needs \d+ bytes of codebook but \d+ are left"),
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
    with pytest.raises(FormatError, match="m: a: codes: 15 found, expected symbols below 9"):
        decode(parts, data=data)


def test_auto_takes_the_smaller_one_part_by_part():
    seen = set()
    rng = np.random.default_rng(5)
    for structure in STRUCTURES:
        for shape in ((3, 5), (40, 64)):
            for skew in (0, 1, 8):
                weight = np.round(rng.normal(size=shape) * skew).astype(np.float32)
                if not skew:
                    weight = rng.integers(17, size=shape) * (rng.random(shape) < 0.1)
                    weight = weight.astype(np.float32)
                if is_nm(structure):
                    weight = select_nm(weight, *parse_nm(structure))
                auto, none, huffman = (
                    Matrix.share(weight, structure, 32, entropy) for entropy in ENTROPIES
                )
                for part in ("index_bytes", "code_bytes"):
                    sizes = [getattr(none, part)(huffman=h) for h in (False, True)]
                    coded = getattr(
                        auto.coding, part.removesuffix("_bytes").replace("code", "codes")
                    )
                    if not (part == "index_bytes" and structure == "dense"):
                        assert coded == (sizes[1] + len(str(sizes[1])) + 4 < sizes[0])
                assert auto.cost_bytes <= none.cost_bytes
                assert none.coding == Coding(index=False, codes=False)
                assert huffman.coding == Coding(index=structure != "dense", codes=True)
                seen.add(auto.coding)
    assert len(seen) == 4, "one of the four cases was not met"


def test_full_groups_of_pairs_take_the_entropy_of_their_six_masks():
    matrix = make("2:4", (64, 256), density=1.0, entropy="auto")
    assert matrix.coding.index
    groups = 64 * 64
    assert groups * np.log2(6) / 8 < matrix.index_bytes(huffman=True) < groups * 2.7 / 8 + 8


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STRUCTURES), st.data())
def test_damaged_codes_are_refused_or_another_matrix(structure, data):
    shape = (8, 56)
    matrix = make(structure, shape, entropy="huffman")
    parts = encode_matrix(matrix)
    damaged = bytearray(parts.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    numbers = list(parts.numbers)
    place = data.draw(st.integers(0, len(numbers) - 1))
    numbers[place] += data.draw(st.integers(-2, 2))
    try:
        other, end = decode(parts, shape, data=bytes(damaged), numbers=numbers)
    except FormatError as error:
        assert str(error).startswith("m: a: ")  # noqa: PT017 raised or not, both are right
        return
    assert end <= len(damaged)
    assert other.weight().shape == shape
