"""The traits for which a 2.x kernel is compiled: they determine its machine code.

They contain no problem sizes. CUTLASS takes sizes at run time, so one kernel serves every problem,
layer and model that its alignments and tiles allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import ElementwiseGraph
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.conv3d.problem import Conv3d
from boltgen.problems.convolution import Convolution
from boltgen.problems.gemm.packed import PackedWeights
from boltgen.problems.gemm.problem import is_paired, packed_weights
from boltgen.problems.problem import Problem
from boltgen.problems.windows import filter_extents


class ConvIterator(Enum):
    """The way a convolution computes its addresses (`cutlass::conv::IteratorAlgorithm`)."""

    ANALYTIC = "analytic"
    OPTIMIZED = "optimized"
    FIXED_CHANNELS = "fixed_channels"  # a vector is all channels of a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTraits:
    """The traits that legality needs besides a configuration: no extents."""

    is_conv: bool
    b_layout: Layout
    in_dtype: DType
    acc_dtype: DType
    out_dtype: DType
    alignment_a: int
    alignment_b: int
    alignment_d: int
    is_paired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MainloopTraits:
    """The compiled part of a workload.

    `b_layout` is the layout of the matmul's B (a convolution's filter is always KRSC).
    `conv_iterator` is None for a matmul. `weights` is the format of packed B, or None. `in_groups`
    tells whether the grid's z dimension counts the groups of a convolution, `of_volumes` whether
    its images have a depth.
    """

    # Keys of kernels contain the first name of this class.
    key_name: ClassVar[str] = "Cutlass2Traits"

    epilogue: ElementwiseGraph
    in_dtype: DType
    acc_dtype: DType
    out_dtype: DType
    b_layout: Layout
    alignment_a: int
    alignment_b: int
    alignment_d: int
    conv_iterator: ConvIterator | None = None
    weights: PackedWeights | None = field(default=None, metadata={"absent_at_default": True})
    in_groups: bool = field(default=False, metadata={"absent_at_default": True})
    of_volumes: bool = field(default=False, metadata={"absent_at_default": True})

    @property
    def operands(self) -> KernelTraits:
        """The traits that legality needs."""
        return KernelTraits(
            is_conv=self.conv_iterator is not None,
            b_layout=self.b_layout,
            in_dtype=self.in_dtype,
            acc_dtype=self.acc_dtype,
            out_dtype=self.out_dtype,
            alignment_a=self.alignment_a,
            alignment_b=self.alignment_b,
            alignment_d=self.alignment_d,
            is_paired=self.epilogue.is_paired,
        )


# The optimised iterator keeps one predicate bit per filter row and per column in 32-bit masks.
# Source: cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_optimized.h.
OPTIMIZED_FILTER_EXTENT = 32
# Numbers of channels that are one vector, and that cp.async copies in more than one word. Source:
# cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_fixed_channels.h.
_FIXED_CHANNELS = (4, 8)


def conv_iterator(problem: Convolution) -> ConvIterator:
    """Return the fastest iterator that is correct for the problem.

    Iterators other than FIXED_CHANNELS make steps of K within the channels of one filter position:
    with four channels, seven eighths of a step of 32 are zeros. With a vector for each position,
    steps are full.
    """
    if problem.groups > 1 or not isinstance(problem, Conv2d):
        return channel_iterator(problem)
    if problem.c == problem.alignment_a and problem.c in _FIXED_CHANNELS:
        return ConvIterator.FIXED_CHANNELS
    return channel_iterator(problem)


def channel_iterator(problem: Convolution) -> ConvIterator:
    """Return the fastest iterator that handles one filter position at a time."""
    if max(filter_extents(problem)) <= OPTIMIZED_FILTER_EXTENT:
        return ConvIterator.OPTIMIZED
    return ConvIterator.ANALYTIC


def kernel_traits(problem: Problem) -> KernelTraits:
    """Return the traits of the kernels that can compute `problem`."""
    return KernelTraits(
        is_conv=isinstance(problem, Convolution),
        b_layout=problem.gemm.b_layout,
        in_dtype=problem.in_dtype,
        acc_dtype=problem.acc_dtype,
        out_dtype=problem.out_dtype,
        alignment_a=problem.alignment_a,
        alignment_b=problem.alignment_b,
        alignment_d=problem.alignment_d,
        is_paired=is_paired(problem),
    )


def compiled_traits(problem: Problem, epilogue: ElementwiseGraph) -> MainloopTraits:
    """Return the traits for which a kernel of `problem` with `epilogue` is compiled."""
    return MainloopTraits(
        epilogue=epilogue,
        in_dtype=problem.in_dtype,
        acc_dtype=problem.acc_dtype,
        out_dtype=problem.out_dtype,
        b_layout=problem.gemm.b_layout,
        alignment_a=problem.alignment_a,
        alignment_b=problem.alignment_b,
        alignment_d=problem.alignment_d,
        conv_iterator=conv_iterator(problem) if isinstance(problem, Convolution) else None,
        weights=packed_weights(problem),
        in_groups=groups_of(problem) > 1,
        of_volumes=isinstance(problem, Conv3d),
    )


def groups_of(problem: Problem) -> int:
    """Return the groups of a convolution: the grid's z dimension counts them; 1 of all else."""
    return problem.groups if isinstance(problem, Convolution) else 1
