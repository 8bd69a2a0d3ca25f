"""Workers: what costs an item, a column or a run, and what is left for another run."""

from __future__ import annotations

import contextlib
import json
import lzma
import math
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

from benchmarks.gpu import races, rig, run_gpu_suite, worker
from benchmarks.gpu.building import unpack
from benchmarks.gpu.built import Builders, Built, Progress, State
from benchmarks.gpu.capture import Replay
from benchmarks.gpu.items import Race, WholeModel, read_items
from benchmarks.gpu.rig import Rig, UnusableError
from benchmarks.gpu.timing import Turns
from boltgen.bench.results import FILE, Results, ResultsError
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.settings import settings_from
from tests.gpu_suite.conftest import run_suite
from tests.measure.stub_worker import DEVICE


def with_races(bundle: Path, folder: Path, statement: str) -> Path:
    """A copy of `bundle` whose races begin with `statement`."""
    copy = folder / "copy"
    shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns("work"))
    (copy / "work").symlink_to(bundle / "work")
    source = copy / "benchmarks" / "gpu" / "races.py"
    first = "    problem = item.problem\n"
    source.write_text(source.read_text().replace(first, f"    {statement}\n{first}", 1))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"].pop("benchmarks/gpu/races.py")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def beside(
    columns, replayed, deadline: float = math.inf, vendor: object = "vendor", **options: float
) -> tuple[dict, dict]:
    """`Rig.beside` with a stand-in for what samples; each failure is forgotten by the runtime."""
    forgotten: list[bool] = []
    rig = SimpleNamespace(
        vendor=vendor,
        deadline=deadline,
        calling=lambda replay, *, per_call: replayed(replay, per_call),
        runtime=SimpleNamespace(cudaGetLastError=lambda: forgotten.append(True)),
    )
    rig.forgotten = partial(Rig.forgotten, rig)
    samplers, errors = Rig.beside(rig, columns, **options)
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
    samplers, errors = beside(lambda vendor: capturing, Replayed)
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
    samplers, errors = beside(lambda vendor: capturing, replayed, most_s=0.1)
    assert set(samplers) == {"eager"}
    assert errors == {"compiled": "TimeoutError: it took over 1 s"}
    # The end of the run comes before the columns' own limit.
    soon = time.monotonic() + rig._LAST_S
    samplers, errors = beside(lambda vendor: capturing, replayed, deadline=soon, most_s=600.0)
    assert set(samplers) == {"eager"}
    assert errors == {"compiled": "TimeoutError: it took over 1 s"}


def test_a_failure_while_columns_are_made_costs_no_column_of_ours():
    def fails(vendor: object) -> dict:
        raise AttributeError("no such backend")

    assert beside(fails, print) == ({}, {"pytorch": "AttributeError: no such backend"})
    assert beside(fails, print, vendor=None) == ({}, {})


