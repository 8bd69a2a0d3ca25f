"""`boltgen tune` on the virtual GPU: kernels compiled, checked, timed, remembered, chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import boltgen
from boltgen import cli
from boltgen.cli.terminal import console
from boltgen.ir.outcome import Timing
from boltgen.settings import settings_from
from boltgen.stored import database_path
from models.onnx_graph import GraphBuilder
from models.parameters import RandomParameters


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense layer with a ReLU: a single task."""
    graph = GraphBuilder("dense", parameters=RandomParameters(seed=3))
    x = graph.input("x", (48, 104))
    graph.output(graph.relu(graph.linear(x, "dense", features=72), "relu"), "y")
    path = tmp_path_factory.mktemp("tune") / "dense.onnx"
    onnx.save(graph.build(), path)
    return path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dense layers with a ReLU each: two tasks, and a chain of them."""
    graph = GraphBuilder("chain", parameters=RandomParameters(seed=4))
    x = graph.input("x", (80, 48))
    for name in ("first", "second"):
        x = graph.relu(graph.linear(x, name, features=48), f"{name}_relu")
    graph.output(x, "y")
    path = tmp_path_factory.mktemp("tune") / "chain.onnx"
    onnx.save(graph.build(), path)
    return path


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has measured nothing yet."""
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    for each in (console.out, console.err):
        monkeypatch.setattr(each, "width", 400)


def test_a_model_is_tuned_and_compiled_with_what_was_found(model, tmp_path):
    arguments = ["tune", str(model), "--device", "vgpu", "--budget", "6trials", "--level", "quick"]
    arguments += ["--rest", "off"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "relu(add(acc, row0))" in result.output

    again = boltgen.tune(model, budget="1trials", device="vgpu", level="quick", rest="off")
    assert (again.reused, again.measured) == (6, 1)
    (task,) = again.results
    assert task.best is not None
    assert not task.failures

    artifact = boltgen.compile(model, reuse=False)
    (region,) = artifact.metadata.regions
    # Beside the product's kernel there are those of the moves of x and y.
    (kernel,) = (each for each in artifact.metadata.kernels if each.symbol == region.kernel)
    assert "modelled by the virtual GPU" in region.why
    best = task.best.config
    assert kernel.config == str(best.kernel)
    assert region.config == str(best)
    x = np.random.default_rng(0).standard_normal((48, 104)).astype(np.float32)
    outputs = artifact.run({"x": x}, device="vgpu")
    assert outputs["y"].shape == (48, 72)
    assert outputs["y"].max() > 0


def test_a_chain_is_measured_against_its_layers_and_compiled_as_what_is_faster(chain):
    # Five plain kernels, then both layers and the chain as they ship.
    artifact = boltgen.compile(chain, tune="8trials", device="vgpu", rest="off")
    with boltgen.Database(database_path(settings_from())) as database:
        known = list(database.records())
    assert len(known) == 8
    shipped_us = {
        record.trial.workload: record.outcome.median_us
        for record in known
        if isinstance(record.outcome, Timing)
        and not record.trial.workload.first.epilogue.is_identity
    }
    (fused_us,) = (us for workload, us in shipped_us.items() if workload.is_fused)
    apart_us = sum(us for workload, us in shipped_us.items() if not workload.is_fused)
    assert len(shipped_us) == 3
    assert fused_us < apart_us, "one launch instead of two"
    (region,) = artifact.metadata.regions
    assert region.problem.count("Gemm(") == 2
    assert f"{fused_us:.1f} us, modelled by the virtual GPU as " in region.why
    (note,) = {placed.reason for placed in artifact.metadata.placements if placed.region}
    assert note.startswith(
        f"one kernel for 2 products: {fused_us:.1f} us against {apart_us:.1f} us apart, "
    )
    assert "modelled by the virtual GPU as " in note

    x = np.random.default_rng(0).standard_normal((80, 48)).astype(np.float32)
    fused = artifact.run({"x": x}, device="vgpu")["y"]
    apart = boltgen.compile(chain, fuse=False, reuse=False)
    assert len(apart.metadata.regions) == 2
    # Both round the first layer's result to FP16; an ulp of that, and one of the output.
    unfused = apart.run({"x": x}, device="vgpu")["y"]
    assert np.abs(fused - unfused).max() <= 2 * 2.0**-10 * np.abs(unfused).max()
