"""`boltgen tune` on the virtual GPU: kernels compiled, checked, timed, remembered, chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import boltgen
from boltgen import cli, cli_console
from boltgen.space.library import Level
from boltgen.tune.session import SessionOptions
from models.onnx_graph import GraphBuilder, RandomParameters


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense layer with a ReLU: a single task."""
    graph = GraphBuilder("dense", parameters=RandomParameters(seed=3))
    x = graph.input("x", (48, 104))
    graph.output(graph.relu(graph.linear(x, "dense", features=72), "relu"), "y")
    path = tmp_path_factory.mktemp("tune") / "dense.onnx"
    onnx.save(graph.build(), path)
    return path


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has measured nothing yet."""
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    for console in (cli_console.out, cli_console.err):
        monkeypatch.setattr(console, "width", 400)


def test_a_model_is_tuned_and_compiled_with_what_was_found(model, tmp_path):
    arguments = ["tune", str(model), "--device", "vgpu", "--budget", "6trials", "--level", "quick"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "relu(add(acc, row0))" in result.output

    options = SessionOptions(level=Level.QUICK)
    again = boltgen.tune(model, budget="1trials", device="vgpu", options=options)
    assert (again.reused, again.measured) == (6, 1)
    (task,) = again.results
    assert task.best is not None
    assert not task.failures

    artifact = boltgen.compile(model, reuse=False)
    (region,) = artifact.metadata.regions
    (kernel,) = artifact.metadata.kernels
    assert "modelled by the virtual GPU" in region.why
    assert str(task.best.config).removesuffix(f"_split{task.best.config.split_k}") in kernel.config
    x = np.random.default_rng(0).standard_normal((48, 104)).astype(np.float32)
    outputs = artifact.run({"x": x}, device="vgpu")
    assert outputs["y"].shape == (48, 72)
    assert outputs["y"].max() > 0
