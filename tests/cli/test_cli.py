"""The command line: what it prints, its exit codes, and names that would break a terminal."""

from __future__ import annotations

import json
import logging
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import boltgen.compiler
from boltgen import cli
from boltgen.build.progress import Lines, Silent
from boltgen.cli import machine
from boltgen.cli.inspect import region_lines
from boltgen.cli.terminal import console, ending
from boltgen.device.doctor import Finding, Verdict
from boltgen.errors import CompileError
from boltgen.intake.choices import CheckLevel
from boltgen.ir.dtypes import DType
from boltgen.options import CompileOptions
from boltgen.running.arrays import read_arrays, write_arrays
from boltgen.running.artifact import Artifact
from boltgen.tuning.session.budget import Budget
from tests.artifact.samples import HOSTILE, write_sample

runner = CliRunner()


@pytest.fixture
def sample(tmp_path: Path) -> Artifact:
    return write_sample(tmp_path / "sample")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as wide as they like: what is tested is words, not where lines break."""
    monkeypatch.setattr(console.out, "width", 400)
    monkeypatch.setattr(console.err, "width", 400)


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


def commands() -> list[tuple[str, ...]]:
    program: Any = typer.main.get_command(cli.app)
    found: list[tuple[str, ...]] = [()]
    for name, command in program.commands.items():
        found += [(name,), *((name, below) for below in getattr(command, "commands", ()))]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_help_fits_eighty_columns(command: tuple[str, ...]) -> None:
    result = runner.invoke(cli.app, [*command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert not re.search(r"[a-z]\.\.\.", result.output), "a sentence is cut short"


def test_usage_errors_end_with_status_2() -> None:
    assert runner.invoke(cli.app, ["compile"]).exit_code == 2
    assert runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d", "--jobs", "x"]).exit_code == 2
    assert runner.invoke(cli.app, ["fly"]).exit_code == 2


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
    more += ["--tune", "30s", "--device", "vgpu", "--no-fuse", "--no-pad"]
    more += ["--calibrate", "a.npz", "--calibrate", "b.npz", "--check", "full", "--trace", "t"]
    result = runner.invoke(cli.app, [*arguments, *more])
    assert result.exit_code == 0, result.output
    assert (heard["model"], heard["arch"]) == (Path("m.onnx"), "sm_86")
    options = heard["options"]
    assert isinstance(options, CompileOptions)
    assert options == CompileOptions(
        shapes={"x": (1, 2)},
        jobs=3,
        accumulate=DType.F16,
        fuse=False,
        pad=False,
        frontend="relay",
        tune=Budget(seconds=30),
        device="vgpu",
        calibrate=(Path("a.npz"), Path("b.npz")),
        check=CheckLevel.FULL,
        trace=Path("t"),
        reporter=options.reporter,
        observer=options.observer,
    )
    assert (tmp_path / "out" / "model.so").exists()
    assert "2 regions in 1 kernel for sm_80" in result.output
    assert str(tmp_path / "out" / "metadata.json") in result.output


def test_errors_are_sentences_and_end_with_the_status_of_their_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> Artifact:
        raise CompileError("nvcc failed on [bold]k[/bold]: oops")

    monkeypatch.setattr(boltgen.compiler, "compile", fail)
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d"])
    assert result.exit_code == 4
    assert result.output == "error: nvcc failed on [bold]k[/bold]: oops\n"
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d", "--debug"])
    assert result.exit_code == 4
    assert "CompileError: nvcc failed" in result.output
    assert "in compile_command" in result.output, "where it comes from"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Artifact:
        raise KeyboardInterrupt

    monkeypatch.setattr(boltgen.compiler, "compile", interrupt)
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", "d"])
    assert result.exit_code == 130
    assert "nothing half-written was kept" in result.output


def test_inspect_has_a_line_for_each_region(
    sample: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    result = runner.invoke(cli.app, ["inspect", str(sample.folder)])
    assert result.exit_code == 0, result.output
    head, *lines = result.output.splitlines()
    assert head.split() == ["operators", "M", "N", "K", "kernel", "us", "share"]
    first, second, whole, elsewhere, checked, audited, verdict = lines
    assert first.split() == ["matmul+relu", "1", "2", "3", "gemm", "64x64x32", "3.0", "25.0%"]
    assert second.split() == [
        *("conv2d+add+add+clip+div..", "8x1605632", "64+2048", "4608", "b2b", "128x64+2048"),
        *("9.0", "75.0%"),
    ]
    assert len(head) == len(first) == len(second) == 80
    assert whole.endswith("2 regions in 1 kernel, 12.0 us: 1 measured; 1 predicted")
    assert "[red]" in whole, "a name is text, not markup"
    assert "TVM computes: 1" in elsewhere
    assert checked.startswith("not checked")
    assert "not audited" in audited
    assert verdict.startswith("boltgen computes 80 % of")
    assert "\x1b" not in result.output


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_the_table_is_as_wide_as_its_numbers_and_no_wider_than_the_terminal(
    sample: Artifact, width: int
) -> None:
    head, first, second, _ = region_lines(sample.metadata, width)
    assert len(head) == len(first) == len(second)
    narrowest = len(next(region_lines(sample.metadata, 0)))
    assert len(head) <= max(width, narrowest)
    whole = "conv2d+add+add+clip+divide+multiply"
    assert second.startswith(whole) is (width >= 120)


def test_inspect_tells_everything_in_its_details(sample: Artifact) -> None:
    result = runner.invoke(cli.app, ["inspect", str(sample.folder), "--details"])
    assert result.exit_code == 0, result.output
    for text in ("matmul + relu", "64x64x32_32x32_s3", "the least predicted time"):
        assert text in result.output
    assert "1 x" in result.output
    assert "not a product" in result.output
    assert "link" in result.output
    assert str(sample.folder / "sources" / "k.cu") in result.output


def test_inspect_gives_programs_all_that_there_is(sample: Artifact) -> None:
    result = runner.invoke(cli.app, ["inspect", str(sample.folder), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    covered = found.pop("coverage")
    assert found == json.loads((sample.folder / "metadata.json").read_text(encoding="utf-8"))
    assert (covered["share"], covered["total_flops"]) == (0.8, 15)
    assert covered["verdict"].startswith("boltgen computes 80 %")


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
    write_arrays(tmp_path / "x.npz", {HOSTILE: np.ones((1, 2), np.float32)})
    out = tmp_path / "y.npz"
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz"), "-o", str(out)]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_arrays(out)["y"], np.full((1, 2), 2, np.float32))


def test_run_with_inputs_that_do_not_fit(sample: Artifact, tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", {"z": np.ones(2)})
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz")]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 1
    assert "the model takes" in result.output


def test_run_on_an_unknown_device(sample: Artifact, tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", {HOSTILE: np.ones((1, 2), np.float32)})
    arguments = ["run", str(sample.folder), "--inputs", str(tmp_path / "x.npz"), "--device", "tpu"]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 5
    assert "unknown device 'tpu'; the devices are 'vgpu' and 'cuda'" in result.output


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.OPTIONAL, 0), (Verdict.BROKEN, 1)])
def test_doctor_ends_with_status_1_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, status: int
) -> None:
    findings = [Finding("nvcc", Verdict.FINE, "13.0.88"), Finding("make", verdict, "apt it")]
    monkeypatch.setattr(machine, "examine", lambda *_: iter(findings))
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
    terminal = console.TextConsole()
    table = Table("[red]a\x1b[2J", "b")
    table.add_row(Text("x\x07\u202ey"), ":smile: [/] \x9b1m")
    terminal.print(table)
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(printed)
    assert "[red]a\ufffd[2" in printed
    assert ":smile: [/]" in printed


def test_numbers_that_no_option_takes(tmp_path: Path) -> None:
    for arguments in (
        ["compile", "m.onnx", "-o", "d", "--shape", "x=\u00b2"],
        ["compile", "m.onnx", "-o", "d", "--shape", f"x={2**31}"],
        ["compile", "m.onnx", "-o", "d", "--jobs", "0"],
        ["compile", "m.onnx", "-o", "d", "--jobs", "9" * 30],
        ["compile", "m.onnx", "-o", "d", "--accumulate", "int8"],
        ["compile", "m.onnx", "-o", "d", "--frontend", "tf"],
        ["compile", "m.onnx", "-o", "d", "--tune", "0s"],
        ["tune", "m.onnx", "--level", "most"],
    ):
        result = runner.invoke(cli.app, arguments)
        assert result.exit_code == 1
        assert len(result.output.splitlines()) == 1
        assert result.output.startswith("error: ")
    assert runner.invoke(cli.app, ["db", "query", "--limit", "9" * 30]).exit_code == 2
    result = runner.invoke(cli.app, ["compile", "m.onnx", "-o", str(tmp_path / ("d" * 5000))])
    assert result.exit_code == 1
    assert "cannot be written: File name too long" in result.output
    assert len(result.output) < 600


def commands() -> list[tuple[str, ...]]:
    """Every command, by the words that call it."""

    def below(command: object, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", {})
        return [words, *(found for name in inner for found in below(inner[name], (*words, name)))]

    return below(typer.main.get_command(cli.app), ())


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_in_80_columns_with_full_summaries(words: tuple[str, ...]) -> None:
    result = runner.invoke(cli.app, [*words, "-h"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") and not line.startswith("Usage") for line in lines)
    assert "--verbose" in result.output
    assert "--quiet" in result.output
    if words and "Commands:" not in result.output:
        assert "Example" in result.output
        assert f"boltgen {' '.join(words)}" in result.output


def test_the_version_is_printed() -> None:
    result = runner.invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"boltgen {version('boltgen')}\n")


def test_the_help_has_every_status() -> None:
    text = " ".join(runner.invoke(cli.app, ["-h"]).output.split())
    for status, meaning in ending.STATUSES.items():
        assert f"{status} {meaning}" in text


@pytest.mark.parametrize(
    "words", [["-q", "doctor"], ["doctor", "-q"], ["doctor"], ["doctor", "-v"]]
)
def test_quiet_has_no_progress_and_verbose_has_more(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    seen: list[tuple[object, int]] = []

    def examine(_: object, reporter: object) -> list[object]:
        seen.append((reporter, logging.getLogger("boltgen").level))
        return []

    monkeypatch.setattr("boltgen.cli.machine.examine", examine)
    assert runner.invoke(cli.app, words).exit_code == 0
    ((reporter, level),) = seen
    assert isinstance(reporter, Silent if "-q" in words else Lines)
    expected = {"-q": logging.CRITICAL, "-v": logging.INFO}
    assert level == next((expected[each] for each in words if each in expected), logging.WARNING)


def test_commands_are_completed() -> None:
    asked = {"_BOLTGEN_COMPLETE": "complete_bash", "COMP_WORDS": "boltgen ins", "COMP_CWORD": "1"}
    result = runner.invoke(cli.app, [], prog_name="boltgen", env=asked)
    assert result.output.split() == ["inspect"]
