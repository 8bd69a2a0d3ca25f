"""What people are told where the suite cannot run."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from benchmarks.gpu import run_gpu_suite
from benchmarks.gpu.bundle import pack, workshop
from benchmarks.gpu.run_gpu_suite import (
    SuiteError,
    check_bundle,
    check_gpu,
    check_python,
)
from benchmarks.gpu.vendor import NoVendorError, Vendor
from benchmarks.gpu.workshop import BundleError
from boltgen.arch import arch_named
from boltgen.bench.results import FILE, Results
from tests.gpu_suite.conftest import PYTHON, run_suite


def test_an_incomplete_bundle_is_refused(bundle: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / "libcudart.so.13").unlink()
    with pytest.raises(SuiteError, match=r"libcudart\.so\.13"):
        check_bundle(copy)
    (copy / "libcudart.so.13").write_bytes(b"x")
    with pytest.raises(SuiteError, match=r"libcudart\.so\.13"):
        check_bundle(copy)
    with pytest.raises(SuiteError, match=r"manifest\.json"):
        check_bundle(tmp_path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == "numpy" else found(n))
    with pytest.raises(SuiteError, match="no numpy: install it"):
        check_python(PYTHON)


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, status: int = 0) -> None:
    """A program that says `line` of the GPU."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{line}'\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "NVIDIA H100, 550.54.15, 0, 4, 81559",
            r"NVIDIA H100 has driver 550\.54\.15, and CUDA 13 needs 580 or newer: update",
        ),
        ("NVIDIA H100, 580.82, 97, 4, 81559", r"NVIDIA H100 is busy: 97 % used.*--busy"),
        ("NVIDIA H100, 580.82, 0, 60000, 81559", r"is busy: .* 60000 of 81559 MiB taken"),
        ("No devices were found", "nvidia-smi sees no GPU: No devices were found; start"),
    ],
)
def test_a_gpu_that_cannot_be_measured_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
):
    nvidia_smi(tmp_path, monkeypatch, line)
    with pytest.raises(SuiteError, match=said):
        check_gpu()


def test_a_free_gpu_with_a_new_driver_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nvidia_smi(tmp_path, monkeypatch, "NVIDIA H100, 580.82, 0, 4, 81559")
    check_gpu()


def test_a_gpu_that_was_in_use_a_moment_ago_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nvidia_smi(tmp_path, monkeypatch, "NVIDIA H200, 580.82, 0, 4, 81559")
    tool, mark = tmp_path / "nvidia-smi", tmp_path / "asked"
    busy = f"[ -e {mark} ] || {{ touch {mark}; echo NVIDIA H200, 580.82, 6, 4, 81559; exit 0; }}"
    tool.write_text(tool.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{busy}\n"))
    check_gpu()
    assert mark.exists()


def test_an_old_driver_ends_a_run_before_it_begins(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nvidia_smi(tmp_path, monkeypatch, "NVIDIA H100, 550.54.15, 0, 4, 81559")
    done = run_suite(bundle, tmp_path / "out", virtual=False)
    assert done.returncode == 2
    assert "has driver 550.54.15" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_older_python_comes_as_far_as_to_be_refused():
    """The entry is read by whatever Python there is."""
    source = Path(run_gpu_suite.__file__).read_text()
    assert ast.parse(source, feature_version=(3, 7))


def test_another_python_is_refused():
    with pytest.raises(SuiteError, match=rf"{PYTHON}.* 3\.9"):
        check_python("3.9")


def test_a_gpu_without_kernels_in_the_bundle_is_named(bundle: Path, tmp_path: Path):
    done = run_suite(bundle, tmp_path, device="sm_89")
    assert done.returncode == 2
    assert "is of sm_89; the bundle is for sm_80" in done.stderr


def test_pytorch_without_a_gpu_is_named():
    with pytest.raises(NoVendorError, match=r"sees no GPU.*--no-vendor"):
        Vendor()


def test_what_a_new_user_tries_is_answered(bundle: Path, tmp_path: Path):
    told = run_suite(bundle, tmp_path, "--help")
    assert told.returncode == 0
    assert "same\ncommand again" in told.stdout
    unknown = run_suite(bundle, tmp_path, "--sections", "gemm,gem")
    assert unknown.returncode == 2
    assert "--sections: the bundle has no gem; it has attention, b2b, check," in unknown.stderr


def test_the_summary_names_what_wants_to_be_looked_at(tmp_path: Path):
    (tmp_path / "before").mkdir()
    Results(tmp_path / "before" / FILE).record("check/one", "done", {"verdict": "right"})
    kept = Results(tmp_path / FILE)
    kept.record("check/two", "done", {"verdict": "wrong: off by 0.1 of its norm"})
    kept.record("gemm/1x2x3", "failed", {"error": "no time"})
    kept.record("gemm/4x5x6", "done", {"columns": {"boltgen": {"median_us": 12.5}}})
    far = [f"gemm/{number}" for number in range(8)]
    plan = {"right": ["check/one", "check/two"], "fast": ["gemm/1x2x3", "gemm/4x5x6", *far]}
    said = run_gpu_suite.summary(tmp_path, plan, [tmp_path / "before"], {"models/a": "no TVM"})
    assert said.splitlines() == [
        "right: 1 of 2 are fine",
        "fast: 1 of 10 are fine; not reached: gemm/0, gemm/1, gemm/2, gemm/3, gemm/4, gemm/5 and 2 "
        "more",
        "check/two: wrong: off by 0.1 of its norm",
        "gemm/1x2x3: no time",
        "models/a is not in the bundle: no TVM",
    ]


def test_a_folder_that_is_no_bundle_is_not_replaced(tmp_path: Path):
    (tmp_path / "theirs").write_text("")
    with pytest.raises(BundleError, match="is there and is no bundle"):
        pack(tmp_path, arch_named("sm_80"), workshop(), quick=True, python=PYTHON)
    assert (tmp_path / "theirs").exists()


def test_a_folder_that_cannot_be_made_is_named(bundle: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = run_suite(bundle, tmp_path / "file" / "out")
    assert done.returncode == 2
    assert "file/out" in done.stderr
