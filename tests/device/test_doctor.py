"""What doctor finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from boltgen.build import toolchain
from boltgen.device import doctor
from boltgen.device.doctor import Finding, Verdict, examine
from boltgen.errors import ToolchainError
from boltgen.settings import settings_from
from tests.build.fakes import write_script, write_toolkit


@pytest.fixture(autouse=True)
def no_vgpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building it takes a minute, and is tested elsewhere."""
    monkeypatch.setattr(doctor, "vgpu_libraries", lambda *_, **__: Path("/vgpu"))


def found(**environment: str) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(settings_from(environment))}


def test_everything_that_is_needed_is_found_here(tmp_path: Path) -> None:
    path = settings_from().search_path
    findings = found(PATH=path, BOLTGEN_CACHE_DIR=str(tmp_path / "cache"))
    broken = [finding for finding in findings.values() if finding.verdict is Verdict.BROKEN]
    assert broken == []
    assert "from PyPI wheel" in findings["nvcc"].detail
    assert findings["CUTLASS"].detail.startswith("4.2.0: ")
    assert findings["cache"].detail == str(tmp_path / "cache")
    assert findings["virtual GPU"].detail == "/vgpu"


def test_what_is_missing_comes_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_wheel_toolkits", list)
    (tmp_path / "file").touch()
    findings = found(PATH=str(tmp_path), BOLTGEN_CACHE_DIR=str(tmp_path / "file"))
    for subject, said in {
        "nvcc": "no usable nvcc",
        "host compiler": "apt install g++",
        "make": "apt install make",
        "cache": "set BOLTGEN_CACHE_DIR",
    }.items():
        assert findings[subject].verdict is Verdict.BROKEN
        assert said in findings[subject].detail
    assert findings["nvcc (CUDA_HOME)"].detail == "not set"


def test_a_virtual_gpu_that_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Path:
        raise ToolchainError("it needs g++ 11")

    monkeypatch.setattr(doctor, "vgpu_libraries", fail)
    findings = found(PATH=settings_from().search_path, BOLTGEN_CACHE_DIR=str(tmp_path / "cache"))
    assert findings["virtual GPU"] == Finding("virtual GPU", Verdict.BROKEN, "it needs g++ 11")


def test_an_nvcc_that_is_not_used_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "wheel" / "cu13"
    used = write_toolkit(wheel)
    home = write_toolkit(tmp_path / "home", version="12.9.41")
    write_script(tmp_path / "bin" / "nvcc", "echo; exit 1")
    monkeypatch.setattr(toolchain, "_wheel_toolkits", lambda: [wheel])
    findings = found(
        PATH=f"{tmp_path / 'bin'}:/bin",
        CUDA_HOME=str(tmp_path / "home"),
        BOLTGEN_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert findings["nvcc"].detail == f"13.0.88 from PyPI wheel: {used}"
    assert findings["nvcc (CUDA_HOME)"].detail == f"12.9.41: {home}, not used"
    assert "broken" in findings["nvcc (PATH)"].detail
