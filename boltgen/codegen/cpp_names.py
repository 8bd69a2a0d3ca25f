"""The C++ spelling of the values of `ir`."""

from __future__ import annotations

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.epilogue import LoadKind

ELEMENT = {DType.F16: "cutlass::half_t", DType.F32: "float"}

LAYOUT = {
    Layout.ROW: "cutlass::layout::RowMajor",
    Layout.COLUMN: "cutlass::layout::ColumnMajor",
}

OPERAND = {
    LoadKind.TENSOR: "boltgen::Tensor",
    LoadKind.ROW: "boltgen::Row",
    LoadKind.COLUMN: "boltgen::Column",
}


def arch_tag(arch: str) -> str:
    """The tag that picks CUTLASS's 2.x mainloop for an arch ("sm_86").

    Every arch from sm_80 on has sm_80's tensor-core instructions and asynchronous copies, and the
    2.x API instantiates them under that tag.
    """
    return "cutlass::arch::Sm80" if has_async_copies(arch) else "cutlass::arch::Sm75"


def has_async_copies(arch: str) -> bool:
    """Whether an arch ("sm_86") has cp.async. Source: PTX ISA, cp.async: sm_80 or higher."""
    return int("".join(c for c in arch if c.isdigit())) >= 80


# Moves need no CUTLASS.
MOVED = {DType.F16: "boltgen::Half", DType.F32: "float"}
