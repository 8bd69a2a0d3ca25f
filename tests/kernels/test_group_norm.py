"""Group norms of images in NHWC on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.check.launch import Device, run_job
from boltgen.check.protocol import Job
from boltgen.families.norm.config import NormConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.families.source import kernel_symbol
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.group_norm.problem import GroupNorm
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose_results
from boltgen.problems.reference import compare
from boltgen.problems.workload import Layer, Workload
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting
from tests.kernels.test_norm import affine, residual, residual_after

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32


def _layer(
    images: tuple[int, int, int, int],
    groups: int,
    epilogue: ElementwiseGraph | None = None,
    prologue: ElementwiseGraph | None = None,
    **types: Any,
) -> Layer:
    n, h, w, c = images
    return Layer(
        problem=GroupNorm(n=n, h=h, w=w, c=c, groups=groups, epsilon=1e-5, **types),
        epilogue=epilogue or ElementwiseGraph(),
        prologue=prologue or ElementwiseGraph(),
    )


def _config(threads: int, vectors: int, rows: int, *, streamed: bool = False) -> NormConfig:
    return NormConfig(threads=threads, vectors=vectors, rows=rows, streamed=streamed)


# Groups of one vector's channels, of several, of less than one; rows in a part of a warp, in
# several, and longer than registers hold; every type, residuals in and out.
KERNELS: Mapping[str, tuple[NormConfig, Layer, str]] = {
    "silu": (
        _config(128, 3, 1),
        _layer((2, 7, 5, 320), 4, affine(F16, UnaryOp.SILU)),
        "sm_80",
    ),
    "ragged": (_config(128, 4, 2), _layer((3, 9, 5, 40), 4, affine(F16)), "sm_75"),
    "instance": (_config(64, 2, 2), _layer((2, 6, 6, 24), 24, affine(F32)), "sm_80"),
    "two_groups": (_config(8, 4, 16), _layer((3, 4, 3, 32), 8, affine(F16)), "sm_75"),
    "one_group": (
        _config(256, 2, 1),
        _layer((2, 6, 6, 72), 1, affine(BF16), in_dtype=BF16, out_dtype=BF16),
        "sm_80",
    ),
    "odd": (_config(256, 8, 1), _layer((1, 11, 13, 27), 3, in_dtype=F32, out_dtype=F32), "sm_80"),
    "residual_out": (
        _config(32, 4, 4),
        _layer((2, 5, 5, 48), 4, affine(F16, UnaryOp.SILU), residual(F16, stored=True)),
        "sm_80",
    ),
    "by_pixel": (
        _config(64, 4, 2),
        _layer((2, 5, 7, 36), 3, residual_after(), in_dtype=F32, out_dtype=F16),
        "sm_75",
    ),
    "streamed": (
        _config(256, 2, 1, streamed=True),
        _layer((2, 20, 20, 80), 2, affine(F16, UnaryOp.SILU), residual(F16, stored=True)),
        "sm_80",
    ),
    "streamed_instance": (
        _config(256, 2, 1, streamed=True),
        _layer((1, 30, 30, 16), 16, affine(F16), out_dtype=F32),
        "sm_75",
    ),
}


def _workload(name: str) -> Workload:
    return Workload(layers=(KERNELS[name][1],))


def _spec(name: str) -> KernelSpec:
    config, _, arch = KERNELS[name]
    return kernel_spec(_workload(name), config, arch)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelSpec, KernelLibrary]:
    return build_libraries(list(map(_spec, KERNELS)), tmp_path_factory.mktemp("group_norm"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_it_is_made_for_and_its_boundaries(
    name: str, checking: Cuda, kernels: dict[KernelSpec, KernelLibrary]
) -> None:
    config, _, arch = KERNELS[name]
    workload, row = _workload(name), arch_named(arch)
    assert not violations(workload, config, row)
    library = kernels[_spec(name)]
    checking.become(arch)
    sizes = (workload, *boundaries(workload, config, row))
    assert len(sizes) > 2
    for sized in sizes:
        job = Job(symbol=kernel_symbol(_spec(name)), workload=sized, launch=launch(sized, config))
        device = Device(ctypes.CDLL("libcudart.so.13"), checking.vgpu.last_error)
        worst = run_job(device, ctypes.CDLL(str(library.path)), job)
        device.free_all()
        assert worst <= 1.0
    assert not checking.vgpu.findings()


@pytest.mark.parametrize("name", ["ragged", "instance", "streamed_instance"])
def test_nan_and_infinity_are_the_oracles_and_stay_in_their_group(
    name: str,
    checking: Cuda,
    kernels: dict[KernelSpec, KernelLibrary],
    rng: np.random.Generator,
) -> None:
    config, layer, arch = KERNELS[name]
    workload, problem = _workload(name), layer.problem
    assert isinstance(problem, GroupNorm)
    a = rng.uniform(-1.5, 1.5, problem.a_shape).astype(np.float16)
    a[0, 1, 2, 0], a[-1, 0, 0, -1] = np.nan, np.inf
    operands = tuple(
        rng.uniform(0.5, 1.5, problem.c).astype(load.dtype.numpy) for load in layer.loads
    )
    args: Any = arguments("boltgen_image_norm_args", launch(workload, config).sizes)
    checking.become(arch)
    args.a, d = checking.upload(a), np.empty(problem.d_shape, problem.out_dtype.numpy)
    args.d = checking.upload(d)
    for index, operand in enumerate(operands):
        args.operands[index].pointer = checking.upload(operand)
    kernels[_spec(name)].launch(kernel_symbol(_spec(name)), args)
    checking.synchronise()
    actual = checking.download(args.d, d)
    checking.free_all()
    (expected,) = enclose_results(workload, a, [LayerInputs(operands=operands)])
    agreement = compare(actual, expected.exact, expected.bound)
    assert agreement.within, str(agreement)
    channels = problem.channels_per_group
    assert np.isnan(actual[0, :, :, :channels]).all()
    assert np.isnan(actual[-1, 0, 0, -1])
    assert np.isfinite(actual[..., channels : problem.c - channels]).all()


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("silu", setting(pixels=39), INVALID, "elements of a row is 3120; it must be at most 3072"),
        (
            "silu",
            setting(groups=3),
            MISALIGNED,
            "channels is 320; this kernel needs a multiple of 3",
        ),
        ("silu", setting(channels=336), MISALIGNED, "channels of a row is 84; .* multiple of 8"),
        ("silu", setting(n=0), INVALID, "n is 0; it must be at least 1"),
        ("silu", setting(groups=0), INVALID, "groups is 0; it must be at least 1"),
        (
            "instance",
            setting(channels=48),
            INVALID,
            "channels of a row is 16; it must be at most 8",
        ),
        ("two_groups", setting(groups=1), MISALIGNED, "groups is 1; .* multiple of 2"),
        ("streamed", setting(pixels=2**30), INVALID, "elements of a row is 42949672960"),
    ],
)
def test_bad_arguments_are_refused(
    name: str,
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, layer = _spec(name), KERNELS[name][1]
    args: Any = arguments("boltgen_image_norm_args", launch(_workload(name), spec.config).sizes)
    args.a = args.d = ADDRESS
    for index in range(len(layer.loads) + len(layer.further)):
        args.operands[index].pointer, args.operands[index].ld = ADDRESS, 2**20
    change(args)
    assert_refused(kernels[spec], spec, args, code, message)
