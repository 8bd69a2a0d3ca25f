"""A kernel that fails its check does not ship; a library that was changed is found out."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import boltgen
from boltgen import pipeline
from boltgen.artifact.checked import LibraryCheck
from boltgen.artifact.metadata import FILE_NAME, read_metadata
from boltgen.cli import program as cli
from boltgen.cli.terminal import console
from boltgen.errors import BoltgenError
from boltgen.families.source import KernelSource, render_kernel
from boltgen.intake.choices import CheckLevel
from boltgen.ir.kernel import KernelSpec
from boltgen.options import CompileOptions
from boltgen.running.artifact import LIBRARY, Artifact, file_digest
from models.onnx_graph import GraphBuilder
from models.parameters import RandomParameters
from tests.artifact.samples import write_sample
from tests.check import sabotage

SHAPE = (24, 72)
runner = CliRunner()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense layer."""
    graph = GraphBuilder("dense", parameters=RandomParameters(0))
    x = graph.input("input", SHAPE)
    graph.output(graph.relu(graph.gemm(x, "dense", features=40), "relu"), "output")
    path = tmp_path_factory.mktemp("dense") / "dense.onnx"
    onnx.save(graph.build(), path)
    return path


@pytest.fixture(scope="module")
def artifact(network: Path) -> Artifact:
    return boltgen.compile(network, check="full", reuse=False)


def check_of(artifact: Artifact) -> LibraryCheck:
    assert artifact.metadata.check is not None
    return artifact.metadata.check


def test_what_ships_was_executed(artifact: Artifact, tmp_path: Path) -> None:
    (region,) = artifact.metadata.regions
    check = check_of(artifact)
    assert check.passed
    assert check.level is CheckLevel.FULL
    # The kernel, and the layout transform of its input.
    (kernel, move) = check.kernels
    assert kernel.symbol == region.kernel
    assert move.symbol.startswith("boltgen_move_nhwc_f32_to_nhwc_f16_")
    assert len(kernel.launches) == len(move.launches) == 2
    assert check.replaced == ()
    # The model in FP16 against TVM's in FP32: roundings, and nothing else.
    assert check.model is not None
    assert check.model.error is not None
    assert 0.0 < check.model.error < 2.0**-8
    saved = Artifact.load(artifact.save(tmp_path / "saved"))
    assert saved.metadata.check == check


def test_an_equal_object_is_not_executed_again(network: Path, artifact: Artifact) -> None:
    again = check_of(boltgen.compile(network, reuse=False))
    assert again.level is CheckLevel.KERNELS
    for kernel, before in zip(again.kernels, check_of(artifact).kernels, strict=True):
        assert kernel.earlier
        assert kernel.launches == before.launches
        assert kernel.checked_at <= before.checked_at
    assert "by an earlier check of the same object" in str(again)


def test_without_a_check_nothing_is_executed(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boltgen.check.ship.check_kernels", None)
    check = check_of(boltgen.compile(network, check="none", reuse=False))
    assert check == LibraryCheck(level=CheckLevel.NONE)
    assert "not checked" in str(check)


def test_a_kernel_that_fails_is_replaced(
    network: Path,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = artifact.metadata.regions[0].kernel

    def render(spec: KernelSpec) -> KernelSource:
        source = render_kernel(spec)
        return sabotage.wrong_constant(source) if source.symbol == first else source

    monkeypatch.setattr(pipeline, "render_kernel", render)
    with caplog.at_level(logging.WARNING):
        replaced = boltgen.compile(network, reuse=False)
    (region,) = replaced.metadata.regions
    assert region.kernel != first
    check = check_of(replaced)
    assert check.passed
    assert check.kernels[0].symbol == region.kernel
    assert first not in {kernel.symbol for kernel in check.kernels}
    (sentence,) = check.replaced
    assert first in sentence
    assert region.kernel in sentence
    assert first in caplog.text
    inputs = {"input": np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)}
    boltgen.activate("vgpu")
    (found,), (expected,) = (each.run(inputs).values() for each in (replaced, artifact))
    # An ulp of FP16 where a sum is rounded the other way.
    np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-12)


@pytest.fixture
def changed(artifact: Artifact, tmp_path: Path) -> Path:
    """The artifact with a library in whose PTX every sum is a difference."""
    folder = artifact.save(tmp_path / "changed")
    library = folder / LIBRARY
    contents = library.read_bytes()
    assert b"add.f32 " in contents
    library.write_bytes(contents.replace(b"add.f32 ", b"sub.f32 "))
    return folder


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "width", 1000)
    monkeypatch.setattr(console.err, "width", 1000)


def test_the_command_names_the_kernel_of_a_changed_library(
    artifact: Artifact, changed: Path, tmp_path: Path
) -> None:
    symbol = artifact.metadata.regions[0].kernel
    result = runner.invoke(cli.app, ["check", str(changed)])
    assert result.exit_code == 3, result.output
    assert "SHA-256" in result.output
    assert f"1 of 2 kernels FAILED the check: {symbol}" in result.output

    form = json.loads((changed / FILE_NAME).read_text())
    form["library_sha256"] = file_digest(changed / LIBRARY)
    (changed / FILE_NAME).write_text(json.dumps(form))
    result = runner.invoke(cli.app, ["check", str(changed), "--check", "full"])
    assert result.exit_code == 3, result.output
    assert "SHA-256" not in result.output
    assert symbol in result.output

    untouched = artifact.save(tmp_path / "untouched")
    result = runner.invoke(cli.app, ["check", str(untouched)])
    assert result.exit_code == 0, result.output
    assert symbol in result.output
    assert "earlier" not in result.output, "it is executed whatever was checked before"


def test_inspect_says_what_was_checked(artifact: Artifact, tmp_path: Path) -> None:
    saved = artifact.save(tmp_path / "saved")
    result = runner.invoke(cli.app, ["inspect", str(saved)])
    assert str(read_metadata(saved).check) in result.output


def test_an_old_artifact_cannot_be_checked(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "sample")
    result = runner.invoke(cli.app, ["check", str(sample.folder)])
    assert result.exit_code == 1
    assert "kernel k" in result.output
    (sample.folder / LIBRARY).unlink()
    result = runner.invoke(cli.app, ["check", str(sample.folder)])
    assert result.exit_code == 1
    assert LIBRARY in result.output


def test_levels_have_names() -> None:
    assert CompileOptions().check is CheckLevel.KERNELS
    assert CompileOptions(check="full").check is CheckLevel.FULL
    with pytest.raises(BoltgenError, match=r"'some'.*none, kernels, full"):
        CompileOptions(check="some")
