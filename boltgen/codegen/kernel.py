"""What a compiled kernel is: everything that decides its machine code, and nothing else.

Problem sizes are not part of it. CUTLASS takes them at run time, so one kernel serves every
problem, layer and model that its alignments and tiles allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import BatchedGemm, Conv2d, Gemm, Problem
from boltgen.space.config import Cutlass2Config


class Family(Enum):
    """Which template a kernel is rendered from."""

    GEMM = "gemm"  # also batched, and pointwise convolutions
    CONV2D = "conv2d"


class ConvIterator(Enum):
    """How a convolution computes its addresses (`cutlass::conv::IteratorAlgorithm`)."""

    ANALYTIC = "analytic"
    OPTIMIZED = "optimized"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """One kernel to generate.

    `b_layout` is of the GEMM's B (a convolution's filter is always KRSC); `conv_iterator` is None
    for a GEMM. `config.split_k` is always 1 here: the number of slices is a launch argument.
    """

    family: Family
    arch: str
    config: Cutlass2Config
    epilogue: Epilogue
    in_dtype: DType
    acc_dtype: DType
    out_dtype: DType
    b_layout: Layout
    alignment_a: int
    alignment_b: int
    alignment_d: int
    conv_iterator: ConvIterator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """A rendered kernel: the `.cu` text and the C symbols that it defines.

    `symbol` runs it and `workspace_symbol` returns its workspace in bytes; both take a pointer to
    the argument struct of the family in `boltgen/abi.h`.
    """

    spec: KernelSpec
    symbol: str
    workspace_symbol: str
    text: str
