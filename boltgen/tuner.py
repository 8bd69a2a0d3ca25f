"""`boltgen.tune`: a model in, measurements of its kernels into the database.

Arrow: model to tasks to records; `boltgen.compile` reads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from boltgen.arch import Arch
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.device.asked_arch import NATIVE, asked_arch, native_arch
from boltgen.errors import DeviceError, TuningError
from boltgen.intake import given
from boltgen.intake.choices import RestTuning
from boltgen.ir.outcome import DeviceKind
from boltgen.measure.bench import BenchOptions, open_cuda, open_vgpu
from boltgen.options import DEFAULT_ARCH, TuneOptions
from boltgen.options.option import chosen, takes
from boltgen.pipeline import PipelineOptions
from boltgen.problems.workload import Workload
from boltgen.stored import database_path, lock_folder
from boltgen.tuning.choice.select import Task, distinct
from boltgen.tuning.database.database import Database
from boltgen.tuning.device.bench import Bench
from boltgen.tuning.device.replay import RecordedBench
from boltgen.tuning.rest.tasks import Rest
from boltgen.tuning.session.ansor_scheduler import Gradient
from boltgen.tuning.session.objectives import Latencies, Total
from boltgen.tuning.session.options import SessionOptions
from boltgen.tuning.session.progress import Quiet
from boltgen.tuning.session.report import SessionReport
from boltgen.tuning.session.scheduler import ByWeight, Scheduler
from boltgen.tuning.session.session import Session
from boltgen.tvm_build.model import Model, import_model, partition, tasks_of_model


@takes(TuneOptions)
def tune(
    model: object | Sequence[object],
    arch: str | None = None,
    options: TuneOptions | None = None,
    **overrides: Any,
) -> SessionReport:
    """Measure kernels for `model` and record the times: `boltgen.compile` then chooses by them.

    A list of models is tuned in one session, which measures shared workloads once. Trials in the
    database are not measured again: an interrupted session goes on where it was. With `fuse`,
    products in sequence are also measured as one back-to-back kernel. `arch` defaults to the
    architecture of the GPU to measure on, and to sm_80 on other devices. The keyword arguments are
    the fields of `boltgen.TuneOptions`, and come before `options`.

    Example: `boltgen.tune("resnet50.onnx", arch="sm_80", budget="120s", device="vgpu")`.

    Raises:
        ModelImportError: the model cannot be read or imported.
        UnknownArchError: `arch` is not in the table.
        NoLegalConfigError: no kernel configuration is legal for a problem.
        TuningError: the budget is zero or none; another session has the device and is not to be
            waited for.
        DeviceError: the device is not there, or is of another architecture.
        DatabaseError: the database cannot be used.
        ToolchainError: a compiler is missing.
    """
    with open_session(model, arch, chosen(TuneOptions, options, overrides)) as session:
        return session.run()


def _measurable(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks whose operands and results the profiler fills and compares: no floats of
    eight bits, whose kernels are chosen by predicted time.
    """
    return tuple(
        task
        for task in tasks
        if not any(
            layer.problem.in_dtype.is_narrow or layer.problem.out_dtype.is_narrow
            for layer in task.workload.layers
        )
    )


@takes(TuneOptions)
@contextmanager
def open_session(
    model: object | Sequence[object],
    arch: str | None = None,
    options: TuneOptions | None = None,
    **overrides: Any,
) -> Iterator[Session]:
    """Open a session for `model`, for users who want the loop; see `tune`.

    Example:
        with open_session("m.onnx", arch="sm_80", budget="60s") as session:
            for trial, outcome in session.steps():
                print(trial.config, outcome)
    """
    tuning = chosen(TuneOptions, options, overrides)
    row = _arch_of(arch, tuning.device)
    pipeline = PipelineOptions(**tuning.of_model)
    models = model if isinstance(model, (list, tuple)) else [model]
    imported = [import_model(each, pipeline) for each in models]
    tasks = [_measurable(tasks_of_model(each, row.name, pipeline)) for each in imported]
    with open_task_session(tasks, row, tuning, pipeline, imported) as session:
        yield session


@contextmanager
def open_task_session(
    models: Sequence[Sequence[Task]],
    arch: Arch,
    tuning: TuneOptions,
    options: PipelineOptions,
    imported: Sequence[Model] = (),
) -> Iterator[Session]:
    """Open a session for the tasks of each model; its benches and database close with it.

    TVM's own kernels of the `imported` models are tuned beside them, unless `tuning` says
    otherwise.

    Raises:
        TuningError: there are not as many weights, or latencies, as models.
    """
    runs = _runs(models, tuning.weights)
    scheduler = _scheduler(tuning, len(models))
    path = tuning.database or database_path(options.settings)
    with (
        closing(open_bench(tuning.device, arch.name, options)) as bench,
        Database(path) as database,
        _open_rest(imported, arch, tuning, options) as rest,
    ):
        yield Session(
            [task for tasks in models for task in tasks],
            bench,
            database,
            tuning.budget,
            lock_folder=lock_folder(options.settings),
            options=SessionOptions(
                strategy=tuning.strategy,
                cost_model=tuning.cost_model,
                scheduler=scheduler,
                runs=runs,
                level=tuning.level,
                seed=tuning.seed,
                wait=tuning.wait,
            ),
            rest=rest,
            observer=tuning.observer,
        )


