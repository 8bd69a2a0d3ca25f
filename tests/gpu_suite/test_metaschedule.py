"""Logs of MetaSchedule's: recorded on the virtual GPU, found, refused and used."""

from __future__ import annotations

import lzma
import shutil
import time
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.gpu import device_process, metaschedule, metaschedule_bench
from benchmarks.gpu.device_process import DeviceFacts, DeviceProcess, time_library
from benchmarks.gpu.items import WholeModel
from benchmarks.gpu.metaschedule import main, record
from benchmarks.gpu.metaschedule_tune import Effort, Search, Tuned
from benchmarks.gpu.models_run import TUNED, TVM, tvm_columns
from benchmarks.gpu.page import paper_rows
from benchmarks.gpu.shapes import small_models
from benchmarks.gpu.tuned_log import LogError, TunedLog, find_logs
from benchmarks.gpu.tvm_alone import Coverage, build_tuned, plain_module
from benchmarks.gpu.wanted import Wanted
from benchmarks.gpu.wanted_models import models
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.progress import Silent
from boltgen.build.toolchain import find_toolchain
from boltgen.runtime.device import DeviceKind, provide_cuda_runtime
from boltgen.settings import settings_from
from models.onnx_graph import GraphBuilder
from models.parameters import PeriodicParameters
from tests.gpu_suite.conftest import KERNELS, TUNED_KERNELS, TUNED_MODEL

RANDOM = Effort(trials=2 * KERNELS, minutes=60, per_round=1, search=Search.RANDOM)


def recording(folder: Path, effort: Effort = RANDOM, arch: str = "sm_80") -> TunedLog:
    """Of the tests' one model."""
    return record(
        TUNED_MODEL,
        small_models()[TUNED_MODEL],
        arch_named(arch),
        effort,
        device=DeviceKind.VGPU,
        recorded=folder,
        settings=settings_from(),
        cache=Cache(settings_from().cache_dir),
        reporter=Silent(),
    )


@pytest.fixture
def log(recorded: Path, tmp_path: Path) -> TunedLog:
    """A copy that may be changed."""
    folder = tmp_path / "copy"
    (found,) = find_logs(recorded, "sm_80", virtual=True).values()
    shutil.copytree(found.folder, folder)
    return TunedLog(folder, found.about)


def tuned(log: TunedLog, features: int = 64) -> Coverage:
    """What a log has of a model of one product."""
    graph = GraphBuilder("product", parameters=PeriodicParameters(), dtype="float16")
    x = graph.gemm(graph.input("input", (16, 32)), "dense", features=features)
    graph.output(x, "output")
    settings = settings_from()
    provide_cuda_runtime(settings)
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    module = plain_module(graph.build())
    return build_tuned(module, log, arch_named("sm_80"), tools, cache)[1]


def test_a_log_says_how_it_was_recorded(recorded: Path):
    (log,) = find_logs(recorded, "sm_80", virtual=True).values()
    about = log.about
    assert log.folder == recorded / "vgpu-sm-80-a100" / "metaschedule" / TUNED_MODEL
    assert (about.model, about.arch, about.virtual) == (TUNED_MODEL, "sm_80", True)
    assert about.gpu == "vgpu sm_80 (A100)"
    assert (about.kernels, about.tuned, about.trials) == (KERNELS, TUNED_KERNELS, TUNED_KERNELS)
    assert about.tuning_s > 0
    assert about.tvm
    assert about.date
    assert about.by
    assert sum(path.stat().st_size for path in log.folder.iterdir()) < 64 << 10


