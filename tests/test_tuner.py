"""`boltgen.tune` and `boltgen compile --tune`: a model in, measured decisions out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import boltgen
from boltgen import cli, cli_console, pipeline, tuner
from boltgen.arch import arch_named
from boltgen.build.library import toolchain_text
from boltgen.build.toolchain import find_toolchain
from boltgen.errors import DeviceError, TuningError, UnknownArchError
from boltgen.ir.chain import GemmChain
from boltgen.ir.dtypes import DType
from boltgen.ir.problem import Gemm
from boltgen.ir.region import ChainRegion, Region
from boltgen.partitioned import import_model, partition
from boltgen.pipeline import PipelineOptions, plan_regions, tasks_of
from boltgen.report import tuned, tuning_summary
from boltgen.settings import settings_from
from boltgen.stored import stored_costs
from boltgen.tune.budget import Budget
from boltgen.tune.database import Database
from boltgen.tune.exchange import write_records
from boltgen.tune.outcome import DeviceKind, Failure, Fault, Outcome, Trial
from boltgen.tune.select import ChainTask, Task
from boltgen.tune.session import Session, SessionReport
from tests.tune.fakes import FakeBench, formula_us
from tests.tune.samples import A100

OPTIONS = PipelineOptions()


def model() -> object:
    """Two equal dense layers and another one, as a Relax module.

    What lies between keeps them from becoming one kernel.
    """
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(
        x: R.Tensor((64, 128), "float16"),
        v: R.Tensor((128, 128), "float16"),
        w: R.Tensor((128, 128), "float16"),
        u: R.Tensor((128, 64), "float16"),
    ) -> R.Tensor((64, 64), "float16"):
        with R.dataflow():
            first = R.nn.relu(R.matmul(x, v))
            second = R.nn.relu(R.matmul(R.nn.softmax(first), w))
            out = R.matmul(R.nn.softmax(second), u)
            R.output(out)
        return out

    return tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BOLTGEN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(cli_console.out, "width", 400)
    monkeypatch.setattr(cli_console.err, "width", 400)
    return tmp_path / "data" / "records.sqlite"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a session on a made-up A100 measured for the model, by this toolchain."""
    tools = toolchain_text(find_toolchain(settings_from()))
    with monkeypatch.context() as patch:
        patch.setattr(tuner, "open_cuda", lambda how, ordinal: FakeBench(toolchain=tools))
        path = tmp_path / "measured.sqlite"
        boltgen.tune(model(), budget="5000trials", database=path)
    with Database(path) as database:
        write_records(tmp_path / "a100.jsonl.gz", database.records())
    return tmp_path / "a100.jsonl.gz"


def test_a_model_is_tuned_into_the_users_database(table: Path, data: Path) -> None:
    report = boltgen.tune(model(), budget=Budget(trials=5000), device=f"recorded:{table}")
    assert report.device.kind is DeviceKind.RECORDED
    assert sorted(result.task.occurrences for result in report.results) == [1, 2]
    assert all(result.best for result in report.results)
    with Database(data) as database:
        assert sum(source.records for source in database.sources()) == report.measured
    again = boltgen.tune(model(), budget="5000trials", device=f"recorded:{table}")
    assert (again.measured, again.reused) == (0, report.measured)


def test_what_was_tuned_is_what_is_compiled(table: Path) -> None:
    report = boltgen.tune(model(), budget="5000trials", device=f"recorded:{table}")
    best = {
        (result.task.problem, result.task.epilogue): result.best.timing.median_us
        for result in report.results
        if result.best
    }
    regions = regions_of_model()
    settings = settings_from()
    with stored_costs(arch_named("sm_80"), find_toolchain(settings), settings) as costs:
        plan = plan_regions(regions, "sm_80", costs=costs)
    for decision in plan.decisions:
        assert decision.origin == f"replayed from records of {A100.name}, of the same sm_80"
        # A kernel may be shared for 1 % of the model's time; no decision is worse than that.
        least = best[decision.problem, decision.epilogue]
        assert least <= decision.time_us <= least + 0.01 * 3 * max(best.values())


