"""The C++ spelling of the values of `ir` and `space`."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.space.config import Residence, Shape
from boltgen.space.kernel import ConvIterator

LAYOUT = {
    Layout.ROW: "cutlass::layout::RowMajor",
    Layout.COLUMN: "cutlass::layout::ColumnMajor",
}

OPERAND = {
    LoadKind.TENSOR: "boltgen::Tensor",
    LoadKind.ROW: "boltgen::Row",
    LoadKind.COLUMN: "boltgen::Column",
}

ITERATOR_ALGORITHM = {
    ConvIterator.ANALYTIC: "cutlass::conv::IteratorAlgorithm::kAnalytic",
    ConvIterator.OPTIMIZED: "cutlass::conv::IteratorAlgorithm::kOptimized",
    ConvIterator.FIXED_CHANNELS: "cutlass::conv::IteratorAlgorithm::kFixedChannels",
}

# Of CUTLASS's own mainloop, `Mainloop`, that of a kernel.
MAINLOOP = {
    ConvIterator.ANALYTIC: "Mainloop",
    ConvIterator.OPTIMIZED: "Mainloop",
    ConvIterator.FIXED_CHANNELS: "boltgen::FixedChannels<Mainloop>",
}

RESIDENCE = {
    Residence.REGISTERS: "boltgen::Residence::kRegisters",
    Residence.SHARED_MEMORY: "boltgen::Residence::kSharedMemory",
}


def gemm_shape(shape: Shape) -> str:
    """`cutlass::gemm::GemmShape<128, 128, 32>`."""
    return f"cutlass::gemm::GemmShape<{shape.m}, {shape.n}, {shape.k}>"


def arch_tag(arch: str) -> str:
    """The tag that picks CUTLASS's 2.x mainloop for an arch ("sm_86").

    Every arch from sm_80 on has sm_80's tensor-core instructions and asynchronous copies, and the
    2.x API instantiates them under that tag.
    """
    has_copies = arch_named(arch).has_async_copies
    return "cutlass::arch::Sm80" if has_copies else "cutlass::arch::Sm75"
