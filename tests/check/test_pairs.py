"""Kernels of pairs of products, executed at ragged boundaries and judged by the oracle."""

from __future__ import annotations

from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.space import Shape
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.functions import UnaryOp
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.check.conftest import Link
from tests.check.test_results import assert_right
from tests.gated import gated

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
SILU, GELU = UnaryOp.SILU, UnaryOp.GELU_TANH


def config(m: int, n: int, **other: int) -> Cutlass2Config:
    return Cutlass2Config(
        threadblock=Shape(m, n, 32),
        warp=Shape(32, n // 2, 32),
        instruction=Shape(16, 8, 16),
        **({"stages": 3} | other),
    )


def test_kernels_of_sm_80(link: Link) -> None:
    # Slices of K and biases; runs of one column; rows that threads share in wider spans, a loop
    # that is not unrolled, and a full tensor; FP32, whose vectors are two words.
    cases = [
        (
            Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN, paired=True),
            gated(SILU, biases=F16),
            config(64, 64, split_k=3, swizzle=2),
        ),
        (Gemm(m=100, n=51, k=64, b_layout=Layout.COLUMN, paired=True), gated(SILU), config(64, 64)),
        (
            Gemm(m=128, n=96, k=64, b_layout=Layout.COLUMN, paired=True),
            gated(UnaryOp.GELU_ERF, normed=True, residual=True),
            config(64, 192),
        ),
        (
            Gemm(m=128, n=128, k=64, in_dtype=BF16, out_dtype=F32, paired=True),
            gated(GELU, biases=BF16),
            config(64, 128),
        ),
    ]
    trials = [Trial(workload=Workload.of(*case), config=launch) for *case, launch in cases]
    assert_right(link, trials, "sm_80")


def test_a_kernel_of_sm_75(link: Link) -> None:
    problem = Gemm(m=512, n=256, k=256, paired=True)
    launch = Cutlass2Config(
        threadblock=Shape(128, 64, 32),
        warp=Shape(32, 64, 32),
        instruction=Shape(16, 8, 8),
        stages=2,
    )
    trial = Trial(workload=Workload.of(problem, gated(GELU, biases=F16)), config=launch)
    assert_right(link, [trial], "sm_75")
