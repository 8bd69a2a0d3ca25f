"""What people are told where the suite cannot run."""

from __future__ import annotations

import ast
import importlib.util
import shutil
from pathlib import Path

import pytest

from benchmarks.gpu import run_gpu_suite
from benchmarks.gpu.run_gpu_suite import (
    SuiteError,
    check_bundle,
    check_python,
    parse_slice,
)
from benchmarks.gpu.vendor import NoVendorError, Vendor
from boltgen.bench.slices import Slice
from tests.gpu_suite.conftest import PYTHON, run_suite


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
    with pytest.raises(SuiteError, match=r"libboltgen_profiler\.so"):
        check_bundle(copy)
    (copy / "libboltgen_profiler.so").write_bytes(b"x")
    with pytest.raises(SuiteError, match=r"libboltgen_profiler\.so"):
        check_bundle(copy)
    with pytest.raises(SuiteError, match=r"manifest\.json"):
        check_bundle(tmp_path)


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == package else found(n))
    with pytest.raises(SuiteError, match=f"no {package}: install it"):
        check_python(PYTHON, vendor=True)
    if package == "torch":
        check_python(PYTHON, vendor=False)


def test_an_older_python_comes_as_far_as_to_be_refused():
    """The entry is read by whatever Python there is."""
    source = Path(run_gpu_suite.__file__).read_text()
    assert ast.parse(source, feature_version=(3, 7))


def test_another_python_is_refused():
    with pytest.raises(SuiteError, match=rf"{PYTHON}.* 3\.9"):
        check_python("3.9", vendor=False)


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
    kept.record("gemm/1x2x3", "failed", {"error": "no time"})
    kept.record("gemm/4x5x6", "done", {"columns": {"boltgen": {"median_us": 12.5}}})
    assert run_gpu_suite.table(tmp_path, 1, 1).splitlines() == [
        "check: 1 of 2 are fine",
        "gemm: 1 of 2 are fine",
        "check/two: wrong: off by 0.1 of its norm",
        "gemm/1x2x3: no time",
    ]


def test_a_folder_that_cannot_be_made_is_named(bundle: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = run_suite(bundle, tmp_path / "file" / "out")
    assert done.returncode == 2
    assert "file/out" in done.stderr
