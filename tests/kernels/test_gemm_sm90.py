"""Kernels of the family `cutlass3` against the oracle, executed with every check on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from boltgen.arch import arch_named
from boltgen.families.cutlass2.config import Shape
from boltgen.families.cutlass3 import FAMILY
from boltgen.families.cutlass3.config import Cutlass3Config, Schedule
from boltgen.families.cutlass3.legality import stage_bytes
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import boundaries, kernel_spec, violations
from boltgen.ir import reference
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseBuilder, ElementwiseGraph, LoadKind
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.problem import Gemm
from boltgen.ir.workload import Workload
from tests.cases import KernelCase
from tests.kernels.conftest import build_libraries
from tests.kernels.launch import (
    PADDING,
    Cuda,
    KernelError,
    KernelLibrary,
    Launch,
    random_inputs,
)

SM90A = arch_named("sm_90a")


def _every_load() -> ElementwiseGraph:
    """relu(acc + bias) * column + residual, with an FP32 column."""
    graph = ElementwiseBuilder()
    biased = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW))
    scaled = graph.binary(
        BinaryOp.MULTIPLY,
        graph.unary(UnaryOp.RELU, biased),
        graph.load(LoadKind.COLUMN, DType.F32),
    )
    graph.binary(BinaryOp.ADD, scaled, graph.load(LoadKind.TENSOR))
    return graph.build()


def _bias_gelu() -> ElementwiseGraph:
    graph = ElementwiseBuilder()
    biased = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW, DType.F32))
    graph.unary(UnaryOp.GELU_TANH, biased)
    return graph.build()


# Both schedules, every cluster, both orders of B, and the largest tile that the registers hold.
KERNELS = {
    "pingpong": (
        Cutlass3Config(
            threadblock=Shape(128, 128, 64), schedule=Schedule.PINGPONG, cluster_m=2, swizzle=2
        ),
        Layout.COLUMN,
        _every_load(),
    ),
    "cooperative": (
        Cutlass3Config(threadblock=Shape(256, 192, 64), schedule=Schedule.COOPERATIVE, cluster_n=2),
        Layout.ROW,
        ElementwiseGraph(),
    ),
    "alone": (
        Cutlass3Config(threadblock=Shape(128, 256, 64), schedule=Schedule.COOPERATIVE),
        Layout.COLUMN,
        _bias_gelu(),
    ),
}
OUT_DTYPES = {"alone": DType.F32}


def _workload(name: str, batch: int = 1) -> Workload:
    _, layout, epilogue = KERNELS[name]
    out = OUT_DTYPES.get(name, DType.F16)
    problem = Gemm(m=512, n=512, k=512, batch=batch, b_layout=layout, out_dtype=out)
    return Workload.of(problem, epilogue)


@pytest.fixture(scope="module")
def hopper_kernels(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel_spec(_workload(name), KERNELS[name][0], SM90A.name) for name in KERNELS]
    return build_libraries(specs, tmp_path_factory.mktemp("sm90"))


def _case(name: str, workload: Workload) -> KernelCase:
    config = KERNELS[name][0]
    problem = workload.single.problem
    assert not violations(workload, config, SM90A)
    spec = kernel_spec(workload, config, SM90A.name)
    return KernelCase(name=name, spec=spec, problem=problem, swizzle=config.swizzle)


@pytest.fixture
def small_device(checking: Cuda) -> Iterator[Cuda]:
    """The one that kernels are checked on before they ship, with every check on."""
    checking.vgpu.set_option("sms", CHECKED_SMS)
    yield checking
    checking.vgpu.set_option("sms", 0)


@pytest.mark.parametrize("index", range(3), ids=["ragged", "small", "persistent"])
@pytest.mark.parametrize("name", ["pingpong", "cooperative of 3", "alone of 3"])
def test_kernel_agrees_with_the_oracle(
    name: str,
    index: int,
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    name, _, batch = name.partition(" of ")
    workload = boundaries(_workload(name, int(batch or 1)), KERNELS[name][0], SM90A)[index]
    case = _case(name, workload)
    inputs = random_inputs(case, rng)
    actual = Launch(small_device, hopper_kernels[case.spec], case).run(inputs)
    graph = (case.problem, case.epilogue, inputs.a, inputs.b, inputs.operands)
    agreement = reference.compare(actual, reference.run(*graph), reference.error_bound(*graph))
    assert agreement.within, f"{case.problem.short}: {agreement}"
    assert [finding.message for finding in small_device.vgpu.findings()] == []


@pytest.mark.parametrize("name", KERNELS)
def test_shared_memory_is_at_most_what_legality_says_and_of_as_many_stages(
    name: str, cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    config = KERNELS[name][0]
    small = boundaries(_workload(name), config, SM90A)[1]
    case = _case(name, small)
    cuda.vgpu.clear_launches()
    Launch(cuda, hopper_kernels[case.spec], case).run(random_inputs(case, rng))
    (launched,) = cuda.vgpu.launches()
    spare = FAMILY.footprint(small, config).shared_memory_bytes - launched.dynamic_shared_bytes
    assert 0 <= spare < stage_bytes(config)


def test_no_kernel_calls_a_function(hopper_kernels: dict[KernelSpec, KernelLibrary]) -> None:
    """ptxas would serialise each wgmma of it (C7510)."""
    for library in hopper_kernels.values():
        binary = library.path.read_bytes()
        assert b"wgmma.mma_async" in binary
        assert re.search(rb"\bcall(\.uni)?\s", binary) is None


def test_rows_that_tma_cannot_load_are_refused_by_the_kernel_too(
    cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("pingpong", _workload("pingpong"))
    odd = replace(case, problem=Gemm(m=16, n=16, k=16 + PADDING // 2))
    with pytest.raises(KernelError, match="needs a multiple of 8 elements"):
        Launch(cuda, hopper_kernels[case.spec], odd).run(random_inputs(odd, rng))


def test_a_device_without_clusters_is_named(
    cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("pingpong", _workload("pingpong"))
    with pytest.raises(KernelError, match="cannot reserve"):
        Launch(cuda, hopper_kernels[case.spec], case, arch="sm_80").run(random_inputs(case, rng))
