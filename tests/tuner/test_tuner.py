"""`boltgen.tune` and `boltgen compile --tune`: a model in, measured decisions out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import boltgen
from boltgen import pipeline, tuner
from boltgen.arch import arch_named
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.toolchain import find_toolchain
from boltgen.cli.terminal.tables import tuning_summary
from boltgen.errors import BoltgenError, DeviceError, TuningError, UnknownArchError
from boltgen.ir.outcome import DeviceKind
from boltgen.pipeline import PipelineOptions, plan_regions
from boltgen.settings import settings_from
from boltgen.stored import stored_costs
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.session import Session
from tests.tuner.dense_model import model, regions_of_model
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import A100, content_of

OPTIONS = PipelineOptions()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a session on a made-up A100 measured for the model, by this toolchain."""
    tools = toolchain_text(find_toolchain(settings_from()))
    with monkeypatch.context() as patch:
        patch.setattr(tuner, "open_cuda", lambda how, **_: FakeBench(toolchain=tools))
        path = tmp_path / "measured.sqlite"
        boltgen.tune(model(), arch="sm_80", budget="5000trials", database=path, rest="off")
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


def test_several_models_share_a_session_and_what_they_have_in_common(table: Path) -> None:
    alone = boltgen.tune(model(), budget="5000trials", device=f"recorded:{table}")
    with tuner.open_session(
        [model(), model()],
        budget="5000trials",
        device=f"recorded:{table}",
        weights=(2, 1),
        objective="speedup",
        database=table.with_name("both.sqlite"),
    ) as session:
        report = session.run()
    occurrences = sorted(result.task.occurrences for result in report.results)
    assert occurrences == [2, 4], "each product of both"
    assert report.measured == alone.measured
    assert report.model_us == pytest.approx(2 * (alone.model_us or 0.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": (1, 2, 3)}, "3 weights for 2 models"),
        ({"objective": "latency:5ms"}, "1 latencies for 2 models"),
    ],
)
def test_there_is_a_weight_and_a_latency_for_each_model(
    options: dict[str, object], words: str, table: Path
) -> None:
    with pytest.raises(TuningError, match=words):
        boltgen.tune([model(), model()], budget="9trials", device=f"recorded:{table}", **options)


@pytest.mark.parametrize("weights", ["0,1", "a", "-1", "1,,2", (1, float("nan"))])
def test_weights_are_numbers_above_0(weights: object) -> None:
    with pytest.raises(BoltgenError, match=r"weights=.*above 0"):
        boltgen.TuneOptions(weights=weights)


def test_what_was_tuned_is_what_is_compiled(table: Path) -> None:
    report = boltgen.tune(model(), budget="5000trials", device=f"recorded:{table}")
    best = {
        result.task.workload: result.best.timing.median_us
        for result in report.results
        if result.best
    }
    regions = regions_of_model()
    settings = settings_from()
    with stored_costs(arch_named("sm_80"), find_toolchain(settings), settings) as costs:
        plan = plan_regions(regions, "sm_80", costs=costs)
    for (decision,) in plan.decisions:
        assert decision.origin == f"replayed from records of {A100.name}, of the same sm_80"
        # A kernel may be shared for 1 % of the model's time; no decision is worse than that.
        least = best[decision.workload]
        assert least <= decision.time_us <= least + 0.01 * 3 * max(best.values())


def test_compile_tunes_first_and_names_where_its_times_are_from(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []
    real = pipeline.build_plan

    def remember(plan, options):
        built.append((plan, options))
        return real(plan, options)

    monkeypatch.setattr(pipeline, "build_plan", remember)
    # What a FakeBench measured.
    monkeypatch.setattr(pipeline, "stored_content", lambda _, symbol, cache: content_of(symbol))
    artifact = boltgen.compile(model(), tune="5000trials", device=f"recorded:{table}")
    ((plan, options),) = built
    assert options.device is not None
    assert options.device.kind is DeviceKind.RECORDED
    for (decision,), info in zip(plan.decisions, artifact.metadata.regions, strict=True):
        assert info.why.startswith(
            f"{decision.config}: {decision.time_us:.1f} us, replayed from records of {A100.name}, "
            "this device"
        )
    assert "tune" in [phase.name for phase in artifact.metadata.phases]
    arrays = {
        info.name: np.full(info.shape, 2.0**-4, np.float16) for info in artifact.metadata.inputs
    }
    (found,) = artifact.run(arrays, device="vgpu").values()
    # Columns of equal values become 2^-6 each, and 128 of them times 2^-4 are 2^-3: exact in FP16.
    np.testing.assert_array_equal(found, np.full((64, 64), 2.0**-3))


def test_a_session_is_there_for_those_who_want_the_loop(table: Path, data: Path) -> None:
    seen = 0
    with boltgen.open_session(model(), budget="5000trials", device=f"recorded:{table}") as session:
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

    def open_cuda(how: object, arch: str, ordinal: int) -> FakeBench:
        opened.append((arch, ordinal))
        return FakeBench()

    def open_vgpu(arch: str, how: object) -> FakeBench:
        opened.append(arch)
        return FakeBench()

    monkeypatch.setattr(tuner, "open_cuda", open_cuda)
    monkeypatch.setattr(tuner, "open_vgpu", open_vgpu)
    for device in ("cuda", "cuda:3", "vgpu"):
        tuner.open_bench(device, "sm_80", OPTIONS)
    assert opened == [("sm_80", 0), ("sm_80", 3), "sm_80"]
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


def test_a_model_without_a_task_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "open_cuda", lambda how, **_: FakeBench())
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
    summary = tuning_summary(boltgen.tune(module, arch="sm_80", budget="5trials", rest="off"))
    assert "the model has nothing to tune: boltgen computes no product of it" in summary
