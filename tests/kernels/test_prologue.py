"""Products of what a graph makes of A, on the virtual GPU, under all its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES, graph_of
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.prologue.config import PrologueConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Layer, Workload
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, assert_refused, setting

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32


def _batch_norm(b: ElementwiseBuilder) -> int:
    """A batch norm and an activation; what lies beyond K is not 0 after them."""
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.ROW))
    x = b.binary(BinaryOp.ADD, x, b.load(LoadKind.ROW, F32))
    return b.unary(UnaryOp.RELU, b.binary(BinaryOp.ADD, x, b.scalar(0.5)))


def _gated(b: ElementwiseBuilder) -> int:
    """(acc + position) * gate of the slice."""
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.POSITION_ROW))
    return b.binary(BinaryOp.MULTIPLY, x, b.load(LoadKind.SLICE_ROW))


def _product(b: ElementwiseBuilder) -> int:
    """A tensor more, divided by: beyond K that would be no number."""
    x = b.binary(BinaryOp.DIVIDE, 0, b.unary(UnaryOp.EXP, b.load(LoadKind.TENSOR)))
    return b.binary(BinaryOp.DIVIDE, x, b.load(LoadKind.ROW))


def _bf16(b: ElementwiseBuilder) -> int:
    return b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, BF16))


BATCH_NORM, GATED, PRODUCT, IN_BF16 = map(graph_of, (_batch_norm, _gated, _product, _bf16))
SILU = graph_of(lambda b: b.unary(UnaryOp.SILU, 0))


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, and what it computes."""

    arch: str
    tiles: tuple[tuple[int, int, int], tuple[int, int, int]]
    problem: Gemm
    prologue: ElementwiseGraph
    epilogue: str
    split_k: int = 1

    @property
    def workload(self) -> Workload:
        layer = Layer(
            problem=self.problem, prologue=self.prologue, epilogue=EPILOGUES[self.epilogue]
        )
        return Workload(layers=(layer,))

    @property
    def config(self) -> PrologueConfig:
        threadblock, warp = self.tiles
        return PrologueConfig(
            gemm=Cutlass2Config(
                threadblock=Shape(*threadblock),
                warp=Shape(*warp),
                instruction=Shape(*arch_named(self.arch).mma_shapes[0]),
                stages=2,
                split_k=self.split_k,
            )
        )

    @property
    def spec(self) -> KernelSpec:
        return kernel_spec(self.workload, self.config, self.arch)


_SMALL, _LARGE = ((64, 64, 32), (32, 32, 32)), ((128, 64, 32), (64, 32, 32))
_DEEP, _SLICED = ((64, 64, 64), (32, 32, 64)), ((64, 64, 64), (32, 64, 32))
CASES: Mapping[str, Case] = {
    "batch-norm": Case(
        "sm_80", _SMALL, Gemm(m=150, n=136, k=104, b_layout=Layout.COLUMN), BATCH_NORM, "bias_relu"
    ),
    "gate": Case(
        "sm_80", _LARGE, Gemm(m=300, n=136, k=200, slice_rows=49), GATED, "residual_before"
    ),
    "turing": Case("sm_75", _SMALL, Gemm(m=150, n=136, k=104, slice_rows=5), GATED, "identity"),
    "tensor": Case("sm_80", _DEEP, Gemm(m=70, n=72, k=200, out_dtype=F32), PRODUCT, "scalars"),
    "unaligned": Case("sm_80", _SMALL, Gemm(m=70, n=71, k=37), BATCH_NORM, "identity"),
    "two-bytes": Case(
        "sm_75", _SMALL, Gemm(m=70, n=72, k=38, b_layout=Layout.COLUMN), PRODUCT, "relu"
    ),
    "split": Case("sm_80", _SMALL, Gemm(m=70, n=72, k=808), BATCH_NORM, "bias_silu", split_k=3),
    "shared-k": Case("sm_80", _SLICED, Gemm(m=70, n=72, k=200), SILU, "identity"),
    "bfloat16": Case(
        "sm_80",
        _SMALL,
        Gemm(m=70, n=72, k=104, in_dtype=BF16, out_dtype=BF16),
        IN_BF16,
        "identity",
    ),
}


@pytest.fixture(scope="module")
def prologue_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    """The library of every kernel here."""
    specs = dict.fromkeys(case.spec for case in CASES.values())
    return build_libraries(list(specs), tmp_path_factory.mktemp("prologues"))


@pytest.mark.parametrize("name", CASES)
def test_the_product_is_of_what_the_graph_makes(
    name: str, checking: Cuda, prologue_kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    """At its own sizes, and at those at which a kernel is checked before it ships."""
    case = CASES[name]
    assert not violations(case.workload, case.config, arch_named(case.arch))
    small = boundaries(case.workload, case.config, arch_named(case.arch))
    assert len(small) == 2
    library = prologue_kernels[case.spec]
    errors = judged_jobs(checking, library, case.spec, case.config, (case.workload, *small))
    assert 0 < max(errors) <= 1  # of few numbers the sums are exact


def test_bad_arguments_are_refused(prologue_kernels: dict[KernelSpec, KernelLibrary]) -> None:
    case = CASES["gate"]
    problem = case.problem

    def refused(code: int, message: str, operand: int | None = None, **values: int) -> None:
        sizes = launch(case.workload, case.config)
        args: Any = arguments(sizes.struct, sizes.sizes)
        args.a = args.b = args.d = ADDRESS
        for index in range(4):
            args.operands[index].pointer, args.operands[index].ld = ADDRESS, problem.n
        for index in range(2):
            args.operands[index].ld = problem.slice_rows
            args.operands[index].batch_stride = problem.k
        setting(**values)(args if operand is None else args.operands[operand])
        assert_refused(prologue_kernels[case.spec], case.spec, args, code, message)

    refused(INVALID, r"operands\[0\].ld is 0; it must be at least 1", 0, ld=0)
    refused(MISALIGNED, r"operands\[0\].batch_stride is 204", 0, batch_stride=204)
    refused(INVALID, r"operands\[0\].pointer is a null pointer", 0, pointer=0)
    refused(INVALID, "batch is 2; it must be at most 1", batch=2)
    refused(MISALIGNED, r"k \(rows of A\) is 196; this kernel needs a multiple of 8", k=196)
