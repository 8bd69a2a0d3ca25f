"""Depthwise convolutions on the virtual GPU, all its checks on, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.cases.kernels import EPILOGUES, graph_of, in_bf16
from benchmarks.harness.kernel_launch import Cuda, KernelLibrary
from benchmarks.harness.libraries import build_libraries
from boltgen.arch import arch_named
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.registry import boundaries, kernel_spec, launch, violations
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind, Reduction
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import arguments
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.workload import Workload
from tests.kernels.conftest import launched
from tests.kernels.jobs import judged_jobs
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    WORKSPACE,
    Change,
    assert_refused,
    setting,
)

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
IN_BF16 = {"in_dtype": BF16, "out_dtype": BF16}


def _gated(b: ElementwiseBuilder) -> None:
    """A gate of each image, and the sum before it as a result of its own."""
    total = b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, F32))
    gated = b.binary(BinaryOp.MULTIPLY, b.unary(UnaryOp.SILU, total), b.load(LoadKind.SLICE_ROW))
    b.store(gated)
    b.store(total, dtype=F16)


def _squeezed(b: ElementwiseBuilder) -> None:
    """The mean of each image's channels, the sum of squares and the maximum."""
    x = b.unary(UnaryOp.HARDSWISH, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW)))
    b.store(x)
    b.store(b.binary(BinaryOp.MULTIPLY, x, b.scalar(1 / 35)), LoadKind.ROW, F32, Reduction.SUM)
    b.store(x, LoadKind.ROW, F32, Reduction.SUM_OF_SQUARES)
    b.store(x, LoadKind.ROW, F32, Reduction.MAXIMUM)


def _rounded(dtype: DType, *, with_maximum: bool) -> ElementwiseGraph:
    """The mean of each image's channels in the type of A."""
    b = ElementwiseBuilder()
    x = b.unary(UnaryOp.RELU, b.binary(BinaryOp.ADD, 0, b.load(LoadKind.ROW, dtype)))
    b.store(x)
    if with_maximum:
        b.store(x, LoadKind.ROW, F32, Reduction.MAXIMUM)
    b.store(b.binary(BinaryOp.MULTIPLY, x, b.scalar(1 / 63)), LoadKind.ROW, dtype, Reduction.SUM)
    return b.build()


def _config(threads: int, rows: int, columns: int, slab: int) -> DepthwiseConfig:
    return DepthwiseConfig(threads=threads, rows=rows, columns=columns, slab=slab)


def _case(
    image: tuple[int, int, int, int],
    filter_: tuple[int, int],
    epilogue: ElementwiseGraph = EPILOGUES["identity"],
    **given: Any,
) -> Workload:
    n, h, w, c = image
    r, s = filter_
    return Workload.of(Depthwise(n=n, h=h, w=w, c=c, r=r, s=s, **given), epilogue)


