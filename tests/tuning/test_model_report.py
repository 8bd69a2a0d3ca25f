"""Rank correlation, regret and recall, on tables whose figures are known."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from benchmarks.harness.model_report import evaluate, rank_correlation
from boltgen.arch import arch_named
from boltgen.families.registry import candidates, predict
from boltgen.families.trial import Trial
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.examples import arch_of, timed
from boltgen.tuning.database.records import Record
from tests.tuning.samples import A100, CONFIG, GEMM, NO_LAUNCH, NOON, TOOLS, timing

WORKLOADS = (GEMM, Workload.of(Gemm(m=1024, n=256, k=768)))


def record(workload, config, outcome, *, device=A100, minutes=0):
    return Record(
        trial=Trial(workload=workload, config=config),
        kernel="k",
        device=device,
        toolchain=TOOLS,
        outcome=outcome,
        measured_at=NOON + timedelta(minutes=minutes),
    )


def table(times_us, workload=GEMM):
    """Records of the first configurations with these times."""
    configs = candidates(workload, arch_named("sm_80"))
    pairs = zip(configs, times_us, strict=False)
    return [record(workload, config, timing(time)) for config, time in pairs]


def costs(records, values):
    """A cost model that says `values` of `records`, in order."""
    said = {r.trial: value for r, value in zip(records, values, strict=True)}
    return lambda trial, device: said[trial]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        # 1 - 6 * sum(d^2) / (n (n^2 - 1)), with d = 0, 1, 1, 0
        ([1, 2, 3, 4], [1, 3, 2, 4], 1 - 6 * 2 / (4 * 15)),
        # Ties share the mean of their ranks: 1, 2.5, 2.5, 4 against 1 to 4.
        ([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / np.sqrt(4.5 * 5)),
        ([1, 1, 1], [1, 2, 3], 0.0),
    ],
)
def test_rank_correlation(a, b, wanted):
    assert rank_correlation(a, b) == pytest.approx(wanted)
    assert rank_correlation(b, a) == pytest.approx(wanted)


def test_a_model_that_is_right_has_no_regret():
    records = table([30.0, 10.0, 20.0, 40.0])
    report = evaluate(records, costs(records, [3.0, 1.0, 2.0, 4.0]))
    assert report.rank_correlation == report.median_rank_correlation == pytest.approx(1.0)
    assert report.mean_regret == report.worst_regret == 0.0
    assert report.recall == {1: 1.0, 5: 1.0, 10: 1.0}
    assert report.log_error == pytest.approx(np.log(10))
    assert report.measurements == 4


def test_regret_is_what_the_pick_costs_over_the_best():
    times = [30.0, 10.0, 25.0, 40.0, 50.0, 60.0]
    records = table(times)
    # It takes the third for the fastest, and the fastest for the last.
    report = evaluate(records, costs(records, [3.0, 9.0, 1.0, 4.0, 5.0, 6.0]))
    (ranking,) = report.rankings
    assert ranking.regret == report.worst_regret == pytest.approx(1.5)
    assert ranking.found_at == 6
    assert report.recall == {1: 0.0, 5: 0.0, 10: 1.0}


def test_problems_are_ranked_apart():
    first, second = (table([1.0, 2.0, 3.0], workload) for workload in WORKLOADS)
    records = [*first, *second]
    report = evaluate(records, costs(records, [1.0, 2.0, 3.0, 3.0, 2.0, 1.0]))
    assert [ranking.rank_correlation for ranking in report.rankings] == pytest.approx([1.0, -1.0])
    assert report.median_rank_correlation == pytest.approx(0.0)
    assert report.mean_regret == pytest.approx(1.0)
    assert report.recall[1] == 0.5


def test_few_configurations_are_not_ranked_and_nothing_has_no_figures():
    report = evaluate(table([1.0, 2.0]))
    assert report.rankings == ()
    assert report.median_rank_correlation is report.mean_regret is None
    assert report.recall == {}
    assert evaluate([]).log_error is None


def test_the_newest_time_counts_and_failures_do_not():
    old, new = (record(GEMM, CONFIG, timing(t), minutes=m) for t, m in ((10.0, 0), (12.0, 5)))
    failed = record(GEMM, replace(CONFIG, stages=4), NO_LAUNCH)
    assert timed([new, old, failed]) == [new]


def test_the_model_predicts_for_the_device_that_was_measured():
    assert arch_of(A100) == arch_named("sm_80")
    half = arch_of(replace(A100, sm_count=54, name="half of it"))
    assert (half.sm_count, half.tensor_f32_acc_tflops) == (54, 156)
    large = Workload.of(Gemm(m=8192, n=8192, k=8192))
    whole_us, half_us = (predict(large, CONFIG, arch).time_us for arch in (arch_of(A100), half))
    assert half_us > 1.8 * whole_us


def test_the_analytical_model_is_the_default():
    configs = candidates(GEMM, arch_named("sm_80"))
    records = [
        record(GEMM, c, timing(predict(GEMM, c, arch_named("sm_80")).time_us)) for c in configs
    ]
    report = evaluate(records)
    assert report.rank_correlation == pytest.approx(1.0)
    assert report.log_error == pytest.approx(0.0, abs=1e-12)
