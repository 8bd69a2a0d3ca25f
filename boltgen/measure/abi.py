"""The structs of `templates/include/boltgen/abi.h`, and the arguments of a packed problem."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem

MAX_OPERANDS = 7


class Operand(ctypes.Structure):
    """`boltgen_operand`."""

    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("ld", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
    )


_TAIL = (
    ("operands", Operand * MAX_OPERANDS),
    ("split_k", ctypes.c_int32),
    ("swizzle", ctypes.c_int32),
    ("workspace", ctypes.c_void_p),
    ("workspace_bytes", ctypes.c_size_t),
    ("stream", ctypes.c_void_p),
)


class GemmArgs(ctypes.Structure):
    """`boltgen_gemm_args`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("m", "n", "k", "batch")),
        *((name, ctypes.c_void_p) for name in "abd"),
        *((name, ctypes.c_int64) for name in ("lda", "ldb", "ldd")),
        *((f"batch_stride_{name}", ctypes.c_int64) for name in "abd"),
        *_TAIL,
    )


class Conv2dArgs(ctypes.Structure):
    """`boltgen_conv2d_args`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in "nhwckrspq"),
        *((name, ctypes.c_int32) for name in ("pad_h", "pad_w", "stride_h", "stride_w")),
        *((name, ctypes.c_int32) for name in ("dilation_h", "dilation_w")),
        *((name, ctypes.c_void_p) for name in "abd"),
        *_TAIL,
    )


class MoveArgs(ctypes.Structure):
    """`boltgen_move_args`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("n", "pixels", "source_c", "target_c")),
        *((name, ctypes.c_void_p) for name in ("source", "target", "stream")),
    )


class Status(ctypes.Structure):
    """`boltgen_status`."""

    _fields_ = (("code", ctypes.c_int32), ("message", ctypes.c_char * 256))


Args: TypeAlias = GemmArgs | Conv2dArgs


def packed_arguments(
    problem: Problem, a: int, b: int, d: int, operands: Sequence[Operand], **more: Any
) -> Args:
    """The arguments of a launch whose tensors lie without gaps at these device addresses.

    `more` are further fields: split_k, swizzle, workspace, workspace_bytes, stream.
    """
    args: Args
    match problem:
        case Gemm() | BatchedGemm():
            args = GemmArgs(m=problem.m, n=problem.n, k=problem.k, batch=1)
            args.lda, args.ldd = problem.k, problem.n
            args.ldb = problem.n if problem.b_layout is Layout.ROW else problem.k
            if isinstance(problem, BatchedGemm):
                args.batch = problem.batch
                args.batch_stride_a = problem.m * problem.k if problem.a_batched else 0
                args.batch_stride_b = problem.k * problem.n if problem.b_batched else 0
                args.batch_stride_d = problem.m * problem.n
        case Conv2d():
            args = Conv2dArgs(**conv2d_extents(problem))
    args.a, args.b, args.d = a, b, d
    for index, operand in enumerate(operands):
        args.operands[index] = operand
    for name, value in more.items():
        setattr(args, name, value)
    return args


def conv2d_extents(problem: Conv2d) -> dict[str, int]:
    """The extents of a convolution by the names that C structs give them."""
    return {
        **{name: getattr(problem, name) for name in "nhwckrspq"},
        "pad_h": problem.padding[0],
        "pad_w": problem.padding[1],
        "stride_h": problem.stride[0],
        "stride_w": problem.stride[1],
        "dilation_h": problem.dilation[0],
        "dilation_w": problem.dilation[1],
    }