_SAME = (1, 1, 1, 1)
# Filters whose columns are compiled and others, every width of vectors, strides, dilations, more
# padding on one side, several filters of each channel, A's channels before the others, every type
# and kind of operand.
KERNELS: Mapping[str, tuple[DepthwiseConfig, Workload, str]] = {
    "plain": (
        _config(64, 1, 4, 8),
        _case((2, 9, 11, 72), (3, 3), EPILOGUES["bias_relu"], padding=_SAME),
        "sm_80",
    ),
    "strided": (
        _config(64, 2, 2, 4),
        _case(
            (1, 12, 13, 40), (5, 5), EPILOGUES["per_channel"], stride=(2, 2), padding=(1, 2, 2, 1)
        ),
        "sm_75",
    ),
    "large": (
        _config(64, 2, 4, 4),
        _case((1, 9, 9, 24), (7, 7), EPILOGUES["residual_before"], padding=(3, 3, 3, 3)),
        "sm_90a",
    ),
    "bfloat16": (
        _config(64, 1, 2, 4),
        _case((2, 7, 7, 12), (3, 3), in_bf16(EPILOGUES["bias_silu"]), padding=_SAME, **IN_BF16),
        "sm_80",
    ),
    "dilated": (
        _config(64, 1, 2, 4),
        _case((1, 14, 10, 16), (3, 3), dilation=(2, 3), padding=(2, 3, 2, 3), out_dtype=F32),
        "sm_75",
    ),
    "one_row": (
        _config(128, 1, 8, 8),
        _case((2, 1, 45, 80), (1, 31), EPILOGUES["residual_after"], padding=(0, 15, 0, 15)),
        "sm_80",
    ),
    "causal": (
        _config(64, 1, 4, 4),
        _case((1, 1, 29, 10), (1, 3), EPILOGUES["columns"], dilation=(1, 4), padding=(0, 8, 0, 0)),
        "sm_80",
    ),
    "odd": (_config(64, 1, 1, 8), _case((1, 6, 5, 27), (3, 2), stride=(3, 1)), "sm_75"),
    "doubled": (
        _config(64, 1, 4, 4),
        _case((1, 8, 8, 20), (3, 3), EPILOGUES["bias_relu"], multiplier=2, padding=_SAME),
        "sm_80",
    ),
    "sixteenfold": (
        _config(64, 2, 2, 8),
        _case((1, 6, 7, 3), (3, 3), multiplier=16, stride=(2, 1), padding=_SAME),
        "sm_80",
    ),
    "with_input": (
        _config(64, 2, 2, 4),
        _case(
            (2, 7, 9, 20),
            (5, 5),
            EPILOGUES["residual_after"],
            padding=(2, 2, 2, 2),
            with_input=True,
        ),
        "sm_80",
    ),
    "with_input_squeezed": (
        _config(64, 1, 4, 8),
        _case(
            (2, 9, 7, 36), (3, 3), _rounded(F16, with_maximum=True), padding=_SAME, with_input=True
        ),
        "sm_80",
    ),
    "gated": (
        _config(64, 2, 2, 8),
        _case((3, 5, 7, 64), (3, 3), graph_of(_gated), padding=_SAME),
        "sm_80",
    ),
    "squeezed": (
        _config(64, 2, 4, 4),
        _case((3, 5, 7, 40), (3, 3), graph_of(_squeezed), padding=_SAME),
        "sm_80",
    ),
    "rounded": (
        _config(64, 1, 2, 4),
        _case((3, 9, 7, 72), (3, 3), _rounded(F16, with_maximum=True), padding=_SAME),
        "sm_75",
    ),
    "rounded_bfloat16": (
        _config(128, 2, 2, 8),
        _case((2, 9, 7, 20), (3, 3), _rounded(BF16, with_maximum=False), padding=_SAME, **IN_BF16),
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
    specs = launched(
        request, list(map(_spec, KERNELS)), lambda parameters: _spec(parameters["name"])
    )
    return build_libraries(specs, tmp_path_factory.mktemp("depthwise"))


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


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("plain", setting(s=5), INVALID, "s is 5; this kernel takes 3"),
        ("plain", setting(stride_w=2), INVALID, "stride_w is 2; this kernel takes 1"),
        ("plain", setting(dilation_w=2), INVALID, "dilation_w is 2; this kernel takes 1"),
        ("plain", setting(k=144), INVALID, "k is 144; this kernel takes 72"),
        ("plain", setting(c=12, k=12), MISALIGNED, "c is 12; .* multiple of 8"),
        ("plain", setting(slab=0), INVALID, "slab is 0; it must be at least 1"),
        ("plain", setting(n=2**30), INVALID, "threads for a slab is .*; it must be at most"),
        ("one_row", setting(pad_w=-1), INVALID, "pad_w is -1; it must be at least 0"),
        ("doubled", setting(k=20), INVALID, "k is 20; this kernel takes 40"),
        ("with_input", setting(k=20), INVALID, "k is 20; this kernel takes 40"),
        ("with_input", setting(q=8), INVALID, "q is 8; this kernel takes 9"),
        ("rounded_bfloat16", setting(), WORKSPACE, "has 0 bytes; these sizes need 180"),
    ],
)
def test_bad_arguments_are_refused(
    name: str,
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    spec, layer = _spec(name), KERNELS[name][1].single
    args: Any = arguments("boltgen_depthwise_args", launch(KERNELS[name][1], spec.config).sizes)
    args.a = args.b = args.d = ADDRESS
    for index in range(len(layer.loads) + len(layer.further)):
        args.operands[index].pointer, args.operands[index].ld = ADDRESS, 2**20
    change(args)
    assert_refused(kernels[spec], spec, args, code, message)
