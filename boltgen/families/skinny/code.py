"""Kernels for few rows as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.mma_sync.code import problem_text
from boltgen.families.mma_sync.traits import MainloopTraits
from boltgen.families.skinny.config import SkinnyConfig
from boltgen.families.space import Shape
from boltgen.ir.kernel import KernelSpec

_HEADERS = ("boltgen/activations.h", "boltgen/skinny.h")
_PACKED_HEADERS = ("boltgen/activations.h", "boltgen/skinny_packed.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinnyView:
    """One kernel for few rows."""

    TEMPLATE: ClassVar[str] = "skinny.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_d: str
    layout_b: str
    alignment_a: int
    alignment_b: int
    alignment_d: int
    rows: int
    columns: int
    warps: int
    steps: int
    instruction: str


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    _, traits = _parts(spec)
    return _HEADERS if traits.weights is None else _PACKED_HEADERS


def stem(spec: KernelSpec) -> str:
    """Return a name for people: `skinny_sm80_8x32_w8_s2_rc888`."""
    config, traits = _parts(spec)
    return (
        f"skinny_{spec.arch.replace('_', '')}_{config.tile}_w{config.warps}_s{config.steps}"
        f"_r{_stem_of_b(traits)}"
        f"{traits.alignment_a}{traits.alignment_b}{traits.alignment_d}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    return {
        "Problem": _problem_text(traits),
        "Epilogue": traits.epilogue.formula,
        "Alignment": (
            f"A {traits.alignment_a}, B {traits.alignment_b}, D {traits.alignment_d} elements"
        ),
        "Config": f"{config.rows} rows and {config.columns} columns of a threadblock, "
        f"{config.warps} warps that divide K, {config.steps} steps on their way, instruction "
        f"{_instruction(spec)}",
        "Arch": spec.arch,
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> SkinnyView:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    return SkinnyView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        epilogue=emit_epilogue(traits.epilogue),
        element_in=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        layout_b=_layout_b(traits),
        alignment_a=traits.alignment_a,
        alignment_b=traits.alignment_b,
        alignment_d=traits.alignment_d,
        rows=config.rows,
        columns=config.columns,
        warps=config.warps,
        steps=config.steps,
        instruction=_instruction(spec).cutlass,
    )


def _stem_of_b(traits: MainloopTraits) -> str:
    packed = traits.weights
    if packed is None:
        return traits.b_layout.value[0]
    return f"q{packed.bits}g{packed.group}{'z' if packed.has_zeros else ''}_"


def _problem_text(traits: MainloopTraits) -> str:
    packed = f"; B is packed: {traits.weights.short}" if traits.weights else ""
    return problem_text(traits) + packed


def _layout_b(traits: MainloopTraits) -> str:
    packed = traits.weights
    if packed is None:
        return cpp_names.LAYOUT[traits.b_layout]
    has_zeros = str(packed.has_zeros).lower()
    return (
        f"boltgen::Packed</*Bits=*/{packed.bits}, /*Group=*/{packed.group}, "
        f"/*HasZeros=*/{has_zeros}>"
    )


def _instruction(spec: KernelSpec) -> Shape:
    return Shape(*arch_named(spec.arch).mma_shapes[0])


def _parts(spec: KernelSpec) -> tuple[SkinnyConfig, MainloopTraits]:
    return spec.config, spec.traits