def test_a_full_disk_ends_a_run_and_costs_no_item(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packed = tmp_path / "kernel.so.xz"
    packed.write_bytes(lzma.compress(b"library"))
    full = Path("/dev/full")  # every byte is one too many
    with pytest.raises(ResultsError, match=r"/dev/full/.* cannot be written .*--work"):
        unpack(packed, full / "kernel.so")
    with pytest.raises(ResultsError, match=r"/dev/full/.* cannot be written .*--work"):
        State(full).keep("kernel", Built(path="x"))

    def fails(rig: object, item: object) -> dict:
        raise ResultsError("full")

    monkeypatch.setitem(worker._RUNNERS, Race, fails)
    race = next(one for one in read_items(bundle / "items-sm_80.json.xz") if type(one) is Race)
    with pytest.raises(ResultsError, match="full"):
        worker.run_item(SimpleNamespace(records=[]), race)


def test_results_on_a_full_disk_are_those_so_far(bundle: Path, results: Path, tmp_path: Path):
    """`--out` is a file system without room: what was written before is whole."""
    shutil.copytree(results, tmp_path / "out")
    path = tmp_path / "out" / FILE
    form = json.loads(path.read_text())
    form["items"].popitem()
    path.write_text(text := json.dumps(form))
    path.with_suffix(".tmp").symlink_to("/dev/full")
    done = run_suite(bundle, tmp_path / "out")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert path.read_text() == text


COMPILES, EAGER = (SimpleNamespace(compiles=compiles) for compiles in (True, False))


@pytest.mark.parametrize(
    ("left", "measured"),
    [
        ((60.0, COMPILES), ["padding", "conv"]),  # models and epilogues are for another run
        ((60.0, EAGER), ["padding", "epilogue", "models", "conv"]),
        ((60.0, None), ["padding", "epilogue", "models", "conv"]),
        ((600.0, COMPILES), ["padding", "epilogue", "models", "conv"]),
        ((5.0, COMPILES), []),
    ],
)
def test_what_does_not_fit_into_the_time_left_is_for_another_run(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: tuple, measured: list[str]
):
    """`left`: seconds, and the PyTorch that there is, which takes time where it compiles."""
    left_s, vendor = left
    by_section = {one.section: one for one in read_items(bundle / "items-sm_80.json.xz")}
    model = next(
        one for one in read_items(bundle / "items-sm_80.json.xz") if type(one) is WholeModel
    )
    items = [by_section["padding"], by_section["epilogue"], model, by_section["conv"]]
    monkeypatch.setattr(worker, "run_item", lambda rig, item: ("done", {"seconds": 0.0}))
    rig = SimpleNamespace(vendor=vendor, builders=Builders(0, State(tmp_path)))

    def run(wanted: list) -> tuple[list[str], int]:
        kept = Results(tmp_path / FILE)
        status = worker.measure_all(rig, wanted, kept, time.monotonic() + left_s)
        return [key.partition("/")[0] for key in kept.items], status

    whole = len(measured) == len(items)
    assert run(items) == (measured, worker.FINISHED if whole else worker.OUT_OF_TIME)
    if measured:
        assert run([model]) == (["models"], worker.FINISHED)  # the first of a process begins


def test_a_bundle_for_another_architecture_is_refused():
    def packed(arch: str, device: str = "sm_90") -> str:
        return worker.packed_arch(replace(DEVICE, arch=device), arch)

    assert packed("sm_90a") == "sm_90a"
    assert packed("sm_90") == "sm_90"
    with pytest.raises(UnusableError, match=r"is of sm_90; .* is for sm_80: .*ARCH=sm_90a"):
        packed("sm_80")
    with pytest.raises(UnusableError, match=r"is of sm_37; .*ARCH=sm_37"):
        packed("sm_80", device="sm_37")


class Compilers:
    """What `Builders` is to who measures: `running` of 4, and what was asked of them."""

    def __init__(self, running: int) -> None:
        self._running, self.jobs, self.asked = running, 4, []

    def stop(self) -> None:
        self.asked.append("stop")

    def resume(self) -> None:
        self.asked.append("resume")

    def running(self) -> int:
        return self._running if self.asked[-1] == "resume" else 0


@pytest.mark.parametrize(
    ("running", "beside_us", "overlap", "said"),
    [
        (4, 10.05, True, "4 compilers change the time by +0.50%: measuring goes on beside them"),
        (4, 10.2, False, "4 compilers change the time by +2.00%: they are stopped meanwhile"),
        (2, 10.0, False, "not told: 2 compilers ran, and 3 are wanted; they are stopped"),
        (0, 10.0, False, "not told: 0 compilers ran, and 3 are wanted; they are stopped"),
    ],
)
def test_compilers_go_on_where_they_change_nothing(
    running: int, beside_us: float, overlap: bool, said: str
):
    builders = Compilers(running)

    def sample_us(samples: int) -> list[float]:
        return [10.0 if builders.asked[-1] == "stop" else beside_us] * samples

    sampler = SimpleNamespace(sample_us=sample_us, close=lambda: None)
    rig = SimpleNamespace(
        builders=builders,
        turns=Turns(),
        best=lambda product: ("choice", SimpleNamespace(median_us=10.0)),
        prepared=lambda product, choice: choice,
        in_turn=lambda steps, once_us: sampler,
    )
    found = races.run_overlap(rig, SimpleNamespace(product="product"))
    assert (found["overlap"], found["verdict"]) == (overlap, said)
    assert found["columns"]["boltgen"]["median_us"] == 10.0
    assert ("beside_compilers" in found["columns"]) == (running >= 3)
    assert builders.asked[-1] == "stop"  # whatever was found, the next item says


def test_what_was_built_is_known_to_who_comes_later(tmp_path: Path):
    state = State(tmp_path)
    assert state.find("kernel") is None
    assert state.progress() == Progress()
    state.keep("kernel", Built(path=str(tmp_path / "kernel.so"), content="c", toolchain="t"))
    assert state.find("kernel") is None  # its library is gone
    (tmp_path / "kernel.so").write_bytes(b"x")
    found = State(tmp_path).find("kernel")
    assert (found.path, found.content, found.toolchain) == (str(tmp_path / "kernel.so"), "c", "t")
    state.keep("broken", Built(error="no such instruction"))
    assert state.find("broken").error == "no such instruction"
    state.tell(Progress(running=3, left=9))
    assert State(tmp_path).progress() == Progress(running=3, left=9)
    assert list(tmp_path.rglob("*.json")).__len__() == 3


def test_what_is_worth_more_is_not_kept_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An item far behind is built; those before it are not, until compilers ran a while."""
    state, measured = State(tmp_path), []
    (tmp_path / "lib.so").write_bytes(b"x")
    there = Built(path=str(tmp_path / "lib.so"))
    items = [f"item{number}" for number in range(worker._WINDOW + 1)]
    monkeypatch.setattr(worker, "needs_of", lambda item: (item,))
    monkeypatch.setattr(worker, "key_of", lambda item: item)
    monkeypatch.setattr(worker, "_POLL_S", 0.0)
    waits = iter(items)

    class Slow:
        pid, may_overlap = 1, False
        have_ended = False

        def __init__(self) -> None:
            self.state = state
            state.keep(items[-1], there)

        def stop(self) -> None:
            pass

        def resume(self) -> None:
            if (item := next(waits, None)) is not None:
                state.keep(item, there)

    monkeypatch.setattr(worker, "measure", lambda rig, item, kept: measured.append(item) or True)
    rig = SimpleNamespace(vendor=None, builders=Slow())
    kept = Results(tmp_path / FILE)
    assert worker.measure_all(rig, items, kept, time.monotonic() + 60.0) == worker.FINISHED
    assert measured[0] == "item0"
    assert set(measured) == set(items)


def test_a_user_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch):
    """PyTorch's caches are named by the user, who in a container may be a number only."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert run_gpu_suite.environment(Path("work"))["LOGNAME"] == f"user-{os.getuid()}"
    monkeypatch.setenv("USER", "somebody")
    assert "LOGNAME" not in run_gpu_suite.environment(Path("work"))


def test_a_worker_leaves_without_farewells(bundle: Path, tmp_path: Path):
    """After a fault on the device those of libraries hang, or crash."""
    copy = with_races(bundle, tmp_path, "__import__('atexit').register(__import__('os').abort)")
    done = run_suite(copy, tmp_path / "out", "--sections", "gemm")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("finished\n")


def test_an_item_that_hangs_costs_itself(bundle: Path, tmp_path: Path):
    """Its worker is killed when the item's time is over, and another one measures the rest."""
    copy = with_races(bundle, tmp_path, "__import__('time').sleep(600)")
    source = copy / "benchmarks" / "gpu" / "worker.py"
    source.write_text(source.read_text().replace("_MOST_ITEM_S = 60.0", "_MOST_ITEM_S = 3.0", 1))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"].pop("benchmarks/gpu/worker.py")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = run_suite(copy, tmp_path / "out", "--sections", "gemm,tune")
    assert done.returncode == 0, done.stderr
    items = json.loads((tmp_path / "out" / FILE).read_text())["items"]
    assert {key: item["status"] for key, item in items.items()} == {
        "gemm/128x128x64": "failed",
        "tune/128x128x64-1": "done",
    }
    assert "it took over 3 s" in items["gemm/128x128x64"]["error"]


def test_without_pytorch_there_are_no_columns_of_it_and_the_run_goes_on():
    """PyTorch is here, and sees no GPU."""
    vendor, why = worker._vendor(wanted=True, compiles=True)
    assert vendor is None
    assert "sees no GPU" in why
    assert worker._vendor(wanted=False, compiles=True) == (None, "not asked for")


def test_a_suite_that_is_killed_goes_on_where_it_was(bundle: Path, tmp_path: Path):
    """Killed in a race, with no time for last words; its worker ends with it."""
    settings, out = settings_from(), tmp_path / "out"
    sections = ("--sections", "check,gemm")
    command = [sys.executable, "run_gpu_suite.py", "--virtual", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--work", str(bundle / "work"), *sections],
        cwd=with_races(bundle, tmp_path, "__import__('time').sleep(120)"),
        env=vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_80"}),
        stdout=subprocess.PIPE,
        text=True,
    )
    current = out / "current-item.json"
    with process:
        at_hand = ""
        while "gemm/" not in at_hand:
            assert process.poll() is None
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):  # between two items
                at_hand = current.read_text()
        process.kill()
        said = process.stdout.read()  # ends when the worker has ended too
    path = out / FILE
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
    items = json.loads((tmp_path / "out" / FILE).read_text())["items"]
    by_section = {key.partition("/")[0]: item["status"] for key, item in items.items()}
    assert by_section == {"gemm": "failed", "tune": "done"}
    assert "the worker died of it (status -6" in items["gemm/128x128x64"]["error"]
