"""Kernels that TVM keeps: tuned by MetaSchedule on the virtual GPU, and compiled as tuned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, tirx

import boltgen
from benchmarks.cases.relax_modules import build
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import DeviceError
from boltgen.installation import install_command
from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Failure, Fault, Timing
from boltgen.measure.lines import to_line
from boltgen.pipeline import PipelineOptions
from boltgen.running.artifact import Artifact
from boltgen.settings import settings_from
from boltgen.stored import database_path
from boltgen.tuning.database.database import Database
from boltgen.tuning.rest.tasks import RestTrial
from boltgen.tvm_build.lowering.schedules import unscheduled
from boltgen.tvm_build.model import import_model, partition
from boltgen.tvm_build.relax_link import cuda_target
from boltgen.tvm_build.rest import bench as rest_bench
from boltgen.tvm_build.rest import search as rest_search
from boltgen.tvm_build.rest import worker as rest_worker
from boltgen.tvm_build.rest.bench import RestBench
from boltgen.tvm_build.rest.relax_kernels import rest_functions
from boltgen.tvm_build.rest.schedule import built_in, identity, named, scheduled, trace_text
from boltgen.tvm_build.rest.tasks import TvmRest, toolchain
from tests.measure.misbehaving import WAYS, misbehaving
from tests.tuning.samples import NOON
from tests.tuning.sessions import Heard

A100 = arch_named("sm_80")
TARGET = cuda_target(A100)
VGPU = DeviceIdentity(
    kind=DeviceKind.VGPU,
    name="vgpu sm_80",
    arch="sm_80",
    sm_count=108,
    clock_mhz=1410,
    memory_clock_mhz=1215,
    memory_bytes=40 << 30,
    driver="13.0",
)
ROWS, COLUMNS = 96, 40
# Threads of a block that no built-in schedule has.
THREADS = 48


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has measured nothing yet."""
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))


def model(name: str = "x") -> tvm.IRModule:
    """One kernel of TVM's, whose tensors have names of the model's."""
    return build({name: ((ROWS, COLUMNS), "float16")}, lambda x: relax.op.exp(relax.op.sin(x)))


def kernel(module: tvm.IRModule) -> tirx.PrimFunc:
    """The kernel of a model on its way through boltgen."""
    options = PipelineOptions()
    imported = import_model(module, options)
    partition(imported, "sm_80", options)
    (found,) = imported.rest_functions(A100)
    function: tirx.PrimFunc = found.function
    return function


def own_schedule(function: tirx.PrimFunc, threads: int = THREADS) -> str:
    """A trace as MetaSchedule writes it: the last block's rows and columns on so many threads."""
    schedule = s_tir.Schedule(named(function))
    *others, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    for block in others:
        schedule.compute_inline(block)
    loop = schedule.fuse(*schedule.get_loops(last))
    grid, thread = schedule.split(loop, factors=[None, threads])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    return trace_text(schedule.trace)


def remember(function: tirx.PrimFunc, times_us: dict[str, float]) -> None:
    settings = settings_from()
    bench = VGPU, toolchain(find_toolchain(settings))
    with Database(database_path(settings)) as database:
        for config, us in times_us.items():
            trial = RestTrial(name="k", task=identity(function), config=config)
            database.rest.add(trial, Timing.exact(us), bench, NOON)


def threads_of(artifact: Artifact) -> int:
    """The threads of a block of the model's one launch, whose result is checked."""
    x = np.random.default_rng(1).uniform(-1.0, 1.0, (ROWS, COLUMNS)).astype(np.float16)
    vgpu = boltgen.activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    (name,) = (each.name for each in artifact.metadata.inputs)
    (found,) = artifact.run({name: x}, device="vgpu").values()
    wanted = np.exp(np.sin(x.astype(np.float32)))
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=4e-3)
    (launch,) = vgpu.launches()
    return int(np.prod(launch.block))


def compiled(**options: object) -> Artifact:
    # Tuned under another name of the tensor: a kernel is known by its structure.
    return boltgen.compile(model("image"), arch="sm_80", check="none", **options)


