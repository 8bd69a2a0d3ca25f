"""Products of 8-bit integers on the virtual GPU, all its checks on, equal to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.errors import InvalidProblemError, NoLegalConfigError
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.mma_sync.shapes import instruction_of
from boltgen.families.registry import boundaries, candidates, kernel_spec, predict, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.operands import draw
from boltgen.problems.oracle import enclose
from boltgen.problems.workload import Workload
from tests.kernels.conftest import launched
from tests.kernels.integers import floats, requantised, scaled, with_residual
from tests.kernels.jobs import judged_jobs

_SAME = (1, 1, 1, 1)


def _config(
    tile: str, warp: tuple[int, int], stages: int = 3, arch: str = "sm_80", **launch: int
) -> Cutlass2Config:
    m, n, k = map(int, tile.split("x"))
    return Cutlass2Config(
        threadblock=Shape(m, n, k),
        warp=Shape(*warp, k),
        instruction=instruction_of(DType.I8, arch_named(arch)),
        stages=stages,
        **launch,
    )


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
    "channels": (_SMALL, Workload.of(_gemm(150, 80, 272, _I8, _I8), requantised())),
    "unsigned": (
        _LARGE,
        Workload.of(_gemm(200, 144, 320, _U8, _U8), requantised(by_channel=False, low=0.0, zero=3)),
    ),
    "residual": (_DEEP, Workload.of(_gemm(130, 72, 200, _I8, _I8), with_residual())),
    "narrow": (
        _config("64x32x64", (32, 32)),
        Workload.of(_gemm(65, 36, 100, _I8, _I8), requantised()),
    ),
    "sliced": (
        _config("64x64x64", (32, 32), 3, split_k=3),
        Workload.of(_gemm(70, 64, 1040, _I8, _I8), requantised()),
    ),
    "half": (_SMALL, Workload.of(_gemm(90, 48, 144, _U8, _F16), floats(UnaryOp.RELU))),
    "float": (_SMALL, Workload.of(_gemm(90, 40, 144, _I8, _F32), floats(UnaryOp.GELU_ERF))),
    "sums": (_SMALL, Workload.of(_gemm(80, 44, 160, _I8, _I32))),
    "batch": (
        _SMALL,
        Workload.of(_gemm(70, 48, 96, _I8, _I8, batch=3), requantised(by_channel=False)),
    ),
    "image": (
        _SMALL,
        Workload.of(_conv((2, 9, 11, 32), 48, _U8, _U8), requantised(low=0.0, zero=0)),
    ),
    "strided": (
        _DEEP,
        Workload.of(
            _conv((1, 12, 10, 48), 72, _I8, _I8, stride=(2, 2), dilation=(1, 2)), with_residual()
        ),
    ),
    "first": (
        _SMALL,
        Workload.of(_conv((1, 14, 14, 4), 32, _I8, _I8, r=5, s=5), requantised()),
    ),
    "turing": (
        _config("64x64x64", (32, 32), 2, "sm_75"),
        Workload.of(_gemm(70, 72, 208, _U8, _I8), requantised()),
    ),
    "turing image": (
        _config("64x64x64", (32, 32), 2, "sm_75"),
        Workload.of(_conv((1, 9, 7, 32), 48, _I8, _I8), with_residual()),
    ),
    "groups": (
        _SMALL,
        Workload.of(_conv((1, 8, 9, 64), 64, _I8, _I8, groups=2), requantised()),
    ),
}


def _arch(name: str) -> str:
    return "sm_75" if name.startswith("turing") else "sm_80"


def _spec(name: str) -> KernelSpec:
    config, workload = KERNELS[name]
    return kernel_spec(workload, config, _arch(name))


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    every = list(map(_spec, KERNELS))
    specs = launched(request, every, lambda parameters: _spec(parameters["name"]))
    return build_libraries(specs, tmp_path_factory.mktemp("integers"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_equals_the_oracle_at_its_size_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload = KERNELS[name]
    row = arch_named(_arch(name))
    assert not violations(workload, config, row)
    sizes = (workload, *boundaries(workload, config, row))
    assert len(sizes) == 3
    errors = judged_jobs(checking, kernels[_spec(name)], _spec(name), config, sizes)
    # FP16 is rounded once more, and a GELU has a bound; integers are equal.
    is_equal = workload.single.problem.out_dtype.is_whole
    assert max(errors) == 0.0 if is_equal else max(errors) <= 1.0


def test_every_oracle_of_integers_is_without_a_bound() -> None:
    for name, (_, workload) in KERNELS.items():
        if not workload.single.problem.out_dtype.is_whole:
            continue
        a, inputs = draw(workload.single, np.random.default_rng(0), is_sliced=False)
        found = enclose(workload, a, [inputs])
        assert not found.bound.any(), name
        # The values fill the type, and neither end is most of them.
        assert len(np.unique(found.exact)) > 40, name


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"])
def test_every_architecture_has_kernels_of_integers(arch: str) -> None:
    found = candidates(KERNELS["channels"][1], arch_named(arch))
    by_wgmma = {"cutlass3"} if arch == "sm_90a" else set()
    assert {config.family for config in found} == {"cutlass2"} | by_wgmma


def test_integers_take_half_the_time_where_tensor_cores_are_the_limit() -> None:
    row, sizes = arch_named("sm_80"), {"m": 4096, "n": 4096, "k": 4096}

    def fastest_us(workload: Workload) -> float:
        times = (predict(workload, each, row).time_us for each in candidates(workload, row))
        return min(times)

    floats = Workload.of(Gemm(b_layout=Layout.COLUMN, **sizes))
    integers = Workload.of(_gemm(*sizes.values(), _I8, _I8), requantised())
    assert fastest_us(floats) > 1.7 * fastest_us(integers)


def _rejection(problem: Gemm | Conv3d, epilogue: ElementwiseGraph, arch: str = "sm_80") -> str:
    with pytest.raises(NoLegalConfigError) as caught:
        candidates(Workload.of(problem, epilogue), arch_named(arch))
    return str(caught.value)


def test_what_no_kernel_of_integers_computes_is_named() -> None:
    row_major = replace(_gemm(64, 64, 64, _I8, _I8), b_layout=Layout.ROW)
    assert "B is row-major: kernels of 8-bit integers" in _rejection(row_major, requantised())
    builder = ElementwiseBuilder(whole=True)
    made = scaled(builder, by_channel=False)
    builder.store(builder.unary(UnaryOp.RELU, made))
    builder.store(made, dtype=DType.F16)
    several = _rejection(_gemm(64, 64, 64, _I8, _F32), builder.build())
    assert "kernels of integers store D of one product alone" in several
    extents = {"n": 1, "depth": 4, "h": 4, "w": 4, "c": 32, "k": 32, "t": 3, "r": 3, "s": 3}
    volumes = Conv3d(**extents, in_dtype=_I8, acc_dtype=_I32, out_dtype=_I8)
    assert "no kernel multiplies int8 of volumes" in _rejection(volumes, requantised())
    with pytest.raises(InvalidProblemError, match=r"k=65794; .* may exceed int32"):
        _gemm(8, 8, 65794, _I8, _I8)
    with pytest.raises(InvalidProblemError, match="sums in int32 and an epilogue of others"):
        Workload.of(_gemm(8, 8, 8, _I8, _I8), _offloats())
    with pytest.raises(InvalidProblemError, match="a result in int8; whole sums are stored as"):
        Workload.of(_gemm(8, 8, 8, _I8, _I8))
    with pytest.raises(InvalidProblemError, match="a result in uint8 that is not clipped to its"):
        Workload.of(_gemm(8, 8, 8, _I8, _U8), requantised())


def _offloats() -> ElementwiseGraph:
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    return builder.build()
