"""Kernels for sm_90 start before the one ahead has ended: each waits for it, or does not ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases.attention import attention
from benchmarks.cases.kernels import EPILOGUES
from boltgen.arch import arch_named
from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.client import run_launches
from boltgen.check.plan import jobs_of_trials
from boltgen.check.protocol import Setup, Verdict
from boltgen.families.source import KernelSource, render_kernel
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType, Layout
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.grouped.problem import GroupedGemm
from boltgen.problems.layout_transform.problem import (
    NHWC_F16,
    Form,
    ImageLayout,
    LayoutTransform,
    Move,
)
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.workload import Layer, Workload
from boltgen.settings import settings_from
from boltgen.tuning.choice.select import Task, select
from tests.check import sabotage
from tests.check.conftest import Link

ARCH = "sm_90"
RELU = EPILOGUES["relu"]
MOVE = Workload.of(
    LayoutTransform(
        move=Move(source=Form(layout=ImageLayout.NCHW, dtype=DType.F32), target=NHWC_F16),
        images=4,
        pixels=144,
        source_channels=72,
        target_channels=72,
    )
)
# A workload for each family.
WORKLOADS = {
    "cutlass2": Workload.of(Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN), RELU),
    "skinny": Workload.of(Gemm(m=1, n=1024, k=1024, b_layout=Layout.COLUMN), RELU),
    "grouped": Workload.of(GroupedGemm(groups=8, m=512, n=256, k=1024), RELU),
    "norm": Workload.of(Norm(rows=512, columns=768, function=NormFunction.LAYER)),
    "move": MOVE,
    "attention": attention(300, 330, 64, 64, batch=3),
    "b2b": Workload(
        layers=(
            Layer(problem=Gemm(m=4096, n=64, k=256), epilogue=RELU),
            Layer(problem=Gemm(m=4096, n=48, k=64), epilogue=RELU),
        )
    ),
    "convolution": Workload.of(Conv2d(n=8, h=28, w=28, c=64, k=128, r=3, s=3), RELU),
}


def chosen(name: str) -> Trial:
    workload = WORKLOADS[name]
    (decision,) = select([Task(workload=workload)], arch_named(ARCH))
    trial = Trial(workload=workload, config=decision.config)
    assert trial.config.family == ("cutlass2" if name == "convolution" else name)
    return trial


def source_of(trial: Trial) -> KernelSource:
    return render_kernel(trial.spec(ARCH))


def judge(library: Path, trials: list[Trial]) -> dict[str, list[Verdict]]:
    setup = Setup(
        library=str(library), vgpu=str(vgpu_libraries(settings_from())), arch=ARCH, checks="all"
    )
    symbols = {source_of(trial).symbol: trial for trial in trials}
    jobs = {symbol: jobs_of_trials(symbol, [trial], ARCH) for symbol, trial in symbols.items()}
    return run_launches(setup, jobs, workers=2, reporter=Silent())


def test_each_family_waits_for_the_kernel_before(link: Link) -> None:
    trials = [chosen(name) for name in WORKLOADS]
    verdicts = judge(link([source_of(trial) for trial in trials]), trials)
    assert len(verdicts) == len(WORKLOADS)
    for judged in verdicts.values():
        assert judged and all(verdict.passed for verdict in judged), [str(each) for each in judged]


@pytest.mark.parametrize("name", ["skinny", "move"])
def test_a_kernel_that_does_not_wait_fails_the_check(name: str, link: Link) -> None:
    trial = chosen(name)
    source = source_of(trial)
    (judged,) = judge(link([sabotage.no_wait(source)]), [trial]).values()
    assert not any(verdict.passed for verdict in judged)
    for verdict in judged:
        assert any("access before griddepcontrol.wait" in each for each in verdict.findings)
