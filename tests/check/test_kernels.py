"""Kernels that are wrong are caught and named; right ones pass, whatever shape they have."""

from __future__ import annotations

import pytest

from boltgen.arch import arch_named
from boltgen.build.progress import Silent
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.client import run_launches
from boltgen.check.plan import launches_of_move, launches_of_trial
from boltgen.check.protocol import AnyLaunch, Setup, Verdict
from boltgen.codegen.kernel import KernelSource, render_kernel
from boltgen.codegen.move import move_symbol, render_moves
from boltgen.ir.chain import ChainLayer, GemmChain
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.epilogue import BinaryOp, EpilogueBuilder, LoadKind, UnaryOp
from boltgen.ir.move import NHWC_F16, Form, ImageLayout, Move
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm
from boltgen.settings import settings_from
from boltgen.space.config import Cutlass2Config, Shape
from boltgen.tune.chain_model import best_chain_config
from boltgen.tune.outcome import Trial
from tests.check import sabotage
from tests.check.conftest import Link

ARCH = "sm_80"


def bias_and_residual():
    builder = EpilogueBuilder()
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
    problem=Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN),
    epilogue=bias_and_residual(),
    config=config(split_k=2, swizzle=2),
)
BATCHED = Trial(
    problem=BatchedGemm(batch=12, m=128, n=128, k=64),
    epilogue=bias_and_residual(),
    config=config(),
)
CONV = Trial(
    problem=Conv2d(
        n=8, h=28, w=28, c=64, k=128, r=3, s=3, stride=(2, 1), padding=(1, 2, 0, 1), dilation=(1, 2)
    ),
    epilogue=bias_and_residual(),
    config=config(),
)
MOVE = Move(source=Form(layout=ImageLayout.NCHW, dtype=DType.F32), target=NHWC_F16)


def source_of(trial: Trial) -> KernelSource:
    return render_kernel(trial.spec(ARCH))


def judge(library, kernels: dict[str, tuple[AnyLaunch, ...]]) -> dict[str, list[Verdict]]:
    vgpu = vgpu_libraries(settings_from())
    setup = Setup(library=str(library), vgpu=str(vgpu), device=ARCH, checks="all")
    return run_launches(setup, kernels, workers=2, reporter=Silent())


def chain() -> Trial:
    problem = GemmChain(
        layers=(
            ChainLayer(problem=Gemm(m=4096, n=64, k=256), epilogue=bias_and_residual()),
            ChainLayer(problem=Gemm(m=4096, n=48, k=64), epilogue=bias_and_residual()),
        )
    )
    chosen, _ = best_chain_config(problem, arch_named(ARCH))
    return Trial(problem=problem, epilogue=EpilogueBuilder().build(), config=chosen)


def test_right_kernels_pass(link: Link) -> None:
    """A product with slices of K, a batch, a convolution, a chain and a layout transform."""
    trials = (GEMM, BATCHED, CONV, chain())
    sources = [source_of(trial) for trial in trials]
    kernels: dict[str, tuple[AnyLaunch, ...]] = {
        source.symbol: launches_of_trial(trial, ARCH)
        for source, trial in zip(sources, trials, strict=True)
    }
    kernels[move_symbol(MOVE)] = launches_of_move(MOVE)
    verdicts = judge(link([*sources, render_moves([MOVE], ARCH)]), kernels)
    assert verdicts.keys() == kernels.keys()
    for symbol, judged in verdicts.items():
        assert len(judged) == len(kernels[symbol]) >= 2
        assert all(verdict.passed for verdict in judged), [str(verdict) for verdict in judged]
        assert all(0.0 <= (verdict.worst_error or 0.0) <= 1.0 for verdict in judged)


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
    kernels = {
        wrong.symbol: launches_of_trial(GEMM, ARCH),
        right.symbol: launches_of_trial(CONV, ARCH),
    }
    verdicts = judge(link([spoil(wrong), right]), kernels)
    assert all(verdict.passed for verdict in verdicts[right.symbol])
    failed = [verdict for verdict in verdicts[wrong.symbol] if not verdict.passed]
    assert failed
    said = " ".join((failed[0].wrong, *failed[0].findings))
    assert told in said, said
