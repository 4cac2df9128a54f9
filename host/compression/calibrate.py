# SPDX-License-Identifier: BSD-2-Clause
"""What real values a tensor takes, and which integers stand for them.

The commonest calibration value becomes integer 0, so that the black of a normalized image is
skipped like a zero. Unless told otherwise, the clip limits are those with the least squared error
at 8 bits, the network's outputs are not clipped, and inputs that lie on a grid that 8 bits can
number (pixels) keep that grid, without loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...rtl.arith import activation_limits
from ..errors import InputError
from ..network import Floats, Network, activate, as_samples
from ..quantizer import Quantizer

__all__ = [
    "METHODS",
    "SEARCH_BITS",
    "SOURCES",
    "Method",
    "TensorRange",
    "bound_ranges",
    "calibrate_ranges",
]

METHODS = ("error", "minmax")
"""Methods by name; a number is a percentile."""

Method = str | float
"""How the limits of a tensor follow from calibration values.

``"error"``: those with the least squared error at 8 bits. ``"minmax"``: the extremes. A number:
the smallest limits that hold this percentage of the values; what is left lies beyond both ends in
equal parts, or beyond the other one if one end becomes integer 0.
"""

Doubles = npt.NDArray[np.float64]

Stated = tuple[float, float, int]
"""Limits of a tensor and the steps of its grid (0: none), as a network states them."""

SOURCES = ("calibrated", "declared", "bounds")

COMMON_SHARE = 1 / 64
"""How much commoner than zero a value must be to become integer 0."""

SEARCH_BITS = 8
GRID_LEVELS = 1 << SEARCH_BITS
GRID_TOLERANCE = 1e-3
"""How far off the grid a value may be, in steps: float32 rounding of a normalized pixel."""

CLIPS = np.geomspace(1.0, 0.2, 65)
SEARCH_VALUES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TensorRange:
    """Real values of one tensor.

    Parameters
    ----------
    low, high : float
        Clip limits, low < high; values beyond saturate.
    origin : float
        The value that becomes integer 0, within the limits.
    levels : int
        Steps from `low` to `high` of a grid on which all values lie, or 0 if there is none.
    share : float
        Share of calibration values equal to `origin`; 0 if not calibrated.
    source : str
        ``"calibrated"``, ``"declared"`` (stated in model or recipe) or ``"bounds"`` (worst case).
    saturated : float
        Share of calibration values beyond the limits by more than half a step of 8 bits.
    """

    low: float
    high: float
    origin: float
    levels: int = 0
    share: float = 0.0
    source: str = "calibrated"
    saturated: float = 0.0

    def __post_init__(self) -> None:
        if not -np.inf < self.low <= self.origin <= self.high < np.inf or self.low == self.high:
            raise ValueError(f"range must rise and hold its origin, not {self!r}")
        if self.levels < 0 or self.source not in SOURCES or not 0 <= self.share <= 1:
            raise ValueError(f"levels, share and source must be valid, not {self!r}")
        if not 0 <= self.saturated <= 1:
            raise ValueError(f"saturated must be in 0..1, not {self.saturated!r}")

    def quantizer(self, bits: int) -> Quantizer:
        """Integers of `bits` bits for these values.

        Unsigned if the origin is an end of the range (counting downwards from the upper end, with
        a negative scale), signed if it lies between. A stated grid keeps its steps; steps of other
        grids are parted as far as the integers go.
        """
        above, below = self.high - self.origin, self.origin - self.low
        sign = 1.0 if above else -1.0
        if not above:
            above, below = below, above
        signed = below > 0
        least, most = activation_limits(bits, signed)
        scale = max(above / most, below / -least if signed else 0.0)
        if self.levels:
            step = (self.high - self.low) / self.levels
            up, down = round(above / step), round(below / step)
            parts = min(most // max(up, 1), -least // max(down, 1) if signed else most)
            if self.source == "declared":  # its rounding is part of the network
                parts = min(parts, 1)
            scale = step / parts if parts else scale
        low, high = (int(np.clip(np.rint(v / scale), least, most)) for v in (-below, above))
        return Quantizer(sign * scale, self.origin, low, high, signed)


def calibrate_ranges(
    network: Network,
    samples: npt.ArrayLike,
    input_range: tuple[float, float] | None = None,
    methods: Sequence[Method | None] | None = None,
) -> list[TensorRange]:
    """Ranges of the input and of every layer's output, from data.

    Parameters
    ----------
    network : Network
        As it will run, pruned and with shared weights.
        Ranges that it states are taken over, grid and all, unless a method is given. Limits of
        its input without a grid count for less than the samples.
    samples : (n, n_inputs) array
        Inputs as the network will see them; a thousand are plenty.
    input_range : (float, float), optional
        Limits of the input, in place of those of network and samples.
    methods : sequence of Method or None, optional
        Of the input and of each layer's output. None takes the extremes of the network's outputs,
        the least error elsewhere.

    Raises
    ------
    InputError
        Wrong shape, NaN, infinite, or all values equal.
    """
    x = as_samples("calibration data", samples, network.n_inputs)
    tensors = [x, *network.run_layers(x)]
    stated = _stated_ranges(network, input_range)
    if input_range is None and not network.input_levels:
        stated[0] = None
    chosen = list(methods or [None] * len(tensors))
    kinds = ["input", *["hidden"] * (len(tensors) - 2), "output"]
    ranges = [_range(*one) for one in zip(kinds, tensors, stated, chosen, strict=True)]
    return [_count(y, _tidy(one)) for y, one in zip(tensors, ranges, strict=True)]


def bound_ranges(
    network: Network, input_range: tuple[float, float] | None = None
) -> list[TensorRange]:
    """Ranges of the input and of every layer's output, as wide as the input's range allows.

    Parameters
    ----------
    network : Network
        Ranges that it states are taken over.
    input_range : (float, float), optional
        Limits of the input; those that the network states by default.
    """
    first, *stated = _stated_ranges(network, input_range)
    assert first is not None
    ranges = [_declared(first)]
    low, high = (np.full(network.n_inputs, side) for side in first[:2])
    for layer, own in zip(network.layers, stated, strict=True):
        weight = layer.weight.astype(np.float64)
        positive, negative = np.maximum(weight, 0), np.minimum(weight, 0)
        low, high = (
            activate(positive @ a + negative @ b + layer.bias, layer.activation, layer.limits)
            for a, b in ((low, high), (high, low))
        )
        if own is None:
            ranges.append(_around(float(low.min()), float(high.max()), "bounds"))
        else:
            ranges.append(_declared(own))
            low, high = np.clip(low, *own[:2]), np.clip(high, *own[:2])
    return [_tidy(one) for one in ranges]


def _stated_ranges(
    network: Network, input_range: tuple[float, float] | None
) -> list[Stated | None]:
    """Range of each tensor as the network states it, with `input_range` in place of the input's."""
    own = (network.input_range, network.input_levels)
    pairs = [
        own if input_range is None else (input_range, 0),
        *((layer.output_range, layer.output_levels) for layer in network.layers),
    ]
    return [None if limits is None else (*limits, levels) for limits, levels in pairs]


