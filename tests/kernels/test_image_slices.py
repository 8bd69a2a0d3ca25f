"""Convolutions of more images than offsets address, which are launched in slices.

The kernels here are compiled with a limit of a few kilobytes in place of two gigabytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, graph_of
from benchmarks.harness.kernel_launch import Cuda
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.link import link_shared
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, kernel_unit
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.codegen.nvcc import DeviceCode
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import kernel_spec, launch, violations
from boltgen.families.source import KernelSource, kernel_symbol, render_library
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from

# Two images of 2,048 bytes, of five.
LIMIT, IMAGES, LAUNCHES = 5000, 5, 3


def _every_operand(b: ElementwiseBuilder) -> None:
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW))
    for kind in (LoadKind.TENSOR, LoadKind.SLICE_ROW, LoadKind.COLUMN, LoadKind.POSITION_ROW):
        x = b.binary(BinaryOp.ADD, x, b.load(kind))
    b.store(x)


def _every_result(b: ElementwiseBuilder) -> None:
    x = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.SLICE_ROW))
    b.store(x)
    b.store(0, dtype=DType.F16)
    b.store(x, LoadKind.ROW, DType.F32, Reduction.SUM)
    b.store(x, LoadKind.ROW, DType.F32, Reduction.MAXIMUM)
    b.store(x, LoadKind.COLUMN, DType.F32, Reduction.SUM)


_IMAGE = Conv2d(n=IMAGES, h=8, w=8, c=16, k=8, r=3, s=3, padding=(1, 1, 1, 1))
_VOLUME = Conv3d(n=IMAGES, depth=4, h=4, w=4, c=16, k=8, t=2, r=2, s=2, padding=(1, 1, 1, 0, 0, 0))
_GROUPS = Conv2d(n=IMAGES, h=8, w=8, c=16, k=16, r=3, s=3, padding=(1, 1, 1, 1), groups=2)
WORKLOADS: Mapping[str, Workload] = {
    "operands": Workload.of(_IMAGE, graph_of(_every_operand)),
    "results": Workload.of(_IMAGE, graph_of(_every_result)),
    "volumes": Workload.of(_VOLUME, EPILOGUES["residual_before"]),
    "groups": Workload.of(_GROUPS, EPILOGUES["residual_before"]),
}
CONFIG: Cutlass2Config = CONFIGS["sm80_small"][1]


def _spec(name: str) -> KernelSpec:
    return kernel_spec(WORKLOADS[name], CONFIG, "sm_80")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    settings = settings_from()
    tools = find_toolchain(settings)
    specs = list(map(_spec, WORKLOADS))
    text = f"#define BOLTGEN_MOST_CONV_BYTES {LIMIT}\n{render_library(specs)}"
    source = KernelSource(spec=specs[0], symbol="sliced", workspace_symbol="", text=text)
    compiled = compile_unit(kernel_unit(source, tools, DeviceCode.PTX), Cache(settings.cache_dir))
    assert isinstance(compiled, CompiledObject), compiled.message
    path = tmp_path_factory.mktemp("slices") / "libsliced.so"
    return ctypes.CDLL(str(link_shared([compiled.path], path, tools)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_slices_compute_what_one_launch_does(
    name: str, checking: Cuda, library: ctypes.CDLL
) -> None:
    workload = WORKLOADS[name]
    checking.become("sm_80")
    checking.vgpu.clear_launches()
    job = Job(symbol=kernel_symbol(_spec(name)), workload=workload, launch=launch(workload, CONFIG))
    device = Device(ctypes.CDLL("libcudart.so.13"), checking.vgpu.last_error)
    worst = run_job(device, library, job)
    device.free_all()
    assert worst <= 1.0
    assert not checking.vgpu.findings()
    assert len(checking.vgpu.launches()) == LAUNCHES


def test_any_number_of_images_is_legal_but_no_larger_image() -> None:
    vgg = Conv2d(n=1024, h=224, w=224, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
    assert not violations(Workload.of(vgg), CONFIG, arch_named("sm_80"))
    wide = Conv2d(n=1, h=2**15, w=2**14, c=8, k=8, r=3, s=3)
    (found,) = violations(Workload.of(wide), CONFIG, arch_named("sm_80"))[:1]
    assert found.name == "index_overflow"
    assert "an image of the activation: 8589934592 exceeds 2147483647" in found.message
