# SPDX-License-Identifier: BSD-2-Clause
import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from gossamer.host import golden
from gossamer.host.compiler.quantize import quantize
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import CompressedModel, compress
from gossamer.host.compression.entropy import ENTROPIES
from gossamer.host.compression.recipe import parse_recipe
from gossamer.host.errors import FormatError, InputError
from gossamer.host.finals import FINALS
from gossamer.host.network import Layer, Network
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open


def make_model(sizes=(20, 12, 8, 5), recipe="[default]\ndensity = 0.3\ncodes = 16", seed=0):
    rng = np.random.default_rng(seed)
    layers = tuple(
        Layer(f"fc{k}", rng.normal(size=(sizes[k + 1], sizes[k])), rng.normal(size=sizes[k + 1]), a)
        for k, a in enumerate(["relu"] * (len(sizes) - 2) + ["none"])
    )
    x = rng.random((50, sizes[0]))
    return compress(Network(layers), parse_recipe(recipe), x)


def same(a: CompressedModel, b: CompressedModel) -> bool:
    if (a.input, a.final) != (b.input, b.final) or len(a.layers) != len(b.layers):
        return False
    for one, two in zip(a.layers, b.layers, strict=True):
        x, y = one.matrix, two.matrix
        if (one.name, one.activation, one.output) != (two.name, two.activation, two.output):
            return False
        if (one.limits, one.met) != (two.limits, two.met):
            return False
        if (x.structure, x.zero_code, x.coding) != (y.structure, y.zero_code, y.coding):
            return False
        arrays = [
            (one.bias, two.bias),
            (x.codes, y.codes),
            (x.codebook, y.codebook),
            (x.row_exponents, y.row_exponents),
            (x.places.column_starts, y.places.column_starts),
            (x.places.row_indices, y.places.row_indices),
        ]
        if not all(np.array_equal(p, q) and p.dtype == q.dtype for p, q in arrays):
            return False
    return True


MODEL = make_model()
RAW = model_file.dump(MODEL)
MIXED = "[layers.fc0]\nstructure = 'dense'\n[layers.fc1]\nstructure = 'dense'\ndensity = 0.5"
TAILS = "[input]\ncalibration = 80\n[default]\ncalibration = 95"


PAIRS = "[default]\nstructure = '2:4'\ndensity = 1.0\ncodes = 16\nentropy = 'none'\n"
OTHER_PAIRS = "[default]\nstructure = '2:4'\nthreshold = 0.5\n[layers.fc1]\nstructure = '3:7'"
CODED = "[default]\nentropy = 'huffman'\n[layers.fc0]\nstructure = 'dense'"
RECIPES = ["", "[default]\ndensity = 0.1\ncodes = 5", MIXED, TAILS, PAIRS, OTHER_PAIRS, CODED]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("sizes", [(20, 12, 8), (1, 1, 1), (3, 5, 1), (7, 1, 9)])
def test_round_trip(tmp_path, recipe, sizes):
    model = make_model(sizes, recipe)
    path = tmp_path / "m.gossamer"
    model_file.save(model, path)
    again = model_file.load(path)
    assert same(again, model)
    first, second = (quantize(m, activation_bits=8, sum_bits=32) for m in (model, again))
    q = first.input.quantize(np.random.default_rng(1).random((10, sizes[0])))
    assert np.array_equal(golden.run(first, q), golden.run(second, q))
    assert model_file.dump(again) == path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["m.gossamer"]


@pytest.mark.parametrize("limits", [(0.0, 6.0), (-np.inf, 0.1), (-2.5, np.inf)])
@pytest.mark.parametrize("final", FINALS)
def test_clip_and_final_step(limits, final):
    layers = (Layer("a", [[1, 2]], None, "clip", limits=limits), Layer("b", [[3], [4]]))
    model = compress(Network(layers, final=final), None, [[0, 1], [1, 0]])
    again = model_file.parse(model_file.dump(model))
    assert same(again, model)
    assert (again.layers[0].activation, again.layers[0].limits) == ("clip", limits)
    assert again.to_network().final == final


