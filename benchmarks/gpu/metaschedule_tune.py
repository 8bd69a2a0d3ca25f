"""MetaSchedule, TVM's tuner, on one model.

Arrow: a model to the best record of each of its kernels, in a `JSONDatabase`. Needs TVM, compilers
and a device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import tvm_ffi
from tvm.s_tir.meta_schedule import tune_tasks
from tvm.s_tir.meta_schedule.database import Database, JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.extracted_task import ExtractedTask
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks
from tvm.s_tir.meta_schedule.task_scheduler import TaskScheduler
from tvm.s_tir.meta_schedule.tune_context import TuneContext
from tvm.s_tir.meta_schedule.utils import fork_seed

from benchmarks.gpu.device_process import DeviceProcess
from benchmarks.gpu.metaschedule_bench import CandidateBuilder, CandidateRunner, Deadline
from benchmarks.gpu.shapes import ModelShape
from benchmarks.gpu.tvm_alone import fused, load_intrinsics, onnx_model, plain_module
from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.progress import Reporter
from boltgen.build.toolchain import Toolchain
from boltgen.runtime.cuda_compiler import CudaCompiler
from boltgen.runtime.link import cuda_target
from models.parameters import PeriodicParameters

# What TVM gives a candidate that did not run is 10^10 s.
_FAILED_S = 1e9


class Search(Enum):
    """How candidates are found.

    EVOLUTIONARY is MetaSchedule's own, with its cost model; RANDOM takes no time and finds little.
    """

    EVOLUTIONARY = "evolutionary"
    RANDOM = "random"


# Of each, TVM's names of the strategy and of the cost model.
_TVM_NAMES = {
    Search.EVOLUTIONARY: ("evolutionary", "xgb"),
    Search.RANDOM: ("replay-trace", "random"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to tune: candidates in all, minutes in all, and candidates of a kernel at a time."""

    trials: int
    minutes: float
    per_round: int = 64
    search: Search = Search.EVOLUTIONARY
    jobs: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What tuning came to: `kernels` were wanted, `tuned` of them have a schedule that runs."""

    kernels: int
    tuned: int
    trials: int
    seconds: float


def tune(
    shape: ModelShape,
    arch: Arch,
    effort: Effort,
    *,
    device: DeviceProcess,
    folder: Path,
    tools: Toolchain,
    cache: Cache,
    reporter: Reporter,
) -> Tuned:
    """Tune a model's kernels; the best records go to a `JSONDatabase` in `folder`."""
    load_intrinsics()
    target = cuda_target(arch)
    module = plain_module(onnx_model(shape, PeriodicParameters()))
    tasks = extract_tasks(fused(module, target), target)
    work = folder / "work"
    work.mkdir()
    database = JSONDatabase(work_dir=str(work))
    scheduler = TaskScheduler.create("gradient", seed=effort.seed)
    compiler = CudaCompiler(arch, tools, cache)
    began = time.monotonic()
    deadline = Deadline(began + 60.0 * effort.minutes)
    registry = (tvm_ffi.get_global_func, tvm_ffi.register_global_func)
    reporter.start("tuning", effort.trials)
    with compiler.installed(compiler.compile, *registry):
        try:
            tune_tasks(
                tasks=_contexts(tasks, effort),
                task_weights=[task.weight for task in tasks],
                work_dir=str(work),
                max_trials_global=effort.trials,
                num_trials_per_iter=effort.per_round,
                builder=CandidateBuilder(work, tools, effort.jobs, deadline, reporter),
                runner=CandidateRunner(device, reporter),
                database=database,
                cost_model=_TVM_NAMES[effort.search][1],
                task_scheduler=scheduler,
            )
        except Exception:
            if not deadline.has_ended_it:
                raise
            _take_what_has_run(scheduler)
        finally:
            reporter.end()
    seconds = time.monotonic() - began
    trials = database.get_all_tuning_records()
    best = _keep_best(trials, folder)
    return Tuned(kernels=len(tasks), tuned=best, trials=len(trials), seconds=seconds)


def _contexts(tasks: list[ExtractedTask], effort: Effort) -> list[TuneContext]:
    """As `extracted_tasks_to_tune_contexts` makes them, which works once in a process only."""
    return [
        TuneContext(
            mod=task.dispatched[0],
            target=task.target,
            space_generator="post-order-apply",
            search_strategy=_TVM_NAMES[effort.search][0],
            task_name=task.task_name,
            rand_state=seed,
            num_threads=effort.jobs,
        ).clone()
        for task, seed in zip(tasks, fork_seed(effort.seed, len(tasks)), strict=True)
    ]


def _take_what_has_run(scheduler: TaskScheduler) -> None:
    """TVM takes a kernel's results only when it is that kernel's turn again, or in the end."""
    for index, task in enumerate(scheduler.tasks_):
        if task.runner_futures is not None:
            scheduler.join_running_task(index)


def _keep_best(records: list[TuningRecord], folder: Path) -> int:
    """Write each workload's best record; how many have one."""
    best: dict[int, tuple[float, TuningRecord]] = {}
    for record in records:
        times_s = [float(time_s) for time_s in record.run_secs]
        mean_s = sum(times_s) / len(times_s)
        workload = hash(record.workload)
        if mean_s < best.get(workload, (_FAILED_S, None))[0]:
            best[workload] = mean_s, record
    kept: Database = JSONDatabase(work_dir=str(folder))
    for _, record in best.values():
        kept.commit_tuning_record(
            TuningRecord(
                record.trace,
                kept.commit_workload(record.workload.mod),
                record.run_secs,
                record.target,
                record.args_info,
            )
        )
    return len(best)
