"""What people are told where the suite cannot run."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import run_gpu_suite
from benchmarks.gpu.results import ResultsError, Slice, open_slice
from benchmarks.gpu.run_gpu_suite import (
    SuiteError,
    check_bundle,
    check_driver,
    check_out,
    check_python,
    parse_slice,
)
from benchmarks.gpu.vendor import NoVendorError, Vendor
from tests.gpu_suite.conftest import run_suite


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/2/3", "-1/2"])
def test_a_wrong_slice_is_named(text: str):
    with pytest.raises(SuiteError, match="is not K/N with 1 <= K <= N"):
        parse_slice(text)


def test_a_slice_is_two_numbers():
    assert parse_slice("2/4") == (2, 4)


def test_an_incomplete_bundle_is_refused(bundle: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / "libboltgen_profiler.so").unlink()
    with pytest.raises(SuiteError, match=r"libboltgen_profiler\.so is missing; copy it again"):
        check_bundle(copy)
    (copy / "libboltgen_profiler.so").write_bytes(b"x")
    with pytest.raises(SuiteError, match=r"damaged: libboltgen_profiler\.so has changed"):
        check_bundle(copy)
    with pytest.raises(SuiteError, match="is no bundle"):
        check_bundle(tmp_path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SuiteError, match="has no numpy: install it"):
        check_python(vendor=True)


def test_no_pytorch_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == "torch" else found(n))
    with pytest.raises(SuiteError, match=r"has no torch: install it, or give --no-vendor"):
        check_python(vendor=True)
    check_python(vendor=False)


def test_an_older_python_comes_as_far_as_to_be_refused():
    """The entry is read by whatever Python there is."""
    source = Path(run_gpu_suite.__file__).read_text()
    assert ast.parse(source, feature_version=(3, 7))


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_gpu_suite.sys, "version_info", (3, 9, 0))
    with pytest.raises(SuiteError, match=r"3\.10 or newer is needed"):
        check_python(vendor=False)


def driver(version: int, devices: int = 1, status: int = 0) -> SimpleNamespace:
    def count(out) -> int:
        out._obj.value = devices
        return 0

    def told(out) -> int:
        out._obj.value = version
        return 0

    def text(number: int, out) -> int:
        out._obj.value = b"system not yet initialized"
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: status,
        cuDeviceGetCount=count,
        cuDriverGetVersion=told,
        cuGetErrorString=text,
    )


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(SuiteError, match=r"no GPU was found.*boltgen vgpu run"):
        check_driver()


def test_no_device_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(13000, devices=0))
    with pytest.raises(SuiteError, match=r"the driver knows of none; .*CUDA_VISIBLE_DEVICES"):
        check_driver()


def test_a_driver_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(13000, status=802))
    with pytest.raises(
        SuiteError, match=r"'system not yet initialized' \(802\); start NVIDIA's fa"
    ):
        check_driver()


def test_an_old_driver_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(12080))
    with pytest.raises(SuiteError, match=r"it is for CUDA 12\.8.*driver 580"):
        check_driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(13000))
    check_driver()


def test_a_full_disk_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    usage = SimpleNamespace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SuiteError, match=r"the disk is full \(1 MB are free"):
        check_out(tmp_path)


def test_no_folder_for_libraries_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_gpu_suite.tempfile, "TemporaryDirectory", fails)
    with pytest.raises(SuiteError, match=r"unpacked \(No space left on device\).*TMPDIR"):
        run_gpu_suite.supervise(SimpleNamespace(minutes=1.0, out=tmp_path), 1, 1)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SuiteError, match="cannot be written"):
        check_out(tmp_path / "file" / "out")


def test_a_disk_that_fills_up_keeps_what_was_measured(tmp_path: Path):
    kept = Slice(tmp_path / "slice-1-of-1.json", 1, 1, {"gpu": "x"})
    kept.record("gemm/1", "done", {})
    gone = Slice(tmp_path / "gone" / "slice-1-of-1.json", 1, 1)
    with pytest.raises(ResultsError, match="what was measured before is kept"):
        gone.record("gemm/1", "done", {})
    assert open_slice(tmp_path, 1, 1).items == {"gemm/1": {"status": "done"}}


def test_results_of_another_version_are_refused(tmp_path: Path):
    (tmp_path / "slice-1-of-1.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(ResultsError, match="version 99 of the suite"):
        open_slice(tmp_path, 1, 1)


def test_a_gpu_without_kernels_in_the_bundle_is_named(bundle: Path, tmp_path: Path):
    done = run_suite(bundle, tmp_path, device="sm_89")
    assert done.returncode == 2
    assert "is of sm_89; the bundle has kernels for sm_80" in done.stderr


def test_pytorch_without_a_gpu_is_named():
    with pytest.raises(NoVendorError, match=r"sees no GPU.*--no-vendor"):
        Vendor()


def test_what_a_new_user_tries_is_answered(bundle: Path, tmp_path: Path):
    told = run_suite(bundle, tmp_path, "--help")
    assert told.returncode == 0
    assert "--slice K/N" in told.stdout
    assert "give the same command again" in told.stdout
    wrong = run_suite(bundle, tmp_path, "--slice", "5/4")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: --slice '5/4' is not K/N")
    unknown = run_suite(bundle, tmp_path, "--sections", "gemm,gem")
    assert unknown.returncode == 2
    assert "--sections: the bundle has no gem; it has b2b, check," in unknown.stderr


def test_the_table_has_a_line_for_what_wants_to_be_looked_at(tmp_path: Path):
    kept = Slice(tmp_path / "slice-1-of-1.json", 1, 1)
    kept.record("check/one", "done", {"verdict": "right"})
    kept.record("check/two", "done", {"verdict": "wrong: off by 0.1 of its norm"})
    kept.record("tune/1x2x3-1", "done", {"records": ""})
    kept.record("gemm/1x2x3", "done", {"columns": {"boltgen": {"median_us": 12.5}}})
    lines = [line.split() for line in run_gpu_suite.table(tmp_path, 1, 1).splitlines()]
    assert lines == [
        ["check", "1", "of", "2", "as", "they", "should", "be"],
        ["tune", "1", "of", "1", "as", "they", "should", "be"],
        ["check/two", "done", "wrong:", "off", "by", "0.1", "of", "its", "norm"],
        ["gemm/1x2x3", "done", "12.50", "us"],
    ]
