"""`boltgen.tune`: a model in, measurements of its kernels into the database.

Arrow: model to tasks to records; `boltgen.compile` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from boltgen.arch import arch_named
from boltgen.build.progress import Reporter, Silent
from boltgen.errors import DeviceError
from boltgen.intake.numerals import shown, whole_number
from boltgen.measure.bench import BenchOptions, open_cuda, open_vgpu
from boltgen.partitioned import accumulator_named, frontend_named, import_model, tasks_of_model
from boltgen.pipeline import PipelineOptions
from boltgen.settings import settings_from
from boltgen.stored import database_path, lock_folder
from boltgen.tune.budget import Budget, budget_of
from boltgen.tune.database import Database
from boltgen.tune.outcome import Bench
from boltgen.tune.progress import Observer
from boltgen.tune.recorded import RecordedBench
from boltgen.tune.select import Task
from boltgen.tune.session import Session, SessionOptions, SessionReport

_DEVICES = "cuda, cuda:1, vgpu, or recorded:FILE"
_MOST_ORDINAL = 1023


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a model is tuned: how long, on which device, into which database.

    `device` is "cuda" (the first GPU), "cuda:1", "vgpu", or "recorded:FILE"; `database` by default
    the user's.

    Raises:
        DeviceError: `device` is none of these.
    """

    budget: Budget
    device: str = "cuda"
    database: Path | None = None
    session: SessionOptions = field(default_factory=SessionOptions)
    observer: Observer | None = None

    def __post_init__(self) -> None:
        _check_device(self.device)


def tune(
    model: object,
    arch: str = "sm_80",
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    budget: str | Budget = "120s",
    device: str = "cuda",
    database: Path | None = None,
    options: SessionOptions | None = None,
    jobs: int | None = None,
    accumulate: str = "float32",
    fuse: bool = True,
    pad: bool = True,
    frontend: str | None = None,
    reporter: Reporter | None = None,
    observer: Observer | None = None,
) -> SessionReport:
    """Measure kernels for `model` on `device` and remember the times.

    `boltgen.compile` then chooses by them. `budget` is a time ("120s", "10min") or a number of
    trials ("500trials"). What is in the `database` already is not measured again: a session that
    was cut short goes on where it was. With `fuse`, products in sequence are also measured as one
    back-to-back kernel. The other arguments are those of `boltgen.compile`.

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
    with open_session(
        model,
        arch,
        shapes,
        tuning=Tuning(
            budget=budget_of(budget),
            device=device,
            database=database,
            session=options or SessionOptions(),
            observer=observer,
        ),
        jobs=jobs,
        accumulate=accumulate,
        fuse=fuse,
        pad=pad,
        frontend=frontend,
        reporter=reporter,
    ) as session:
        return session.run()


@contextmanager
def open_session(
    model: object,
    arch: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    tuning: Tuning,
    jobs: int | None = None,
    accumulate: str = "float32",
    fuse: bool = True,
    pad: bool = True,
    frontend: str | None = None,
    reporter: Reporter | None = None,
) -> Iterator[Session]:
    """A session for `model`, for those who want the loop; see `tune`.

    Example:
        with open_session("m.onnx", "sm_80", tuning=Tuning(budget=Budget(seconds=60))) as session:
            for trial, outcome in session.steps():
                print(trial.config, outcome)
    """
    row = arch_named(arch)
    options = PipelineOptions(
        settings=settings_from(),
        jobs=jobs,
        reporter=reporter or Silent(),
        accumulate=accumulator_named(accumulate),
        fuse=fuse,
        pad=pad,
    )
    imported = import_model(model, shapes or {}, frontend_named(frontend), options)
    tasks = tasks_of_model(imported, row.name, options)
    with open_task_session(tasks, row.name, tuning, options) as session:
        yield session


@contextmanager
def open_task_session(
    tasks: Sequence[Task], arch: str, tuning: Tuning, options: PipelineOptions
) -> Iterator[Session]:
    """A session for the tasks of a model; its bench and database close with it."""
    path = tuning.database or database_path(options.settings)
    with (
        closing(open_bench(tuning.device, arch, options)) as bench,
        Database(path) as database,
    ):
        yield Session(
            tasks,
            bench,
            database,
            tuning.budget,
            lock_folder=lock_folder(options.settings),
            options=tuning.session,
            observer=tuning.observer,
        )


def open_bench(device: str, arch: str, options: PipelineOptions) -> Bench:
    """The bench that `device` names, for kernels of `arch`.

    Raises:
        DeviceError: there is no such device, or it is of another architecture.
        ToolchainError: a compiler is missing.
        RecordError: a recorded device's file holds what is no record.
        TuningError: it has no records for `arch`, or those of several devices.
    """
    _check_device(device)
    kind, _, rest = device.partition(":")
    how = BenchOptions(
        settings=options.settings,
        tools=options.toolchain,
        cache=options.cache,
        jobs=options.jobs,
        reporter=options.reporter,
    )
    if kind == "recorded":
        return RecordedBench(Path(rest), arch)
    if kind == "vgpu":
        return _of_arch(open_vgpu(arch, how), arch)
    return _of_arch(open_cuda(how, ordinal=int(rest or 0)), arch)


def _check_device(device: str) -> None:
    """Refuse a text that names no device, before anything is imported or built for it."""
    kind, colon, rest = device.partition(":")
    known = device in {"cuda", "vgpu"} or (kind in {"cuda", "recorded"} and bool(colon and rest))
    wrong = f"unknown device {shown(device)} to tune on; give {_DEVICES}"
    if not known:
        raise DeviceError(wrong)
    if kind == "cuda" and colon:
        try:
            whole_number(rest, 0, _MOST_ORDINAL)
        except ValueError as error:
            raise DeviceError(f"{wrong}: {error}") from None


def _of_arch(bench: Bench, arch: str) -> Bench:
    """`bench`, if its records are of kernels for `arch`; else it is closed."""
    found = bench.device
    if found.arch == arch:
        return bench
    bench.close()
    raise DeviceError(
        f"{found.name} is a device of {found.arch}; kernels for {arch} are not measured on it: "
        f"give --arch {found.arch}"
    )
