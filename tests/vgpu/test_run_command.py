"""`boltgen vgpu run`: a program of its own on the virtual GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from boltgen.cli import app
from boltgen.device.vgpu import Vgpu
from boltgen.device.vgpu_program import run_program
from boltgen.errors import VgpuError
from boltgen.paths import resource_dir
from boltgen.settings import settings_from
from tests.vgpu.cuda_programs import link


@pytest.fixture(scope="module")
def faults(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    return link("faults", library_folder / "libcudart.so.13", folder)


def test_the_command_runs_a_program_and_passes_its_status_on(
    faults: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["vgpu", "run", "--device", "sm_89", "--threads", "1", "--", str(faults), "launches"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert "vgpu sm_89 (L40S)" in capfd.readouterr().out
    done = CliRunner().invoke(app, ["vgpu", "run", "--", "false"])
    assert done.exit_code == 1


def test_the_command_switches_checks_on(
    faults: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "show"
    program.write_text('#!/bin/sh\necho "$BOLTGEN_VGPU"\n')
    program.chmod(0o755)
    command = ["--check", "memcheck", "--check", "initcheck", "-o", "seed=3", "--", str(program)]
    assert CliRunner().invoke(app, ["vgpu", "run", *command]).exit_code == 0
    assert capfd.readouterr().out.strip().endswith("seed=3,check=memcheck,initcheck")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check", "memcheck", "--check", "typo"], "check=typo: know memcheck, initcheck, race"),
        (
            ["--device", "sm_99"],
            "device=sm_99: know sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_103,",
        ),
        (["-o", "colour=red"], "no option 'colour': know device, threads, isa, check"),
        (["-o", "seed"], "seed=: want a number"),
        (["--threads", "2000"], "threads=2000: want 1 to 1024"),
    ],
)
def test_a_mistyped_option_is_refused_before_the_program_starts(
    options: list[str], message: str, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    done = CliRunner().invoke(app, ["vgpu", "run", *options, "--", "touch", str(started)])
    assert done.exit_code == 5
    assert message in " ".join(done.output.split())
    assert not started.exists()


def test_the_environment_is_checked_too(
    library_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOLTGEN_VGPU", "check=memcheck,tpyo")
    with pytest.raises(VgpuError, match="check=tpyo: know memcheck"):
        run_program(["true"], libraries=library_folder, options={}, settings=settings_from())


def test_the_names_of_options_are_those_of_the_readme(vgpu: Vgpu) -> None:
    def known(name: str, value: str) -> list[str]:
        with pytest.raises(VgpuError) as raised:
            vgpu.set_option(name, value)
        return str(raised.value).partition(": know ")[2].replace(" and ", ", ").split(", ")

    readme = (resource_dir("vgpu") / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Settings")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    table = {name.strip().strip("`"): values.strip() for name, values in rows}
    names = known("colour", "red")
    assert sorted(names) == sorted(table)
    assert known("check", "typo") == table["check"].split(", ")
    assert known("device", "sm_99") == table["device"].split(", ")
    for name in names:
        with pytest.raises(VgpuError, match=f"option {name}=no such value: "):
            vgpu.set_option(name, "no such value")


def test_the_command_says_what_it_cannot_run(
    library_folder: Path, tmp_path: Path, faults: Path
) -> None:
    def run(*command: str) -> None:
        run_program(command, libraries=library_folder, options={}, settings=settings_from())

    with pytest.raises(VgpuError, match="no_such_program: no such program"):
        run("no_such_program")
    static = tmp_path / "static"
    static.write_bytes(b"\x7fELF...__cudaRegisterFatBinary...")
    static.chmod(0o755)
    with pytest.raises(VgpuError, match="nvcc -cudart shared"):
        run(str(static))
    with pytest.raises(VgpuError, match="cannot be started: Exec format error"):
        static.write_bytes(b"\x7fELF...")
        run(str(static))
