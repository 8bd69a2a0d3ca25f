"""Tuning: fusions beside their products, and what was measured decides."""

from __future__ import annotations

from pathlib import Path

import pytest

import boltgen
from boltgen import tuner
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.toolchain import find_toolchain
from boltgen.cli.terminal.tables import tuning_summary
from boltgen.pipeline import PipelineOptions
from boltgen.settings import settings_from
from boltgen.tuning.database.database import Database
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.session.report import SessionReport
from boltgen.tvm_build.model import import_model, partition
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import A100


def dense_layers() -> object:
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
    """How many products each region of `dense_layers` has, as `compile` cuts it, and the first's
    note.
    """
    chosen = PipelineOptions(**options)
    imported = import_model(dense_layers(), chosen)
    partition(imported, "sm_80", chosen)
    counts = [len(region.workload.layers) for region in imported.regions]
    return counts, imported.regions[0].note


def tune_layers(monkeypatch: pytest.MonkeyPatch, fused_us: float, **more: object) -> SessionReport:
    """Tune on a made-up A100 that takes so long for every fusion, and 50 us for a product."""
    tools = toolchain_text(find_toolchain(settings_from()))
    bench = FakeBench(lambda trial: fused_us if trial.workload.is_fused else 50.0, toolchain=tools)
    monkeypatch.setattr(tuner, "open_cuda", lambda how, **_: bench)
    return boltgen.tune(dense_layers(), arch="sm_80", budget="5000trials", rest="off", **more)


def test_what_a_model_could_fuse_is_timed_beside_its_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = tune_layers(monkeypatch, 60.0)
    fused = [r.task.workload for r in report.results if r.task.is_alternative]
    assert sorted(len(workload.layers) for workload in fused) == [2, 2, 3]
    assert all(result.best for result in report.results)
    assert report.model_us == 3 * 50.0
    assert "all products, each by itself, 150.0 us" in tuning_summary(report)


def test_what_was_measured_decides_how_a_model_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tune_layers(monkeypatch, 60.0)
    counts, note = carved()
    assert counts == [3], "60 us against 150"
    assert note.startswith("one kernel for 3 products: 60.0 us against 150.0 us apart")
    assert note.endswith(f"measured on {A100.name}, of the same sm_80")
    counts, note = carved(device=A100)
    assert counts == [3]
    assert note.endswith(f"measured on {A100.name}, this device")
    assert carved(fuse=False) == ([1, 1, 1], "")


def test_fusions_that_were_measured_slower_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(carved()[0]) < 3, "the model would fuse"
    tune_layers(monkeypatch, 160.0)
    counts, note = carved()
    assert counts == [1, 1, 1]
    assert note == (
        "not one kernel with the product that follows: 160.0 us against 100.0 us apart, measured "
        f"on {A100.name}, of the same sm_80"
    )


def test_without_fusion_none_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tune_layers(monkeypatch, 60.0, fuse=False)
    assert len(report.results) == 3
    assert not any(result.task.is_alternative for result in report.results)


def test_fusions_are_replayed_from_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "measured.sqlite"
    first = tune_layers(monkeypatch, 60.0, database=path)
    with Database(path) as database:
        write_records(tmp_path / "a100.jsonl", database.records())
    counts, note = carved()
    assert len(counts) < 3, "nothing is in the user's database yet"
    assert "predicted by the analytical model" in note
    report = boltgen.tune(
        dense_layers(), budget="5000trials", device=f"recorded:{tmp_path / 'a100.jsonl'}"
    )
    assert report.measured == first.measured
    assert [r.best and r.best.config for r in report.results] == [
        r.best and r.best.config for r in first.results
    ]
    counts, note = carved()
    assert counts == [3]
    assert f"replayed from records of {A100.name}" in note