@contextmanager
def _open_rest(
    imported: Sequence[Model], arch: Arch, tuning: TuneOptions, options: PipelineOptions
) -> Iterator[Rest | None]:
    """Open the tuning of TVM's kernels of the models; None, with a warning, if it is impossible."""
    kind, _, place = tuning.device.partition(":")
    device = DeviceKind(kind), int(place or 0) if kind == DeviceKind.CUDA.value else 0
    weights = tuning.weights or [1.0] * len(imported)
    kept = []
    if tuning.rest is RestTuning.ON and device[0] is not DeviceKind.RECORDED:
        for model, weight in zip(imported, weights, strict=True):
            partition(model, arch.name, options)
            kept.append((model.rest_functions(arch), weight))
    if not any(functions for functions, _ in kept):
        yield None
        return
    warn = (tuning.observer or Quiet()).warn
    # By its name: a process with Relay's TVM has none of what it needs.
    runtime = importlib.import_module("boltgen.tvm_build.rest.tasks")
    try:
        rest: Rest = runtime.TvmRest(
            kept,
            device,
            arch,
            options.toolchain or find_toolchain(options.settings),
            options.cache or Cache(options.settings.cache_dir),
            jobs=options.jobs or options.settings.jobs,
            seed=tuning.seed,
            warn=warn,
        )
    except (TuningError, DeviceError) as error:
        warn(f"what TVM keeps is not tuned: {error}; --rest off leaves it out")
        yield None
        return
    with closing(rest):
        yield rest


def _runs(
    models: Sequence[Sequence[Task]], weights: Sequence[float]
) -> tuple[dict[Workload, float], ...]:
    """Return how often each model runs its workloads, times its weight."""
    _require_one_each("weights", weights or [1.0] * len(models), len(models))
    return tuple(
        {
            task.workload: weight * task.occurrences
            for task in distinct(tasks)
            if not task.is_alternative
        }
        for tasks, weight in zip(models, weights or [1.0] * len(models), strict=True)
    )


def _scheduler(tuning: TuneOptions, models: int) -> Scheduler:
    """Grant trials by shares, as good for the total as gradients (`benchmarks.search_arena`)."""
    objective = tuning.objective
    if isinstance(objective, Latencies):
        _require_one_each("latencies", objective.most_us, models)
    if isinstance(objective, Total) and tuning.patience is None:
        return ByWeight()
    return Gradient(objective, patience=tuning.patience, seed=tuning.seed)


def _require_one_each(what: str, numbers: Sequence[float], models: int) -> None:
    if len(numbers) != models:
        raise TuningError(f"{len(numbers)} {what} for {models} models: give one for each of them")


def _arch_of(asked: str | None, device: str) -> Arch:
    """The row to measure kernels for, on `device`."""
    kind, _, place = device.partition(":")
    if DeviceKind(kind) is not DeviceKind.CUDA:
        return asked_arch(asked or DEFAULT_ARCH)
    if asked is None or asked == NATIVE:
        return native_arch(int(place or 0), "measure on the virtual GPU: --device vgpu")
    return asked_arch(asked)


# Opens a bench of kernels for an architecture; the text follows the device's kind.
BenchOpener: TypeAlias = Callable[[str, str, BenchOptions], Bench]
BENCHES: dict[DeviceKind, BenchOpener] = {
    DeviceKind.CUDA: lambda arch, place, how: open_cuda(how, arch=arch, ordinal=int(place or 0)),
    DeviceKind.VGPU: lambda arch, place, how: open_vgpu(arch, how),
    DeviceKind.RECORDED: lambda arch, place, how: RecordedBench(Path(place), arch),
}


def open_bench(device: str, arch: str, options: PipelineOptions) -> Bench:
    """Open the bench that `device` names, for kernels of `arch`.

    Raises:
        DeviceError: there is no such device, or it is of another architecture.
        ToolchainError: a compiler is missing.
        RecordError: a recorded device's file holds what is no record.
        TuningError: it has no records for `arch`, or records of several devices.
    """
    kind, _, place = given.device("device", device).partition(":")
    how = BenchOptions(
        settings=options.settings,
        tools=options.toolchain,
        cache=options.cache,
        jobs=options.jobs,
        reporter=options.reporter,
    )
    bench = BENCHES[DeviceKind(kind)](arch, place, how)
    found = bench.device
    if found.arch == arch:
        return bench
    bench.close()
    raise DeviceError(
        f"{found.name} is a device of {found.arch}; kernels for {arch} are not measured on it: "
        f"give --arch {found.arch}"
    )
