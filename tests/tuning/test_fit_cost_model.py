"""The fit finds constants that made the measurements, and says which it could not find."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from datetime import timedelta

import pytest

from benchmarks import fit_cost_model
from boltgen.arch import arch_named
from boltgen.errors import RecordError
from boltgen.families.constants import described, values_of
from boltgen.families.registry import candidates, predict
from boltgen.ir.dtypes import Layout
from boltgen.ir.epilogue import Epilogue, EpilogueBuilder, UnaryOp
from boltgen.ir.problem import Conv2d, Gemm
from boltgen.ir.workload import Layer, Workload
from boltgen.tuning.exchange import write_records
from boltgen.tuning.outcome import DeviceKind, Trial
from boltgen.tuning.records import Record
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
# No filter below is so long.
UNTOLD = {"analytic_conv_factor"}


def gelu() -> Epilogue:
    graph = EpilogueBuilder()
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


def test_exact_measurements_give_the_constants_back():
    found = fit_cost_model.fit(records(16, 0.0), described(), "fitted: here")
    for name, constant in found.constants.items():
        if name in UNTOLD:
            assert found.standard_errors[name] is None
            assert constant == described()[name]
        else:
            assert constant.value == pytest.approx(getattr(TRUE, name), rel=1e-3), name
            assert constant.origin == "fitted: here"
    assert found.log_error < 1e-5


def test_noisy_measurements_give_them_back_within_their_errors():
    noise = 0.02
    found = fit_cost_model.fit(records(16, noise), described(), "fitted: here")
    assert found.log_error == pytest.approx(noise, rel=0.3)
    for name, error in found.standard_errors.items():
        if name in UNTOLD:
            continue
        assert error is not None
        # Four standard errors: one in 16,000 lies beyond. On a bound there is no such error.
        off = abs(math.log(found.constants[name].value / getattr(TRUE, name)))
        assert off <= 4 * error or error == 0.0, name


def test_problems_that_the_fit_has_not_seen_are_reported():
    reports = fit_cost_model.cross_validate(records(8, 0.01), described(), folds=2)
    assert [len(report.rankings) for report in reports] == [4, 4]
    for report in reports:
        assert report.median_rank_correlation is not None
        assert report.median_rank_correlation > 0.9


def test_modelled_times_are_no_evidence(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, records(2, 0.0, kind=DeviceKind.VGPU))
    with pytest.raises(RecordError, match=r"no measurements of a GPU in .*records\.jsonl"):
        fit_cost_model.run([path], check=False)


def test_fused_kernels_are_no_evidence_of_single_products():
    """A database has both; the fit is of what one product takes."""
    single = records(1, 0.0)
    layers = tuple(Layer(problem=Gemm(m=4096, n=64, k=64)) for _ in range(2))
    workload = Workload(layers=layers)
    trial = Trial(workload=workload, config=candidates(workload, SM80)[0])
    fused = replace(single[0], trial=trial)
    assert set(fit_cost_model.usable([*single, fused])) == set(single)


def test_too_few_measurements_fit_nothing():
    with pytest.raises(RecordError, match="8 measurements cannot fit 11 constants"):
        fit_cost_model.fit(records(1, 0.0), described(), "fitted: here")


def test_a_constant_with_a_source_is_kept():
    start = described()
    start["launch_us"] = replace(start["launch_us"], origin="source: a paper")
    found = fit_cost_model.fit(records(4, 0.0), start, "fitted: here")
    assert found.constants["launch_us"] == start["launch_us"]
    assert "launch_us" not in found.standard_errors


def test_the_command_reports_on_the_shipped_constants_and_writes_fitted_ones(
    tmp_path, monkeypatch, capsys
):
    path, kept = tmp_path / "a100.jsonl", {}
    write_records(path, records(4, 0.0))
    monkeypatch.setattr(
        fit_cost_model, "write_result", lambda name, figures, target: kept.update(figures)
    )
    monkeypatch.setattr("sys.argv", ["fit_cost_model", str(path), "--check"])
    fit_cost_model.main()
    assert kept["shipped"]["problems"] == 8
    assert "fitted" not in kept
    written = tmp_path / "constants.json"
    monkeypatch.setattr(
        fit_cost_model, "write", lambda c: written.write_text(json.dumps(values_of(c).launch_us))
    )
    monkeypatch.setattr(fit_cost_model, "cross_validate", lambda records, start: [])
    monkeypatch.setattr("sys.argv", ["fit_cost_model", str(path), "--write"])
    fit_cost_model.main()
    assert float(written.read_text()) == pytest.approx(TRUE.launch_us, rel=0.05)
    assert kept["fitted"]["log_error"] < kept["shipped"]["log_error"]
    assert kept["constants"]["launch_us"]["was"] == described()["launch_us"].value
