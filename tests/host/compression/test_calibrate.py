# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import replace

import numpy as np
import pytest
from gossamer.host.compression.calibrate import TensorRange, bound_ranges, calibrate_ranges
from gossamer.host.errors import InputError
from gossamer.host.network import Layer, Network
from gossamer.host.quantizer import Quantizer

MEAN, STD = np.float32(0.1307), np.float32(0.3081)


def network(n_in, n_hidden=5, seed=0):
    rng = np.random.default_rng(seed)
    first = Layer("a", rng.normal(size=(n_hidden, n_in)), rng.normal(size=n_hidden), "relu")
    return Network((first, Layer("b", rng.normal(size=(3, n_hidden)), rng.normal(size=3))))


def input_of(x, **options) -> Quantizer:
    return calibrate_ranges(network(x.shape[1]), x, **options)[0].quantizer(8)


@pytest.fixture
def pixels():
    """Images (200, 40) of 0..255, mostly black."""
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (200, 40))
    image[rng.random(image.shape) < 0.8] = 0
    image[0, :3] = 0, 1, 255
    return image


def test_pixels_are_kept_exactly(pixels):
    x = (pixels / 255).astype(np.float32)
    q = input_of(x)
    assert (q.origin, q.low, q.high, q.signed) == (0.0, 0, 255, False)
    assert np.array_equal(q.quantize(x), pixels)
    assert np.array_equal(q.dequantize(pixels), x)
    assert np.array_equal(input_of(pixels).quantize(pixels), pixels)


def test_normalized_pixels_give_the_same_integers(pixels):
    x = ((pixels / 255).astype(np.float32) - MEAN) / STD
    q = input_of(x)
    assert np.array_equal(q.quantize(x), pixels)
    assert np.float32(q.origin) == x.min()


def test_black_on_white_gives_mirrored_integers(pixels):
    x = ((255 - pixels) / 255).astype(np.float32)
    q = input_of(x)
    assert (q.origin, q.signed) == (1.0, False)
    assert q.scale < 0
    assert np.array_equal(q.quantize(x), pixels)
    np.testing.assert_allclose(q.dequantize(pixels), x, atol=1e-7)


def test_commonest_value_in_the_middle_is_signed():
    rng = np.random.default_rng(2)
    steps = rng.integers(-100, 101, (300, 4))
    steps[rng.random(steps.shape) < 0.5] = 0
    x = (0.75 + steps / 64).astype(np.float32)
    q = input_of(x)
    assert (q.origin, q.signed) == (0.75, True)
    assert np.array_equal(q.quantize(x), steps)


def test_zero_wins_where_it_is_as_common():
    x = np.array([[0.0, 1.0, -1.0, 0.5]] * 10, np.float32)
    ranges = calibrate_ranges(network(4), x)
    assert ranges[0].origin == 0.0
    assert ranges[0].share == 0.25


def test_few_levels_use_the_bits_between():
    x = np.array([[0, 1, 2, 3]] * 5, np.float32)
    q = input_of(x)
    assert np.array_equal(q.quantize(x[0]), [0, 85, 170, 255])
    assert np.array_equal(q.dequantize([0, 85, 170, 255]), x[0])
    assert q.quantize(0.5) == 42  # ties to even


def test_share_of_the_commonest_value(pixels):
    ranges = calibrate_ranges(network(40), pixels / 255)
    assert ranges[0].share == round(float((pixels == 0).mean()), 4)
    hidden = network(40).run_layers(pixels / 255)[0]
    assert ranges[1].share == round(float((hidden == 0).mean()), 4)


def test_tails_are_clipped_where_that_errs_less():
    rng = np.random.default_rng(3)
    x = rng.random((100_000, 8)).astype(np.float32)
    x[0, 0] = 1.5
    one = calibrate_ranges(network(8), x)[0]
    assert 0.95 < one.high < 1.1
    full = TensorRange(low=0, high=float(x.max()), origin=0)

    def error(r):
        q = r.quantizer(8)
        return float(np.square(q.dequantize(q.quantize(x)) - x).sum())

    assert error(one) < error(full)


def test_outputs_are_never_clipped():
    x = np.random.default_rng(4).normal(size=(100, 6)).astype(np.float32)
    net = network(6)
    last = calibrate_ranges(net, x)[-1]
    out = net.run(x)
    reach = np.abs(out).max()
    assert last.high == -last.low == pytest.approx(reach, rel=1e-4)
    assert last.quantizer(8).quantize(out).max() <= 127


def test_constant_tensors():
    net = Network((Layer("a", -np.ones((2, 3)), None, "relu"), Layer("b", np.ones((1, 2)), [7.0])))
    x = np.random.default_rng(5).random((20, 3))
    _, hidden, last = calibrate_ranges(net, x)
    assert (hidden.low, hidden.high, hidden.origin, hidden.share) == (0.0, 1.0, 0.0, 1.0)
    assert last.quantizer(8).dequantize(last.quantizer(8).quantize(7.0)) == 7.0


