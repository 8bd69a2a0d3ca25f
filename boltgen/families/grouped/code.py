"""Kernels for rows in groups as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.families.grouped.config import GroupedConfig, GroupedTraits
from boltgen.families.mma_sync import code as product_code
from boltgen.families.mma_sync.code import MainloopView, layout_of_b, mainloop_fields
from boltgen.ir.dtypes import Layout
from boltgen.ir.kernel import KernelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmView(MainloopView):
    """One grouped kernel; `row_indices` is the type of the indices of A's rows, if any."""

    TEMPLATE: ClassVar[str] = "grouped_gemm.cu.j2"

    layout_b: str
    index: str
    row_indices: tuple[str, ...]


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    _, traits = _parts(spec)
    further = ("boltgen/results.h",) if traits.gemm.epilogue.further else ()
    return ("boltgen/activations.h", "boltgen/grouped_gemm.h", *further)


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `grouped_gemm_sm80_128x128x32_64x64_s3_rc888`.

    If A's rows are gathered, `gathered_` precedes it.
    """
    _, traits = _parts(spec)
    taken = "" if traits.rows_dtype is None else "gathered_"
    return f"{taken}grouped_{product_code.stem(_of_group(spec))}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    _, traits = _parts(spec)
    types = (traits.gemm.in_dtype.value, traits.gemm.acc_dtype.value, traits.gemm.out_dtype.value)
    a = f"A: (M, K) {types[0]} row-major in rows of groups that end at {traits.ends_dtype.value}"
    if traits.rows_dtype is not None:
        a = (
            f"A: (M, K) {types[0]}, rows that {traits.rows_dtype.value} take of a row-major "
            f"matrix, in groups that end at {traits.ends_dtype.value}"
        )
    b = "column" if traits.gemm.b_layout is Layout.COLUMN else "row"
    return {
        **product_code.describe(_of_group(spec)),
        "Problem": (
            f"Grouped gemm, {a}, B: (groups, K, N) {types[0]} {b}-major, "
            f"D: (M, N) {types[2]} row-major, accumulated in {types[1]}"
        ),
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> GroupedGemmView:
    """Return the variables of the kernel's template."""
    _, traits = _parts(spec)
    product = _of_group(spec)
    return GroupedGemmView(
        layout_b=layout_of_b(product),
        index=traits.ends_dtype.cpp,
        row_indices=() if traits.rows_dtype is None else (traits.rows_dtype.cpp,),
        **mainloop_fields(product, symbol, workspace_symbol),
    )


def _of_group(spec: KernelSpec) -> KernelSpec:
    """Return the kernel of one group's matmul."""
    config, traits = _parts(spec)
    return replace(spec, config=config.gemm, traits=traits.gemm)


def _parts(spec: KernelSpec) -> tuple[GroupedConfig, GroupedTraits]:
    return spec.config, spec.traits