def _declared(stated: Stated, values: Floats | None = None) -> TensorRange:
    """The stated range with an origin that lets an engine number its grid without loss.

    The commonest value if it is clearly commoner than zero, else 0.0, else the lower end.
    """
    low, high, levels = stated
    if not levels:
        return _around(low, high, "declared")
    step = (high - low) / levels
    zero = round(-low / step)
    shares = np.zeros(levels + 1)
    if values is not None:
        steps = np.clip(np.rint((values.astype(np.float64) - low) / step), 0, levels)
        shares = np.bincount(steps.astype(np.int64).reshape(-1), minlength=levels + 1) / values.size
    best = int(np.argmax(shares))
    has_zero = 0 <= zero <= levels and abs(low + zero * step) < GRID_TOLERANCE * step
    share_of_zero = shares[zero] if has_zero else 0.0
    choices = [best] if shares[best] > share_of_zero + COMMON_SHARE else []
    choices += [zero] if has_zero else []
    place = next((place for place in choices if _fits(place, levels)), 0)
    origin = high if place == levels else low + place * step
    if has_zero and place == zero:
        origin = 0.0
    share = float(shares[place])
    return TensorRange(
        low=low, high=high, origin=origin, levels=levels, share=share, source="declared"
    )


def _fits(below: int, levels: int) -> bool:
    """Whether integers number a grid with this many steps below 0: 8 bits of 255, 16 of more."""
    least, most = activation_limits(8 if levels < GRID_LEVELS else 16, True)
    return below in (0, levels) or (below <= -least and levels - below <= most)


