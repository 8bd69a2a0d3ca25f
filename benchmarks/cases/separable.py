"""Depthwise separable convolutions that tests and benchmarks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.cases.kernels import EPILOGUES, graph_of, in_bf16
from boltgen.families.registry import kernel_spec
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Layer, Workload

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
_SM80, _SM75 = Shape(16, 8, 16), Shape(16, 8, 8)
_IDENTITY = EPILOGUES["identity"]


def separable(
    first: Depthwise,
    columns: int,
    graphs: tuple[ElementwiseGraph, ElementwiseGraph] = (EPILOGUES["bias_relu"], _IDENTITY),
    **given: Any,
) -> Workload:
    """`first`, then a 1x1 convolution to so many channels; `given` are fields of its matmul."""
    fields: dict[str, Any] = {
        "b_layout": Layout.COLUMN,
        "in_dtype": first.in_dtype,
        "out_dtype": first.in_dtype,
    }
    then = Gemm(m=first.gemm.m, n=columns, k=first.k, **(fields | given))
    problems: tuple[Problem, Problem] = (first, then)
    layers = (Layer(problem=p, epilogue=g) for p, g in zip(problems, graphs, strict=True))
    return Workload(layers=tuple(layers))


def same(image: tuple[int, int, int, int], size: int, stride: int = 1, **given: Any) -> Depthwise:
    """A convolution of `image` (N, H, W, C) by size x size filters, padded by half of them."""
    n, h, w, c = image
    fields: dict[str, Any] = {
        "r": size,
        "s": size,
        "padding": (size // 2,) * 4,
        "stride": (stride, stride),
    }
    return Depthwise(n=n, h=h, w=w, c=c, **(fields | given))


def config(
    tile: tuple[int, int, int], warp: tuple[int, int], stages: int, columns: int, arch: str
) -> SeparableConfig:
    """A configuration with the instruction of `arch`."""
    return SeparableConfig(
        threadblock=Shape(*tile),
        warp_m=warp[0],
        warp_n=warp[1],
        instruction=_SM75 if arch == "sm_75" else _SM80,
        stages=stages,
        columns=columns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparableCase:
    """A kernel and a workload that it computes."""

    arch: str
    config: SeparableConfig
    workload: Workload

    @property
    def spec(self) -> KernelSpec:
        """The kernel."""
        return kernel_spec(self.workload, self.config, self.arch)


def _case(
    arch: str,
    tile: tuple[int, int, int],
    warp: tuple[int, int],
    pipeline: tuple[int, int],
    workload: Workload,
) -> SeparableCase:
    stages, columns = pipeline
    return SeparableCase(
        arch=arch, config=config(tile, warp, stages, columns, arch), workload=workload
    )


def _gated(b: ElementwiseBuilder) -> None:
    """A gate of each image that nothing of the image decides."""
    total = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, F32))
    b.binary(BinaryOp.MULTIPLY, b.unary(UnaryOp.SILU, total), b.load(LoadKind.SLICE_ROW))


def _two_results(b: ElementwiseBuilder) -> None:
    """The sum before an activation as a result of its own."""
    total = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.TENSOR))
    b.store(b.unary(UnaryOp.RELU, total))
    b.store(total, dtype=F32)


def _row_sums(b: ElementwiseBuilder) -> None:
    """The sum of squares of each pixel's channels."""
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    b.store(x)
    b.store(x, LoadKind.COLUMN, F32, Reduction.SUM_OF_SQUARES)


_RELU, _BIAS_RELU = EPILOGUES["relu"], EPILOGUES["bias_relu"]
_BF16: dict[str, Any] = {"in_dtype": BF16, "out_dtype": BF16}
# Filters whose columns are compiled and others, strides, vectors of every width, rows that end in
# a thread's pixels, several tiles of columns, both layouts of B, every type, kinds of operands.
CASES: Mapping[str, SeparableCase] = {
    "plain": _case(
        "sm_80", (64, 32, 32), (16, 32), (3, 4), separable(same((2, 14, 12, 96), 3), 24)
    ),
    "strided": _case(
        "sm_80",
        (32, 64, 64),
        (16, 32),
        (2, 2),
        separable(same((1, 15, 13, 72), 5, 2), 112, (EPILOGUES["bias_silu"], _BIAS_RELU)),
    ),
    "residual": _case(
        "sm_80",
        (64, 96, 32),
        (16, 96),
        (3, 1),
        separable(
            same((2, 7, 7, 40), 3),
            96,
            (EPILOGUES["residual_before"], EPILOGUES["residual_after"]),
            b_layout=Layout.ROW,
        ),
    ),
    "older": _case("sm_75", (64, 64, 32), (32, 32), (2, 4), separable(same((1, 9, 11, 48), 7), 56)),
    "newer": _case(
        "sm_90a", (128, 32, 64), (32, 32), (3, 8), separable(same((1, 16, 16, 64), 3), 32)
    ),
    "bfloat16": _case(
        "sm_80",
        (32, 32, 32),
        (16, 16),
        (3, 2),
        separable(
            same((1, 7, 9, 36), 3, **_BF16),
            20,
            (in_bf16(EPILOGUES["bias_silu"]), in_bf16(EPILOGUES["residual_before"])),
        ),
    ),
    "half_sums": _case(
        "sm_80",
        (64, 32, 32),
        (32, 16),
        (2, 2),
        separable(same((1, 8, 8, 32), 3), 32, acc_dtype=F16, out_dtype=F32),
    ),
    "dilated": _case(
        "sm_80",
        (32, 16, 32),
        (16, 16),
        (2, 4),
        separable(
            same((1, 14, 10, 16), 3, dilation=(2, 3), padding=(2, 3, 1, 3)), 10, out_dtype=F32
        ),
    ),
    "odd": _case("sm_80", (32, 32, 32), (16, 32), (2, 1), separable(same((1, 6, 5, 27), 3), 21)),
    "doubled": _case(
        "sm_80",
        (32, 48, 32),
        (16, 48),
        (3, 4),
        separable(same((1, 8, 3, 20), 3, multiplier=2), 72, (_RELU, EPILOGUES["per_channel"])),
    ),
    "gated": _case(
        "sm_80",
        (64, 32, 64),
        (32, 32),
        (3, 4),
        separable(same((3, 5, 7, 64), 3), 24, (graph_of(_gated), _IDENTITY)),
    ),
    "two_results": _case(
        "sm_80",
        (64, 32, 32),
        (16, 32),
        (3, 2),
        separable(same((2, 5, 7, 32), 3), 40, (_BIAS_RELU, graph_of(_two_results))),
    ),
    "row_sums": _case(
        "sm_80",
        (32, 32, 32),
        (16, 32),
        (3, 4),
        separable(same((2, 5, 7, 32), 3), 40, (_BIAS_RELU, graph_of(_row_sums))),
    ),
}


def golden_separable_specs() -> dict[str, KernelSpec]:
    """Kernels whose text is recorded in `tests/golden`, by file name."""
    return {"separable_sm80": CASES["strided"].spec}