def test_the_tuned_schedule_is_in_the_library_and_right() -> None:
    function = kernel(model())
    remember(function, {built_in(function, TARGET): 3.0, own_schedule(function): 2.0})
    artifact = compiled()
    assert threads_of(artifact) == THREADS
    assert artifact.metadata.rest is not None
    (info,) = artifact.metadata.rest
    assert info.schedule.startswith("MetaSchedule ")
    assert info.schedule.endswith(": 2.0 us, built in 3.0 us, modelled on vgpu sm_80")
    (source,) = (artifact.folder / "sources").glob("tvm_kernels*.cu")
    assert f"__launch_bounds__({THREADS})" in source.read_text()
    assert threads_of(compiled(rest="off")) != THREADS


@pytest.mark.parametrize("built_in_us", [1.0, None])
def test_a_schedule_that_nothing_shows_to_be_faster_is_not_used(built_in_us: float | None) -> None:
    function = kernel(model())
    times = {own_schedule(function): 2.0}
    if built_in_us is not None:
        times[built_in(function, TARGET)] = built_in_us
    remember(function, times)
    assert threads_of(compiled()) != THREADS


def test_a_trace_that_does_not_fit_is_passed_over_by_name(caplog: pytest.LogCaptureFixture) -> None:
    function = kernel(model())
    remember(function, {built_in(function, TARGET): 3.0, '[[["Gone",[],[],[]]],[]]': 2.0})
    assert threads_of(compiled()) != THREADS
    assert "the tuned schedule of" in caplog.text
    assert "is not used" in caplog.text


def test_a_schedule_leaves_the_function_that_it_is_of_alone() -> None:
    function = kernel(model())
    before = identity(function)
    trace = own_schedule(function)
    made = {identity(scheduled(function, trace, TARGET)) for _ in range(3)}
    assert len(made) == 1
    assert identity(function) == before not in made
    assert identity(kernel(model("other"))) == before


@pytest.fixture(scope="module")
def bench() -> Iterator[RestBench]:
    function = kernel(model())
    settings = settings_from()
    made = RestBench(
        {"k": function, "wrong": function},
        (DeviceKind.VGPU, 0),
        A100,
        tools=find_toolchain(settings),
        cache=Cache(settings.cache_dir),
        jobs=2,
    )
    yield made
    made.close()


