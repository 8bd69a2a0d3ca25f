"""What a compiled kernel is: everything that decides its machine code, and nothing else.

Problem sizes are not part of it. CUTLASS takes them at run time, so one kernel serves every
problem, layer and model that its alignments and tiles allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.ir.problem import Conv2d, Problem
from boltgen.space.config import Cutlass2Config


class Family(Enum):
    """Which template a kernel is rendered from."""

    GEMM = "gemm"  # also batched, and pointwise convolutions
    CONV2D = "conv2d"
    B2B_GEMM = "b2b_gemm"  # also batched, and chains that begin with a pointwise convolution
    B2B_CONV2D = "b2b_conv2d"


class ConvIterator(Enum):
    """How a convolution computes its addresses (`cutlass::conv::IteratorAlgorithm`)."""

    ANALYTIC = "analytic"
    OPTIMIZED = "optimized"
    FIXED_CHANNELS = "fixed_channels"  # a vector is all channels of a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """One kernel to generate.

    `b_layout` is of the GEMM's B (a convolution's filter is always KRSC); `conv_iterator` is None
    for a GEMM. `config` has neither swizzle nor slices of K, which are arguments of the launch.
    """

    family: Family
    arch: str
    config: Cutlass2Config
    epilogue: ElementwiseGraph
    in_dtype: DType
    acc_dtype: DType
    out_dtype: DType
    b_layout: Layout
    alignment_a: int
    alignment_b: int
    alignment_d: int
    conv_iterator: ConvIterator | None = None

    def __post_init__(self) -> None:
        if self.config != self.config.kernel:
            raise AssertionError(f"{self.config} is a launch's; its kernel is {self.config.kernel}")


# The optimised iterator keeps one predicate bit per filter row and per column in 32-bit masks.
# Source: cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_optimized.h.
_OPTIMIZED_FILTER_EXTENT = 32
# Channels that are one vector, and one that cp.async copies in more than one word.
# Source: cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_fixed_channels.h.
_FIXED_CHANNELS = (4, 8)


def conv_iterator(problem: Conv2d) -> ConvIterator:
    """The fastest iterator that is right for the problem.

    The others make steps of K within the channels of one filter position: with four channels,
    seven eighths of a step of 32 are zeros. With a vector for each position, steps are full.
    """
    if problem.c == problem.alignment_a and problem.c in _FIXED_CHANNELS:
        return ConvIterator.FIXED_CHANNELS
    return channel_iterator(problem)


def channel_iterator(problem: Conv2d) -> ConvIterator:
    """The fastest iterator that goes through the channels of one filter position at a time."""
    if max(problem.r, problem.s) <= _OPTIMIZED_FILTER_EXTENT:
        return ConvIterator.OPTIMIZED
    return ConvIterator.ANALYTIC


def kernel_spec(
    problem: Problem, epilogue: ElementwiseGraph, config: Cutlass2Config, arch: str
) -> KernelSpec:
    """The kernel that computes `problem` with `epilogue` in `config` on `arch` ("sm_80")."""
    is_conv = isinstance(problem, Conv2d)
    return KernelSpec(
        family=Family.CONV2D if is_conv else Family.GEMM,
        arch=arch,
        config=config.kernel,
        epilogue=epilogue,
        in_dtype=problem.in_dtype,
        acc_dtype=problem.acc_dtype,
        out_dtype=problem.out_dtype,
        b_layout=Layout.COLUMN if isinstance(problem, Conv2d) else problem.b_layout,
        alignment_a=problem.alignment_a,
        alignment_b=problem.alignment_b,
        alignment_d=problem.alignment_d,
        conv_iterator=conv_iterator(problem) if isinstance(problem, Conv2d) else None,
    )


def execution_problem(problem: Problem) -> Problem:
    """What really runs for `problem`: a pointwise convolution is a plain matrix product.

    In NHWC its activation is a row-major (N*P*Q, C) matrix, its filter a column-major one.
    """
    if isinstance(problem, Conv2d) and problem.is_pointwise:
        return problem.implicit_gemm
    return problem
