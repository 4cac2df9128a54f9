# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import replace

import numpy as np
import pytest
from fake_device import CLOCK_HZ, CONFIG, CYCLES, FakeDevice, FakePort, Faults
from gossamer.host import golden
from gossamer.host import session as session_module
from gossamer.host.compiler.quantize import quantize
from gossamer.host.compression import model_file
from gossamer.host.compression.compress import compress
from gossamer.host.device.device import Device
from gossamer.host.errors import CapacityError, DeviceError, FormatError, InputError
from gossamer.host.finals import FINALS, apply_final
from gossamer.host.network import Layer, Network
from gossamer.host.session import Session
from gossamer.host.verify import Difference, verify
from gossamer.rtl.formats import COUNTER_NAMES
from networks import random_inputs, random_network


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(5)
    return random_network(rng, (20, 40, 7), signed=[True, False, True], relu=[False, False])


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(6)
    layers = (
        Layer("hidden", rng.normal(size=(9, 12)), rng.normal(size=9), "relu"),
        Layer("output", rng.normal(size=(4, 9)), rng.normal(size=4), "none"),
    )
    return compress(Network(layers), calibration=rng.normal(size=(50, 12)))


WIDE = replace(CONFIG, activation_bits=16, sum_bits=36)
BATCH = replace(CONFIG, tile_rows=1, tile_columns=4)
WIDE_BATCH = replace(WIDE, tile_rows=2, tile_columns=2)


def on_fake(network, faults=None, config=CONFIG, **options):
    device = Device(FakePort(FakeDevice(network, config), faults), "fake")
    return Session(network, device, **options)


def reals(session, n, seed=1):
    low, high = session.inputs[0].quantizer.low, session.inputs[0].quantizer.high
    q = np.random.default_rng(seed).integers(low, high + 1, (n, session.inputs[0].features))
    return session.inputs[0].quantizer.dequantize(q), q


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_device_equals_golden(network, n):
    here, there = Session(network), on_fake(network)
    x, q = reals(here, n)
    assert np.array_equal(there.run_quantized(q), golden.run(network, q))
    assert np.array_equal(here.run_quantized(q), golden.run(network, q))
    outputs = there.run(x)
    assert outputs.shape == (n, 7)
    assert outputs.dtype == np.float32
    assert np.array_equal(outputs, here.run(x))
    assert np.array_equal(outputs, network.output.dequantize(golden.run(network, q)))


@pytest.mark.parametrize("make", [Session, on_fake])
def test_one_sample_in_one_sample_out(network, make):
    session = make(network)
    x, q = reals(session, 3)
    assert np.array_equal(session.run(x[1]), session.run(x)[1])
    assert np.array_equal(session.run_quantized(q[1]), session.run_quantized(q)[1])
    assert session.run(x[1]).shape == (7,)


def test_dict_in_dict_out(network):
    session = Session(network)
    x, _ = reals(session, 3)
    assert [tensor.name for tensor in session.inputs] == ["input"]
    assert [tensor.name for tensor in session.outputs] == ["output"]
    outputs = session.run({"input": x})
    assert list(outputs) == ["output"]
    assert np.array_equal(outputs["output"], session.run(x))
    with pytest.raises(InputError, match=r"inputs are named \['images'\], expected \['input'\]"):
        session.run({"images": x})


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f4", "i1", "i8", "u1", "?"])
def test_any_real_type(network, kind):
    session = Session(network)
    x = np.ones((2, 20)).astype(kind)
    assert np.array_equal(session.run(x), session.run(np.ones((2, 20))))


def test_lists_and_strided_arrays(network):
    session = Session(network)
    x, _ = reals(session, 4)
    assert np.array_equal(session.run(x.tolist()), session.run(x))
    assert np.array_equal(session.run(np.asfortranarray(x)), session.run(x))
    assert np.array_equal(session.run(x[::-1]), session.run(x)[::-1])


def test_values_beyond_the_range_saturate(network):
    session = Session(network)
    top = session.inputs[0].quantizer.dequantize(session.inputs[0].quantizer.high)
    x = np.full(20, 1e30)
    assert np.array_equal(session.run(x), session.run(np.full(20, top)))


