"""`boltgen tune`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from boltgen import cli, tuner
from boltgen.ir.outcome import Failure, Fault
from boltgen.pipeline import tasks_of
from tests.tuner.dense_model import regions_of_model
from tests.tuning.fakes import FakeBench, formula_us
from tests.tuning.samples import A100


def run_command(monkeypatch: pytest.MonkeyPatch, bench: FakeBench, *more: str) -> tuple[int, str]:
    monkeypatch.setattr(tuner, "open_vgpu", lambda arch, how: bench)
    tasks = tasks_of(regions_of_model())
    monkeypatch.setattr(tuner, "import_model", lambda *_: None)
    monkeypatch.setattr(tuner, "tasks_of_model", lambda *_: tasks)
    arguments = ["tune", "m.onnx", "--device", "vgpu", "--budget", "5000trials"]
    arguments += ["--rest", "off", *more]
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, result.output


def test_the_command_shows_what_was_found(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    bench = FakeBench()
    status, text = run_command(monkeypatch, bench)
    assert status == 0, text
    assert "gemm 64x128x128" in text
    assert "relu(acc)" in text
    assert f"times measured on {A100.name} (sm_80); all products, each by itself," in text
    assert f"{len(bench.trials)} trials in" in text
    assert "0 of them failed; 0 were known" in text
    assert data.is_file()
    status, text = run_command(monkeypatch, FakeBench())
    assert f"0 of them failed; {len(bench.trials)} were known" in text


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Failure(fault=Fault.DEVICE_LOST, reason="the GPU has fallen off the bus")
    left = iter(range(5))
    bench = FakeBench(lambda trial: formula_us(trial) if next(left, None) is not None else lost)
    status, text = run_command(monkeypatch, bench)
    assert status == 0, text
    assert "warning: the device was lost: the GPU has fallen off the bus" in text
    assert "ended early: the device was lost" in text
    assert "what was measured is kept" in text
    assert "none: not reached within the budget" in text

    def interrupted(trial: object) -> float:
        raise KeyboardInterrupt

    status, text = run_command(monkeypatch, FakeBench(interrupted))
    assert status == 130
    assert "interrupted; what was measured is kept: the same command goes on from there" in text
    status, text = run_command(monkeypatch, FakeBench(), "--budget", "0s")
    assert status == 1
    assert "error: a budget of 0s measures nothing" in text


def test_help_is_pleasant() -> None:
    text = CliRunner().invoke(cli.app, ["tune", "--help"], terminal_width=200).output
    words = " ".join(text.replace("\u2502", " ").split())
    for said in (
        "boltgen tune resnet50.onnx --arch sm_80 --budget 120s",
        "Nothing is measured twice",
        "How long: 120s, 10min, 1h, or a number of trials like 500trials",
        "recorded:FILE",
    ):
        assert said in words


@pytest.mark.parametrize("device", ["cuda:\u00b2", "cuda:", "cuda:" + "9" * 30, "recorded:", "tpu"])
def test_a_device_that_is_none_is_refused_before_anything_is_loaded(device: str) -> None:
    result = CliRunner().invoke(cli.app, ["tune", "missing.onnx", "--device", device])
    assert result.exit_code == 5
    assert "unknown device" in result.output
    assert "recorded:FILE" in " ".join(result.output.split())
