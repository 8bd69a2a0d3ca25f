"""Products of 8-bit floats by wgmma, with all checks of the virtual GPU, against the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cases.wgmma import SM90A, WgmmaKernel
from benchmarks.harness.driver import Array
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary, Launch, random_inputs
from benchmarks.harness.libraries import build_libraries
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import boundaries, violations
from boltgen.families.space import Shape
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.problems import reference
from boltgen.problems.accumulation import PROMOTED
from boltgen.problems.gemm.problem import Gemm
from tests.kernels.conftest import launched
from tests.kernels.jobs import judged_jobs
from tests.vgpu.narrow_reference import narrow_sums

_DEPTH = 32


def _scaled_and_quantised() -> ElementwiseGraph:
    """Scales of rows and columns, a residual, and a type of 8 bits, which saturates."""
    b = ElementwiseBuilder()
    by_row = b.binary(BinaryOp.MULTIPLY, 0, b.load(LoadKind.COLUMN, DType.F32))
    scaled = b.binary(BinaryOp.MULTIPLY, by_row, b.load(LoadKind.ROW, DType.F32))
    total = b.binary(BinaryOp.ADD, b.unary(UnaryOp.RELU, scaled), b.load(LoadKind.TENSOR))
    steps = b.binary(BinaryOp.MULTIPLY, total, b.scalar(300.0))
    most = DType.E4M3.largest
    b.unary(UnaryOp.CLIP, steps, -most, most)
    return b.build()


_GEMM = Gemm(m=512, n=512, k=512, b_layout=Layout.COLUMN)
KERNELS: Mapping[str, WgmmaKernel] = {
    "quantised": WgmmaKernel(
        config=Cutlass3Config(
            threadblock=Shape(128, 128, 128), schedule=Schedule.COOPERATIVE, cluster_m=2
        ),
        epilogue=_scaled_and_quantised(),
        problem=replace(_GEMM, in_dtype=DType.E4M3, out_dtype=DType.E4M3),
    ),
    "sums": WgmmaKernel(
        config=Cutlass3Config(threadblock=Shape(64, 64, 128), schedule=Schedule.PINGPONG),
        epilogue=ElementwiseGraph(),
        problem=replace(_GEMM, in_dtype=DType.E5M2, out_dtype=DType.F32, batch=2),
    ),
}


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    every = [kernel.spec for kernel in KERNELS.values()]
    wanted = launched(
        request,
        every,
        lambda parameters: KERNELS[parameters["name"]].spec if "name" in parameters else None,
    )
    return build_libraries(wanted, tmp_path_factory.mktemp("narrow_sm90"))


@pytest.fixture
def small_device(checking: Cuda) -> Iterator[Cuda]:
    checking.vgpu.set_option("sms", CHECKED_SMS)
    yield checking
    checking.vgpu.set_option("sms", 0)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_agrees_with_the_oracle_at_its_boundaries(
    name: str, small_device: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    kernel = KERNELS[name]
    assert not violations(kernel.workload, kernel.config, SM90A)
    sizes = boundaries(kernel.workload, kernel.config, SM90A)
    errors = judged_jobs(small_device, kernels[kernel.spec], kernel.spec, kernel.config, sizes)
    assert max(errors) <= 1.0


def _promoted(a: Array, b: Array) -> Array:
    """Return the sums of a kernel: each 128 products by instructions, added in FP32."""
    total = np.zeros((len(a), len(b)), np.float32)
    for begin in range(0, a.shape[1], PROMOTED):
        part = np.zeros_like(total)
        for at in range(begin, min(begin + PROMOTED, a.shape[1]), _DEPTH):
            part = narrow_sums(a[:, at : at + _DEPTH], b[:, at : at + _DEPTH], part)
        total = total + part
    return total


@pytest.mark.parametrize("name", ["sums"])
def test_sums_have_the_bits_of_an_h100_and_lie_within_the_bound(
    name: str,
    small_device: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    kernel = KERNELS[name]
    case = kernel.case(kernel.boundary(0))
    inputs = random_inputs(case, rng)
    found = Launch(small_device, kernels[case.spec], case).run(inputs)
    wanted = np.stack([_promoted(*pair) for pair in zip(inputs.a, inputs.b, strict=True)])
    np.testing.assert_array_equal(found, wanted)
    graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    agreement = reference.compare(found, reference.run(*graph), reference.error_bound(*graph))
    # The bound is of the arithmetic: much wider than FP32's, and not by orders too wide.
    assert 0.01 < agreement.ratio <= 1.0