def test_pairs_take_two_bits_of_position():
    """A 2:4 layer of 16 codes: 2 + 4 bits for each of two pairs in four weights, and no masks."""
    model = make_model((4096, 64), PAIRS)
    pairs = 64 * 4096 // 2
    parts = model_file.layer_parts(model.layers[0])
    assert len(parts.matrix.data) == pairs * 2 // 8 + pairs * 4 // 8 + 4 * 16
    raw = model_file.dump(model)
    assert len(raw) - 8 - int.from_bytes(raw[:8], "little") == len(parts.data)
    wide = make_model((4096, 1), PAIRS)
    assert len(model_file.layer_parts(wide.layers[0]).matrix.data) == 512 + 1024 + 64


def test_all_zero_layer_and_odd_names():
    net = Network((Layer('ünïcode "0"\n', np.zeros((3, 4))), Layer("", np.ones((2, 3)))))
    model = compress(net, None, np.random.default_rng(2).random((9, 4)))
    assert same(model_file.parse(model_file.dump(model)), model)


def test_uncalibrated_models_keep_their_warning():
    net = Network((Layer("a", np.ones((3, 4))),))
    model = compress(net, parse_recipe("[input]\nrange = [-1, 1]"))
    assert model_file.parse(model_file.dump(model)).warnings == model.warnings != ()


def test_it_is_a_safetensors_file(tmp_path):
    path = tmp_path / "m.gossamer"
    model_file.save(MODEL, path)
    with safe_open(path, framework="numpy") as file:
        metadata, data = file.metadata(), file.get_tensor("model")
    assert metadata["gossamer"] == "2"
    text = metadata["model"].encode()
    assert metadata["crc32"] == f"{zlib.crc32(data.tobytes(), zlib.crc32(text)):08x}"
    assert [line[0] for line in json.loads(text)[1:]] == ["fc0", "fc1", "fc2"]
    assert (path.stat().st_size - len(data)) % 8 == 0


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_same_integers_for_every_structure_values_and_entropy(data):
    draw = data.draw
    sizes = draw(st.lists(st.integers(1, 40), min_size=2, max_size=3))
    tables = []
    for k in range(len(sizes) - 1):
        structure = draw(st.sampled_from(["auto", "dense", "unstructured", "2:4", "1:3", "5:9"]))
        density, codes = draw(st.floats(0.01, 1)), draw(st.integers(2, 256))
        entropy = draw(st.sampled_from(ENTROPIES))
        tables.append(
            f"[layers.fc{k}]\nstructure = '{structure}'\ndensity = {density}\ncodes = {codes}\n"
            f"entropy = '{entropy}'\n"
        )
    model = make_model(sizes, "".join(tables), seed=draw(st.integers(0, 99)))
    raw = model_file.dump(model)
    again = model_file.parse(raw)
    assert same(again, model)
    assert model_file.dump(again) == raw
    first, second = (quantize(m, activation_bits=8, sum_bits=32) for m in (model, again))
    q = first.input.quantize(np.random.default_rng(1).random((4, sizes[0])))
    assert np.array_equal(golden.run(first, q), golden.run(second, q))


@pytest.mark.slow
def test_auto_is_never_larger():
    for sizes in ((20, 12, 8), (784, 30, 10)):
        for density in (0.05, 0.3, 1.0):
            recipe = f"[default]\ndensity = {density}\ncodes = 16\nentropy = "
            auto, none, huffman = (
                len(model_file.dump(make_model(sizes, f"{recipe}'{entropy}'")))
                for entropy in ENTROPIES
            )
            assert auto <= none
            assert auto <= huffman + 8 * (len(sizes) - 1)
            if sizes[0] == 784 and density < 1:
                assert auto < 0.97 * none


def test_equal_models_give_equal_bytes():
    assert model_file.dump(make_model()) == RAW
    assert model_file.dump(make_model(seed=1)) != RAW


