"""Products of 8-bit integers on the virtual GPU, all its checks on, equal to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import boundaries, kernel_spec, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.jobs import judged_jobs

_SAME = (1, 1, 1, 1)


def _config(tile: str, warp: tuple[int, int], stages: int = 3, **launch: int) -> Cutlass2Config:
    m, n, k = map(int, tile.split("x"))
    return Cutlass2Config(
        threadblock=Shape(m, n, k),
        warp=Shape(*warp, k),
        instruction=Shape(16, 8, 32),
        stages=stages,
        **launch,
    )


def _scaled(b: ElementwiseBuilder, *, by_channel: bool, scale: float = 2**-12) -> int:
    """Sums and a correction for each column, as FP32, times a scale."""
    whole = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, DType.I32))
    factor = b.load(LoadKind.ROW, DType.F32) if by_channel else b.scalar(scale)
    return b.binary(BinaryOp.MULTIPLY, b.cast(whole, DType.F32), factor)


def _quantised(b: ElementwiseBuilder, x: int, zero: float, low: float, high: float) -> int:
    """The nearest integer, half to even, around a zero point and within a type."""
    return b.unary(
        UnaryOp.CLIP, b.binary(BinaryOp.ADD, b.unary(UnaryOp.ROUND, x), b.scalar(zero)), low, high
    )


def _requantised(
    *, by_channel: bool = True, low: float = -128, zero: float = -5
) -> ElementwiseGraph:
    b = ElementwiseBuilder(whole=True)
    x = b.unary(UnaryOp.RELU, _scaled(b, by_channel=by_channel))
    _quantised(b, x, zero, low, low + 255)
    return b.build()


def _with_residual() -> ElementwiseGraph:
    """A residual of integers is added, and the sum divided by a scale that is no power of two."""
    b = ElementwiseBuilder(whole=True)
    x = _scaled(b, by_channel=True)
    shifted = b.binary(BinaryOp.SUBTRACT, b.load(LoadKind.TENSOR, DType.I8), b.scalar(7))
    total = b.binary(BinaryOp.ADD, x, b.binary(BinaryOp.MULTIPLY, shifted, b.scalar(0.37)))
    _quantised(b, b.binary(BinaryOp.DIVIDE, total, b.scalar(0.83)), 3, -128, 127)
    return b.build()


def _floats(op: UnaryOp) -> ElementwiseGraph:
    b = ElementwiseBuilder(whole=True)
    b.unary(op, _scaled(b, by_channel=False))
    return b.build()


def _gemm(m: int, n: int, k: int, a: DType, d: DType, **given: Any) -> Gemm:
    types: dict[str, Any] = {"in_dtype": a, "acc_dtype": DType.I32, "out_dtype": d}
    return Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN, **types, **given)


def _conv(image: tuple[int, int, int, int], k: int, a: DType, d: DType, **given: Any) -> Conv2d:
    n, h, w, c = image
    usual: dict[str, Any] = {"r": 3, "s": 3, "padding": _SAME}
    types: dict[str, Any] = {"in_dtype": a, "acc_dtype": DType.I32, "out_dtype": d}
    return Conv2d(n=n, h=h, w=w, c=c, k=k, **types, **(usual | given))


_I8, _U8, _F16, _F32, _I32 = DType.I8, DType.U8, DType.F16, DType.F32, DType.I32
_SMALL = _config("64x64x64", (32, 32))
_LARGE = _config("128x128x64", (64, 64), 4)
_DEEP = _config("128x64x128", (64, 32))
# Each type of operands and of results, ragged in M, N and K; alignments from 16 elements to 4.
KERNELS: Mapping[str, tuple[Cutlass2Config, Workload]] = {
    "channels": (_SMALL, Workload.of(_gemm(150, 80, 272, _I8, _I8), _requantised())),
    "unsigned": (
        _LARGE,
        Workload.of(
            _gemm(200, 144, 320, _U8, _U8), _requantised(by_channel=False, low=0.0, zero=3)
        ),
    ),
    "residual": (_DEEP, Workload.of(_gemm(130, 72, 200, _I8, _I8), _with_residual())),
    "narrow": (
        _config("64x32x64", (32, 32)),
        Workload.of(_gemm(65, 36, 100, _I8, _I8), _requantised()),
    ),
    "sliced": (
        _config("64x64x64", (32, 32), 3, split_k=3),
        Workload.of(_gemm(70, 64, 1040, _I8, _I8), _requantised()),
    ),
    "half": (_SMALL, Workload.of(_gemm(90, 48, 144, _U8, _F16), _floats(UnaryOp.RELU))),
    "float": (_SMALL, Workload.of(_gemm(90, 40, 144, _I8, _F32), _floats(UnaryOp.GELU_ERF))),
    "sums": (_SMALL, Workload.of(_gemm(80, 44, 160, _I8, _I32))),
    "batch": (
        _SMALL,
        Workload.of(_gemm(70, 48, 96, _I8, _I8, batch=3), _requantised(by_channel=False)),
    ),
    "image": (
        _SMALL,
        Workload.of(_conv((2, 9, 11, 32), 48, _U8, _U8), _requantised(low=0.0, zero=0)),
    ),
    "strided": (
        _DEEP,
        Workload.of(
            _conv((1, 12, 10, 48), 72, _I8, _I8, stride=(2, 2), dilation=(1, 2)), _with_residual()
        ),
    ),
    "first": (
        _SMALL,
        Workload.of(_conv((1, 14, 14, 4), 32, _I8, _I8, r=5, s=5), _requantised()),
    ),
    "groups": (
        _SMALL,
        Workload.of(_conv((1, 8, 9, 64), 64, _I8, _I8, groups=2), _requantised()),
    ),
}


def _spec(name: str) -> KernelSpec:
    config, workload = KERNELS[name]
    return kernel_spec(workload, config, "sm_80")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("integers"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_equals_the_oracle_at_its_size_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload = KERNELS[name]
    row = arch_named("sm_80")
    assert not violations(workload, config, row)
    sizes = (workload, *boundaries(workload, config, row))
    assert len(sizes) == 3
    errors = judged_jobs(checking, kernels[_spec(name)], _spec(name), config, sizes)
    # FP16 is rounded once more, and a GELU has a bound; integers are equal.
    is_equal = workload.single.problem.out_dtype.is_whole
    assert max(errors) == 0.0 if is_equal else max(errors) <= 1.0
