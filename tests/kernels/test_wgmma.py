"""Kernels of the family `cutlass3` against the oracle, executed with every check on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boltgen.build.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.families.cutlass3 import FAMILY
from boltgen.families.cutlass3.legality import stage_bytes
from boltgen.families.family import CHECKED_SMS
from boltgen.ir import reference
from boltgen.ir.kernel import KernelSpec
from boltgen.ir.problem import Gemm
from boltgen.settings import settings_from
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
from tests.wgmma_cases import CONV, KERNELS


@pytest.fixture(scope="module")
def hopper_kernels(
    cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel.spec for kernel in KERNELS.values()]
    return build_libraries(specs, tmp_path_factory.mktemp("sm90"))


def _case(name: str, index: int) -> KernelCase:
    kernel = KERNELS[name]
    problem = kernel.boundary(index).single.problem
    return KernelCase(name=name, spec=kernel.spec, problem=problem, swizzle=kernel.config.swizzle)


@pytest.fixture
def small_device(checking: Cuda) -> Iterator[Cuda]:
    """The one that kernels are checked on before they ship, with every check on."""
    checking.vgpu.set_option("sms", CHECKED_SMS)
    yield checking
    checking.vgpu.set_option("sms", 0)


@pytest.mark.parametrize("index", range(3), ids=["ragged", "small", "persistent"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_agrees_with_the_oracle(
    name: str,
    index: int,
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = _case(name, index)
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
    kernel, case = KERNELS[name], _case(name, 1)
    cuda.vgpu.clear_launches()
    Launch(cuda, hopper_kernels[case.spec], case).run(random_inputs(case, rng))
    (launched,) = cuda.vgpu.launches()
    footprint = FAMILY.footprint(kernel.workload, kernel.config)
    spare = footprint.shared_memory_bytes - launched.dynamic_shared_bytes
    assert 0 <= spare < stage_bytes(kernel.config)


def test_ptxas_neither_serialises_wgmma_nor_spills(
    hopper_kernels: dict[KernelSpec, KernelLibrary], tmp_path: Path
) -> None:
    """It serialises all wgmma of a kernel that calls a function, such as that of an assertion."""
    ptxas = find_toolchain(settings_from()).nvcc.path.with_name("ptxas")
    for path in {library.path for library in hopper_kernels.values()}:
        for ptx in embedded_ptx(path.read_bytes()):
            (tmp_path / "kernels.ptx").write_text(ptx)
            command = [ptxas, "-arch=sm_90a", "-v", "kernels.ptx", "-o", "kernels.cubin"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            said = done.stdout + done.stderr
            assert said.count("Used ") == ptx.count(".entry ") > 0
            assert said.count(" 0 bytes spill stores, 0 bytes spill loads") == said.count("Used ")
            assert "serialized" not in said


def test_rows_that_tma_cannot_load_are_refused_by_the_kernel_too(
    cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("pingpong", 1)
    odd = replace(case, problem=Gemm(m=16, n=16, k=16 + PADDING // 2))
    with pytest.raises(KernelError, match="needs a multiple of 8 elements"):
        Launch(cuda, hopper_kernels[case.spec], odd).run(random_inputs(odd, rng))


def test_a_full_tensor_that_tma_cannot_load_is_refused_by_the_kernel_too(
    cuda: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of what it needs is what the vectors of an FP32 output would do with."""
    case = _case("conv-cooperative", 1)
    monkeypatch.setattr("tests.kernels.launch.VECTOR_BYTES", 8)
    with pytest.raises(KernelError, match=r"the full tensor is at address .* needs 16-byte"):
        Launch(cuda, hopper_kernels[case.spec], case).run(random_inputs(case, rng))


def test_a_stride_that_tma_cannot_take_is_refused_by_the_kernel_too(
    cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("conv-pingpong", 1)
    far = replace(case, problem=replace(CONV, h=40, c=8, k=8, stride=(9, 1)))
    with pytest.raises(KernelError, match="stride_h is 9; it must be at most 8"):
        Launch(cuda, hopper_kernels[case.spec], far).run(random_inputs(far, rng))


def test_a_device_without_clusters_is_named(
    cuda: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("pingpong", 1)
    with pytest.raises(KernelError, match="cannot reserve"):
        Launch(cuda, hopper_kernels[case.spec], case, arch="sm_80").run(random_inputs(case, rng))
