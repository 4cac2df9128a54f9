# SPDX-License-Identifier: BSD-2-Clause
"""EIE's nine layers: made as the paper's table says, run on the board's engine with more memory."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from gossamer.bench import eie
from gossamer.bench.eie_layers import LAYERS, SIGMA, Shape, Work, even, single, uneven
from gossamer.boards.common import find_board
from gossamer.host import golden
from gossamer.host.cli import app
from gossamer.rtl.formats import COUNTER_NAMES
from typer.testing import CliRunner


def test_the_engine_is_the_boards_but_for_memory_depths() -> None:
    board, bench = asdict(find_board(eie.BOARD).config), asdict(eie.eie_config())
    different = {name for name in board if board[name] != bench[name]}
    assert different <= {
        "weight_depth", "rows_per_pe", "column_words", "input_depth", "output_depth", *eie.PENDING
    }  # fmt: skip


@pytest.mark.parametrize("densities", [even, uneven])
@pytest.mark.parametrize("shape", [shape for shape in LAYERS if shape.outputs < 2000])
def test_layers_are_as_the_table_says(densities, shape: Shape) -> None:
    work = single(shape, densities, seed=3)
    (layer,) = work.network.layers
    assert (layer.n_cols, layer.n_rows) == (shape.inputs, shape.outputs)
    assert len(layer.codes) == pytest.approx(shape.weights * shape.inputs * shape.outputs, rel=0.01)
    assert np.count_nonzero(work.q) == round(shape.activations * shape.inputs)
    assert len(set(layer.codebook.tolist())) == 16
    assert np.count_nonzero(layer.codebook > 0) == 8
    assert layer.codebook.all()
    outputs = golden.run(work.network, work.q[None])[0]
    assert np.count_nonzero(outputs) == pytest.approx(0.35 * shape.outputs, rel=0.02)
    assert np.count_nonzero(outputs == layer.high) <= 0.01 * shape.outputs
    assert not same(work, single(shape, densities, seed=4))


def same(a: Work, b: Work) -> bool:
    return np.array_equal(a.network.layers[0].row_indices, b.network.layers[0].row_indices)


def test_uneven_densities_are_log_normal() -> None:
    """Relative deviations of rows' nonzeros: chance alone with even ones, far more with uneven."""
    shape = LAYERS[5]
    spread = []
    for densities in (even, uneven):
        (layer,) = single(shape, densities, seed=1).network.layers
        rows = np.bincount(layer.row_indices, minlength=layer.n_rows)
        spread.append(rows.std() / rows.mean())
    assert spread[0] == pytest.approx(((1 - shape.weights) / shape.weights / 4096) ** 0.5, rel=0.1)
    assert spread[1] == pytest.approx(np.sqrt(np.exp(SIGMA**2) - 1), rel=0.25)


@pytest.mark.cocotb
def test_figures_of_the_bench(monkeypatch) -> None:
    """The smallest layers on eight PEs: the whole bench on 64 takes ten minutes."""
    small = [shape for shape in LAYERS if shape.name in ("NT-We", "NT-LSTM")]
    monkeypatch.setattr(eie, "LAYERS", small)
    monkeypatch.setattr(eie, "N_SEEDS", 1)
    monkeypatch.setitem(eie.PENDING, "n_pes", 8)
    monkeypatch.setitem(eie.DEPTHS, "rows_per_pe", 512)
    result = CliRunner().invoke(app, ["bench", "eie", "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["multipliers"] == 8
    for rows, geomean in (("layers", "geomean"), ("uneven", "uneven_geomean")):
        assert [row["name"] for row in document[rows]] == [shape.name for shape in small]
        for row in document[rows]:
            (run,) = row["runs"]
            assert set(run["losses"]) == set(COUNTER_NAMES) - {"cycles"}
            assert sum(run["losses"].values()) == document["multipliers"] * run["cycles"]
            assert run["losses"]["busy"] == run["active_nonzeros"]
            assert run["losses"]["filler"] == 0
            assert run["model_cycles"] == run["cycles"]
            busy = row["losses"]["busy"] / document["multipliers"] / row["cycles"]
            assert row["slot_efficiency"] == pytest.approx(busy, rel=0.01)
        assert document[geomean] >= 0.95
