"""Products of 8-bit integers by wgmma, with all checks of the virtual GPU, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule, Scheduler
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import boundaries, kernel_spec, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.conftest import launched
from tests.kernels.integers import floats, requantised, with_residual
from tests.kernels.jobs import judged_jobs

SM90A = arch_named("sm_90a")
_I8, _U8, _F16, _F32 = DType.I8, DType.U8, DType.F16, DType.F32
_GEMM = Gemm(
    m=512, n=512, k=512, b_layout=Layout.COLUMN, in_dtype=_I8, acc_dtype=DType.I32, out_dtype=_I8
)
_PINGPONG = Cutlass3Config(
    threadblock=Shape(128, 128, 128), schedule=Schedule.PINGPONG, cluster_m=2, swizzle=2
)
_COOPERATIVE = Cutlass3Config(threadblock=Shape(256, 128, 128), schedule=Schedule.COOPERATIVE)
_CONV = Conv2d(
    n=2,
    h=14,
    w=14,
    c=256,
    k=256,
    r=3,
    s=3,
    padding=(1, 1, 1, 1),
    in_dtype=_U8,
    acc_dtype=DType.I32,
    out_dtype=_U8,
)
# Both schedules, both types of A, each type of D, residuals of bytes and of FP32, a batch, slices,
# and widths that CUTLASS has to be asked for.
KERNELS: Mapping[str, tuple[Cutlass3Config, Workload]] = {
    "channels": (_PINGPONG, Workload.of(_GEMM, requantised())),
    "unsigned": (
        replace(_COOPERATIVE, cluster_n=2),
        Workload.of(
            replace(_GEMM, in_dtype=_U8, out_dtype=_U8),
            requantised(by_channel=False, low=0.0, zero=3),
        ),
    ),
    "residual": (
        replace(_PINGPONG, threadblock=Shape(64, 48, 128)),
        Workload.of(_GEMM, with_residual()),
    ),
    "half": (
        replace(_COOPERATIVE, scheduler=Scheduler.STREAM_K),
        Workload.of(replace(_GEMM, k=2048, out_dtype=_F16), floats(UnaryOp.RELU)),
    ),
    "float": (
        _COOPERATIVE,
        Workload.of(replace(_GEMM, out_dtype=_F32, batch=3), floats(UnaryOp.GELU_ERF)),
    ),
    "sums": (
        replace(_PINGPONG, threadblock=Shape(64, 256, 128)),
        Workload.of(replace(_GEMM, out_dtype=DType.I32)),
    ),
    "image": (
        replace(_PINGPONG, threadblock=Shape(64, 64, 128), swizzle=1),
        Workload.of(
            replace(_CONV, stride=(2, 1), padding=(1, 2, 0, 3)), requantised(low=0.0, zero=0)
        ),
    ),
}


def _spec(name: str) -> KernelSpec:
    config, workload = KERNELS[name]
    return kernel_spec(workload, config, SM90A.name)


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    every = list(map(_spec, KERNELS))
    specs = launched(request, every, lambda parameters: _spec(parameters["name"]))
    return build_libraries(specs, tmp_path_factory.mktemp("integers_sm90"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_equals_the_oracle_at_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload = KERNELS[name]
    assert not violations(workload, config, SM90A)
    checking.vgpu.set_option("sms", CHECKED_SMS)
    sizes = boundaries(workload, config, SM90A)
    errors = judged_jobs(checking, kernels[_spec(name)], _spec(name), config, sizes)
    checking.vgpu.set_option("sms", 0)
    # FP16 is rounded once more, and a GELU has a bound; integers are equal.
    is_equal = workload.single.problem.out_dtype.is_whole
    assert max(errors) == 0.0 if is_equal else max(errors) <= 1.0
