"""Tuning: both ways of padding are timed, and what was measured decides."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import boltgen
from boltgen import tuner
from boltgen.build.library.kernels import toolchain_text
from boltgen.build.toolchain import find_toolchain
from boltgen.cli.terminal.tables import tuned
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Failure, Fault, Outcome
from boltgen.pipeline import PipelineOptions
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from boltgen.tuning.session.report import SessionReport
from boltgen.tvm_build.model import import_model, partition
from tests.tuning.fakes import FakeBench
from tests.tuning.samples import A100


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


def sizes_of(workload: Workload) -> tuple[int, int]:
    """K and N of a product."""
    gemm = workload.single.problem.gemm
    return gemm.k, gemm.n


def tune_odd(
    monkeypatch: pytest.MonkeyPatch, padded_us: float, budget: str = "5000trials", **more: object
) -> SessionReport:
    """Tune on a made-up A100 that takes so long with the tensor between padded, and 50 us else.

    In no time no kernel works.
    """
    tools = toolchain_text(find_toolchain(settings_from()))

    def answer(trial: Trial) -> Outcome | float:
        if trial.workload.is_fused:
            return 1000.0
        if 48 not in sizes_of(trial.workload):
            return 50.0
        return padded_us or Failure(fault=Fault.WRONG_RESULT, reason="all elements differ")

    bench = FakeBench(answer, toolchain=tools)
    monkeypatch.setattr(tuner, "open_cuda", lambda how, **_: bench)
    return boltgen.tune(odd_model(), arch="sm_80", budget=budget, rest="off", **more)


def padded(**options: object) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """K and N of each product of `odd_model`, as `compile` pads it, and why."""
    chosen = PipelineOptions(fuse=False, **options)
    imported = import_model(odd_model(), chosen)
    partition(imported, "sm_80", chosen)
    sizes = [sizes_of(region.workload) for region in imported.regions]
    return sizes, imported.partitioned.padding


def test_both_ways_of_padding_are_timed_and_the_model_runs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = tune_odd(monkeypatch, 40.0)
    products = [r.task for r in report.results if not r.task.workload.is_fused]
    sizes = {sizes_of(task.workload): task.is_alternative for task in products}
    assert {(60, 44), (60, 48), (64, 44), (64, 48), (44, 64), (48, 64)} == sizes.keys()
    run = [size for size, is_alternative in sizes.items() if not is_alternative]
    assert len(run) == 2
    assert all(result.best for result in report.results)
    assert report.model_us in {80.0, 90.0, 100.0}, "alternatives are no part of it"
    shown = Console(width=300, file=(text := io.StringIO()))
    shown.print(tuned(report))
    # Four products padded otherwise, and both layers as one kernel.
    assert text.getvalue().count("if chosen") == 5


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
