"""The command line: what it prints, its exit codes, and names that would break a terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import boltgen.compiler
from boltgen import cli, cli_console
from boltgen.errors import CompileError
from boltgen.runtime.artifact import Artifact
from boltgen.runtime.doctor import Finding, Verdict
from tests.runtime.samples import HOSTILE, write_sample

runner = CliRunner()


@pytest.fixture
def sample(tmp_path: Path) -> Artifact:
    return write_sample(tmp_path / "sample")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as wide as they like: what is tested is words, not where lines break."""
    monkeypatch.setattr(cli_console.out, "width", 400)
    monkeypatch.setattr(cli_console.err, "width", 400)


def test_help_has_examples() -> None:
    for command, example in {
        "compile": "boltgen compile resnet50.onnx --arch sm_80 -o resnet50",
        "check": "boltgen check resnet50 --check full",
        "run": "boltgen run resnet50 --inputs image.npz --device vgpu",
        "inspect": "boltgen inspect resnet50",
        "doctor": "boltgen doctor",
    }.items():
        result = runner.invoke(cli.app, [command, "--help"])
        assert result.exit_code == 0
        assert example in " ".join(result.output.replace("\u2502", " ").split())


def test_usage_errors_end_with_status_2() -> None:
    assert runner.invoke(cli.app, ["compile"]).exit_code == 2
    assert runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d", "--jobs", "0"]).exit_code == 2
    assert runner.invoke(cli.app, ["fly"]).exit_code == 2


def test_shapes() -> None:
    assert cli_console.parse_shape("x=1,3,224,224") == ("x", (1, 3, 224, 224))
    assert cli_console.parse_shape("a=b=1") == ("a=b", (1,))
    for text in ("x", "x=", "=1", "x=1,,2", "x=1,-2", "x=one"):
        with pytest.raises(typer.BadParameter, match=r"is not of the form name=1,3,224,224"):
            cli_console.parse_shape(text)


def test_compile_passes_its_options_on(
    sample: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = {}

    def record(model: Path, **options: object) -> Artifact:
        heard.update(options, model=model)
        return sample

    monkeypatch.setattr(boltgen.compiler, "compile", record)
    arguments = ["compile", "m.onnx", "--arch", "sm_86", "-o", str(tmp_path / "out")]
    more = ["--shape", "x=1,2", "--jobs", "3", "--accumulate", "float16", "--frontend", "relay"]
    more += ["--tune", "30s", "--device", "vgpu", "--no-fuse", "--no-pad", "--check", "full"]
    result = runner.invoke(cli.app, [*arguments, *more])
    assert result.exit_code == 0, result.output
    del heard["reporter"], heard["observer"]
    assert heard == {
        "model": Path("m.onnx"),
        "arch": "sm_86",
        "shapes": {"x": (1, 2)},
        "jobs": 3,
        "accumulate": "float16",
        "fuse": False,
        "pad": False,
        "frontend": "relay",
        "tune": "30s",
        "device": "vgpu",
        "calibrate": [],
        "check": "full",
    }
    assert (tmp_path / "out" / "model.so").exists()
    assert "1 regions in 1 kernels for sm_80" in result.output
    assert str(tmp_path / "out" / "metadata.json") in result.output


def test_errors_are_sentences_and_end_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Artifact:
        raise CompileError("nvcc failed on [bold]k[/bold]: oops")

    monkeypatch.setattr(boltgen.compiler, "compile", fail)
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d"])
    assert result.exit_code == 1
    assert result.output == "error: nvcc failed on [bold]k[/bold]: oops\n"
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d", "--debug"])
    assert result.exit_code == 1
    assert "CompileError: nvcc failed" in result.output
    assert "in compile_command" in result.output, "where it comes from"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Artifact:
        raise KeyboardInterrupt

    monkeypatch.setattr(boltgen.compiler, "compile", interrupt)
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d"])
    assert result.exit_code == 130
    assert "nothing half-written was kept" in result.output


def test_inspect_shows_where_each_operator_runs(sample: Artifact) -> None:
    result = runner.invoke(cli.app, ["inspect", str(sample.folder)])
    assert result.exit_code == 0, result.output
    for text in ("matmul + relu", "boltgen", "64x64x32", "the least predicted time", "TVM"):
        assert text in result.output
    assert "not a product" in result.output
    assert "link" in result.output
    assert str(sample.folder / "sources" / "k.cu") in result.output
    assert "[red]" in result.output, "a name is text, not markup"


def test_inspect_of_what_is_no_artifact(tmp_path: Path) -> None:
    result = runner.invoke(cli.app, ["inspect", str(tmp_path)])
    assert result.exit_code == 1
    assert "is no compiled model" in result.output


def test_run_writes_outputs(
    sample: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Artifact, "run", lambda self, inputs, device: {"y": inputs[HOSTILE] * 2, "e": np.ones(0)}
    )
    cli.write_arrays(tmp_path / "x.npz", {HOSTILE: np.ones((1, 2), np.float32)})
    out = tmp_path / "y.npz"
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz"), "-o", str(out)]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(cli.read_arrays(out)["y"], np.full((1, 2), 2, np.float32))


def test_run_with_inputs_that_do_not_fit(sample: Artifact, tmp_path: Path) -> None:
    cli.write_arrays(tmp_path / "x.npz", {"z": np.ones(2)})
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz")]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 1
    assert "the model takes" in result.output


def test_run_on_an_unknown_device(sample: Artifact, tmp_path: Path) -> None:
    cli.write_arrays(tmp_path / "x.npz", {HOSTILE: np.ones((1, 2), np.float32)})
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz"), "--device", "tpu"]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 1
    assert "unknown device 'tpu'; the devices are 'vgpu' and 'cuda'" in result.output


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.OPTIONAL, 0), (Verdict.BROKEN, 1)])
def test_doctor_ends_with_status_1_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, status: int
) -> None:
    findings = [Finding("nvcc", Verdict.FINE, "13.0.88"), Finding("make", verdict, "apt it")]
    monkeypatch.setattr(cli, "examine", lambda *_: iter(findings))
    result = runner.invoke(cli.app, ["doctor"])
    assert result.exit_code == status
    assert "13.0.88" in result.output
    assert "apt it" in result.output


def test_an_internal_error_is_two_lines_and_a_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> Artifact:
        raise RecursionError("too deep")

    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(boltgen.compiler, "compile", fail)
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", str(tmp_path / "d")])
    assert result.exit_code == 70
    (report,) = (tmp_path / "reports").iterdir()
    first, second = result.output.splitlines()
    assert first == "internal error, which is boltgen's fault: RecursionError: too deep"
    assert str(report) in second
    assert "in compile_command" in report.read_text()


def test_names_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = cli_console.TextConsole()
    table = Table("[red]a\x1b[2J", "b")
    table.add_row(Text("x\x07\u202ey"), ":smile: [/] \x9b1m")
    console.print(table)
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(printed)
    assert "[red]a\ufffd[2" in printed
    assert ":smile: [/]" in printed


def test_numbers_that_no_option_takes(tmp_path: Path) -> None:
    for arguments in (
        ["compile", "m.onnx", "-o", "d", "--shape", "x=\u00b2"],
        ["compile", "m.onnx", "-o", "d", "--shape", f"x={2**31}"],
        ["compile", "m.onnx", "-o", "d", "--jobs", "9" * 30],
        ["db", "query", "--limit", "9" * 30],
    ):
        assert runner.invoke(cli.app, arguments).exit_code == 2
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", str(tmp_path / ("d" * 5000))])
    assert result.exit_code == 1
    assert "cannot be written: File name too long" in result.output
    assert len(result.output) < 600
