"""What a kernel's entry refuses, and how it says so. Nothing is launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases.kernels import CONFIGS, EPILOGUES, split_k_cases
from benchmarks.harness.kernel_launch import Args, Conv2dArgs, GemmArgs, KernelLibrary
from boltgen.families.mma_sync.resources import split_workspace_bytes
from boltgen.families.registry import kernel_spec
from boltgen.families.source import kernel_symbol
from boltgen.ir.kernel import KernelSpec
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from tests.kernels.refusals import (
    ADDRESS,
    INVALID,
    MISALIGNED,
    WORKSPACE,
    Change,
    assert_refused,
    setting,
)

_SPLIT = {case.name: case for case in split_k_cases()}
GEMM = _SPLIT["split-gemm2"].spec  # residual_before: operands are a row and a tensor
CONV = _SPLIT["split-conv2"].spec


def gemm_args() -> Args:
    args = GemmArgs(m=150, n=136, k=264, batch=1, lda=264, ldb=264, ldd=136)
    args.split_k = args.swizzle = 1
    args.a = args.b = args.d = ADDRESS
    args.operands[0].pointer = args.operands[1].pointer = ADDRESS
    args.operands[1].ld = 136
    return args


def conv_args() -> Args:
    args = Conv2dArgs(n=1, h=9, w=8, c=72, k=136, r=3, s=3, p=9, q=8, pad_h=1, pad_w=1)
    args.stride_h = args.stride_w = args.dilation_h = args.dilation_w = 1
    args.groups = 1
    args.split_k = args.swizzle = 1
    args.a = args.b = args.d = ADDRESS
    args.operands[0].pointer = args.operands[1].pointer = ADDRESS
    args.operands[1].ld = 136
    return args


def _operand(index: int, **values: Any) -> Change:
    return lambda args: setting(**values)(args.operands[index])


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(m=0), INVALID, "m is 0; it must be at least 1"),
        (setting(batch=65536), INVALID, "batch is 65536; it must be at most 65535"),
        (setting(raster=1), INVALID, "raster is 1; it must be at most 0"),
        (setting(batch=2, split_k=2), INVALID, "split_k is 2; it must be at most 1"),
        (setting(swizzle=0), INVALID, "swizzle is 0; it must be a power of two from 1 to 8"),
        (setting(swizzle=6), INVALID, "swizzle is 6; it must be a power of two from 1 to 8"),
        (setting(lda=256), INVALID, "lda is 256; it must be at least 264"),
        (setting(ldd=128), INVALID, "ldd is 128; it must be at least 136"),
        (setting(k=260), MISALIGNED, r"k \(rows of A\) is 260; .* multiple of 8 elements"),
        (setting(lda=268), MISALIGNED, "lda is 268; .* multiple of 8 elements"),
        (setting(batch=2, batch_stride_b=4), MISALIGNED, "batch_stride_b is 4; .* of 8"),
        (setting(a=None), INVALID, "a is a null pointer"),
        (setting(a=ADDRESS + 8), MISALIGNED, "a is at address 0x7f0000001008; .* needs 16-byte"),
        (setting(d=ADDRESS + 2), MISALIGNED, "d is at address 0x7f0000001002; .* needs 16-byte"),
        (_operand(0, pointer=None), INVALID, r"operands\[0\].pointer is a null pointer"),
        (_operand(1, pointer=ADDRESS + 4), MISALIGNED, r"operands\[1\].pointer is at address"),
        (_operand(1, ld=128), INVALID, r"operands\[1\].ld is 128; it must be at least 136"),
        (_operand(1, ld=140), MISALIGNED, r"operands\[1\].ld is 140; .* multiple of 8"),
        (setting(split_k=2), WORKSPACE, r"workspace has 0 bytes; these sizes need \d+ \(ask"),
        (
            setting(split_k=2, workspace=ADDRESS, workspace_bytes=128),
            WORKSPACE,
            r"workspace has 128 bytes; these sizes need \d+ \(ask",
        ),
    ],
)
def test_gemm_refuses(
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    args = gemm_args()
    change(args)
    assert_refused(kernels[GEMM], GEMM, args, code, message)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(p=0), INVALID, "p is 0; it must be at least 1"),
        (setting(pad_w=-1), INVALID, "pad_w is -1; it must be at least 0"),
        (setting(r=33), INVALID, r"r \(optimised iterator\) is 33; it must be at most 32"),
        (setting(h=1 << 24), INVALID, "bytes of A is 19327352832; it must be at most 2147483647"),
        (setting(c=68), MISALIGNED, r"c \(of A\) is 68; .* multiple of 8 elements"),
        (setting(k=132), MISALIGNED, r"k \(of D\) is 132; .* multiple of 8 elements"),
        (setting(swizzle=16), INVALID, "swizzle is 16; it must be a power of two from 1 to 8"),
        (setting(swizzle=-2), INVALID, "swizzle is -2; it must be a power of two from 1 to 8"),
        (setting(b=ADDRESS + 1), MISALIGNED, "b is at address 0x7f0000001001; .* needs 16-byte"),
        (setting(split_k=3), WORKSPACE, r"workspace has 0 bytes; these sizes need \d+"),
    ],
)
def test_conv2d_refuses(
    change: Change,
    code: int,
    message: str,
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    args = conv_args()
    change(args)
    assert_refused(kernels[CONV], CONV, args, code, message)


def test_a_swizzle_makes_room_for_more_columns_of_tiles(
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    """The grid's y dimension counts groups of tiles; the next check is that of the workspace."""
    for swizzle, columns, code, message in (
        (1, 65536, INVALID, "number of blocks along N is 65536; it must be at most 65535"),
        (2, 65536, WORKSPACE, "workspace has 0 bytes"),
        (8, 8 * 65535 + 1, INVALID, "number of blocks along N is 65536"),
    ):
        args = gemm_args()
        args.n = args.ldd = args.operands[1].ld = 64 * columns
        args.swizzle, args.split_k = swizzle, 2 if code == WORKSPACE else 1
        assert_refused(kernels[GEMM], GEMM, args, code, message)


def test_workspace_holds_a_semaphore_and_a_tile_of_fp32_for_each_block(
    kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    planned = replace(GEMM.config, split_k=3)
    tiles = 3 * 3  # of 64 x 64, for 150 x 136
    assert split_workspace_bytes(Gemm(m=150, n=136, k=264), planned) == 128 + tiles * 64 * 64 * 4
    assert split_workspace_bytes(Gemm(m=150, n=136, k=264), GEMM.config) == 0
    args = gemm_args()
    query = kernels[GEMM].workspace_bytes
    assert query(kernel_symbol(GEMM), args) == 0
    args.split_k = 3
    assert query(kernel_symbol(GEMM), args) == 128 + tiles * 64 * 64 * 4
    args.split_k = 264  # more slices than K has vectors; all add to the same partial sums
    assert query(kernel_symbol(GEMM), args) == 128 + tiles * 64 * 64 * 4
    conv = conv_args()
    conv.split_k = 2
    assert kernels[CONV].workspace_bytes(kernel_symbol(CONV), conv) == 128 + 6 * 64 * 64 * 4


def test_specs_are_what_the_arguments_assume() -> None:
    config = CONFIGS["sm80_small"][1]
    epilogue = EPILOGUES["residual_before"]
    conv = Conv2d(n=1, h=9, w=8, c=72, k=136, r=3, s=3)
    assert kernel_spec(Workload.of(conv, epilogue), config, "sm_80") == CONV
    assert GEMM.traits.epilogue == epilogue
    assert Gemm(m=150, n=136, k=264).alignment_a == GEMM.traits.alignment_a == 8