def regions_of_model() -> tuple[Region, ...]:
    from boltgen.frontend.relax import annotate, regions

    return regions(annotate(model()))


def test_compile_tunes_first_and_names_where_its_times_are_from(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []
    real = pipeline.build_plan

    def remember(plan, options):
        built.append((plan, options))
        return real(plan, options)

    monkeypatch.setattr(pipeline, "build_plan", remember)
    artifact = boltgen.compile(model(), tune="5000trials", device=f"recorded:{table}")
    ((plan, options),) = built
    assert options.device is not None
    assert options.device.kind is DeviceKind.RECORDED
    for decision, info in zip(plan.decisions, artifact.metadata.regions, strict=True):
        assert info.why.startswith(
            f"{decision.config}: {decision.time_us:.1f} us, replayed from records of {A100.name}, "
            "this device"
        )
    assert "tune" in [phase.name for phase in artifact.metadata.phases]
    arrays = {
        info.name: np.full(info.shape, 2.0**-4, np.float16) for info in artifact.metadata.inputs
    }
    (found,) = artifact.run(arrays, device="vgpu").values()
    # Rows of equal values become 2^-7 each, and 128 of them times 2^-4 are 2^-4: exact in FP16.
    np.testing.assert_array_equal(found, np.full((64, 64), 2.0**-4))


def test_a_session_is_there_for_those_who_want_the_loop(table: Path, data: Path) -> None:
    tuning = tuner.Tuning(budget=Budget(trials=5000), device=f"recorded:{table}")
    seen = 0
    with boltgen.open_session(model(), "sm_80", tuning=tuning) as session:
        assert isinstance(session, boltgen.Session)
        assert boltgen.Session is Session
        for _trial, _outcome in session.steps():
            seen += 1
            if seen == 3:
                break
        assert session.report().measured <= 3
    with boltgen.Database(data) as database:
        assert sum(source.records for source in database.sources()) <= 3


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no bench is to be opened")

    monkeypatch.setattr(tuner, "open_cuda", refuse)
    monkeypatch.setattr(tuner, "open_vgpu", refuse)
    yield


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:", "cuda:x", "vgpu:1", "recorded", "recorded:", ""]
)
@pytest.mark.usefixtures("unopened")
def test_an_unknown_device(device: str) -> None:
    with pytest.raises(DeviceError, match=r"unknown device '.*' to tune on; give cuda, cuda:1"):
        tuner.open_bench(device, "sm_80", OPTIONS)


def test_the_devices_are_opened_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def open_cuda(how: object, ordinal: int) -> FakeBench:
        opened.append(ordinal)
        return FakeBench()

    def open_vgpu(arch: str, how: object) -> FakeBench:
        opened.append(arch)
        return FakeBench()

    monkeypatch.setattr(tuner, "open_cuda", open_cuda)
    monkeypatch.setattr(tuner, "open_vgpu", open_vgpu)
    for device in ("cuda", "cuda:3", "vgpu"):
        tuner.open_bench(device, "sm_80", OPTIONS)
    assert opened == [0, 3, "sm_80"]
    with pytest.raises(
        DeviceError, match=r"NVIDIA A100.* of sm_80; kernels for sm_86.*give --arch sm_80"
    ):
        tuner.open_bench("cuda", "sm_86", OPTIONS)
    with pytest.raises(DeviceError, match="kernels for sm_90a are not measured on it"):
        tuner.open_bench("vgpu", "sm_90a", OPTIONS)


@pytest.mark.usefixtures("unopened")
def test_a_budget_of_zero_and_an_unknown_arch_are_refused_before_anything_is_done() -> None:
    with pytest.raises(TuningError, match="a budget of 0s measures nothing"):
        boltgen.tune("no such model.onnx", budget="0s")
    with pytest.raises(TuningError, match="a budget of 0trials measures nothing"):
        boltgen.compile("no such model.onnx", tune="0trials")
    with pytest.raises(UnknownArchError):
        boltgen.tune("no such model.onnx", arch="sm_1", budget="1s")


