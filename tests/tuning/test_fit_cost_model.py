"""The fit finds constants that made the measurements, and says which it could not find."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from benchmarks import fit_cost_model
from benchmarks.fit_cost_model import ranking_loss, time_loss
from benchmarks.harness.model_report import evaluate, model_cost
from boltgen.arch import arch_named
from boltgen.errors import RecordError
from boltgen.families.constants import NAMES, described, values_of
from boltgen.families.registry import candidates, predict
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.outcome import DeviceKind
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.database.exchange import write_records
from boltgen.tuning.database.records import Record
from tests.tuning.samples import A100, NOON, TOOLS, timing

SM80 = arch_named("sm_80")
TRUE = replace(
    values_of(described()),
    launch_us=3.1,
    dram_fraction=0.91,
    vector_clocks=6.0,
    half_issue_warps=0.4,
    step_clocks=33.0,
    exposed_fraction=0.22,
    optimized_conv_factor=1.15,
    special_instructions=12.0,
    handover_us=0.9,
)


def gelu() -> ElementwiseGraph:
    graph = ElementwiseBuilder()
    graph.unary(UnaryOp.GELU_ERF, 0)
    return graph.build()


TASKS = [
    *(Workload.of(Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN))
      for m, n, k in ((64, 64, 64), (2048, 2048, 2048), (1 << 20, 64, 1024), (128, 128, 8192),
                      (512, 512, 511), (1024, 1024, 2046))),
    Workload.of(Gemm(m=4096, n=4096, k=64, b_layout=Layout.COLUMN), gelu()),
    Workload.of(Conv2d(n=32, h=14, w=14, c=256, k=256, r=3, s=3, padding=(1, 1, 1, 1))),
]  # fmt: skip


def records(per_task: int, noise: float, *, kind: DeviceKind = DeviceKind.CUDA) -> list[Record]:
    """Measurements of a device that obeys the model with the true constants, but for noise."""
    rng = random.Random(0)
    found = []
    for workload in TASKS:
        configs = candidates(workload, SM80)
        for config in rng.sample(configs, min(per_task, len(configs))):
            time_us = predict(workload, config, SM80, TRUE).time_us
            found.append(
                Record(
                    trial=Trial(workload=workload, config=config),
                    kernel="k",
                    device=replace(A100, kind=kind),
                    toolchain=TOOLS,
                    outcome=timing(time_us * math.exp(rng.gauss(0, noise))),
                    measured_at=NOON + timedelta(seconds=len(found)),
                )
            )
    return found


def regret(found: list[Record], constants) -> float:
    report = evaluate(found, model_cost(values_of(constants)))
    assert report.mean_regret is not None
    return report.mean_regret


def spoiled():
    """The shipped constants but for one that misleads: steps of K that cost far too much."""
    start = described()
    start["step_clocks"] = replace(start["step_clocks"], value=200.0)
    start["half_issue_warps"] = replace(start["half_issue_warps"], value=4.0)
    return start


def test_the_loss_is_what_the_pick_costs_and_a_toss_up_its_mean():
    measured = np.log([10.0, 20.0, 5.0])
    groups = [[0, 1], [2]]
    right = ranking_loss(np.log([1.0, 9.0, 1.0]), measured, groups)
    wrong = ranking_loss(np.log([9.0, 1.0, 1.0]), measured, groups)
    even = ranking_loss(np.log([1.0, 1.0, 1.0]), measured, groups)
    assert right == pytest.approx(0.0, abs=1e-9)
    assert wrong == pytest.approx(math.log(2) / 2)
    assert even == pytest.approx(wrong / 2)


def test_a_fit_picks_better_and_keeps_what_changes_no_pick():
    found, start = records(8, 0.0), spoiled()
    fitted = fit_cost_model.fit(found, start, "fitted: here")
    assert regret(found, fitted.constants) < regret(found, start)
    # No filter above is so long that its iterator would be the analytic one.
    assert fitted.constants["analytic_conv_factor"] == start["analytic_conv_factor"]
    changed = {n for n, c in fitted.constants.items() if c.value != start[n].value}
    assert changed
    assert {n for n, c in fitted.constants.items() if c.origin == "fitted: here"} == changed


def test_problems_that_the_fit_has_not_seen_are_reported():
    pairs = fit_cost_model.cross_validate(records(6, 0.01), described(), folds=2)
    assert [[len(report.rankings) for report in pair] for pair in pairs] == [[4, 4], [4, 4]]


def test_modelled_times_are_no_evidence(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, records(2, 0.0, kind=DeviceKind.VGPU))
    with pytest.raises(RecordError, match=r"no measurements of a GPU in .*records\.jsonl"):
        fit_cost_model.run([path], check=False)


def test_the_time_of_the_fastest_counts_and_that_of_others_does_not():
    measured, groups = np.log([10.0, 20.0, 5.0]), [[0, 1], [2]]
    right = time_loss(np.log([10.0, 1.0, 5.0]), measured, groups)
    twice = time_loss(np.log([20.0, 1.0, 5.0]), measured, groups)
    assert right == pytest.approx(0.0, abs=1e-9)
    assert twice == pytest.approx(math.log(2) / 2)


def test_too_few_measurements_fit_nothing():
    with pytest.raises(RecordError, match=f"8 measurements cannot fit {len(NAMES)} constants"):
        fit_cost_model.fit(records(1, 0.0), described(), "fitted: here")


def test_a_constant_with_a_source_is_kept():
    start = spoiled()
    start["step_clocks"] = replace(start["step_clocks"], origin="source: a paper")
    found = fit_cost_model.fit(records(3, 0.0), start, "fitted: here")
    assert found.constants["step_clocks"] == start["step_clocks"]


@pytest.mark.parametrize(("fitted", "is_written"), [(0.01, True), (0.02, False), (0.03, False)])
def test_constants_are_written_if_they_pick_better_on_unseen_problems(
    fitted, is_written, tmp_path, monkeypatch, capsys
):
    path, kept, written = tmp_path / "a100.jsonl", {}, []
    write_records(path, records(4, 0.0))
    monkeypatch.setattr(
        fit_cost_model, "write_result", lambda name, figures, target: kept.update(figures)
    )
    monkeypatch.setattr("sys.argv", ["fit_cost_model", str(path), "--check"])
    fit_cost_model.main()
    assert kept["sm_80"]["shipped"]["problems"] == 8
    assert "fitted" not in kept["sm_80"]
    constants = described()
    monkeypatch.setattr(fit_cost_model, "write", lambda *found: written.append(found))
    monkeypatch.setattr(
        fit_cost_model, "fit", lambda records, start, origin: fit_cost_model.Fit(constants, 0.0)
    )
    regrets = iter([0.02, fitted])
    monkeypatch.setattr(fit_cost_model, "mean_regret", lambda reports: next(regrets))
    monkeypatch.setattr("sys.argv", ["fit_cost_model", str(path), "--write"])
    fit_cost_model.main()
    assert written == ([(constants, "sm_80")] if is_written else [])
    said = f"for sm_80 were {'fitted' if is_written else 'kept'}; .* 0.0200 before, {fitted:.4f}"
    assert re.search(said, capsys.readouterr().out)


@pytest.mark.parametrize(("fitted", "word"), [(0.0860, "kept"), (0.0790, "fitted")])
def test_constants_are_shipped_for_a_gain_beyond_the_folds_noise(monkeypatch, fitted, word):
    shipped: list[str] = []
    monkeypatch.setattr(fit_cost_model, "write", lambda _, arch: shipped.append(arch))
    figures = {"sm_90a": {"regret_of_unseen_problems": {"shipped": 0.0867, "fitted": fitted}}}
    (line,) = fit_cost_model.keep(figures, {"sm_90a": {}})
    assert line.startswith(f"the analytical model's constants for sm_90a were {word};")
    assert shipped == (["sm_90a"] if word == "fitted" else [])
