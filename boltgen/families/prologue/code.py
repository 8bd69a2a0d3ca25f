"""Products with a prologue as text: the view of their template, and what people are told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.cutlass2 import code as cutlass2_code
from boltgen.families.cutlass2.code import gemm_shape
from boltgen.families.prologue.config import PrologueConfig, PrologueTraits
from boltgen.ir.kernel import KernelSpec

_HEADERS = ("boltgen/activations.h", "boltgen/prologue_gemm.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologueGemmView:
    """One product of what `prologue` makes of A."""

    TEMPLATE: ClassVar[str] = "prologue_gemm.cu.j2"

    symbol: str
    workspace_symbol: str
    prologue: EpilogueCode
    epilogue: EpilogueCode
    element_in: str
    element_accumulator: str
    element_d: str
    layout_b: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    arch_tag: str


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """What a kernel's text includes."""
    del spec
    return _HEADERS


def stem(spec: KernelSpec) -> str:
    """What people want to see: `prologue_gemm_sm80_64x64x32_32x32_s2_rc888`."""
    return f"prologue_{cutlass2_code.stem(_of_product(spec))}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Describe what the kernel computes and how: texts by their labels, for `boltgen inspect`."""
    _, traits = _parts(spec)
    described = cutlass2_code.describe(_of_product(spec))
    problem = described.pop("Problem")
    return {"Problem": problem, "Prologue": traits.prologue.describe(), **described}


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> PrologueGemmView:
    """The variables of the kernel's template."""
    config, traits = _parts(spec)
    tiles, gemm = config.gemm, traits.gemm
    return PrologueGemmView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        prologue=emit_epilogue(traits.prologue),
        epilogue=emit_epilogue(gemm.epilogue),
        element_in=gemm.in_dtype.cutlass,
        element_accumulator=gemm.acc_dtype.cutlass,
        element_d=gemm.out_dtype.cutlass,
        layout_b=cpp_names.LAYOUT[gemm.b_layout],
        alignment_a=gemm.alignment_a,
        alignment_b=gemm.alignment_b,
        alignment_d=gemm.alignment_d,
        threadblock=gemm_shape(tiles.threadblock),
        warp=gemm_shape(tiles.warp),
        instruction=gemm_shape(tiles.instruction),
        stages=tiles.stages,
        arch_tag=cpp_names.arch_tag(spec.arch),
    )


def _of_product(spec: KernelSpec) -> KernelSpec:
    """The kernel of the product alone."""
    config, traits = _parts(spec)
    return replace(spec, config=config.gemm, traits=traits.gemm)


def _parts(spec: KernelSpec) -> tuple[PrologueConfig, PrologueTraits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, PrologueConfig)
    assert isinstance(traits, PrologueTraits)
    return config, traits
