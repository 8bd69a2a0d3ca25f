"""Kernels of the family `cutlass3` against the oracle, executed with every check on."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.kernels import KernelCase
from benchmarks.cases.wgmma import CONV, KERNELS
from benchmarks.harness.kernel_launch import (
    PADDING,
    Args,
    Cuda,
    Inputs,
    KernelError,
    KernelLibrary,
    Launch,
    random_inputs,
)
from benchmarks.harness.libraries import build_libraries
from boltgen.build.nvcc.ptx import embedded_ptx
from boltgen.build.toolchain import find_toolchain
from boltgen.device.vgpu import LaunchRecord
from boltgen.families.cutlass3 import FAMILY
from boltgen.families.cutlass3.config import Scheduler
from boltgen.families.cutlass3.legality import stage_bytes
from boltgen.families.family import CHECKED_SMS
from boltgen.families.registry import launch
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems import reference
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from tests.kernels.conftest import launched


@pytest.fixture(scope="module")
def hopper_kernels(
    request: pytest.FixtureRequest, cuda: Cuda, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    specs = [kernel.spec for kernel in KERNELS.values()]
    wanted = launched(
        request, specs, lambda params: KERNELS[params["name"]].spec if "name" in params else None
    )
    return build_libraries(wanted, tmp_path_factory.mktemp("sm90"))


def _case(name: str, index: int) -> KernelCase:
    kernel = KERNELS[name]
    return kernel.case(kernel.boundary(index))


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
    name: str,
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    kernel, case = KERNELS[name], _case(name, 1)
    launched = _launched(small_device, hopper_kernels[case.spec], case, random_inputs(case, rng))
    footprint = FAMILY.footprint(kernel.workload, kernel.config)
    spare = footprint.shared_memory_bytes - launched.dynamic_shared_bytes
    assert 0 <= spare < stage_bytes(kernel.config, DType.F16)


def _launched(cuda: Cuda, library: KernelLibrary, case: KernelCase, inputs: Inputs) -> LaunchRecord:
    cuda.vgpu.clear_launches()
    Launch(cuda, library, case).run(inputs)
    (launched,) = cuda.vgpu.launches()
    return launched


def test_the_raster_is_the_longer_side_of_the_grid_and_changes_no_result(
    small_device: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    """CUTLASS's threadblocks count tiles along the raster by it."""
    along_n = _case("pingpong", 0)
    along_m = replace(along_n, raster=0)
    library, inputs = hopper_kernels[along_n.spec], random_inputs(along_n, rng)
    small_device.vgpu.clear_launches()
    results = [Launch(small_device, library, case).run(inputs) for case in (along_n, along_m)]
    assert np.array_equal(*results)
    grids = [launched.grid for launched in small_device.vgpu.launches()]
    assert grids == [(2, CHECKED_SMS // 2, 1), (CHECKED_SMS, 1, 1)]


@pytest.mark.parametrize(
    ("name", "split_k"), [("stream-k", 1), ("stream-k-slices", 4), ("conv-stream-k", 1)]
)
def test_threadblocks_add_up_the_sums_of_a_tile(
    name: str,
    split_k: int,
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    case = _case(name, 0)
    assert case.split_k == split_k
    small_device.vgpu.set_option("check", "none")
    small_device.vgpu.set_option("counters", "on")
    small_device.vgpu.clear_launches()
    try:
        Launch(small_device, hopper_kernels[case.spec], case).run(random_inputs(case, rng))
        (counted,) = small_device.vgpu.counters()
    finally:
        small_device.vgpu.set_option("counters", "off")
    assert counted["global_atomic"]["requests"] > 0


class _Replayed(Launch):
    """A launch that a graph captures, and does twice in the same workspace."""

    def enqueue(self, args: Args) -> None:
        runtime, check = ctypes.CDLL("libcudart.so.13"), self._cuda.check
        stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        check(runtime.cudaStreamCreate(ctypes.byref(stream)))
        check(runtime.cudaStreamBeginCapture(stream, 0))
        args.stream = stream.value
        super().enqueue(args)
        check(runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)))
        check(runtime.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_uint64(0)))
        for _ in range(2):
            check(runtime.cudaGraphLaunch(executable, stream))
        self._cuda.synchronise()
        check(runtime.cudaGraphExecDestroy(executable))
        check(runtime.cudaGraphDestroy(graph))
        check(runtime.cudaStreamDestroy(stream))


def test_a_graph_captures_the_zeroing_of_counters_with_the_launch(
    small_device: Cuda, hopper_kernels: dict[KernelSpec, KernelLibrary], rng: np.random.Generator
) -> None:
    case = _case("stream-k", 0)
    library, inputs = hopper_kernels[case.spec], random_inputs(case, rng)
    once = Launch(small_device, library, case).run(inputs)
    assert np.array_equal(_Replayed(small_device, library, case).run(inputs), once)
    assert [finding.message for finding in small_device.vgpu.findings()] == []


def test_the_workspace_is_what_is_planned_for_it(
    hopper_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    for kernel in KERNELS.values():
        library, symbol = hopper_kernels[kernel.spec], kernel_symbol(kernel.spec)
        wide = replace(kernel.problem.gemm, m=99999, n=777) if kernel.problem.is_matrix else CONV
        for problem in (kernel.problem, wide):
            asked = launch(Workload.of(problem, kernel.epilogue), kernel.config)
            made = arguments(asked.struct, asked.sizes)
            assert library.workspace_bytes(symbol, made) == asked.workspace_bytes
            is_split = kernel.config.scheduler is Scheduler.STREAM_K
            assert (asked.workspace_bytes > 0) == is_split


def test_a_device_is_asked_by_the_first_launch_there(
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    case = _case("alone", 0)
    library, inputs = hopper_kernels[case.spec].copied(tmp_path), random_inputs(case, rng)
    first = _launched(small_device, library, case, inputs)
    small_device.vgpu.set_option("sms", CHECKED_SMS // 2)
    assert _launched(small_device, library, case, inputs).grid == first.grid == (CHECKED_SMS, 1, 1)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (replace(_case("pingpong", 1), raster=2), "raster is 2; it must be at most 1"),
        (replace(_case("pingpong", 1), split_k=2), "split_k is 2; it must be at most 1"),
        (replace(_case("stream-k", 1), split_k=65), "split_k is 65; it must be at most 64"),
    ],
    ids=["raster", "slices", "many slices"],
)
def test_an_argument_that_a_kernel_does_not_have_is_refused(
    case: KernelCase,
    message: str,
    small_device: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    with pytest.raises(KernelError, match=message):
        Launch(small_device, hopper_kernels[case.spec], case).run(random_inputs(case, rng))


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
    monkeypatch.setattr("benchmarks.harness.kernel_launch.VECTOR_BYTES", 8)
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
    cuda: Cuda,
    hopper_kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    case = _case("pingpong", 1)
    library = hopper_kernels[case.spec].copied(tmp_path)
    with pytest.raises(KernelError, match="cannot reserve"):
        Launch(cuda, library, case, arch="sm_80").run(random_inputs(case, rng))
