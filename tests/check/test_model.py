"""The run of a whole model in a worker: its findings, and the words for a run that ends badly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import boltgen
from benchmarks.cases.relax_modules import build
from boltgen.check import model
from boltgen.check.model import check_model
from boltgen.running.artifact import Artifact
from tests.measure.misbehaving import WAYS, misbehaving


def module() -> tvm.IRModule:
    return build({"x": ((96, 40), "float16")}, lambda x: relax.op.exp(relax.op.sin(x)))


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return boltgen.compile(module(), arch="sm_80", check="none", rest="off")


def test_a_right_model_passes(artifact: Artifact) -> None:
    found = check_model(artifact, lambda inputs: [np.exp(np.sin(inputs[0].astype(np.float32)))])
    assert found.faults == ()
    assert found.error is not None and found.error < 1e-2


def test_an_artefact_that_cannot_be_loaded_is_a_fault(tmp_path: Path) -> None:
    outputs, (fault,) = model._run(tmp_path / "gone", {})
    assert outputs is None
    assert fault.startswith("the run failed: ")
    assert "gone" in fault


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_gives_no_answer_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    monkeypatch.setattr(model, "_MOST_SECONDS", 0.5 if way == "hangs" else 60.0)
    monkeypatch.setattr(model, "local_worker", lambda _: misbehaving(None, way))
    outputs, (fault,) = model._run(tmp_path, {})
    assert outputs is None
    assert fault.startswith(f"the run failed: {WAYS[way][2]}")
    assert "about to misbehave" in fault
