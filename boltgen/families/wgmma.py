"""Limits of TMA and wgmma on sm_90a that are common to several families."""

from __future__ import annotations

import math

from boltgen.families.rejections import INTEGER_OUTPUTS, Multiplied
from boltgen.ir.dtypes import FLOAT_TYPES, DType
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.problem import Problem

# The row of `boltgen.arch` for these kernels.
ARCH_NAME = "sm_90a"
# 128 bytes of FP16 or BF16 along K: the widest swizzle of TMA and wgmma.
# Source: PTX ISA, asynchronous warpgroup matrices, shared memory layouts.
TILE_DEPTH = 64
# The registers that setmaxnreg leaves a multiplying thread; the same source.
MATH_REGISTERS = 240
# Limits of two-dimensional im2col tensor maps, in pixels.
_MOST_STRIDE, _MOST_REACH, _MOST_CORNER = 8, 254, 128
# The driver's documentation does not mention a stride of 0 along an extent beyond 1.
NO_STRIDE = "and no document says that TMA takes a stride of 0"
# The wgmma combinations for which kernels are made; wgmma can also sum FP16 in FP16. Source: PTX
# ISA, wgmma.mma_async.
WGMMA = (
    Multiplied(DType.F16, DType.F16, DType.F32, (DType.F16, DType.F32)),
    Multiplied(DType.BF16, DType.BF16, DType.F32, (DType.BF16, DType.F32)),
)
# The combinations of 8-bit integers, in which B is int8.
WGMMA_OF_INTEGERS = tuple(
    Multiplied(a, DType.I8, DType.I32, INTEGER_OUTPUTS) for a in (DType.I8, DType.U8)
)
# The combinations of 8-bit floats, whose sums kernels promote to FP32.
WGMMA_OF_NARROW = tuple(
    Multiplied(each, each, DType.F32, (each, *FLOAT_TYPES)) for each in (DType.E4M3, DType.E5M2)
)
# One stage is filled while another one is multiplied.
LEAST_STAGES = 2


# The 16-bit elements of K that one wgmma multiplies, and the threads that issue it. Source: PTX
# ISA, wgmma.
DEPTH_OF_WGMMA, WARPGROUP = 16, 128
_BYTES_OF_16_BITS = 2


# Rows of one wgmma. Source: PTX ISA, wgmma.
WARPGROUP_M = 64
# The columns of wgmmas among which CUTLASS chooses, unless `WIDTHS_HEADER` precedes its headers.
# Source: cute/arch/mma_sm90.hpp.
COMMON_WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)
WIDTHS_HEADER = "boltgen/wgmma_widths.h"


def tile_depth(dtype: DType) -> int:
    """Return the elements of K in a row of a tile: the 128 bytes of `TILE_DEPTH`."""
    return TILE_DEPTH * _BYTES_OF_16_BITS // dtype.size_bytes


def depth_of_wgmma(dtype: DType) -> int:
    """Return the elements of K that one wgmma multiplies: 32 bytes."""
    return DEPTH_OF_WGMMA * _BYTES_OF_16_BITS // dtype.size_bytes


def im2col_rejection(problem: Conv2d) -> str | None:
    """Return why wgmma's kernels do not compute a convolution, or None. Source: CUDA driver API,
    cuTensorMapEncodeIm2col.
    """
    if problem.groups > 1:
        return f"{problem.groups} groups: the collective multiplies all channels by all filters"
    if max(problem.stride) > _MOST_STRIDE:
        return f"stride {max(problem.stride)}: TMA steps over {_MOST_STRIDE} pixels at most"
    sides = (problem.r, problem.h, problem.p), (problem.s, problem.w, problem.q)
    for axis, (taps, size, extent) in enumerate(sides):
        reach = (taps - 1) * problem.dilation[axis]
        if reach > _MOST_REACH:
            return f"a filter that reaches over {reach} pixels: TMA's offsets end at {_MOST_REACH}"
        # The corners of the box of pixels that a filter's first tap visits.
        front = problem.padding[axis]
        behind = max(0, (extent - 1) * problem.stride[axis] + reach + 1 - size - front)
        if front > _MOST_CORNER or not -_MOST_CORNER < reach - behind <= _MOST_CORNER:
            return (
                f"padding {problem.padding} and a reach of {reach} pixels: TMA's corners lie at "
                f"most {_MOST_CORNER} pixels off"
            )
    return None


def steps(problem: Problem, depth: int) -> int:
    """Return the steps of K; a convolution has whole steps of channels for each filter tap."""
    if isinstance(problem, Conv2d):
        return problem.r * problem.s * math.ceil(problem.c / depth)
    return math.ceil(problem.gemm.k / depth)