def test_small_models_are_small():
    model = make_model((64, 32, 32, 10), "[default]\ndensity = 0.3\ncodes = 16")
    fp32 = 4 * (64 * 32 + 32 * 32 + 32 * 10 + 32 + 32 + 10)
    assert fp32 / len(model_file.dump(model)) > 8


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(RAW) - 1))
def test_every_truncation_is_an_error(size):
    with pytest.raises(FormatError, match=r"^model: "):
        model_file.parse(RAW[:size])


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(1, 255)), min_size=1))
def test_flipped_bytes_are_an_error_or_harmless(flips):
    damaged = bytearray(RAW)
    for place, change in flips:
        damaged[place] ^= change
    try:
        model = model_file.parse(bytes(damaged))
    except FormatError:
        model = MODEL
    assert same(model, MODEL)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_error(raw):
    with pytest.raises(FormatError, match=r"^model: "):
        model_file.parse(raw)


def rebuild(change=None, data=None, version="2", raw=RAW, **tensor) -> bytes:
    """A file with a right CRC whose description `change` has edited."""
    size = int.from_bytes(raw[:8], "little")
    lines = json.loads(json.loads(raw[8 : 8 + size])["__metadata__"]["model"])
    data = raw[8 + size :] if data is None else data
    if change is not None:
        change(lines)
    text = json.dumps(lines)
    crc = f"{zlib.crc32(data, zlib.crc32(text.encode())):08x}"
    described = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]} | tensor
    metadata = {"gossamer": version, "crc32": crc, "model": text}
    header = json.dumps({"__metadata__": metadata, "model": described}).encode()
    return struct.pack("<Q", len(header)) + header + data


def set_field(line, place, value, inner=None):
    def change(lines):
        if inner is None:
            lines[line][place] = value
        else:
            lines[line][place][inner] = value

    return change


@pytest.mark.parametrize("structure", ["dense", "unstructured", "2:4"])
def test_exponents_of_rows(structure):
    rng = np.random.default_rng(3)
    weight = np.ldexp(rng.normal(size=(11, 12)), -(np.arange(11)[:, None] % 6))
    weight[:, 1::2] = 0
    recipe = f"[default]\nstructure = '{structure}'\ncodes = 8\nentropy = 'none'"
    model = compress(Network((Layer("a", weight),)), parse_recipe(recipe), rng.random((9, 12)))
    assert model.layers[0].matrix.row_exponents.any()
    raw = model_file.dump(model)
    assert same(model_file.parse(raw), model)
    kind = {"dense": 5, "unstructured": 6, "2:4": 7}[structure]
    assert f'[\\"a\\",11,12,0,[{kind},'.encode() in raw
    # all zeros would be a second way to say the same
    data = model_file.layer_parts(model.layers[0]).data
    data = data[:-5] + bytes(5)
    with pytest.raises(FormatError, match="all exponents of rows are 0, expected them left out"):
        model_file.parse(rebuild(raw=raw, data=data))