def test_what_was_tried_in_time_is_kept_the_best_of_each_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Time for two candidates of a kernel."""
    clock = chain([0.0], repeat(float("inf")))
    monkeypatch.setattr(metaschedule_bench, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    log = recording(tmp_path, replace(RANDOM, per_round=2))
    assert (log.about.kernels, log.about.tuned, log.about.trials) == (KERNELS, 1, 2)
    records = lzma.decompress((log.folder / "database_tuning_record.json.xz").read_bytes())
    assert len(records.splitlines()) == 1


def test_a_log_without_a_schedule_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nothing = Tuned(kernels=12, tuned=0, trials=64, seconds=60.0)
    monkeypatch.setattr(DeviceProcess, "facts", lambda _: DeviceFacts("a GPU", "sm_80"))
    monkeypatch.setattr(metaschedule, "tune", lambda *_, **__: nothing)
    message = "none of 64 candidates for repvgg_a0-small runs: give more --trials or --minutes"
    with pytest.raises(LogError, match=message):
        recording(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_nothing_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    said = "no GPU: libcuda.so.1 cannot be loaded; install NVIDIA's driver"
    monkeypatch.setattr(DeviceProcess, "ask", lambda *_: (None, said))
    options = ["--arch", "sm_90", "--search", "random", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["metaschedule", "resnet50-b32", *options])
    assert main() == 1
    assert capsys.readouterr().err == f"error: nothing can be tuned here: {said}\n"


def test_another_gpu_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(DeviceProcess, "facts", lambda _: DeviceFacts("NVIDIA L4", "sm_89"))
    with pytest.raises(LogError, match="NVIDIA L4 is sm_89, not sm_80: give that --arch"):
        recording(tmp_path)


def test_a_missing_cost_model_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(metaschedule.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LogError, match=r"not installed: `pip install 'boltgen\[metaschedule\]'`"):
        recording(tmp_path, replace(RANDOM, search=Search.EVOLUTIONARY))


def test_what_a_candidate_does_to_the_devices_process_is_its_own_affair(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(device_process._MOST_RUN_S, DeviceKind.VGPU, 0.1)
    process = DeviceProcess(DeviceKind.VGPU, "sm_80")
    try:
        assert process.ask(len, "abc") == (3, None)
        assert process.ask(time.sleep, 60) == (None, "it took over 0 s")
        _, died = process.ask(eval, "__import__('os')._exit(3)")
        assert died is not None
        assert "the process died of it" in died
        nothing = str(tmp_path / "nothing.so")
        _, failed = process.ask(time_library, DeviceKind.VGPU, nothing, [])
        assert failed is not None
        assert "nothing.so" in failed
        assert process.ask(len, "ab") == (2, None)
    finally:
        process.close()


def test_the_virtual_gpus_log_is_no_gpus(recorded: Path):
    assert find_logs(recorded, "sm_80") == {}
    assert find_logs(recorded, "sm_90", virtual=True) == {}
    assert set(find_logs(recorded, "sm_80", virtual=True)) == {TUNED_MODEL}


def test_logs_of_two_gpus_are_chosen_from(recorded: Path, tmp_path: Path):
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    other = tmp_path / "another"
    shutil.copytree(tmp_path / "vgpu-sm-80-a100", other)
    message = f"{TUNED_MODEL} was tuned on two GPUs of sm_80: .* give `--gpu vgpu-sm-80-a100`"
    with pytest.raises(LogError, match=message):
        find_logs(tmp_path, "sm_80", virtual=True)
    (log,) = find_logs(tmp_path, "sm_80", virtual=True, gpu="another").values()
    assert log.folder.is_relative_to(other)
    with pytest.raises(LogError, match="has no folder third; it has another, vgpu-sm-80-a100"):
        find_logs(tmp_path, "sm_80", gpu="third")


def test_a_damaged_log_is_named(log: TunedLog, tmp_path: Path):
    (log.folder / "database_workload.json.xz").write_bytes(b"x")
    with pytest.raises(LogError, match=r"copy: database_workload\.json\.xz cannot be read"):
        tuned(log)
    (log.folder / "database_workload.json.xz").write_bytes(lzma.compress(b"[}"))
    with pytest.raises(LogError, match=r"copy: TVM .* cannot read what TVM .* wrote"):
        tuned(log)
    folder = tmp_path / "gpu" / "metaschedule" / "model"
    folder.mkdir(parents=True)
    (folder / "about.json").write_text("{}")
    with pytest.raises(LogError, match=r"about\.json describes no log .*; remove"):
        find_logs(tmp_path, "sm_80")


def test_a_log_that_has_no_kernel_of_the_model_is_refused(log: TunedLog):
    """As another version of TVM's would."""
    other = TunedLog(log.folder, replace(log.about, tvm="0.26.0"))
    message = (
        r"copy: TVM .* makes \d kernels of the model, and not one is among the 4 that TVM "
        r"0\.26\.0 made and tuned; record it anew where its GPU is \(`python -m "
        r"benchmarks\.gpu\.metaschedule repvgg_a0-small --arch sm_80`\), or remove it"
    )
    with pytest.raises(LogError, match=message):
        tuned(other)


def test_a_model_that_has_a_log_has_a_third_library(recorded: Path):
    logs = find_logs(recorded, "sm_80", virtual=True)
    shapes = small_models() | {"another": small_models()[TUNED_MODEL]}
    found = {
        item.name: item for item in models(Wanted(arch_named("sm_80"), None, logs=logs), shapes)
    }
    assert found[TUNED_MODEL].tuned == f"model_{TUNED_MODEL}_tvm_metaschedule"
    assert found["another"].tuned is None


def test_columns_of_tvms_are_those_that_can_be_had():
    item = WholeModel(
        section="models",
        name="m",
        model="m",
        input_shape=(1,),
        ours="o",
        alone="a",
        tuned="t",
        recipe="r",
    )
    real, virtual = {"virtual": False}, {"virtual": True}
    both = {TVM: "a", TUNED: "t"}
    assert tvm_columns(item, real, virtual=False) == (both, {})
    assert tvm_columns(item, real, virtual=True) == (both, {})
    assert tvm_columns(item, virtual, virtual=True) == (both, {})
    symbols, missing = tvm_columns(item, virtual, virtual=False)
    assert symbols == {TVM: "a"}
    assert "tuned on the virtual GPU" in missing[TUNED]
    none = replace(item, tuned=None)
    assert tvm_columns(none, None, virtual=False) == (
        {TVM: "a"},
        {TUNED: "no tuned log is recorded"},
    )


def test_ansors_ratio_stands_beside_metaschedules_where_there_is_one():
    key = "models/vgg16-b32"
    ratios = {"tvm": {"ratio": 5.0}, "tvm_metaschedule": {"ratio": 3.0}}

    def shown(ratios: dict[str, dict[str, float]]) -> list[str]:
        items = {key: {"status": "done", "ratios": ratios}}
        (row,) = [row for row in paper_rows(items) if row[0] == key]
        return list(row[1:5])

    assert shown(ratios) == ["tvm_metaschedule", "4.20x", "3.00x", "measured"]
    assert shown({"tvm": ratios["tvm"]}) == ["tvm", "4.20x", "5.00x", "measured"]
    assert shown({}) == ["tvm_metaschedule", "4.20x", "-", "not measured"]
