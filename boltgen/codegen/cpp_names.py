"""The C++ spelling of values of `boltgen.ir`."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import LoadKind

LAYOUT = {
    Layout.ROW: "cutlass::layout::RowMajor",
    Layout.COLUMN: "cutlass::layout::ColumnMajor",
}

OPERAND = {
    LoadKind.TENSOR: "boltgen::Tensor",
    LoadKind.ROW: "boltgen::Row",
    LoadKind.SLICE_ROW: "boltgen::SliceRow",
    LoadKind.POSITION_ROW: "boltgen::PositionRow",
    LoadKind.COLUMN: "boltgen::Column",
}


def arch_tag(arch: str) -> str:
    """Return the tag that selects CUTLASS's 2.x mainloop for an architecture ("sm_86").

    CUTLASS's 2.x API uses sm_80's tag for every later architecture, which has sm_80's tensor-core
    instructions and asynchronous copies.
    2.x API instantiates them under that tag.
    """
    has_copies = arch_named(arch).has_async_copies
    return "cutlass::arch::Sm80" if has_copies else "cutlass::arch::Sm75"
