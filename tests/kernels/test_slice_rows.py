"""Epilogues with a row for each image or sequence, or for each position in these, of every family
that loads one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from benchmarks.cases.kernels import graph_of
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.registry import boundaries, candidates, kernel_spec, launch
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.norm.problem import Norm, NormFunction
from boltgen.problems.problem import Problem
from boltgen.problems.slices import slices
from boltgen.problems.workload import Layer, Workload
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, assert_refused, setting

F16, F32 = DType.F16, DType.F32


def _modulated(b: ElementwiseBuilder) -> int:
    """acc * scale of the slice + shift of the slice, which is in FP32."""
    x = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.SLICE_ROW))
    return b.binary(BinaryOp.ADD, x, b.load(LoadKind.SLICE_ROW, F32))


def _placed(b: ElementwiseBuilder) -> int:
    """(acc + bias) * scale of the position, which is in FP32, + shift of the slice."""
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    x = b.binary(BinaryOp.MULTIPLY, x, b.load(LoadKind.POSITION_ROW, F32))
    return b.binary(BinaryOp.ADD, x, b.load(LoadKind.SLICE_ROW))


def _positioned(b: ElementwiseBuilder) -> int:
    """acc + position."""
    return b.binary(BinaryOp.ADD, 0, b.load(LoadKind.POSITION_ROW))


def _gated(b: ElementwiseBuilder) -> int:
    """residual + gate of the slice * (acc + bias)."""
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    x = b.binary(BinaryOp.MULTIPLY, x, b.load(LoadKind.SLICE_ROW))
    return b.binary(BinaryOp.ADD, b.load(LoadKind.TENSOR), x)


def _silu(b: ElementwiseBuilder) -> int:
    return b.unary(UnaryOp.SILU, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.SLICE_ROW)))


MODULATED, GATED, SILU = map(graph_of, (_modulated, _gated, _silu))
PLACED, POSITIONED = map(graph_of, (_placed, _positioned))


@dataclass(frozen=True, slots=True)
class Case:
    """Layers, the arch, and the family of the kernel that computes them: the first listed one."""

    arch: str
    family: str
    layers: tuple[tuple[Problem, ElementwiseGraph], ...]

    @property
    def workload(self) -> Workload:
        layers = (Layer(problem=each, epilogue=graph) for each, graph in self.layers)
        return Workload(layers=tuple(layers))

    @property
    def config(self) -> Any:
        listed = candidates(self.workload, arch_named(self.arch))
        return next(each for each in listed if each.family == self.family)

    @property
    def spec(self) -> KernelSpec:
        return kernel_spec(self.workload, self.config, self.arch)


def _one(arch: str, family: str, problem: Problem, graph: ElementwiseGraph) -> Case:
    return Case(arch, family, ((problem, graph),))


_CONV = Conv2d(n=3, h=7, w=9, c=40, k=136, r=3, s=3, padding=(1, 1, 1, 1))
_CHAIN = (
    (Gemm(m=200, n=64, k=104, slice_rows=37, b_layout=Layout.COLUMN), SILU),
    (Gemm(m=200, n=64, k=64, slice_rows=50, b_layout=Layout.COLUMN), GATED),
)
_PLACED_CHAIN = (
    (Gemm(m=200, n=64, k=104, slice_rows=37, b_layout=Layout.COLUMN), POSITIONED),
    (Gemm(m=200, n=64, k=64, slice_rows=50, b_layout=Layout.COLUMN), PLACED),
)
# Slices that end within a tile, a vector of rows and a short last one; all alignments.
CASES: Mapping[str, Case] = {
    "product": _one("sm_80", "cutlass2", Gemm(m=300, n=136, k=104, slice_rows=37), GATED),
    "unaligned": _one(
        "sm_80", "cutlass2", Gemm(m=150, n=137, k=101, slice_rows=1, out_dtype=F32), MODULATED
    ),
    "turing": _one("sm_75", "cutlass2", Gemm(m=300, n=136, k=104, slice_rows=64), MODULATED),
    "convolution": _one("sm_80", "cutlass2", _CONV, GATED),
    "pointwise": _one("sm_80", "cutlass2", replace(_CONV, r=1, s=1, padding=(0, 0, 0, 0)), SILU),
    "few-rows": _one("sm_80", "skinny", Gemm(m=13, n=200, k=1032, slice_rows=3), GATED),
    "chain": Case("sm_80", "b2b", _CHAIN),
    "chain-90": Case("sm_90a", "b2b_sm90", _CHAIN),
    "norm": _one(
        "sm_80",
        "norm",
        Norm(rows=50, columns=768, function=NormFunction.LAYER, epsilon=1e-5, slice_rows=7),
        MODULATED,
    ),
    "images": _one("sm_75", "norm", GroupNorm(n=3, h=5, w=7, c=64, groups=8), MODULATED),
    "wgmma": _one(
        "sm_90a",
        "cutlass3",
        Gemm(m=700, n=512, k=256, slice_rows=100, b_layout=Layout.COLUMN),
        GATED,
    ),
    "wgmma-float32": _one(
        "sm_90a", "cutlass3", Gemm(m=700, n=520, k=256, slice_rows=1, out_dtype=F32), MODULATED
    ),
    "wgmma-convolution": _one("sm_90a", "cutlass3", replace(_CONV, c=64), GATED),
    "positions": _one("sm_80", "cutlass2", Gemm(m=300, n=136, k=104, slice_rows=37), PLACED),
    "positions-unaligned": _one(
        "sm_75", "cutlass2", Gemm(m=150, n=137, k=101, slice_rows=150, out_dtype=F32), PLACED
    ),
    "positions-convolution": _one("sm_80", "cutlass2", _CONV, POSITIONED),
    "positions-few-rows": _one("sm_80", "skinny", Gemm(m=13, n=200, k=1032, slice_rows=3), PLACED),
    "positions-chain": Case("sm_80", "b2b", _PLACED_CHAIN),
    "positions-chain-90": Case("sm_90a", "b2b_sm90", _PLACED_CHAIN),
    "positions-norm": _one(
        "sm_80",
        "norm",
        Norm(rows=50, columns=768, function=NormFunction.LAYER, epsilon=1e-5, slice_rows=7),
        PLACED,
    ),
    "positions-images": _one("sm_75", "norm", GroupNorm(n=3, h=5, w=7, c=64, groups=8), PLACED),
    "positions-wgmma": _one(
        "sm_90a",
        "cutlass3",
        Gemm(m=700, n=512, k=256, slice_rows=100, b_layout=Layout.COLUMN),
        PLACED,
    ),
}


@pytest.fixture(scope="module")
def slice_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    """The library of every kernel here."""
    specs = dict.fromkeys(case.spec for case in CASES.values())
    return build_libraries(list(specs), tmp_path_factory.mktemp("slices"))


def test_a_pointwise_convolution_keeps_its_images() -> None:
    problem = CASES["pointwise"].workload.single.problem
    assert problem == Gemm(m=189, n=136, k=40, b_layout=Layout.COLUMN, slice_rows=63)
    assert slices(problem) == 3


@pytest.mark.parametrize("name", CASES)
def test_each_row_is_of_its_slice(
    name: str, checking: Cuda, slice_kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    """At its own sizes, and at those at which a kernel is checked before it ships."""
    case = CASES[name]
    small = boundaries(case.workload, case.config, arch_named(case.arch))
    assert any(slices(layer.problem) > 1 for each in small for layer in each.layers)
    library = slice_kernels[case.spec]
    errors = judged_jobs(checking, library, case.spec, case.config, (case.workload, *small))
    assert all(0 < error <= 1 for error in errors)


@pytest.mark.parametrize("name", ["product", "norm", "wgmma"])
def test_bad_arguments_are_refused(
    name: str, slice_kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    case = CASES[name]
    problem, loads = case.workload.single.problem, case.workload.single.loads
    index = next(i for i, load in enumerate(loads) if load.kind is LoadKind.SLICE_ROW)

    def refused(code: int, message: str, **values: int) -> None:
        sizes = launch(case.workload, case.config)
        args: Any = arguments(sizes.struct, sizes.sizes)
        for field in {"a", "b", "d", "workspace"} & {name for name, *_ in args._fields_}:
            setting(**{field: ADDRESS})(args)
        args.workspace_bytes = sizes.workspace_bytes
        for i in range(len(loads)):
            args.operands[i].pointer, args.operands[i].ld = ADDRESS, problem.matrix[1]
        args.operands[index].ld = problem.slice_rows
        args.operands[index].batch_stride = problem.matrix[1]
        setting(**values)(args.operands[index])
        library = slice_kernels[case.spec]
        assert_refused(library, case.spec, args, code, message)

    refused(INVALID, rf"operands\[{index}\].ld is 0; it must be at least 1", ld=0)
    refused(INVALID, rf"operands\[{index}\].ld is 2147483648; it must be at most", ld=2**31)
    stride = problem.matrix[1] + 4
    refused(MISALIGNED, rf"operands\[{index}\].batch_stride is {stride}", batch_stride=stride)
    refused(INVALID, rf"operands\[{index}\].pointer is a null pointer", pointer=0)