def test_stated_range_beats_the_samples(pixels):
    x = (np.minimum(pixels, 100) / 255).astype(np.float32)
    q = input_of(x, input_range=(0.0, 1.0))
    assert np.array_equal(q.quantize(pixels / 255), pixels)
    rng = np.random.default_rng(6)
    smooth = rng.random((50, 4))
    assert calibrate_ranges(network(4), smooth, (-2, 2))[0].high == 2


def test_deterministic_and_short():
    x = np.random.default_rng(7).normal(size=(300, 6))
    first = calibrate_ranges(network(6), x)
    assert first == calibrate_ranges(network(6), x.copy())
    for one in first:
        assert all(len(repr(v)) <= 15 for v in (one.low, one.high, one.origin))


def test_bad_calibration_data():
    net = network(4)
    with pytest.raises(InputError, match=r"calibration data has shape \(3, 5\), expected \(n, 4\)"):
        calibrate_ranges(net, np.zeros((3, 5)))
    with pytest.raises(InputError, match=r"calibration data is nan at index \[0, 0\]"):
        calibrate_ranges(net, np.full((3, 4), np.nan))
    with pytest.raises(InputError, match=r"is 2\.0 everywhere.*\[input\]"):
        calibrate_ranges(net, np.full((3, 4), 2.0))
    assert calibrate_ranges(net, np.full((3, 4), 2.0), (0, 4))[0].high == 4


def test_bounds_hold_and_are_reached():
    net = network(3, seed=8)
    ranges = bound_ranges(net, (-1.0, 2.0))
    corners = np.array([[a, b, c] for a in (-1, 2) for b in (-1, 2) for c in (-1, 2)], np.float32)
    hidden, out = net.run_layers(corners)
    assert [r.source for r in ranges] == ["declared", "bounds", "bounds"]
    assert ranges[1].high == pytest.approx(float(hidden.max()), rel=1e-4)
    assert ranges[1].low >= 0
    assert ranges[2].low <= out.min() * 0.9999
    assert out.max() <= ranges[2].high * 1.0001


def test_range_above_zero_starts_at_its_low_end():
    assert bound_ranges(network(3), (2.0, 3.0))[0].origin == 2.0


@pytest.mark.parametrize("bits", [8, 16])
def test_quantizers_of_a_range(bits):
    most = 2**bits - 1
    half = 2 ** (bits - 1)
    plain = TensorRange(low=1.0, high=3.0, origin=1.0).quantizer(bits)
    assert (plain.low, plain.high, plain.scale) == (0, most, 2 / most)
    signed = TensorRange(low=-1.0, high=1.0, origin=0.0).quantizer(bits)
    assert (signed.low, signed.high, signed.signed) == (-(half - 1), half - 1, True)
    lopsided = TensorRange(low=-8.0, high=1.0, origin=0.0).quantizer(bits)
    assert (lopsided.low, lopsided.high) == (-half, half // 8)


def test_quantizer_rounds_and_saturates():
    q = Quantizer(0.5, 1.0, -128, 127, True)
    assert q.quantize([1.25, 1.75, 0.75, -1e9, 1e30]).tolist() == [0, 2, 0, -128, 127]
    assert q.dequantize([[2, -2]]).tolist() == [[2.0, 0.0]]
    with pytest.raises(InputError, match=r"input is inf at index \[1\]"):
        q.quantize([0.0, np.inf])
    with pytest.raises(ValueError, match="low and high must enclose 0"):
        Quantizer(1.0, 0.0, 1, 5, False)
    with pytest.raises(ValueError, match="scale must be finite"):
        Quantizer(0.0, 0.0, 0, 5, False)


def test_bad_ranges():
    with pytest.raises(ValueError, match="must rise and hold its origin"):
        TensorRange(low=0, high=0, origin=0)
    with pytest.raises(ValueError, match="hold its origin"):
        TensorRange(low=0, high=1, origin=2)
    with pytest.raises(ValueError, match="levels, share and source"):
        TensorRange(low=0, high=1, origin=0, source="guess")


def skewed(seed=9):
    """Inputs (4000, 3) with a long tail and their network."""
    x = np.random.default_rng(seed).exponential(size=(4000, 3)).astype(np.float32)
    return network(3), x


def test_methods_of_the_input():
    net, x = skewed()
    limits = {}
    for method in ("minmax", "error", 99.0, 100):
        one = calibrate_ranges(net, x, methods=[method, None, None])[0]
        limits[method] = one.high
        assert one.saturated == pytest.approx(float((x > one.high * 1.002).mean()), abs=2e-4)
    assert limits["minmax"] == limits[100] == pytest.approx(float(x.max()), rel=1e-4)
    assert np.mean(x <= limits[99.0]) == pytest.approx(0.99, abs=2e-4)
    assert limits[99.0] < limits["error"] < limits["minmax"]
    assert calibrate_ranges(net, x)[0].high == limits["error"]


def test_methods_of_layers():
    net, x = skewed()
    hidden, out = net.run_layers(x)
    plain = calibrate_ranges(net, x)
    assert plain[2].saturated == 0
    chosen = calibrate_ranges(net, x, methods=[None, 99.0, 90.0])
    assert chosen[0] == plain[0]
    assert chosen[1].high == pytest.approx(float(np.quantile(hidden, 0.99)), rel=0.01)
    assert chosen[1].saturated == pytest.approx(0.01, abs=0.001)
    extremes = calibrate_ranges(net, x, methods=[None, "minmax", "error"])
    assert extremes[1].high == pytest.approx(float(hidden.max()), rel=1e-4)
    assert extremes[2].high <= plain[2].high
    assert chosen[2].saturated == pytest.approx(0.1, abs=0.01)
    assert (chosen[2].low, chosen[2].high) == pytest.approx(
        np.quantile(out, (0.05, 0.95)), rel=0.01
    )
    assert chosen == calibrate_ranges(net, x.copy(), methods=[None, 99.0, 90.0])


def test_percentile_spares_the_end_that_is_integer_0():
    values = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8, 99]], np.float32).T
    one = calibrate_ranges(network(1), values, methods=[80, None, None])[0]
    assert (one.low, one.high, one.origin, one.levels) == (0, 7, 0, 0)
    two = calibrate_ranges(network(1), values - 4, methods=[80, None, None])[0]
    assert (two.low, two.high) == (-4, 4)
    most_zero = np.array([[0] * 99 + [1]], np.float32).T
    assert calibrate_ranges(network(1), most_zero, methods=[50, None, None])[0].high == 1


