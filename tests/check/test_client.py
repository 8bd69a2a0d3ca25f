"""Kernels that crash, hang or print: the verdict names it, and the next kernel is judged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check import client
from boltgen.check.client import run_launches
from boltgen.check.protocol import Job, Ready, Setup, Verdict
from boltgen.errors import DeviceError
from boltgen.ir.kernel import Launch
from boltgen.measure.lines import to_line
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.measure.misbehaving import WAYS, misbehaving

SOURCE = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
struct status { int code; char message[256]; };
extern "C" {
size_t crash_workspace(void const*) { return 0; }
int crash(void const*, status*) { abort(); }
size_t hang_workspace(void const*) { return 0; }
int hang(void const*, status*) { for (;;) { pause(); } }
size_t refuse_workspace(void const*) { return 0; }
int refuse(void const*, status* said) { strcpy(said->message, "not today"); return 1; }
size_t idle_workspace(void const*) { return 0; }
int idle(void const*, status*) { printf("hello\\n"); return 0; }
}
"""
GEMM = Gemm(m=8, n=8, k=8)
LAUNCH = Launch(struct="boltgen_gemm_args", sizes=GEMM.sizes)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.cpp").write_text(SOURCE)
    command = ["g++", "-shared", "-fPIC", "-o", str(folder / "k.so"), str(folder / "k.cpp")]
    subprocess.run(command, check=True)
    return folder / "k.so"


def setup(library: Path) -> Setup:
    vgpu = str(vgpu_libraries(settings_from()))
    return Setup(library=str(library), vgpu=vgpu, arch="sm_80", checks="all")


def judge(library: Path, *symbols: str) -> dict[str, list[Verdict]]:
    kernels = {
        symbol: (Job(symbol=symbol, workload=Workload.of(GEMM), launch=LAUNCH),)
        for symbol in symbols
    }
    return run_launches(setup(library), kernels, workers=1, reporter=Silent())


def test_a_crash_costs_its_kernel_only(library: Path) -> None:
    verdicts = judge(library, "crash", "refuse", "idle")
    (crashed,) = verdicts["crash"]
    assert "signal SIGABRT" in crashed.wrong
    assert not crashed.passed
    (refused,) = verdicts["refuse"]
    assert "not today" in refused.wrong
    # A kernel that does nothing leaves NaN.
    (idle,) = verdicts["idle"]
    assert "got nan" in idle.wrong
    assert not idle.passed


def test_a_hang_is_ended(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = client._MOST_SECONDS
    monkeypatch.setattr(client, "_MOST_SECONDS", 5.0)
    assert started > 60.0
    verdicts = judge(library, "hang", "refuse")
    assert verdicts["hang"][0].wrong == "no answer within 5 s"
    assert "not today" in verdicts["refuse"][0].wrong


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_gives_no_verdict_is_named(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(client, "_MOST_SECONDS", 0.5 if way == "hangs" else 60.0)
    job = Job(symbol="k", workload=Workload.of(GEMM), launch=LAUNCH)
    starts = misbehaving(to_line(Ready, Ready()), way)
    there = Setup(library="k.so", vgpu="vgpu", arch="sm_80", checks="all")
    verdicts = run_launches(
        there, {"k": (job, job)}, workers=1, reporter=Silent(), open_channel=starts
    )
    _, _, words = WAYS[way]
    assert all(words in each.wrong and not each.passed for each in verdicts["k"])


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(DeviceError, match=r"text\.so"):
        judge(tmp_path / "text.so", "k")