def test_rebuilt_file_is_read():
    assert same(model_file.parse(rebuild()), MODEL)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "header claims 0 bytes but the file has 0"),
        (struct.pack("<Q", 1 << 60) + b"{}", f"header claims {1 << 60} bytes but the file has 10"),
        (struct.pack("<Q", 2) + b"{}", "header is not that of a .gossamer file"),
        (struct.pack("<Q", 4) + b"[][]", "header is not that of a .gossamer file"),
        (rebuild(version="3"), "format version is '3', expected 2; update gossamer"),
        (rebuild(version="1"), "format version is '1', expected 2; the file is damaged"),
        (rebuild(version="x"), "format version is 'x', expected 2; the file is damaged"),
        (rebuild(dtype="F32"), r"header describes \['F32'"),
        (rebuild(shape=[1 << 50]), r"expected .* bytes of data as the file holds"),
        (RAW + b"x", "bytes of data as the file holds"),
        (rebuild(data=b"abc"), r"layer 'fc0': needs \d+ bytes of .* but \d are left"),
        (rebuild(set_field(1, 1, 1 << 40)), r"rows is \d+, expected 1\.\.65536"),
        (rebuild(set_field(3, 4, 200, 1)), r"layer 'fc2': needs \d+ bytes of codebook but"),
        (rebuild(lambda x: x[1].__setitem__(slice(1, 3), [65536] * 2)), "weights is 4294967296"),
        (rebuild(set_field(1, 2, 0)), r"cols is 0, expected 1\.\.65536"),
        (rebuild(set_field(1, 2, 2.0)), r"cols is 2\.0"),
        (rebuild(set_field(1, 3, 7)), r"activation is 7, expected 0\.\.1"),
        (rebuild(set_field(1, 3, [6, 0])), r"limits of the output are \(6.0, 0.0\), expected two"),
        (rebuild(set_field(1, 3, [0])), "the description is not valid"),
        (rebuild(lambda lines: lines.append("tanh")), "final step is 'tanh', expected one of none"),
        (rebuild(set_field(1, 4, 32, 0)), r"kind is 32, expected 0\.\.31"),
        (rebuild(set_field(1, 4, 1 << 30, 3)), r"gap symbols is 1073741824, expected 0\.\."),
        (rebuild(set_field(1, 4, 257, 1)), r"codes is 257, expected 1\.\.256"),
        (rebuild(set_field(1, 4, 17, 2)), r"gap bits is 17, expected 1\.\."),
        (rebuild(set_field(1, 4, 7)), "the description is not valid"),
        (rebuild(set_field(1, 4, [2])), "the description is not valid"),
        (rebuild(set_field(1, 5, [33, 0])), r"bias bits is 33, expected 1\.\.32"),
        (rebuild(set_field(1, 5, [8, 150])), r"bias point is 150, expected -128\.\.149"),
        (rebuild(set_field(1, 5, [8])), "the description is not valid"),
        (rebuild(set_field(1, 5, 4)), "the description is not valid"),
        (rebuild(set_field(1, 0, 5)), "layer 5: the name is no text"),
        (rebuild(set_field(1, 6, [0])), "the description is not valid"),
        (rebuild(set_field(1, 6, [1, 0, 0, 0, 0, 0])), "description is not valid.*range must rise"),
        (rebuild(set_field(2, 7, 101)), r"met percentage is 101, expected 0\.\.100"),
        (rebuild(set_field(2, 7, 0.5)), r"met percentage is 0\.5, expected 0\.\.100"),
        (rebuild(lambda lines: lines.pop()), "bytes left over"),
        (rebuild(lambda lines: lines[1].pop()), "the description is not valid"),
        (rebuild(lambda lines: lines.reverse()), "the description is not valid"),
        (rebuild(lambda lines: lines.clear()), "the description is not valid"),
    ],
)
def test_bad_files(raw, text):
    with pytest.raises(FormatError, match=text):
        model_file.parse(raw, "m.gossamer")


def test_damage_is_found_by_the_crc():
    damaged = bytearray(RAW)
    damaged[-1] ^= 1
    with pytest.raises(
        FormatError, match=r"CRC-32 is [0-9a-f]{8}, expected '[0-9a-f]{8}'; .*again"
    ):
        model_file.parse(bytes(damaged))


def test_values_are_checked():
    bias = np.array([1, 1 / 3, 1e9, 1e-9, 0], np.float32)
    layers = (*MODEL.layers[:2], replace(MODEL.layers[2], bias=bias))
    raw = model_file.dump(replace(MODEL, layers=layers))
    assert raw.endswith(bias.tobytes())
    assert np.array_equal(model_file.parse(raw).layers[2].bias, bias)
    size = int.from_bytes(raw[:8], "little")
    data = raw[8 + size : -4] + struct.pack("<f", float("nan"))
    with pytest.raises(FormatError, match="layer 'fc2': bias is nan"):
        model_file.parse(rebuild(raw=raw, data=data))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match=r"no\.gossamer: no such file"):
        model_file.load(tmp_path / "no.gossamer")
    with pytest.raises(InputError, match="cannot be read"):
        model_file.load(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        model_file.save(MODEL, tmp_path / "no" / "m.gossamer")
    path = tmp_path / "short.gossamer"
    path.write_bytes(RAW[:-1])
    with pytest.raises(FormatError, match=r"short\.gossamer: header describes"):
        model_file.load(path)


def test_every_codebook_value_is_checked():
    size = int.from_bytes(RAW[:8], "little")
    data = bytearray(RAW[8 + size :])
    parts = model_file.layer_parts(MODEL.layers[0]).matrix
    start = len(parts.index + parts.codes)
    data[start : start + 4] = struct.pack("<f", float("inf"))
    with pytest.raises(FormatError, match="layer 'fc0': a codebook value is not finite"):
        model_file.parse(rebuild(data=bytes(data)))
