"""What the C entries of back-to-back kernels refuse, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cases.chains import all_chain_cases
from benchmarks.harness.kernel_launch import Args, KernelLibrary
from boltgen.ir.kernel import KernelSpec
from boltgen.measure.abi import structs
from tests.kernels.refusals import ADDRESS, INVALID, MISALIGNED, Change, assert_refused, setting

_CASES = {case.name: case for case in all_chain_cases()}
GEMM = _CASES["smem-row"].spec  # row-major B of 8, bias and ReLU; 64 and 128 columns
CONV = _CASES["smem-conv"].spec
GemmArgs: Any = structs()["boltgen_gemm_chain_args"]
ConvArgs: Any = structs()["boltgen_conv2d_chain_args"]


def _layer(args: Args, n: int, ldb: int) -> None:
    args.n, args.ldb, args.b = n, ldb, ADDRESS
    args.operands[0].pointer = ADDRESS


def gemm_args() -> Args:
    args = GemmArgs(m=150, k=104, batch=1, a=ADDRESS, d=ADDRESS, lda=104, ldd=56)
    _layer(args.layers[0], 40, 40)
    _layer(args.layers[1], 56, 56)
    return args


def conv_args() -> Args:
    args = ConvArgs(n=1, h=9, w=8, c=40, r=3, s=3, p=9, q=8, pad_h=1, pad_w=1)
    args.stride_h = args.stride_w = args.dilation_h = args.dilation_w = 1
    args.a = args.d = ADDRESS
    _layer(args.layers[0], 56, 360)
    _layer(args.layers[1], 48, 56)
    return args


def _of_layer(index: int, **values: Any) -> Change:
    return lambda args: setting(**values)(args.layers[index])


def _operand(index: int, **values: Any) -> Change:
    return lambda args: setting(**values)(args.layers[index].operands[0])


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(m=0), INVALID, "m is 0; it must be at least 1"),
        (setting(batch=65536), INVALID, "batch is 65536; it must be at most 65535"),
        (_of_layer(0, n=72), INVALID, r"layers\[0\].n is 72; it must be at most 64"),
        (_of_layer(1, n=136), INVALID, r"layers\[1\].n is 136; it must be at most 128"),
        (_of_layer(1, n=0), INVALID, r"layers\[1\].n is 0; it must be at least 1"),
        (_of_layer(0, n=41), MISALIGNED, r"layers\[0\].n is 41; .* multiple of 2 elements"),
        (_of_layer(1, n=52), MISALIGNED, r"layers\[1\].n is 52; .* multiple of 8 elements"),
        (_of_layer(1, ldb=48), INVALID, r"layers\[1\].ldb is 48; it must be at least 56"),
        (_of_layer(1, ldb=60), MISALIGNED, r"layers\[1\].ldb is 60; .* multiple of 8"),
        (_of_layer(0, ldb=36), INVALID, r"layers\[0\].ldb is 36; it must be at least 40"),
        (_of_layer(1, b=None), INVALID, r"layers\[1\].b is a null pointer"),
        (_of_layer(1, b=ADDRESS + 8), MISALIGNED, r"layers\[1\].b is at address .* 16-byte"),
        (_operand(0, pointer=ADDRESS + 2), MISALIGNED, r"operands\[0\].pointer .* needs 4-byte"),
        (_operand(1, pointer=None), INVALID, r"operands\[0\].pointer is a null pointer"),
        (setting(lda=100), INVALID, "lda is 100; it must be at least 104"),
        (setting(ldd=48), INVALID, "ldd is 48; it must be at least 56"),
        (setting(a=ADDRESS + 2), MISALIGNED, "a is at address 0x7f0000001002; .* 16-byte"),
        (setting(d=None), INVALID, "d is a null pointer"),
    ],
)
def test_a_chain_of_products_refuses(
    change: Change,
    code: int,
    message: str,
    chain_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    args = gemm_args()
    change(args)
    assert_refused(chain_kernels[GEMM], GEMM, args, code, message)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (setting(q=0), INVALID, "q is 0; it must be at least 1"),
        (setting(pad_h=-1), INVALID, "pad_h is -1; it must be at least 0"),
        (setting(s=33), INVALID, r"s \(optimised iterator\) is 33; it must be at most 32"),
        (setting(n=1 << 20), INVALID, "bytes of A is .*; it must be at most 2147483647"),
        (setting(c=36), MISALIGNED, r"c \(of A\) is 36; .* multiple of 8 elements"),
        (_of_layer(0, n=66), INVALID, r"layers\[0\].n is 66; it must be at most 64"),
        (_of_layer(1, ldb=48), INVALID, r"layers\[1\].ldb is 48; it must be at least 56"),
        (_of_layer(0, b=ADDRESS + 4), MISALIGNED, r"layers\[0\].b is at address"),
    ],
)
def test_a_chain_of_convolutions_refuses(
    change: Change,
    code: int,
    message: str,
    chain_kernels: dict[KernelSpec, KernelLibrary],
) -> None:
    args = conv_args()
    change(args)
    assert_refused(chain_kernels[CONV], CONV, args, code, message)
