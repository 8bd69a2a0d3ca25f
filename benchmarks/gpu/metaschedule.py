"""Tunes models with MetaSchedule, TVM's tuner, on a GPU, and keeps what it finds.

    python -m benchmarks.gpu.metaschedule resnet50-b32 --arch sm_90 --trials 20000

The model is tuned by TVM's own `tune_relax`, as section models runs it without boltgen: in FP16 and
NHWC, with batch norms folded. Each kernel's best schedule goes to
`benchmarks/recorded/<gpu>/metaschedule/<model>/`, from where `make gpu-bundle` takes it. Under
`boltgen vgpu run --` it runs on the virtual GPU, whose logs only `--quick` bundles take.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import tvm
import tvm_ffi
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.s_tir.meta_schedule.database import Database, JSONDatabase
from tvm.s_tir.meta_schedule.relax_integration import tune_relax
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

from benchmarks.gpu import shapes
from benchmarks.gpu.tvm_models import fused, load_intrinsics, onnx_model, plain_module
from benchmarks.record import ROOT, commit
from boltgen.arch import arch_named
from boltgen.bench.results import device_folder
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.settings import settings_from
from boltgen.tvm_build.cuda_compiler import CALLBACK, compile_cuda
from boltgen.tvm_build.relax_link import cuda_target
from models.parameters import PeriodicParameters

RECORDED = ROOT / "benchmarks" / "recorded"
# A process of TVM's own starts with importing TVM, and the virtual GPU takes its time.
_MOST_S = 300.0


def prepare_worker(arch: str, cache: str) -> None:
    """Let a process of TVM's builder compile with boltgen's nvcc, to SASS and PTX."""
    load_intrinsics()
    tools = find_toolchain(settings_from())

    def compile_text(text: str) -> bytes:
        return compile_cuda(text, arch, tools, Cache(Path(cache))).path.read_bytes()

    tvm_ffi.register_global_func(CALLBACK, compile_text, override=True)


def record(
    name: str, arch: str, trials: int, recorded: Path, *, jobs: int, search: str = "evolutionary"
) -> Path:
    """Tune a model, and keep each kernel's best schedule in a folder of `recorded`.

    `search` "replay-trace" draws candidates at random, which needs no cost model.

    Raises:
        RuntimeError: this process has another device, or no candidate runs.
    """
    device, shape = tvm.cuda(0), (shapes.models() | shapes.small_models())[name]
    found = "sm_" + device.compute_version.replace(".", "") if device.exist else "no arch"
    if found != arch:
        raise RuntimeError(f"the GPU here is of {found}, not of {arch}: give that --arch")
    is_virtual = device.device_name.startswith("vgpu")
    load_intrinsics()
    target = cuda_target(arch_named(arch))
    module = fused(plain_module(onnx_model(shape, PeriodicParameters())), target)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        database = tune_relax(
            module,
            {},
            target,
            work,
            max_trials_global=trials,
            num_trials_per_iter=min(trials, 64),
            builder=LocalBuilder(
                max_workers=jobs,
                timeout_sec=_MOST_S,
                initializer=partial(prepare_worker, arch, work),
            ),
            runner=LocalRunner(
                timeout_sec=_MOST_S,
                evaluator_config=EvaluatorConfig(1, 1, 0) if is_virtual else None,
            ),
            cost_model="xgb" if search == "evolutionary" else "random",
            strategy=search,
        )
        seconds = time.monotonic() - started
        folder = recorded / device_folder(device.device_name) / "metaschedule" / name
        folder.mkdir(parents=True, exist_ok=True)
        tuned = _keep_best(database, folder)
        tried = len(database.get_all_tuning_records())
    if not tuned:
        raise RuntimeError(f"none of {tried} candidates for {name} runs: give more --trials")
    about = {
        "model": name,
        "gpu": device.device_name,
        "arch": arch,
        "virtual": is_virtual,
        "tvm": tvm.__version__,
        "search": search,
        "trials": tried,
        "tuning_s": round(seconds, 1),
        "tuned": tuned,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return folder


def _keep_best(database: Database, folder: Path) -> int:
    """Write each workload's best record, in place of what is there; how many have one."""
    for old in folder.glob("database_*.json"):
        old.unlink()
    kept = JSONDatabase(work_dir=str(folder))
    workloads = {hash(one.workload): one.workload for one in database.get_all_tuning_records()}
    count = 0
    for workload in workloads.values():
        for best in database.get_top_k(workload, 1):
            kept.commit_workload(workload.mod)
            kept.commit_tuning_record(best)
            count += 1
    return count


def find_logs(recorded: Path, arch: str, *, virtual: bool) -> Mapping[str, Path]:
    """Find each model's latest log of a GPU of `arch`, or with `virtual` of the virtual GPU."""
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(recorded.glob("*/metaschedule/*/about.json")):
        about = json.loads(path.read_text())
        if (about["arch"], about["virtual"]) == (arch, virtual):
            log = about["date"], path.parent
            found[about["model"]] = max(log, found.get(about["model"], log))
    return {model: folder for model, (_, folder) in found.items()}


def main() -> None:
    known = shapes.models() | shapes.small_models()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=known, metavar="MODEL", help=", ".join(known))
    parser.add_argument("--arch", required=True, help="the GPU's, such as sm_90")
    parser.add_argument("--trials", type=int, default=20000, help="default 20000")
    parser.add_argument("--search", default="evolutionary", help="TVM's name of the strategy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once")
    parser.add_argument("--out", type=Path, default=RECORDED, help="default: benchmarks/recorded")
    asked = parser.parse_args()
    folder = record(
        asked.model, asked.arch, asked.trials, asked.out, jobs=asked.jobs, search=asked.search
    )
    print(f"{folder}: {(folder / 'about.json').read_text()}")


if __name__ == "__main__":
    main()