def test_a_bench_times_what_compiles_and_is_right(
    bench: RestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = kernel(model())
    configs = [built_in(function, TARGET), own_schedule(function), own_schedule(function, 2048)]
    trials = [RestTrial(name="k", task="k", config=config) for config in configs]
    (_, first), (_, second), (_, refused) = bench.run(trials)
    assert isinstance(first, Timing) and isinstance(second, Timing)
    assert 0.5 < first.median_us < 20.0 and first.repeats == 1
    assert isinstance(refused, Failure), "no block has 2048 threads"
    # As a schedule would that computes something else: it is another function's.
    other = kernel(
        build({"x": ((ROWS, COLUMNS), "float16")}, lambda x: relax.op.sin(relax.op.exp(x)))
    )
    list(bench.run([RestTrial(name="k", task="wrong", config=configs[0])]))
    monkeypatch.setitem(bench._functions, "wrong", other)
    monkeypatch.setattr("boltgen.tvm_build.rest.bench.built_in", lambda *_: configs[0])
    trial = RestTrial(name="k", task="wrong", config=own_schedule(other))
    ((_, outcome),) = bench.run([trial])
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.WRONG_RESULT
    assert "off the built-in schedule's by up to" in outcome.reason
    (_, after), *_ = bench.run(trials[:1])
    assert after == first, "the worker goes on"


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_gives_no_time_is_named(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    limit = 0.5 if way == "hangs" else 60.0
    monkeypatch.setattr(rest_bench, "_MOST_S", {DeviceKind.VGPU: limit})
    function, settings = kernel(model()), settings_from()
    made = RestBench(
        {"k": function},
        (DeviceKind.VGPU, 0),
        A100,
        tools=find_toolchain(settings),
        cache=Cache(settings.cache_dir),
        jobs=1,
        open_channel=misbehaving(to_line(rest_worker.FromWorker, rest_worker.Ready()), way),
    )
    trial = RestTrial(name="k", task="k", config=built_in(function, TARGET))
    try:
        outcomes = [outcome for _, outcome in made.run([trial, trial])]
    finally:
        made.close()
    _, fault, words = WAYS[way]
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.fault is fault
        assert words in outcome.reason
        assert "about to misbehave" in outcome.log


def test_a_device_that_the_worker_cannot_use_is_an_error() -> None:
    settings = settings_from()
    with pytest.raises(DeviceError, match="no GPU"):
        RestBench(
            {},
            (DeviceKind.CUDA, 0),
            A100,
            tools=find_toolchain(settings),
            cache=Cache(settings.cache_dir),
            jobs=1,
        )


def test_metaschedule_searches_within_the_sessions_budget() -> None:
    heard = Heard()
    report = boltgen.tune(model(), arch="sm_80", device="vgpu", budget="6trials", observer=heard)
    assert report.measured == 6, heard.warnings
    (found,) = report.rest
    assert found.built_in_us is not None and found.best_us is not None
    assert found.best_us <= found.built_in_us
    assert found.timed + found.failed == 6
    settings = settings_from()
    with Database(database_path(settings)) as database:
        times = database.rest.times(
            identity(kernel(model())), "sm_80", toolchain(find_toolchain(settings))
        )
    assert times is not None
    assert len(times.by_config) == found.timed
    again = boltgen.tune(model(), arch="sm_80", device="vgpu", budget="1trials")
    assert (again.reused, again.measured) == (6, 1)
    # The one trial more may have found a faster one.
    (found,) = again.rest
    (info,) = compiled().metadata.rest or ()
    assert info.schedule.startswith(found.best or "nothing")
    off = boltgen.tune(model(), arch="sm_80", device="vgpu", budget="1trials", rest="off")
    assert not off.rest


def test_a_seed_decides_what_is_proposed() -> None:
    task = rest_search.RestTask(
        name="k", identity="k", function=kernel(model()), uses=(1.0,), expected_us=1.0, flops=1
    )

    def proposed(seed: int) -> list[str]:
        tuner = rest_search.load_tuner()
        search = rest_search.RestSearch(
            task, TARGET, tuner.cost_model.XGBModel(), seed=seed, warn=print
        )
        configs = []
        for _ in range(3):  # the built-in schedule and two batches
            for trial in search.propose(8):
                configs.append(trial.config)
                search.observe(trial, Timing.exact(1.0 + len(trial.config) % 7))
        return configs

    np.random.seed(1)
    others = np.random.get_state()[1].tolist()
    first = proposed(5)
    assert np.random.get_state()[1].tolist() == others, "a caller's numbers are its own"
    np.random.seed(2)
    assert proposed(5) == first
    assert proposed(6) != first


def test_a_package_that_is_missing_is_named_and_boltgens_tasks_are_tuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest_search, "_NEEDS", ("a_package_that_is_not_there",))
    heard = Heard()
    report = boltgen.tune(model(), arch="sm_80", device="vgpu", budget="1trials", observer=heard)
    assert (report.measured, report.rest) == (0, ())
    (warning,) = heard.warnings
    assert f"needs a_package_that_is_not_there: `{install_command('metaschedule')}`" in warning
    assert "--rest off leaves it out" in warning


def test_kernels_that_models_share_are_one_task() -> None:
    settings = settings_from()
    functions = rest_functions(unscheduled(model(), TARGET))
    rest = TvmRest(
        [(functions, 1.0), (functions, 2.0)],
        (DeviceKind.VGPU, 0),
        A100,
        find_toolchain(settings),
        Cache(settings.cache_dir),
        jobs=1,
        seed=0,
        warn=print,
    )
    try:
        (search,) = rest.searches
        assert search.state.uses == (1.0, 2.0)
    finally:
        rest.close()