def quantized_grid(one, levels):
    """Real values that an 8-bit engine gives the places of a stated grid."""
    low, high = one.low, one.high
    grid = low + np.arange(levels + 1) * (high - low) / levels
    q = one.quantizer(8)
    return grid, q.origin + q.scale * q.quantize(grid)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("levels", [15, 255])
def test_stated_grids_are_not_refined(bits, levels):
    """Their rounding is part of the network; pixels on a grid may have finer integers."""
    one = TensorRange(low=0, high=3.0, origin=0, levels=levels, source="declared")
    assert one.quantizer(bits).scale == pytest.approx(3 / levels)
    assert one.quantizer(bits).high == levels
    finer = replace(one, source="calibrated").quantizer(bits)
    assert finer.high > levels or (bits, levels) == (8, 255)


@pytest.mark.parametrize("zero_point", [0, 100, 128, 255])
def test_stated_grids_are_taken_over_exactly(zero_point):
    scale = 0.0123
    low, high = -zero_point * scale, (255 - zero_point) * scale
    layer = Layer("a", np.eye(3), output_range=(low, high), output_levels=255)
    net = Network((layer,), (low, high), input_levels=255)
    samples = np.random.default_rng(10).normal(size=(500, 3)) * scale * 40
    for ranges in (bound_ranges(net), calibrate_ranges(net, samples)):
        for one in ranges:
            assert (one.source, one.levels) == ("declared", 255)
            assert (one.low, one.high) == pytest.approx((low, high), abs=1e-7)
            grid, real = quantized_grid(one, 255)
            np.testing.assert_allclose(real, grid, atol=1e-4 * scale)
            # real 0 becomes integer 0 where that costs no resolution
            assert (one.origin == 0) == (zero_point != 100)
    assert ranges[0].saturated == pytest.approx(
        float(((samples < low - scale / 2) | (samples > high + scale / 2)).mean()), abs=1e-3
    )


def test_commonest_value_of_a_stated_grid_becomes_0():
    net = Network((Layer("a", np.eye(2)),), (-1.0, 2.0), input_levels=255)
    samples = np.full((100, 2), -1.0)
    samples[:30, 0] = np.linspace(-1, 2, 30)
    one = calibrate_ranges(net, samples)[0]
    assert (one.origin, one.low, one.high) == (-1, -1, 2)
    assert one.share == pytest.approx(0.855)
    assert calibrate_ranges(net, samples, methods=["minmax", None])[0].source == "calibrated"


def test_stated_range_without_a_grid():
    layers = (
        Layer("a", np.eye(2), None, "relu", output_range=(0.0, 0.5)),
        Layer("b", np.eye(2), None, "clip", limits=(-0.1, 0.2)),
    )
    net = Network(layers, (-1.0, 1.0))
    _, hidden, out = bound_ranges(net)
    assert (hidden.low, hidden.high, hidden.source) == (0.0, 0.5, "declared")
    assert (out.low, out.high, out.source) == (0.0, 0.2, "bounds")
    rng = np.random.default_rng(11)
    measured = calibrate_ranges(net, rng.uniform(-1, 1, (400, 2)))
    assert (measured[1].low, measured[1].high) == (0.0, 0.5)
    assert measured[1].share == pytest.approx(0.5, abs=0.05)
    assert measured[1].saturated == pytest.approx(0.25, abs=0.05)
