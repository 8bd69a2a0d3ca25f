"""Products with a prologue as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.mma_sync import code as product_code
from boltgen.families.mma_sync.code import MainloopView, layout_of_b, mainloop_fields
from boltgen.families.prologue.config import PrologueConfig, PrologueTraits
from boltgen.ir.kernel import KernelSpec

HEADERS = ("boltgen/activations.h", "boltgen/prologue_gemm.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologueGemmView(MainloopView):
    """One matmul of A after the graph `prologue`."""

    TEMPLATE: ClassVar[str] = "prologue_gemm.cu.j2"

    prologue: EpilogueCode
    layout_b: str


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `prologue_gemm_sm80_64x64x32_32x32_s2_rc888`."""
    return f"prologue_{product_code.stem(_of_product(spec))}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    _, traits = _parts(spec)
    described = product_code.describe(_of_product(spec))
    problem = described.pop("Problem")
    return {"Problem": problem, "Prologue": traits.prologue.describe(), **described}


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> PrologueGemmView:
    """Return the variables of the kernel's template."""
    _, traits = _parts(spec)
    product = _of_product(spec)
    return PrologueGemmView(
        prologue=emit_epilogue(traits.prologue),
        layout_b=layout_of_b(product),
        **mainloop_fields(product, symbol, workspace_symbol),
    )


def _of_product(spec: KernelSpec) -> KernelSpec:
    """Return the kernel of the matmul alone."""
    config, traits = _parts(spec)
    return replace(spec, config=config.gemm, traits=traits.gemm)


def _parts(spec: KernelSpec) -> tuple[PrologueConfig, PrologueTraits]:
    return spec.config, spec.traits