def _around(low: float, high: float, source: str) -> TensorRange:
    """Integer 0 stands for 0.0 where that lies in the range, else for the lower end.

    A tensor of one value gets a range of some width all the same.
    """
    origin = 0.0 if low <= 0 <= high else low
    if low == high:
        high = low + max(1.0, abs(low))
    return TensorRange(low=low, high=high, origin=origin, source=source)


def _tidy(one: TensorRange) -> TensorRange:
    """Short decimals, so that a file holds exactly what was computed.

    Origin and grid keep the nine digits of a float32; a clip limit is as good with five.
    """
    origin = float(f"{one.origin:.9g}") + 0.0
    low, high = (
        origin if side == one.origin else float(f"{side:.{9 if one.levels else 5}g}") + 0.0
        for side in (one.low, one.high)
    )
    if (low < origin, origin < high) != (one.low < one.origin, one.origin < one.high):
        return one
    return replace(one, low=low, high=high, origin=origin, share=round(one.share, 4))


def _count(values: Floats, one: TensorRange) -> TensorRange:
    """With the share of values that saturate, to four decimals."""
    quantizer = one.quantizer(SEARCH_BITS)
    steps = (values.astype(np.float64) - quantizer.origin) / quantizer.scale
    beyond = (steps < quantizer.low - 0.5) | (steps > quantizer.high + 0.5)
    return replace(one, saturated=round(float(beyond.mean()), 4))


def _limit(values: Floats, observed: TensorRange, method: Method) -> TensorRange:
    if method == "minmax":
        return observed
    if method == "error":
        return _clip(values, observed)
    assert isinstance(method, float | int)
    return _percentile(values, observed, method)


def _range(kind: str, values: Floats, stated: Stated | None, method: Method | None) -> TensorRange:
    """Range of one tensor: of the input, of a hidden layer, or of the outputs."""
    if stated is not None and method is None:
        if stated[2]:
            return _declared(stated, values)
        return _within(kind, values, *stated[:2])
    if kind == "output":
        return _limit(values, _output_range(values), method or "minmax")
    observed = _observe(values)
    if kind == "input":
        if observed.share == 1:
            raise InputError(
                f"calibration data is {observed.origin} everywhere, expected samples that span the "
                "input's range; or state it as `range` in the recipe's [input]"
            )
        on_grid = _snap(values, observed) if method in (None, *METHODS) else None
        if on_grid is not None:
            return on_grid
    return _limit(values, observed, method or "error")


def _within(kind: str, values: Floats, low: float, high: float) -> TensorRange:
    """Stated limits, with origin and grid as the values show them."""
    observed = _observe(values)
    origin = min(max(observed.origin, low), high)
    limited = replace(observed, low=low, high=high, origin=origin, source="declared")
    return (_snap(values, limited) if kind == "input" else None) or limited


