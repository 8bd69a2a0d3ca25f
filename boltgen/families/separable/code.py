"""Depthwise separable kernels as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.codegen import cpp_names
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.depthwise_tile import window_text
from boltgen.families.separable.config import SeparableConfig
from boltgen.families.separable.traits import SeparableTraits
from boltgen.ir.kernel import KernelSpec

_HEADERS = ("boltgen/activations.h", "boltgen/separable.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """The epilogue of a layer; `name` is its namespace."""

    name: str
    epilogue: EpilogueCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparableView:
    """One depthwise separable convolution."""

    TEMPLATE: ClassVar[str] = "separable.cu.j2"

    symbol: str
    workspace_symbol: str
    layers: tuple[LayerView, ...]
    element_in: str
    element_accumulator: str
    element_d: str
    vector: int
    multiplier: int
    window: str
    columns: int
    threadblock: str
    warp: str
    instruction: str
    stages: int
    layout_b: str
    alignment_b: int
    alignment_d: int
    has_async_copies: str
    reduces: bool


def includes(spec: KernelSpec) -> tuple[str, ...]:
    """Return the headers that a kernel's text includes."""
    epilogue = _parts(spec)[1].epilogue
    if not epilogue.further:
        return _HEADERS
    return *_HEADERS, f"boltgen/{'reductions' if epilogue.reductions else 'results'}.h"


def stem(spec: KernelSpec) -> str:
    """Return a name for people, `separable_sm80_3s1_64x32x32_c4`."""
    config, traits = _parts(spec)
    window = traits.window
    taps = "any" if window is None else f"{window.taps}s{window.stride}"
    return f"separable_{spec.arch.replace('_', '')}_{taps}_{config.tile}_c{config.columns}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    window = traits.window
    columns = "any" if window is None else f"{window.taps}, stride {window.stride}"
    operands, result = traits.in_dtype.value, traits.out_dtype.value
    return {
        "Problem": f"Depthwise, A: (N, H, W, C) {operands}, B0: (R, S, K0, 1), filter columns: "
        f"{columns}; then 1x1, B: (K, K0), D: (N, P, Q, K) {result}; {operands} between",
        "Epilogue": f"D0 = {traits.between.describe()}; D1 = {traits.epilogue.describe()}",
        "Alignment": f"{traits.vector} elements between, {traits.alignment_b} of B, "
        f"{traits.alignment_d} of D",
        "Config": f"threadblock {config.tile}, {config.tiles.warps} warps of "
        f"{config.warp_m}x{config.warp_n}, instruction {config.instruction}, {config.stages} "
        f"stages, {config.columns} pixels of a thread, sums in {traits.acc_dtype.value}",
        "Arch": spec.arch,
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> SeparableView:
    """The variables of the kernel's template."""
    config, traits = _parts(spec)
    graphs = {"depthwise": traits.between, "pointwise": traits.epilogue}
    layers = tuple(
        LayerView(name=name, epilogue=emit_epilogue(graph)) for name, graph in graphs.items()
    )
    return SeparableView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        layers=layers,
        element_in=traits.in_dtype.cutlass,
        element_accumulator=traits.acc_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        vector=traits.vector,
        multiplier=traits.multiplier,
        window=window_text(traits.window),
        columns=config.columns,
        threadblock=config.threadblock.cutlass,
        warp=config.tiles.warp.cutlass,
        instruction=config.instruction.cutlass,
        stages=config.stages,
        layout_b=cpp_names.LAYOUT[traits.b_layout],
        alignment_b=traits.alignment_b,
        alignment_d=traits.alignment_d,
        has_async_copies="true" if arch_named(spec.arch).has_async_copies else "false",
        reduces=layers[1].epilogue.reduces,
    )


def _parts(spec: KernelSpec) -> tuple[SeparableConfig, SeparableTraits]:
    return spec.config, spec.traits
