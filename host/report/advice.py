# SPDX-License-Identifier: BSD-2-Clause
"""What a layer's figures mean: a sentence wherever sparse does not win, and where it would."""

from dataclasses import dataclass

from ...rtl.config import EngineConfig

__all__ = ["GAIN", "Form", "LayerExplanation", "advise"]

GAIN = 0.9
"""Share of the dense cycles below which sparse gains: less is within the error of an estimate."""


@dataclass(frozen=True)
class Form:
    """A layer's weights in one structure, on the unit that is faster for it.

    Parameters
    ----------
    unit : str
        ``"array"`` or ``"tile"``.
    cycles : float
    bytes : int
        Of index, codes and codebook in a file.
    dropped : int
        Nonzero weights that the structure has no place for.
    """

    unit: str
    cycles: float
    bytes: int
    dropped: int


@dataclass(frozen=True)
class LayerExplanation:
    """What is known of a layer without running it.

    Parameters
    ----------
    layer, structure, unit : str
        As it is stored, and where it runs.
    density : float
        Share of nonzero weights.
    zero_is, zero_share : float
        Commonest input value, which is integer 0, and its share in the calibration data.
    bytes : int
        Of index, codes and codebook.
    cycles : float
        As stored.
    parts : dict
        See `estimate.Estimate`.
    limit : str
        Which part it waits for.
    forms : dict
        `Form` of each of `FORMS`.
    cycles_below, bytes_below : float or None
        Density below which unstructured beats dense; None if it never does.
    lost_bits : dict
        Codebook bits, of 16, lost to the overflow bound, by bits of a sum.
    advice : str
        Empty where sparse wins.
    """

    layer: str
    structure: str
    unit: str
    density: float
    zero_is: float
    zero_share: float
    bytes: int
    cycles: float
    parts: dict[str, float]
    limit: str
    forms: dict[str, Form]
    cycles_below: float | None
    bytes_below: float | None
    lost_bits: dict[int, int]
    advice: str


def advise(layer: LayerExplanation, rows: int, columns: int, config: EngineConfig) -> str:
    """A sentence on cycles and bytes if sparse does not win both; empty if it does.

    Parameters
    ----------
    layer : LayerExplanation
    rows, columns : int
        Outputs and inputs of the layer.
    config : EngineConfig
    """
    parts = [part for part in (_on_cycles(layer, rows, columns, config), _on_bytes(layer)) if part]
    if not parts:
        return ""
    return f"{layer.layer} ({layer.density:.1%} of the weights left) " + "; ".join(parts)


def _on_cycles(layer: LayerExplanation, rows: int, columns: int, config: EngineConfig) -> str:
    dense, pairs, sparse = (layer.forms[name] for name in ("dense", "2:4", "unstructured"))
    if sparse.cycles >= GAIN * dense.cycles:
        if layer.cycles_below is None:
            return (
                "gains no cycles from zeros, and would at no density: "
                f"{_reason(layer, rows, columns, config)}"
            )
        at = " on the tile" if dense.unit == "tile" else ""
        return (
            f"gains no cycles from zeros: dense{at} takes {dense.cycles:,.0f}, unstructured "
            f"{sparse.cycles:,.0f}; below {layer.cycles_below:.0%} of the weights it would gain"
        )
    if pairs.cycles < sparse.cycles and pairs.dropped == 0 and layer.structure != "2:4":
        return (
            f"would be faster as 2:4: {pairs.cycles:,.0f} cycles against {sparse.cycles:,.0f} "
            "unstructured"
        )
    if layer.structure == "dense" and layer.unit == "array":
        return (
            f"gains no cycles because it is stored dense: unstructured it would take "
            f"{sparse.cycles:,.0f} instead of {layer.cycles:,.0f}, and gain below "
            f"{layer.cycles_below or 0:.0%} of the weights"
        )
    return ""


def _reason(layer: LayerExplanation, rows: int, columns: int, config: EngineConfig) -> str:
    longest = max(("broadcast", "drain", "latency"), key=lambda name: layer.parts[name])
    nonzero = (1 - layer.zero_share) * columns
    if longest == "broadcast" and layer.parts["broadcast"] > 1.2 * nonzero:
        return (
            f"reading its {columns} inputs takes {layer.parts['broadcast']:,.0f} cycles, and no PE "
            "has more to do"
        )
    if longest == "broadcast":
        return (
            f"each of its {layer.parts['broadcast']:,.0f} nonzero inputs takes a cycle to reach "
            f"the PEs, and with {rows} rows on {config.n_pes} PEs none has more than that to do"
        )
    if longest == "drain":
        return f"it waits until each PE has drained its share of {rows} rows"
    return (
        f"the way through the engine takes {layer.parts['latency']:,.0f} cycles, more than its work"
    )


def _on_bytes(layer: LayerExplanation) -> str:
    dense, sparse = layer.forms["dense"], layer.forms["unstructured"]
    if sparse.bytes < dense.bytes:
        return ""
    if layer.bytes_below is None:
        return (
            f"takes {dense.bytes:,} bytes dense and {sparse.bytes:,} unstructured, "
            "and is too small to gain at any density"
        )
    return (
        f"takes {dense.bytes:,} bytes dense and {sparse.bytes:,} unstructured, which gains below "
        f"{layer.bytes_below:.0%} of the weights"
    )
