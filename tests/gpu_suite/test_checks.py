"""How far an output may be from what is expected; what a sanitizer's status says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.checks import relative_error, run_sanitized
from benchmarks.gpu.items import Sanitized
from benchmarks.gpu.timing import Turns
from boltgen.bench.results import FILE, VERSION
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from


def test_an_error_is_relative_to_the_norm():
    expected = np.full(400, 0.5)
    assert relative_error(expected * 1.01, expected) == pytest.approx(0.01)


def test_a_few_elements_that_are_zero_are_right_where_they_are():
    """A ReLU of one negative number."""
    assert relative_error(np.zeros(1), np.zeros(1)) == 0.0
    assert relative_error(np.array([0.01]), np.zeros(1)) == pytest.approx(0.02)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_wrong(value: float):
    assert relative_error(np.array([1.0, value]), np.ones(2)) == float("inf")


KEYS = ("check/split-gemm2", "check/b2b-rf-ragged")


def sanitized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bundle: Path, script: str) -> Any:
    """The result with a script for compute-sanitizer."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    rig = SimpleNamespace(turns=Turns(), bundle=bundle, work=bundle / "work")
    item = Sanitized(section="check", name="memcheck", tool="memcheck", keys=KEYS, kernels=())
    return run_sanitized(rig, item)


def writes(items: dict[str, str], status: int, said: str = "") -> str:
    """A script that leaves results with those statuses, as a worker would."""
    form = {"version": VERSION, "about": {}, "items": {k: {"status": s} for k, s in items.items()}}
    return (
        f"while [ $1 != --out ]; do shift; done\n"
        f"echo '{json.dumps(form)}' > $2/{FILE}\n"
        f"echo '{said}'; exit {status}"
    )


DONE = dict.fromkeys(KEYS, "done")


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (writes(DONE, 0, "========= ERROR SUMMARY: 0 errors"), "right"),
        (writes(DONE, 99, "========= Invalid __global__ read"), "wrong: memcheck found errors"),
        # Out of time; a check that could not be run; a device that the tool does not know.
        (writes({KEYS[0]: "done"}, 3), "not there: 1 of 2 checks were done (status 3): "),
        (writes(DONE | {KEYS[1]: "failed"}, 0), "not there: 1 of 2 checks were done (status 0): "),
        (
            "echo '========= Error: Device not supported'; exit 99",
            "not there: 0 of 2 checks were done (status 99): ========= Error: Device not supported",
        ),
    ],
)
def test_errors_are_what_the_tool_found_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, verdict: str
):
    assert sanitized(monkeypatch, tmp_path, tmp_path, script)["verdict"] == verdict


def test_what_the_tool_is_given_is_a_worker_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bundle: Path, results: Path
):
    """The command as it is, but for the virtual GPU; the options before it are the tool's own."""
    settings = settings_from()
    there = vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_80"})
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "BOLTGEN_VGPU"):
        monkeypatch.setenv(name, there[name])
    monkeypatch.setenv("PYTHONPATH", f"{bundle}:{bundle / 'work' / 'packages'}")
    script = (
        '[ "$1 $2 $3 $4" = "--tool memcheck --error-exitcode 99" ] && shift 4 && "$@" --virtual'
    )
    assert sanitized(monkeypatch, tmp_path, bundle, script)["verdict"] == "right"