# Chains: beside their products, and by what was measured.


def chain_model() -> object:
    """Three dense layers of which the first two could be one kernel, or all, or the last two."""
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(
        x: R.Tensor((4096, 64), "float16"),
        v: R.Tensor((64, 48), "float16"),
        w: R.Tensor((48, 64), "float16"),
        u: R.Tensor((64, 32), "float16"),
    ) -> R.Tensor((4096, 32), "float16"):
        with R.dataflow():
            first = R.nn.relu(R.matmul(x, v))
            second = R.nn.relu(R.matmul(first, w))
            out = R.matmul(second, u)
            R.output(out)
        return out

    return tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))


def carved(**options: object) -> tuple[list[int], str]:
    """How many products each region of `chain_model` has, as `compile` cuts it, and the first's
    note.
    """
    chosen = PipelineOptions(**options)
    imported = import_model(chain_model(), {}, "relax", chosen)
    partition(imported, "sm_80", chosen)
    counts = [
        len(region.chain.layers) if isinstance(region, ChainRegion) else 1
        for region in imported.regions
    ]
    return counts, imported.regions[0].note


def tune_chain(monkeypatch: pytest.MonkeyPatch, chain_us: float, **more: object) -> SessionReport:
    """Tune on a made-up A100 that takes so long for every chain, and 50 us for a product."""
    tools = toolchain_text(find_toolchain(settings_from()))
    bench = FakeBench(
        lambda trial: chain_us if isinstance(trial.problem, GemmChain) else 50.0, toolchain=tools
    )
    monkeypatch.setattr(tuner, "open_cuda", lambda how, ordinal: bench)
    return boltgen.tune(chain_model(), budget="5000trials", **more)


def test_a_models_chains_are_tasks_beside_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tune_chain(monkeypatch, 60.0)
    chains = [r.task.problem for r in report.results if isinstance(r.task, ChainTask)]
    assert sorted(len(chain.layers) for chain in chains) == [2, 2, 3]
    assert all(result.best for result in report.results)
    assert report.model_us == 3 * 50.0
    assert "all products, each by itself, 150.0 us" in tuning_summary(report)


def test_what_was_measured_decides_how_a_model_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tune_chain(monkeypatch, 60.0)
    counts, note = carved()
    assert counts == [3], "60 us against 150"
    assert note.startswith("one kernel for 3 products: 60.0 us against 150.0 us apart")
    assert note.endswith(f"measured on {A100.name}, of the same sm_80")
    counts, note = carved(device=A100)
    assert counts == [3]
    assert note.endswith(f"measured on {A100.name}, this device")
    assert carved(fuse=False) == ([1, 1, 1], "")


def test_chains_that_were_measured_slower_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(carved()[0]) < 3, "the model would fuse"
    tune_chain(monkeypatch, 160.0)
    counts, note = carved()
    assert counts == [1, 1, 1]
    assert note == (
        "not one kernel with the product that follows: 160.0 us against 100.0 us apart, measured "
        f"on {A100.name}, of the same sm_80"
    )


def test_without_fusion_chains_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tune_chain(monkeypatch, 60.0, fuse=False)
    assert len(report.results) == 3
    assert all(isinstance(result.task, Task) for result in report.results)


def test_chains_are_replayed_from_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "measured.sqlite"
    first = tune_chain(monkeypatch, 60.0, database=path)
    with Database(path) as database:
        write_records(tmp_path / "a100.jsonl", database.records())
    counts, note = carved()
    assert len(counts) < 3, "nothing is in the user's database yet"
    assert "predicted by the analytical model" in note
    report = boltgen.tune(
        chain_model(), budget="5000trials", device=f"recorded:{tmp_path / 'a100.jsonl'}"
    )
    assert report.measured == first.measured
    assert [r.best and r.best.config for r in report.results] == [
        r.best and r.best.config for r in first.results
    ]
    counts, note = carved()
    assert counts == [3]
    assert f"replayed from records of {A100.name}" in note