@pytest.mark.parametrize("make", [Session, on_fake])
def test_inputs_are_never_changed(network, make):
    session = make(network)
    x, q = reals(session, 3)
    for array in (x, q):
        array.flags.writeable = False
    before = x.copy(), q.copy()
    session.run(x)
    session.run_quantized(q)
    assert np.array_equal(x, before[0])
    assert np.array_equal(q, before[1])
    outputs = session.run(x)
    outputs[:] = 0  # the caller's own
    assert session.run(x).any()


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.zeros(19), r"input has shape \(19,\), expected \(20,\) or \(n, 20\)"),
        (np.zeros((3, 21)), r"input has shape \(3, 21\), expected"),
        (np.zeros((2, 2, 20)), r"input has shape \(2, 2, 20\), expected"),
        (np.float32(1), r"input has shape \(\), expected"),
        (np.zeros(20, dtype=complex), r"input has type complex128, expected real numbers"),
        (["a"] * 20, r"input has type <U1, expected real numbers"),
        ([[1.0], [1.0, 2.0]], r"input is no array"),
        (None, r"input has type object"),
    ],
)
@pytest.mark.parametrize("make", [Session, on_fake])
def test_unusable_inputs(network, make, x, text):
    session = make(network)
    with pytest.raises(InputError, match=text):
        session.run(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [Session, on_fake])
def test_not_finite_inputs_are_named(network, make, bad):
    session = make(network)
    x = np.zeros((4, 20), dtype=np.float32)
    x[2, 7] = bad
    with pytest.raises(InputError, match=rf"input is {bad} at index \[2, 7\]"):
        session.run(x)
    assert session.run(np.zeros((1, 20))).shape == (1, 7)


def test_quantized_inputs_must_be_integers_in_range(network):
    session = Session(network)
    with pytest.raises(InputError, match=r"type float64 and spans 0.0..0.0, expected integers in"):
        session.run_quantized(np.zeros((1, 20)))
    with pytest.raises(InputError, match=r"spans 128\.\.128, expected integers in -128\.\.127"):
        session.run_quantized(np.full(20, 128))


@pytest.mark.parametrize("make", [Session, on_fake])
def test_stream_keeps_the_order(network, make):
    session = make(network)
    x, _ = reals(session, 7)
    got = list(session.stream(iter(x)))
    assert np.array_equal(got, session.run(x))
    assert list(session.stream([])) == []
    with pytest.raises(InputError, match=r"input of a stream has shape \(7, 20\), expected one"):
        list(session.stream([x]))
    assert np.array_equal(session.run(x), got)


@pytest.mark.parametrize("final", FINALS)
@pytest.mark.parametrize("make", [Session, on_fake])
def test_final_step_is_done_on_the_host(network, make, final):
    session = make(replace(network, final=final))
    x, q = reals(session, 5)
    outputs = session.run_quantized(q)
    assert np.array_equal(outputs, golden.run(network, q))
    expected = apply_final(final, network.output.dequantize(outputs))
    assert np.array_equal(session.run(x), expected)
    assert np.array_equal(session.run(x[0]), expected[0])
    assert np.array_equal(list(session.stream(x)), expected)
    assert session.outputs[0].features == expected.shape[1]


def test_stats(network):
    session = on_fake(network)
    assert session.last_stats is None
    x, _ = reals(session, 5)
    session.run(x)
    stats = session.last_stats
    assert (stats.images, stats.cycles) == (5, 5 * CYCLES)
    assert list(stats.seconds) == ["host", "link", "engine"]
    assert stats.seconds["engine"] == 5 * CYCLES / CLOCK_HZ
    here = Session(network)
    here.run(x)
    assert here.last_stats.cycles == 0
    assert here.last_stats.seconds["host"] > 0
    assert list(here.last_stats.counters) == list(COUNTER_NAMES[1:])


def test_model_from_a_file(model, tmp_path):
    path = tmp_path / "m.gossamer"
    model_file.save(model, path)
    x = np.random.default_rng(1).normal(size=(6, 12))
    with Session(model) as one, Session(path) as two, Session(str(path)) as three:
        assert np.array_equal(one.run(x), two.run(x))
        assert np.array_equal(one.run(x), three.run(x))
    path.write_bytes(b"nothing")
    with pytest.raises(FormatError):
        Session(path)


def test_model_is_quantized_for_the_device(model):
    fake = FakeDevice(Session(model).network)
    session = Session(model, Device(FakePort(fake), "fake"))
    x = np.random.default_rng(1).normal(size=(6, 12))
    assert np.array_equal(session.run(x), Session(model).run(x))
    assert verify(session, x) is None


