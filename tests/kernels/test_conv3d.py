"""Convolutions of volumes on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, graph_of, in_bf16
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.families.cutlass2.config import Cutlass2Config
from boltgen.families.registry import boundaries, candidates, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.workload import Workload
from tests.kernels.conftest import launched
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting


def _squeezed(b: ElementwiseBuilder) -> None:
    """A gate of each volume, and the mean of its channels."""
    x = b.unary(UnaryOp.RELU, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    x = b.binary(BinaryOp.MULTIPLY, x, b.load(LoadKind.SLICE_ROW))
    b.store(x)
    mean = b.binary(BinaryOp.MULTIPLY, x, b.scalar(1 / 64))
    b.store(mean, LoadKind.ROW, DType.F32, Reduction.SUM)


def _case(
    shape: tuple[int, int, int, int, int],
    filters: int,
    epilogue: ElementwiseGraph = EPILOGUES["identity"],
    **given: Any,
) -> Workload:
    n, depth, h, w, c = shape
    usual: dict[str, Any] = {"t": 3, "r": 3, "s": 3, "padding": (1, 1, 1, 1, 1, 1)}
    problem = Conv3d(n=n, depth=depth, h=h, w=w, c=c, k=filters, **usual | given)
    return Workload.of(problem, epilogue)


KERNELS: Mapping[str, tuple[Cutlass2Config, Workload, str]] = {
    "bias": (
        CONFIGS["sm80_small"][1],
        _case((2, 4, 5, 6, 40), 72, EPILOGUES["bias_relu"]),
        "sm_80",
    ),
    "strided": (
        CONFIGS["sm80_sliced"][1],
        _case(
            (1, 7, 9, 8, 16),
            12,
            EPILOGUES["residual_before"],
            **{"t": 2, "r": 3, "s": 4, "stride": (2, 1, 2), "dilation": (1, 2, 1)},
            padding=(0, 2, 1, 1, 0, 2),
        ),
        "sm_86",
    ),
    "turing": (
        CONFIGS["sm75_small"][1],
        _case((1, 4, 4, 5, 8), 8, EPILOGUES["residual_after"], dilation=(2, 1, 1)),
        "sm_75",
    ),
    "bfloat16": (
        CONFIGS["sm80_two_stage"][1],
        _case(
            (2, 3, 5, 4, 8),
            16,
            in_bf16(EPILOGUES["bias_silu"]),
            in_dtype=DType.BF16,
            out_dtype=DType.BF16,
        ),
        "sm_80",
    ),
    "squeezed": (
        CONFIGS["sm80_small"][1],
        _case((2, 4, 4, 4, 8), 24, graph_of(_squeezed)),
        "sm_80",
    ),
}


def _spec(name: str) -> KernelSpec:
    config, workload, arch = KERNELS[name]
    return kernel_spec(workload, config, arch)


@pytest.fixture(scope="module")
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[KernelSpec, KernelLibrary]:
    every = list(map(_spec, KERNELS))
    specs = launched(request, every, lambda parameters: _spec(parameters.get("name", "bias")))
    return build_libraries(specs, tmp_path_factory.mktemp("volumes"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, workload, arch = KERNELS[name]
    row = arch_named(arch)
    assert not violations(workload, config, row)
    sizes = (workload, *boundaries(workload, config, row))
    assert len(sizes) == 3
    assert max(judged_jobs(checking, kernels[_spec(name)], _spec(name), config, sizes)) <= 1.0


def test_slices_of_the_channels_are_summed(
    checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    """A launch argument of the kernel "bias"."""
    config, workload, arch = KERNELS["bias"]
    sliced = replace(config, split_k=2)
    assert not violations(workload, sliced, arch_named(arch))
    checking.become(arch)
    job = Job(
        symbol=kernel_symbol(_spec("bias")), workload=workload, launch=launch(workload, sliced)
    )
    device = Device(ctypes.CDLL("libcudart.so.13"), checking.vgpu.last_error)
    worst = run_job(device, ctypes.CDLL(str(kernels[_spec("bias")].path)), job)
    device.free_all()
    assert worst <= 1.0
    assert not checking.vgpu.findings()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(depth=0), INVALID, "depth is 0; it must be at least 1"),
        (setting(t=33), INVALID, "t is 33; it must be at most 32"),
        (setting(pad_d=-1), INVALID, "pad_d is -1; it must be at least 0"),
        (setting(depth=2**24), INVALID, "bytes of A is 40265318400"),
        (setting(c=36), MISALIGNED, "c \\(of A\\) is 36; .* multiple of 8"),
    ],
)
def test_bad_arguments_are_refused(
    change: Change, code: int, message: str, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    spec, layer = _spec("bias"), KERNELS["bias"][1].single
    args: Any = arguments("boltgen_conv3d_args", launch(KERNELS["bias"][1], spec.config).sizes)
    args.a = args.b = args.d = ADDRESS
    for index in range(len(layer.loads)):
        args.operands[index].pointer, args.operands[index].ld = ADDRESS, 2**20
    change(args)
    assert_refused(kernels[spec], spec, args, code, message)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_volumes_have_kernels_of_mma_sync_alone(arch: str) -> None:
    workload = _case((1, 8, 14, 14, 32), 64, EPILOGUES["bias_relu"])
    assert {config.family for config in candidates(workload, arch_named(arch))} == {"cutlass2"}
