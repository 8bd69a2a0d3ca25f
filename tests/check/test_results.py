"""Kernels that write more than D, executed at ragged boundaries: every result is judged."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.progress import Silent
from boltgen.build.toolchain import find_toolchain
from boltgen.build.vgpu import vgpu_libraries
from boltgen.check.client import run_launches
from boltgen.check.plan import jobs_of_trials
from boltgen.check.protocol import Setup, Verdict
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule, Scheduler
from boltgen.families.source import KernelSource, render_kernel
from boltgen.families.space import Shape
from boltgen.families.trial import Trial
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.passes.legalise.norm_of_sums import Writing, normed
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.check.conftest import Link

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
ROW, COLUMN = LoadKind.ROW, LoadKind.COLUMN
CONV = Conv2d(n=8, h=28, w=28, c=64, k=128, r=3, s=3, stride=(2, 1), padding=(1, 2, 0, 1))


def pre_activation(
    *dtypes: DType, operand: DType = F16, op: UnaryOp = UnaryOp.RELU
) -> ElementwiseGraph:
    """D is an activation of the scaled sum; the sum, and then what is scaled, are in `dtypes`."""
    b = ElementwiseBuilder()
    biased = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, operand))
    total = b.binary(BinaryOp.ADD, biased, b.load(LoadKind.TENSOR, operand))
    scaled = b.binary(BinaryOp.MULTIPLY, total, b.load(LoadKind.ROW, F32))
    b.store(b.unary(op, scaled))
    for x, dtype in zip((total, scaled), dtypes, strict=False):
        b.store(x, dtype=dtype)
    return b.build()


def gelu_of_sum(dtype: DType) -> ElementwiseGraph:
    """D is an activation of the biased product, which is stored too."""
    b = ElementwiseBuilder()
    biased = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    b.store(b.unary(UnaryOp.GELU_TANH, biased))
    b.store(biased, dtype=dtype)
    return b.build()


def reduced(*stores: tuple[LoadKind, Reduction], op: UnaryOp = UnaryOp.RELU) -> ElementwiseGraph:
    """D is an activation of the biased product, of which the `stores` are reductions."""
    b = ElementwiseBuilder()
    x = b.unary(op, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    b.store(x)
    for kind, reduction in stores:
        b.store(x, kind, F32, reduction)
    return b.build()


def normed_of(columns: int, *, centred: bool, parts: int = 1, each: int = 0) -> ElementwiseGraph:
    """D is an activation of what a norm of A's rows, by their moments, makes of the product; its
    own moments are stored. The former are in `parts`, the latter of so many columns `each`.
    """
    b = ElementwiseBuilder()
    given = {"x": 0, "squares": b.load(COLUMN, F32, parts)}
    if centred:
        given |= {"sums": b.load(COLUMN, F32, parts), "weights": b.load(ROW, F32)}
        given["shift"] = b.load(ROW, F32)
    write = Writing(scalar=b.scalar, unary=b.unary, binary=b.binary)
    x = b.unary(UnaryOp.GELU_ERF, normed(given, columns, 1e-5, write))
    b.store(x)
    b.store(x, COLUMN, F32, Reduction.SUM, each)
    b.store(x, COLUMN, F32, Reduction.SUM_OF_SQUARES, each)
    return b.build()


def parts_of_maxima(parts: int, each: int) -> ElementwiseGraph:
    """D is the product by the sum of `parts`; the maxima of so many columns `each` are stored."""
    b = ElementwiseBuilder()
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(COLUMN, F32, parts))
    b.store(x)
    b.store(x, COLUMN, F32, Reduction.MAXIMUM, each)
    return b.build()


def config(m: int, n: int, **launch: int) -> Cutlass2Config:
    return Cutlass2Config(
        threadblock=Shape(m, n, 32),
        warp=Shape(32, n // 2, 32),
        instruction=Shape(16, 8, 16),
        stages=3,
        **launch,
    )


# By type of D and of each further result: slices of K, a batch, no alignment, a tile whose rows
# threads share in narrower spans, a loop that is not unrolled, and a convolution.
CASES = {
    "split": (
        Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN),
        pre_activation(F16),
        config(64, 64, split_k=3, swizzle=2),
    ),
    "batch": (
        Gemm(batch=12, m=128, n=128, k=64, out_dtype=F32),
        pre_activation(F16, F32, op=UnaryOp.GELU_ERF),
        config(64, 64),
    ),
    "odd": (
        Gemm(m=100, n=51, k=64, b_layout=Layout.COLUMN),
        pre_activation(F32),
        config(64, 96),
    ),
    "bf16": (
        Gemm(m=128, n=128, k=64, in_dtype=BF16, out_dtype=BF16),
        pre_activation(BF16, F32, operand=BF16),
        config(64, 64),
    ),
    "conv": (CONV, pre_activation(F16, F16), config(64, 64, split_k=2)),
    "moments": (
        Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN),
        reduced((COLUMN, Reduction.SUM), (COLUMN, Reduction.SUM_OF_SQUARES), op=UnaryOp.GELU_ERF),
        config(64, 128, split_k=3, swizzle=2),
    ),
    "maxima": (
        Gemm(batch=12, m=128, n=51, k=64, b_layout=Layout.COLUMN, out_dtype=F32),
        reduced((ROW, Reduction.MAXIMUM), (COLUMN, Reduction.MAXIMUM), op=UnaryOp.TANH),
        config(64, 96),
    ),
    "layer_norm": (Gemm(m=512, n=256, k=192), normed_of(192, centred=True), config(64, 128)),
    "rms_norm": (
        Gemm(m=512, n=256, k=1024, b_layout=Layout.COLUMN),
        normed_of(1024, centred=False),
        config(64, 64, split_k=3, swizzle=2),
    ),
    "parts": (
        Gemm(m=512, n=768, k=768, b_layout=Layout.COLUMN),
        normed_of(768, centred=True, parts=12, each=64),
        config(64, 128, split_k=3, swizzle=2),
    ),
    "parts_of_three_vectors": (
        Gemm(m=128, n=384, k=64, b_layout=Layout.COLUMN),
        normed_of(64, centred=False, parts=6, each=64),
        config(64, 192),
    ),
    "parts_of_a_batch": (
        Gemm(batch=12, m=128, n=128, k=64, b_layout=Layout.COLUMN, out_dtype=F32),
        parts_of_maxima(3, each=16),
        config(64, 64),
    ),
    "pooled": (CONV, reduced((ROW, Reduction.SUM)), config(64, 64, split_k=2)),
}


# A product with C, and a batch whose tiles stream-K splits.
HOPPER = (
    Trial(
        workload=Workload.of(Gemm(m=512, n=512, k=512), pre_activation(F16, F32)),
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64), schedule=Schedule.PINGPONG, cluster_m=2
        ),
    ),
    Trial(
        workload=Workload.of(Gemm(batch=2, m=512, n=512, k=2048, out_dtype=F32), gelu_of_sum(F16)),
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64),
            schedule=Schedule.COOPERATIVE,
            cluster_n=2,
            scheduler=Scheduler.STREAM_K,
        ),
    ),
    Trial(
        workload=Workload.of(
            Gemm(m=512, n=512, k=512, b_layout=Layout.COLUMN),
            reduced((COLUMN, Reduction.SUM), (COLUMN, Reduction.SUM_OF_SQUARES)),
        ),
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64), schedule=Schedule.PINGPONG, cluster_m=2
        ),
    ),
    Trial(
        workload=Workload.of(
            Gemm(m=512, n=512, k=512, b_layout=Layout.COLUMN), normed_of(512, centred=True)
        ),
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64), schedule=Schedule.COOPERATIVE, cluster_m=2
        ),
    ),
    Trial(
        workload=Workload.of(
            Gemm(batch=3, m=512, n=512, k=1024),
            reduced((ROW, Reduction.SUM), (ROW, Reduction.MAXIMUM), (COLUMN, Reduction.MAXIMUM)),
        ),
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 64),
            schedule=Schedule.COOPERATIVE,
            scheduler=Scheduler.STREAM_K,
        ),
    ),
)


def trial(name: str) -> Trial:
    problem, epilogue, config = CASES[name]
    return Trial(workload=Workload.of(problem, epilogue), config=config)


def judged(
    library: Path, sources: Sequence[KernelSource], trials: Sequence[Trial], arch: str
) -> list[Verdict]:
    setup = Setup(
        library=str(library), vgpu=str(vgpu_libraries(settings_from())), arch=arch, checks="all"
    )
    kernels = {
        source.symbol: jobs_of_trials(source.symbol, [trial], arch)
        for source, trial in zip(sources, trials, strict=True)
    }
    verdicts = run_launches(setup, kernels, workers=2, reporter=Silent())
    return [verdict for symbol in kernels for verdict in verdicts[symbol]]


def assert_right(link: Link, trials: Sequence[Trial], arch: str) -> None:
    """Every result of every launch agrees with the oracle, and vectors stay in registers."""
    sources = [render_kernel(trial.spec(arch)) for trial in trials]
    library = link(sources)
    verdicts = judged(library, sources, trials, arch)
    assert len(verdicts) >= 2 * len(trials)
    assert all(verdict.passed for verdict in verdicts), [str(verdict) for verdict in verdicts]
    ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
    for ptx in embedded_ptx(library.read_bytes()):
        file = library.with_name("kernels.ptx")
        file.write_text(ptx)
        command = [ptxas, f"-arch={arch}", "-v", file, "-o", file.with_suffix(".cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said = done.stdout + done.stderr
        kept = " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
        assert said.count(kept) == said.count("Used ") == ptx.count(".entry ") > 0
        assert "serialized" not in said


def test_kernels_of_sm_80(link: Link) -> None:
    assert_right(link, [trial(name) for name in CASES], "sm_80")


def test_kernels_of_sm_90a(link: Link) -> None:
    assert_right(link, HOPPER, "sm_90a")


def test_a_further_result_that_is_wrong_is_named(link: Link) -> None:
    one = trial("conv")
    source = render_kernel(one.spec("sm_80"))
    right = "further[1] = multiply6;"
    assert right in source.text
    wrong = replace(source, text=source.text.replace(right, "further[1] = 1.01f * multiply6;"))
    for verdict in judged(link([wrong]), [wrong], [one], "sm_80"):
        assert not verdict.passed
        assert "result 2 is wrong" in verdict.wrong