def _observe(values: Floats) -> TensorRange:
    """Extremes, and the commonest value as origin if it is clearly commoner than zero."""
    distinct, counts = np.unique(values, return_counts=True)
    plain = _around(float(distinct[0]), float(distinct[-1]), "calibrated")
    best = int(np.argmax(counts))
    zero = float(counts[distinct == plain.origin].sum()) / values.size
    share = float(counts[best]) / values.size
    if share > zero + COMMON_SHARE:
        return replace(plain, origin=float(distinct[best]), share=share)
    return replace(plain, share=zero)


def _output_range(values: Floats) -> TensorRange:
    """Outputs keep all they can say: nothing is clipped, both sides of 0.0 are used fully.

    Nobody skips their zeros, so the commonest value gets no favour.
    """
    plain = _around(float(values.min()), float(values.max()), "calibrated")
    above, below = plain.high - plain.origin, plain.origin - plain.low
    if above and below:
        reach = max(above, below)
        plain = replace(plain, low=plain.origin - reach, high=plain.origin + reach)
    return replace(plain, share=float(np.mean(values == np.float32(plain.origin))))


def _snap(values: Floats, observed: TensorRange) -> TensorRange | None:
    """The range in whole steps of the grid on which all values lie; None if there is none."""
    offsets = np.unique(values).astype(np.float64) - observed.origin
    if not 2 <= len(offsets) <= GRID_LEVELS:
        return None
    step = float(np.diff(offsets).min())
    for _ in range(2):
        steps = np.rint(offsets / step)
        step = float(offsets @ steps / (steps @ steps))
    places = offsets / step
    below = round((observed.origin - observed.low) / step)
    above = round((observed.high - observed.origin) / step)
    off_grid = np.abs(places - np.rint(places)).max() > GRID_TOLERANCE
    if off_grid or not 0 < below + above < GRID_LEVELS:
        return None
    low, high = observed.origin - below * step, observed.origin + above * step
    if max(abs(low - observed.low), abs(high - observed.high)) < GRID_TOLERANCE * step:
        low, high = observed.low, observed.high
    return replace(observed, low=low, high=high, levels=below + above)


def _percentile(values: Floats, observed: TensorRange, percent: float) -> TensorRange:
    """Limits that hold `percent` of the values, and the origin."""
    tail = 1 - percent / 100
    origin = observed.origin
    ends = 2 if observed.low < origin < observed.high else 1
    low = min(origin, float(np.quantile(values, tail / ends, method="inverted_cdf")))
    high = max(origin, float(np.quantile(values, 1 - tail / ends, method="inverted_cdf")))
    if observed.low == origin:
        low = origin
    if observed.high == origin:
        high = origin
    return replace(observed, low=low, high=high) if low < high else observed


def _clip(values: Floats, observed: TensorRange) -> TensorRange:
    """Limits with the least squared error, on values spread evenly over the sorted ones."""
    spread = np.sort(values[values != np.float32(observed.origin)]).astype(np.float64)
    spread = spread[:: -(-len(spread) // SEARCH_VALUES) or 1]
    best, least = observed, np.inf
    for candidate in _candidates(observed):
        quantizer = candidate.quantizer(SEARCH_BITS)
        steps = np.rint((spread - quantizer.origin) / quantizer.scale)
        real = np.clip(steps, quantizer.low, quantizer.high) * quantizer.scale + quantizer.origin
        error = float(np.square(real - spread).sum())
        if error < least:
            best, least = candidate, error
    return best


def _candidates(observed: TensorRange) -> Iterator[TensorRange]:
    low, high, origin = observed.low, observed.high, observed.origin
    sides = {(low, high), (low, origin), (origin, high)}
    for bottom, top in sorted((b, t) for b, t in sides if b < t):
        reach = max(top - origin, origin - bottom)
        for clip in CLIPS:
            yield replace(
                observed,
                low=max(bottom, origin - float(clip) * reach),
                high=min(top, origin + float(clip) * reach),
            )
