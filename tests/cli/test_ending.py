"""How commands end: statuses, reports, and streams that cannot be written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from boltgen.cli.terminal.ending import (
    INTERNAL,
    INTERRUPTED,
    REFUSED,
    SYSTEM,
    UNREAD,
    Ending,
    ending_of,
)
from boltgen.errors import (
    CheckError,
    CompileError,
    DeviceError,
    GraphError,
    InputError,
    ToolchainError,
    VgpuError,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "cache"


@pytest.fixture
def own_interrupts() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def reports(folder: Path) -> list[Path]:
    return sorted(folder.glob("boltgen-error-*.txt"))


def test_what_is_no_fault_of_boltgens(cache: Path) -> None:
    assert ending_of(DeviceError("no GPU"), "") == Ending(5, "error: no GPU")
    assert ending_of(VgpuError("k: a race"), "") == Ending(5, "error: k: a race")
    assert ending_of(ToolchainError("no nvcc"), "") == Ending(4, "error: no nvcc")
    assert ending_of(CompileError("nvcc: oops"), "") == Ending(4, "error: nvcc: oops")
    assert ending_of(CheckError("k is wrong"), "") == Ending(3, "error: k is wrong")
    assert ending_of(InputError("no x"), "") == Ending(REFUSED, "error: no x")
    assert ending_of(BrokenPipeError(), "") == Ending(UNREAD)
    assert ending_of(MemoryError(), "").status == SYSTEM
    for code, said in (
        (errno.ENOSPC, "no space left (/x/y)"),
        (errno.EDQUOT, "no space left within your quota (/x/y)"),
        (errno.EACCES, "permission denied (/x/y)"),
        (errno.ENAMETOOLONG, "the name is too long (/x/y)"),
    ):
        ending = ending_of(OSError(code, os.strerror(code), "/x/y"), "")
        assert ending == Ending(SYSTEM, f"error: {said}")
    assert not reports(cache / "reports")


def test_an_interrupt(own_interrupts: None) -> None:
    ending = ending_of(KeyboardInterrupt(), "it goes on")
    assert ending == Ending(INTERRUPTED, "interrupted; it goes on")


def test_an_internal_error_is_described_in_a_file(cache: Path) -> None:
    def deep() -> None:
        raise ZeroDivisionError("by \x1b[31m\udcff" + "x" * 1000)

    for count in (1, 2):
        try:
            deep()
        except ZeroDivisionError as error:
            ending = ending_of(error, "")
        found = reports(cache / "reports")
        assert len(found) == count, "none is overwritten"
        assert ending.status == INTERNAL
        assert len(ending.message.splitlines()) == 2
        assert len(ending.message.splitlines()[0]) < 400
        assert any(str(path) in ending.message for path in found)
    text = found[0].read_text()
    for part in ("ZeroDivisionError", "in deep", "command", f"python    {sys.version[:4]}"):
        assert part in text


def test_a_graph_that_breaks_a_rule_is_an_internal_error(cache: Path) -> None:
    ending = ending_of(GraphError("after the pass collapse_views, v3 is wrong"), "")
    assert ending.status == INTERNAL
    assert "GraphError: after the pass collapse_views, v3 is wrong" in ending.message
    assert len(reports(cache / "reports")) == 1


def test_without_a_cache_folder_the_report_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert str(tmp_path / "temporary") in ending_of(ValueError("x"), "").message
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none" / "such"))
    (tmp_path / "none").touch()
    ending = ending_of(ValueError("x"), "")
    assert "no report could be written" in ending.message
    assert ending.status == INTERNAL


def shell(line: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m boltgen"
    command = ["bash", "-c", line.replace("boltgen", program, 1)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("boltgen db stats >&-", 0, ""),
        ("boltgen db stats >/dev/full", SYSTEM, "error: no space left\n"),
        ("boltgen db stats >/dev/full 2>/dev/full", SYSTEM, ""),
        ("boltgen inspect none 2>&-", REFUSED, ""),
        ("boltgen db stats | true; exit ${PIPESTATUS[0]}", UNREAD, ""),
        ("COLUMNS=\u00b2 boltgen db stats >/dev/null", 0, ""),
    ],
)
def test_streams_that_cannot_be_written(line: str, status: int, said: str) -> None:
    done = shell(line.replace("COLUMNS=\u00b2 boltgen", "export COLUMNS=\u00b2; boltgen"))
    assert done.stderr == said
    assert done.returncode == status
