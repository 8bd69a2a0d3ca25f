"""Kernels that are wrong are caught and named; right ones pass, whatever shape they have."""

from __future__ import annotations

import pytest

from boltgen.arch import arch_named
from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.client import run_launches
from boltgen.check.plan import jobs_of_trials
from boltgen.check.protocol import Job, Setup, Verdict
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.family import CHECKED_SMS
from boltgen.families.grouped.config import GroupedConfig
from boltgen.families.recurrent.config import RecurrentConfig
from boltgen.families.registry import launch
from boltgen.families.source import KernelSource, render_kernel
from boltgen.families.space import Shape
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.recurrence import Cell
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
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload
from boltgen.settings import settings_from
from boltgen.tuning.choice.select import Task, select
from tests.check import sabotage
from tests.check.conftest import Link

ARCH = "sm_80"


def bias_and_residual():
    builder = ElementwiseBuilder()
    biased = builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.ROW))
    builder.unary(UnaryOp.RELU, builder.binary(BinaryOp.ADD, biased, builder.load(LoadKind.TENSOR)))
    return builder.build()


def config(**launch: int) -> Cutlass2Config:
    return Cutlass2Config(
        threadblock=Shape(64, 64, 32),
        warp=Shape(32, 32, 32),
        instruction=Shape(16, 8, 16),
        stages=3,
        **launch,
    )


GEMM = Trial(
    workload=Workload.of(Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN), bias_and_residual()),
    config=config(split_k=2, swizzle=2),
)
BATCHED = Trial(
    workload=Workload.of(Gemm(batch=12, m=128, n=128, k=64), bias_and_residual()),
    config=config(),
)
CONV = Trial(
    workload=Workload.of(
        Conv2d(
            n=8,
            h=28,
            w=28,
            c=64,
            k=128,
            r=3,
            s=3,
            stride=(2, 1),
            padding=(1, 2, 0, 1),
            dilation=(1, 2),
        ),
        bias_and_residual(),
    ),
    config=config(),
)


def gated_and_plain():
    builder = ElementwiseBuilder()
    builder.store(builder.binary(BinaryOp.MULTIPLY, 0, builder.load(LoadKind.TENSOR)))
    builder.store(0, dtype=DType.F32)
    return builder.build()


GROUPED = Trial(
    workload=Workload.of(GroupedGemm(groups=8, m=512, n=256, k=1024), gated_and_plain()),
    config=GroupedConfig(gemm=config(swizzle=2)),
)
NCHW_F32 = Form(layout=ImageLayout.NCHW, dtype=DType.F32)


def source_of(trial: Trial) -> KernelSource:
    return render_kernel(trial.spec(ARCH))


def judge(library, kernels: dict[str, tuple[Job, ...]]) -> dict[str, list[Verdict]]:
    vgpu = vgpu_libraries(settings_from())
    setup = Setup(library=str(library), vgpu=str(vgpu), arch=ARCH, checks="all")
    return run_launches(setup, kernels, workers=2, reporter=Silent())


def chosen(workload: Workload) -> Trial:
    (decision,) = select([Task(workload=workload)], arch_named(ARCH))
    return Trial(workload=workload, config=decision.config)


def chain() -> Trial:
    layers = (
        Layer(problem=Gemm(m=4096, n=64, k=256), epilogue=bias_and_residual()),
        Layer(problem=Gemm(m=4096, n=48, k=64), epilogue=bias_and_residual()),
    )
    return chosen(Workload(layers=layers))


def moves() -> list[Trial]:
    """To NHWC and back, in vectors and where nothing is aligned, with channels more and less."""
    sizes = ((3, 4, 384), (46, 48, 266), (72, 72, 144), (523, 528, 49))
    forms = ((NCHW_F32, NHWC_F16), (NHWC_F16, NCHW_F32))
    return [
        chosen(
            Workload.of(
                LayoutTransform(
                    move=Move(source=source, target=target),
                    images=4,
                    pixels=pixels,
                    source_channels=fewer if source == NCHW_F32 else more,
                    target_channels=more if source == NCHW_F32 else fewer,
                )
            )
        )
        for source, target in forms
        for fewer, more, pixels in sizes
    ]


def jobs_of(trials: list[Trial]) -> dict[str, tuple[Job, ...]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(source_of(trial).symbol, []).append(trial)
    return {symbol: jobs_of_trials(symbol, found[symbol], ARCH) for symbol in found}


def test_right_kernels_pass(link: Link) -> None:
    """Slices of K, a batch, a convolution, rows in groups, a chain and layout transforms."""
    trials = [GEMM, BATCHED, CONV, GROUPED, chain(), *moves()]
    sources = {source.symbol: source for source in map(source_of, trials)}
    kernels = jobs_of(trials)
    verdicts = judge(link([*sources.values()]), kernels)
    assert verdicts.keys() == kernels.keys()
    assert len(kernels) == 7
    for symbol, judged in verdicts.items():
        assert len(judged) == len(kernels[symbol]) >= 2
        assert all(verdict.passed for verdict in judged), [str(verdict) for verdict in judged]
        assert all(0.0 <= (verdict.worst_error or 0.0) <= 1.0 for verdict in judged)
    # A layout transform is exact.
    for symbol in (source_of(trial).symbol for trial in moves()):
        assert {verdict.worst_error for verdict in verdicts[symbol]} == {0.0}


def test_threadblocks_that_wait_for_each_other_all_run(link: Link) -> None:
    """As many as share the hidden units, which are more than the device of a check runs else."""
    problem = Recurrent(cell=Cell.RNN_TANH, steps=2, batch_rows=1, hidden=504)
    trial = Trial(
        workload=Workload.of(problem),
        config=RecurrentConfig(groups=1, resident=False, units=8, slices=4),
    )
    assert launch(trial.workload, trial.config).threadblocks_at_once == 64 > CHECKED_SMS
    (verdicts,) = judge(link([source_of(trial)]), jobs_of([trial])).values()
    assert len(verdicts) == 2
    assert all(verdict.passed for verdict in verdicts), [str(verdict) for verdict in verdicts]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (sabotage.wrong_constant, "the output is wrong"),
        (sabotage.one_row_more, "bytes"),
        (sabotage.no_barriers, "racecheck"),
        (sabotage.foreign_symbol, "no such kernel"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_kernel_is_caught_beside_a_right_one(
    spoil: sabotage.Sabotage, told: str, link: Link
) -> None:
    wrong, right = source_of(GEMM), source_of(CONV)
    verdicts = judge(link([spoil(wrong), right]), jobs_of([GEMM, CONV]))
    assert all(verdict.passed for verdict in verdicts[right.symbol])
    failed = [verdict for verdict in verdicts[wrong.symbol] if not verdict.passed]
    assert failed
    said = " ".join((failed[0].wrong, *failed[0].findings))
    assert told in said, said
