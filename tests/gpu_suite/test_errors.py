"""What people are told where the suite cannot run."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import run_gpu_suite, worker
from benchmarks.gpu.items import Race, read_items
from benchmarks.gpu.results import ResultsError, Slice, open_slice
from benchmarks.gpu.rig import Rig
from benchmarks.gpu.run_gpu_suite import (
    SuiteError,
    check_bundle,
    check_driver,
    check_out,
    check_python,
    parse_slice,
)
from benchmarks.gpu.timing import Turns
from benchmarks.gpu.vendor import NoVendorError, Replay, Vendor
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from
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


def test_no_room_for_libraries_ends_a_slice_and_costs_no_item(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kernels = json.loads((bundle / "kernels-sm_80.json").read_text())
    rig = SimpleNamespace(bundle=bundle, folder=tmp_path / "full", turns=Turns(modelled=True))
    with pytest.raises(ResultsError, match=r"full/.*\.so cannot be written .*TMPDIR"):
        Rig.unpacked(rig, next(iter(kernels.values())))

    def fails(rig: object, item: object) -> dict:
        raise ResultsError("full")

    monkeypatch.setitem(worker._RUNNERS, Race, fails)
    race = next(one for one in read_items(bundle / "items-sm_80.json.xz") if type(one) is Race)
    with pytest.raises(ResultsError, match="full"):
        worker.run_item(rig, race)


def test_no_folder_for_libraries_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_gpu_suite.tempfile, "TemporaryDirectory", fails)
    with pytest.raises(SuiteError, match=r"unpacked \(No space left on device\).*TMPDIR"):
        run_gpu_suite.supervise(SimpleNamespace(minutes=1.0, out=tmp_path), 1, 1)


def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch):
    """PyTorch's caches are named by the user, who in a container may be a number only."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert run_gpu_suite.worker_environment()["LOGNAME"] == f"user-{os.getuid()}"
    monkeypatch.setenv("USER", "somebody")
    assert "LOGNAME" not in run_gpu_suite.worker_environment()


def test_a_worker_leaves_without_farewells(bundle: Path, tmp_path: Path):
    """After a fault on the device those of libraries hang, or crash."""
    copy = with_races(bundle, tmp_path, "__import__('atexit').register(__import__('os').abort)")
    done = run_suite(copy, tmp_path / "out", "--sections", "gemm")
    assert done.returncode == 0, done.stderr
    assert "slice 1/1: finished" in done.stdout


def test_libraries_that_were_unpacked_are_removed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    copy = with_races(bundle, tmp_path, "__import__('os').abort()")
    run_suite(copy, tmp_path / "out", "--sections", "gemm,tune")
    assert list((tmp_path / "tmp").glob("gpu-suite-*")) == []


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


def test_a_column_of_the_vendors_that_fails_leaves_the_others():
    def fails() -> Replay:
        raise RuntimeError("no compiler")

    class Replayed:
        def __init__(self, replay, launches: int) -> None:
            self.replay, self.launches = replay, launches

        def sample_us(self, samples: int) -> list[float]:
            self.replay()
            return [1.0] * samples

        def close(self) -> None:
            closed.append(self.replay)

    def refuses() -> None:
        raise RuntimeError("no replays")

    closed: list[object] = []
    capturing = {
        "eager": lambda: Replay(print, 3),
        "compiled": fails,
        "spoilt": lambda: Replay(refuses, 1),
    }
    samplers, errors = Rig.beside(SimpleNamespace(replayed=Replayed), capturing)
    assert {name: (one.replay, one.launches) for name, one in samplers.items()} == {
        "eager": (print, 3)
    }
    assert errors == {"compiled": "RuntimeError: no compiler", "spoilt": "RuntimeError: no replays"}
    assert closed == [refuses]


def test_columns_that_take_too_long_leave_the_others():
    def hangs() -> Replay:
        while True:
            time.sleep(0.01)

    rig = SimpleNamespace(replayed=lambda replay, n: SimpleNamespace(sample_us=lambda k: [1.0]))
    capturing = {"eager": lambda: Replay(print, 3), "compiled": hangs}
    samplers, errors = Rig.beside(rig, capturing, most_s=0.1)
    assert set(samplers) == {"eager"}
    assert errors == {"compiled": "TimeoutError: it took over 1 s"}


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


def with_races(bundle: Path, folder: Path, statement: str) -> Path:
    """A copy of `bundle` whose races begin with `statement`."""
    copy = folder / "copy"
    shutil.copytree(bundle, copy)
    races = copy / "benchmarks" / "gpu" / "races.py"
    first = "    problem = item.problem\n"
    races.write_text(races.read_text().replace(first, f"    {statement}\n{first}", 1))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"].pop("benchmarks/gpu/races.py")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def test_a_suite_that_is_killed_goes_on_where_it_was(bundle: Path, tmp_path: Path):
    """Killed in a race, with no time for last words; its worker ends with it."""
    settings, out = settings_from(), tmp_path / "out"
    sections = ("--sections", "check,gemm")
    process = subprocess.Popen(
        [sys.executable, "run_gpu_suite.py", "--virtual", "--out", str(out), *sections],
        cwd=with_races(bundle, tmp_path, "__import__('time').sleep(120)"),
        env=vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_80"}),
        stdout=subprocess.PIPE,
        text=True,
    )
    current = out / "current-1-of-1.json"
    with process:
        at_hand = ""
        while "gemm/" not in at_hand:
            assert process.poll() is None
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):  # between two items
                at_hand = current.read_text()
        process.kill()
        said = process.stdout.read()  # ends when the worker has ended too
    path = out / "slice-1-of-1.json"
    before = json.loads(path.read_text())["items"]
    assert {key.partition("/")[0] for key in before} == {"check"}
    assert "finished" not in said
    assert "gemm/" not in said
    done = run_suite(bundle, out, *sections)
    assert done.returncode == 0, done.stderr
    after = json.loads(path.read_text())["items"]
    assert after.keys() - before.keys() == {"gemm/128x128x64"}
    assert {key: after[key] for key in before} == before


def test_a_worker_that_dies_costs_one_item(bundle: Path, tmp_path: Path):
    """In a bundle whose races abort the process, as a driver's assertion would."""
    copy = with_races(bundle, tmp_path, "__import__('os').abort()")
    done = run_suite(copy, tmp_path / "out", "--sections", "gemm,tune")
    assert done.returncode == 0, done.stderr
    items = json.loads((tmp_path / "out" / "slice-1-of-1.json").read_text())["items"]
    by_section = {key.partition("/")[0]: item["status"] for key, item in items.items()}
    assert by_section == {"gemm": "failed", "tune": "done"}
    assert "the worker died of it (status -6" in items["gemm/128x128x64"]["error"]


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
