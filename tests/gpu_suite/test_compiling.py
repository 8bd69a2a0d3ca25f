"""Kernels that the bundle has only the sources of, with nvcc and without."""

from __future__ import annotations

import json
import lzma
import os
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.compiling import (
    NoCompilerError,
    OutOfShareError,
    SourceCompiler,
    find_nvcc,
)
from benchmarks.gpu.items import SOURCE_HEADERS
from benchmarks.gpu.results import unpacked
from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from
from tests.gpu_suite.conftest import run_suite

BEYOND = "tune/128x128x64-beyond-1"


def test_where_nvcc_is_kernels_beyond_the_bundles_are_measured(bundle: Path, tmp_path: Path):
    """The bundle's headers are all that they need: no other folder is given."""
    nvcc = str(find_toolchain(settings_from()).nvcc.path.parent)
    done = run_suite(bundle, tmp_path, "--sections", "tune", "--minutes", "8", nvcc=nvcc)
    assert done.returncode == 0, done.stderr
    items = json.loads((tmp_path / "slice-1-of-1.json").read_text())["items"]
    assert set(items) == {"tune/128x128x64-1", BEYOND}
    assert items[BEYOND]["not_compiled"] == []
    assert items[BEYOND]["failed"] == 0
    assert len(unpacked(items[BEYOND]["records"]).splitlines()) == 1
    assert [path.name for path in tmp_path.glob("kernels-sm_80-*/*.log")]


def test_without_nvcc_they_are_left_out_and_this_is_said(bundle: Path, tmp_path: Path):
    done = run_suite(bundle, tmp_path, "--sections", "tune")
    assert done.returncode == 0, done.stderr
    assert "no nvcc on PATH: kernels that the bundle has no machine code of are left" in done.stdout
    assert BEYOND not in json.loads((tmp_path / "slice-1-of-1.json").read_text())["items"]


def fake_nvcc(folder: Path, script: str) -> Path:
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'Cuda compilation tools, release 12.8, V12.8.93'", r"is release 12\.8; release 13"),
        ("echo what", "of no known release; release 13 is wanted"),
    ],
)
def test_another_release_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
):
    fake_nvcc(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoCompilerError, match=message):
        find_nvcc()


def test_no_nvcc_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match="no nvcc on PATH"):
        find_nvcc()


def compiler(tmp_path: Path, script: str, left_s: float) -> SourceCompiler:
    """With a script for nvcc, and a bundle of two sources."""
    (tmp_path / "sources").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"sources/{name}.cu.xz").write_bytes(lzma.compress(name.encode()))
    tarfile.open(tmp_path / SOURCE_HEADERS, "w:xz").close()
    folder = tmp_path / "out"
    folder.mkdir()
    nvcc = fake_nvcc(tmp_path, script)
    return SourceCompiler(bundle=tmp_path, nvcc=nvcc, arch="sm_80", folder=folder, left_s=left_s)


SOURCES = ("sources/one.cu.xz", "sources/two.cu.xz")
# The file after -o, which is the last but three.
_WRITES = 'while [ "$1" != -o ]; do shift; done; echo compiled > "$2"'


def test_what_is_compiled_is_not_compiled_again(tmp_path: Path):
    made = compiler(tmp_path, f"echo started >> ../started; {_WRITES}", left_s=60.0)
    made.compile([*SOURCES, *SOURCES])
    made.compile(SOURCES)
    assert all(made.library(source).read_text() == "compiled\n" for source in SOURCES)
    assert (tmp_path / "started").read_text().count("started") == 2


def test_compiling_ends_with_its_share_of_the_time(tmp_path: Path):
    made = compiler(tmp_path, "sleep 60", left_s=0.2)
    with pytest.raises(OutOfShareError, match=r"its share of the time \(25%\)"):
        made.compile(SOURCES)
    assert made.errors == {}
    assert not made.library(SOURCES[0]).exists()


def test_a_source_that_does_not_compile_is_told_and_not_tried_again(tmp_path: Path):
    made = compiler(tmp_path, "echo started >> ../started; echo 'error: no'; exit 1", left_s=60.0)
    made.compile(SOURCES)
    made.compile(SOURCES)
    assert made.errors == dict.fromkeys(SOURCES, "error: no\n")
    assert (tmp_path / "started").read_text().count("started") == 2


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'nvcc fatal: no host compiler'; exit 1", r"nothing here \(nvcc fatal: no host comp"),
        (_WRITES, r"cannot be loaded \(.*probe\.so"),
    ],
)
def test_an_nvcc_that_is_of_no_use_is_told_before_anything_counts_as_tried(
    tmp_path: Path, script: str, message: str
):
    with pytest.raises(NoCompilerError, match=message):
        compiler(tmp_path, script, left_s=60.0).try_out()


def test_an_nvcc_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nvcc = fake_nvcc(tmp_path, "")
    nvcc.write_bytes(b"no program")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match=r"nvcc cannot be started \(Exec format error\)"):
        find_nvcc()
