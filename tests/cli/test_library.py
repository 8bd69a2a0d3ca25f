"""`boltgen library`: what it prints and how it ends, with a compiler that is a shell script."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from boltgen import cli
from boltgen.cli import library
from boltgen.cli.terminal import console
from tests.build.fakes import FAIL, fake_toolchain

runner = CliRunner()


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a cache of his own and a fake nvcc."""
    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "cache"))
    use(monkeypatch, fake_toolchain(tmp_path / "toolkit"))
    for each in (console.out, console.err):
        monkeypatch.setattr(each, "width", 400)


def use(monkeypatch: pytest.MonkeyPatch, tools) -> None:
    monkeypatch.setattr(library, "find_toolchain", lambda _: tools)


def run(*arguments: str):
    return runner.invoke(cli.app, ["library", *arguments])


def test_help_has_examples():
    for command, example in {
        "build": "boltgen library build --arch sm_86 --ops gemm --level full --jobs 16",
        "export": "boltgen library export sm80.boltgen-library --arch sm_80",
        "import": "boltgen library import sm80.boltgen-library",
    }.items():
        result = run(command, "--help")
        assert example in " ".join(result.output.replace("\u2502", " ").split())


def test_build_list_export_and_import(tmp_path, monkeypatch):
    built = run("build", "--arch", "sm_80", "--level", "quick", "--jobs", "2")
    assert built.exit_code == 0, built.output
    assert "39 kernels for sm_80: 6 units compiled, 0 were there" in built.output
    assert "[6/6] kernel library" in built.output
    again = run("build", "--level", "quick")
    assert "39 kernels for sm_80: 0 units compiled, 6 were there" in again.output
    run("build", "--level", "quick", "--arch", "sm_75", "--ops", "conv2d")
    listed = run("list").output
    rows = [line for line in listed.splitlines() if "sm_" in line]
    # Convolutions and products include other headers: each has a row.
    cells = [[cell.strip() for cell in row.split("\u2502")] for row in rows]
    assert sorted((row[1], row[3], row[-2]) for row in cells) == [
        ("sm_75", "13", "in use"),
        ("sm_80", "13", "in use"),
        ("sm_80", "26", "in use"),
    ]
    archive = tmp_path / "l.tgz"
    exported = run("export", str(archive), "--arch", "sm_80")
    assert exported.exit_code == 0, exported.output
    assert f"39 kernels in {archive}" in exported.output
    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "elsewhere"))
    imported = run("import", str(archive))
    assert imported.output == "6 units are new, 0 were there\n"
    assert run("import", str(archive)).output == "0 units are new, 6 were there\n"


def test_other_alignments():
    built = run("build", "--level", "quick", "--ops", "conv2d", "--alignments", "8,2")
    # 13 of each, but one of alignment 2 would spill registers.
    assert "25 kernels for sm_80: 4 units compiled" in built.output


def test_a_library_of_another_toolchain_is_listed_as_such(tmp_path, monkeypatch):
    from dataclasses import replace

    run("build", "--level", "quick", "--ops", "gemm")
    tools = fake_toolchain(tmp_path / "toolkit")
    use(monkeypatch, replace(tools, cutlass=replace(tools.cutlass, version="9.9")))
    assert "of another toolchain: kept, not used" in run("list").output


def test_kernels_that_do_not_compile(tmp_path, monkeypatch):
    use(monkeypatch, fake_toolchain(tmp_path / "bad", FAIL))
    result = run("build", "--level", "quick", "--ops", "gemm")
    assert result.exit_code == 4
    assert 'error: identifier "x" is undefined' in result.output
    assert "0 kernels for sm_80: 0 units compiled" in result.output
    assert "error: 26 kernels did not compile; see above" in result.output


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("build", "--ops", "gemm,softmax"), 1, "give some of gemm, conv2d"),
        (("build", "--ops", "b2b_gemm"), 1, "give some of gemm, conv2d"),
        (("build", "--ops", ","), 1, "give some of gemm, conv2d"),
        (("build", "--alignments", "8,16"), 1, "give some of 8, 4, 2, 1"),
        (("build", "--level", "some"), 2, "some"),
        (("build", "--arch", "sm_81"), 1, "unknown arch 'sm_81'"),
        (("export", "x"), 1, "there are no kernels to export"),
        (("import", "nowhere"), 1, "No such file"),
    ],
)
def test_bad_input(arguments, status, words):
    result = run(*arguments)
    assert result.exit_code == status
    assert words in " ".join(result.output.replace("\u2502", " ").split())


def test_an_interrupt_says_what_is_kept(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "build_library", interrupt)
    result = run("build")
    assert result.exit_code == 130
    assert "what was compiled is kept; build again to go on" in result.output