# Padding: both ways are timed, and what was measured decides.


def odd_model() -> object:
    """A dense layer of 60 columns, a softmax over them, another layer; then one of 44, and one."""
    boltgen.activate("vgpu")
    from tvm import relax

    def weight(rows: int, columns: int) -> object:
        return relax.const(np.full((rows, columns), 2.0**-6, np.float16))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2048, 60), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.nn.relu(relax.op.matmul(x, weight(60, 44))))
            made = builder.emit(relax.op.matmul(made, weight(44, 64)))
            made = builder.emit_output(made)
        builder.emit_func_output(made)
    return builder.get()


def tune_odd(
    monkeypatch: pytest.MonkeyPatch, padded_us: float, budget: str = "5000trials", **more: object
) -> SessionReport:
    """Tune on a made-up A100 that takes so long with the tensor between padded, and 50 us else.

    In no time no kernel works.
    """
    tools = toolchain_text(find_toolchain(settings_from()))

    def answer(trial: Trial) -> Outcome | float:
        if not isinstance(trial.problem, Gemm):
            return 1000.0  # chains
        if 48 not in {trial.problem.n, trial.problem.k}:
            return 50.0
        return padded_us or Failure(fault=Fault.WRONG_RESULT, reason="all elements differ")

    bench = FakeBench(answer, toolchain=tools)
    monkeypatch.setattr(tuner, "open_cuda", lambda how, ordinal: bench)
    return boltgen.tune(odd_model(), budget=budget, **more)


def padded(**options: object) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """K and N of each product of `odd_model`, as `compile` pads it, and why."""
    chosen = PipelineOptions(fuse=False, **options)
    imported = import_model(odd_model(), {}, "relax", chosen)
    partition(imported, "sm_80", chosen)
    problems = [region.problem for region in imported.regions]
    return [(problem.k, problem.n) for problem in problems], imported.padding


def test_both_ways_of_padding_are_timed_and_the_model_runs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = tune_odd(monkeypatch, 40.0)
    products = [result.task for result in report.results if isinstance(result.task, Task)]
    sizes = {(t.problem.k, t.problem.n): t.is_alternative for t in products}
    assert {(60, 44), (60, 48), (64, 44), (64, 48), (44, 64), (48, 64)} == sizes.keys()
    run = [size for size, is_alternative in sizes.items() if not is_alternative]
    assert len(run) == 2
    assert all(result.best for result in report.results)
    assert report.model_us in {80.0, 90.0, 100.0}, "alternatives are no part of it"
    shown = Console(width=300, file=(text := io.StringIO()))
    shown.print(tuned(report))
    assert text.getvalue().count("if padded so") == 4


@pytest.mark.parametrize(
    ("padded_us", "sizes"), [(20.0, [(60, 48), (48, 64)]), (80.0, [(60, 44), (44, 64)])]
)
def test_what_was_measured_decides_what_is_padded(
    monkeypatch: pytest.MonkeyPatch, padded_us: float, sizes: list[tuple[int, int]]
) -> None:
    _, said = padded()
    assert all(line.endswith("predicted by the analytical model") for line in said)
    tune_odd(monkeypatch, padded_us)
    found, said = padded()
    assert found == sizes
    assert f"{min(padded_us, 50.0):.1f} us against {max(padded_us, 50.0):.1f} us" in said[1]
    measured = f"measured on {A100.name}, of the same sm_80"
    assert said[1].endswith(f", {measured}")
    # The first layer's A could be padded by a move alone.
    moved = f"kernels {measured}, moves predicted by the analytical model"
    assert said[0].endswith(f", {measured}" if padded_us < 50.0 else f", {moved}")
    assert padded(device=A100)[1][1].endswith(f"measured on {A100.name}, this device")
    assert padded(pad=False) == ([(60, 44), (44, 64)], ())


