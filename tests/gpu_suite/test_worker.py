"""Workers: what costs an item, a column or a slice, and what is left for another run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import run_gpu_suite, worker
from benchmarks.gpu.capture import Replay
from benchmarks.gpu.items import Race, WholeModel, read_items
from benchmarks.gpu.rig import Rig, UnusableError
from benchmarks.gpu.timing import Turns
from boltgen.bench.slices import ResultsError, Slice
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from
from tests.gpu_suite.conftest import run_suite
from tests.measure.stub_worker import DEVICE


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


def beside(capturing, replayed, **options: float) -> tuple[dict, dict]:
    """`Rig.beside` with a stand-in for what samples; each failure is forgotten by the runtime."""
    forgotten: list[bool] = []
    rig = SimpleNamespace(
        calling=lambda replay, *, per_call: replayed(replay, per_call),
        runtime=SimpleNamespace(cudaGetLastError=lambda: forgotten.append(True)),
    )
    rig._forgotten = partial(Rig._forgotten, rig)
    samplers, errors = Rig.beside(rig, capturing, **options)
    assert len(forgotten) == len(errors)
    return samplers, errors


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
    samplers, errors = beside(capturing, Replayed)
    assert {name: (one.replay, one.launches) for name, one in samplers.items()} == {
        "eager": (print, 3)
    }
    assert errors == {"compiled": "RuntimeError: no compiler", "spoilt": "RuntimeError: no replays"}
    assert closed == [refuses]


def test_columns_that_take_too_long_leave_the_others():
    def hangs() -> Replay:
        while True:
            time.sleep(0.01)

    def replayed(replay, launches: int) -> SimpleNamespace:
        return SimpleNamespace(sample_us=lambda samples: [1.0])

    capturing = {"eager": lambda: Replay(print, 3), "compiled": hangs}
    samplers, errors = beside(capturing, replayed, most_s=0.1)
    assert set(samplers) == {"eager"}
    assert errors == {"compiled": "TimeoutError: it took over 1 s"}


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


@pytest.mark.parametrize(
    ("left", "measured"),
    [
        ((60.0, True), ["padding", "conv"]),  # models and epilogues are for another run
        ((60.0, False), ["padding", "epilogue", "models", "conv"]),  # nothing is compiled for them
        ((600.0, True), ["padding", "epilogue", "models", "conv"]),
        ((5.0, True), []),
    ],
)
def test_what_does_not_fit_into_the_time_left_is_for_another_run(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: tuple, measured: list[str]
):
    """`left`: seconds, and whether there is a PyTorch."""
    left_s, vendor = left
    by_section = {one.section: one for one in read_items(bundle / "items-sm_80.json.xz")}
    model = next(
        one for one in read_items(bundle / "items-sm_80.json.xz") if type(one) is WholeModel
    )
    items = [by_section["padding"], by_section["epilogue"], model, by_section["conv"]]
    monkeypatch.setattr(worker, "run_item", lambda rig, item: ("done", {"seconds": 0.0}))
    rig = SimpleNamespace(vendor=vendor)

    def run(wanted: list) -> tuple[list[str], int]:
        kept = Slice(tmp_path / "slice-1-of-1.json", 1, 1)
        status = worker.run_slice(rig, wanted, kept, time.monotonic() + left_s)
        return [key.partition("/")[0] for key in kept.items], status

    whole = len(measured) == len(items)
    assert run(items) == (measured, worker.FINISHED if whole else worker.OUT_OF_TIME)
    if measured:
        assert run([model]) == (["models"], worker.FINISHED)  # the first of a process begins


def test_a_device_gets_the_kernels_that_make_the_most_of_it():
    def packed(*arches: str, device: str = "sm_90") -> str:
        return worker.packed_arch(replace(DEVICE, arch=device), arches)

    assert packed("sm_80", "sm_90", "sm_90a") == "sm_90a"
    assert packed("sm_80", "sm_90") == "sm_90"
    with pytest.raises(UnusableError, match=r"is of sm_90; .* kernels for sm_80: .*ARCH=sm_90a"):
        packed("sm_80")
    with pytest.raises(UnusableError, match=r"is of sm_37; .*ARCH=sm_37"):
        packed("sm_80", device="sm_37")


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