@pytest.mark.parametrize("config", [WIDE, BATCH, WIDE_BATCH])
def test_any_width_and_batch(model, config):
    """The device's widths decide; runs, streams and verification know nothing of batches."""
    bits, sum_bits = config.activation_bits, config.sum_bits
    network = quantize(model, activation_bits=bits, sum_bits=sum_bits)
    session = Session(model, Device(FakePort(FakeDevice(network, config)), "fake"))
    assert session.inputs[0].quantizer == network.input
    assert session.outputs[0].quantizer == network.output
    assert network.output.high == 2 ** (bits - 1) - 1
    for n in (1, 3, 4, 9):
        x = np.random.default_rng(n).normal(size=(n, 12))
        q = session.quantize(x)
        assert np.array_equal(q, network.input.quantize(x))
        want = golden.run(network, q)
        assert np.array_equal(session.run_quantized(q), want)
        assert session.last_stats.images == n
        assert session.last_stats.cycles == -(-n // config.batch) * CYCLES
        assert np.array_equal(session.run(x), network.output.dequantize(want))
        assert np.array_equal(list(session.stream(iter(x))), session.run(x))
        assert verify(session, x) is None


def test_wide_activations_come_closer_to_the_floats(model):
    """What 16 bits are for: the same model, errors of the result some hundred times smaller."""
    x = np.random.default_rng(1).normal(size=(40, 12))
    exact = x
    for layer in model.layers:
        exact = exact @ layer.matrix.weight().T.astype(float) + layer.bias
        exact = np.maximum(exact, 0) if layer is model.layers[0] else exact
    narrow, wide = (
        np.abs(session.run(x) - exact).max()
        for session in (
            Session(model),
            Session(quantize(model, activation_bits=16, sum_bits=36)),
        )
    )
    assert wide < narrow / 50, (narrow, wide)


def test_stream_takes_two_batches_ahead(network):
    session = on_fake(network, config=BATCH)
    x, _ = reals(session, 19)
    taken, got = [], []

    def source():
        for row in x:
            taken.append(len(taken))
            yield row

    for output in session.stream(source()):
        assert len(taken) <= len(got) + 2 * BATCH.batch
        got.append(output)
    assert np.array_equal(got, session.run(x))


def test_model_that_does_not_fit_closes_the_port(network, monkeypatch):
    port = FakePort(FakeDevice(config=replace(CONFIG, max_layers=1)))
    monkeypatch.setattr(
        session_module, "open_device", lambda url, timeout: Device(port, url, timeout=timeout)
    )
    with pytest.raises(CapacityError, match="layers: 2 needed, 1 available"):
        Session(network, "sim")
    assert not port.is_open


def test_session_closes_only_what_it_opened(network, monkeypatch):
    port = FakePort(FakeDevice(network))
    monkeypatch.setattr(
        session_module, "open_device", lambda url, timeout: Device(port, url, timeout=timeout)
    )
    with Session(network, "sim", timeout=2.0) as session:
        assert session.device.link.timeout == 2.0
    assert not port.is_open
    device = Device(FakePort(FakeDevice(network)), "fake")
    Session(network, device).close()
    assert device.status() is not None


def test_missing_device(network):
    with pytest.raises(DeviceError, match="/dev/ttyNOPE: there is no such port"):
        Session(network, "/dev/ttyNOPE")


def test_device_that_fails_once_serves_the_next_run(network):
    session = on_fake(network)
    x, _ = reals(session, 5)
    want = session.run(x)
    session.device._port.device.committed = b""
    with pytest.raises(DeviceError, match="state is EMPTY"):
        session.run(x)
    assert np.array_equal(session.run(x), want)


@pytest.mark.parametrize("make", [Session, on_fake])
def test_layers_and_verify(network, make):
    session = make(network)
    x, q = reals(session, 4)
    layers = session.layers(q)
    want = golden.run_layers(network, q)
    assert len(layers) == 2
    assert all(np.array_equal(a, b) for a, b in zip(layers, want, strict=True))
    assert verify(session, x) is None
    assert verify(session, x[0]) is None
    assert verify(session, x[:0]) is None


def test_verify_names_the_first_difference(network):
    session = on_fake(network)
    x, q = reals(session, 4)
    fake = session.device._port.device
    wrong = replace(network.layers[0], bias=network.layers[0].bias + 5000)
    fake.network = replace(network, layers=(wrong, network.layers[1]))
    want = golden.run_layers(network, q)[0]
    got = golden.run_layers(fake.network, q)[0]
    image, row = np.argwhere(want != got)[0]
    found = verify(session, x)
    assert found == Difference(
        "layer0", row, image, want[image, row], got[image, row], int((want != got).sum())
    )
    fake.network = network
    assert np.array_equal(session.run_quantized(q), golden.run(network, q))


@pytest.mark.slow
def test_verify_on_a_bad_line(network):
    session = on_fake(network, Faults(damage=0.1, piece=9))
    x, _ = reals(session, 6)
    assert verify(session, x) is None
    assert session.device.link.repeats > 0


def test_layer_too_wide_to_return_is_skipped():
    network = random_network(np.random.default_rng(2), (20, 40, 7))
    fake = FakeDevice(network, replace(CONFIG, output_depth=16))
    session = Session(network, Device(FakePort(fake), "fake"))
    q = random_inputs(np.random.default_rng(3), network, 2)
    first, second = session.layers(q)
    assert first is None
    assert np.array_equal(second, golden.run(network, q))