def test_a_padding_whose_kernels_fail_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    tune_odd(monkeypatch, 0.0)
    found, said = padded()
    assert found == [(60, 44), (44, 64)]
    assert "; 50.0 us against no kernel padded, " in said[1]


def test_what_was_not_timed_both_ways_is_left_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune_odd(monkeypatch, 80.0, pad=False)  # a device that thinks little of padding
    found, said = padded()
    assert all(line.endswith("predicted by the analytical model") for line in said)
    assert (44, 64) not in found, "the model's choice"


# The command.


def run_command(monkeypatch: pytest.MonkeyPatch, bench: FakeBench, *more: str) -> tuple[int, str]:
    monkeypatch.setattr(tuner, "open_vgpu", lambda arch, how: bench)
    tasks = tasks_of(regions_of_model(), DType.F32)
    monkeypatch.setattr(tuner, "import_model", lambda *_: None)
    monkeypatch.setattr(tuner, "tasks_of_model", lambda *_: tasks)
    arguments = ["tune", "m.onnx", "--device", "vgpu", "--budget", "5000trials", *more]
    result = CliRunner().invoke(cli.app, arguments)
    return result.exit_code, result.output


def test_the_command_shows_what_was_found(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    bench = FakeBench()
    status, text = run_command(monkeypatch, bench)
    assert status == 0, text
    assert "gemm 64x128x128" in text
    assert "relu(acc)" in text
    assert f"times measured on {A100.name} (sm_80); all products, each by itself," in text
    assert f"{len(bench.trials)} trials in" in text
    assert "0 of them failed; 0 were known" in text
    assert data.is_file()
    status, text = run_command(monkeypatch, FakeBench())
    assert f"0 of them failed; {len(bench.trials)} were known" in text


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Failure(fault=Fault.DEVICE_LOST, reason="the GPU has fallen off the bus")
    left = iter(range(5))
    bench = FakeBench(lambda trial: formula_us(trial) if next(left, None) is not None else lost)
    status, text = run_command(monkeypatch, bench)
    assert status == 0, text
    assert "warning: the device was lost: the GPU has fallen off the bus" in text
    assert "ended early: the device was lost" in text
    assert "what was measured is kept" in text
    assert "none: not reached within the budget" in text

    def interrupted(trial: object) -> float:
        raise KeyboardInterrupt

    status, text = run_command(monkeypatch, FakeBench(interrupted))
    assert status == 130
    assert "interrupted; what was measured is kept: the same command goes on from there" in text
    status, text = run_command(monkeypatch, FakeBench(), "--budget", "0s")
    assert status == 1
    assert "error: a budget of 0s measures nothing" in text


def test_help_is_pleasant() -> None:
    text = CliRunner().invoke(cli.app, ["tune", "--help"], terminal_width=200).output
    words = " ".join(text.replace("\u2502", " ").split())
    for said in (
        "boltgen tune resnet50.onnx --arch sm_80 --budget 120s",
        "Nothing is measured twice",
        "How long: 120s, 10min, 1h, or a number of trials like 500trials",
        "recorded:FILE",
    ):
        assert said in words


def test_a_model_without_a_task_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "open_cuda", lambda how, ordinal: FakeBench())
    boltgen.activate("vgpu")
    import tvm
    from tvm.script import relax as R  # noqa: N812

    @R.function
    def main(x: R.Tensor((8, 8), "float16")) -> R.Tensor((8, 8), "float16"):
        with R.dataflow():
            out = R.nn.relu(x)
            R.output(out)
        return out

    module = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
    summary = tuning_summary(boltgen.tune(module, budget="5trials"))
    assert "the model has nothing to tune: boltgen computes no product of it" in summary
