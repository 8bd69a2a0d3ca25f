"""Depthwise convolutions as text: the view of their template, and what people are told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.depthwise.config import DepthwiseConfig
from boltgen.families.depthwise.traits import DepthwiseTraits
from boltgen.families.depthwise_tile import window_text
from boltgen.ir.kernel import KernelSpec

ARGUMENTS = "boltgen_depthwise_args"
HEADERS = ("boltgen/activations.h", "boltgen/depthwise.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseView:
    """One depthwise convolution."""

    TEMPLATE: ClassVar[str] = "depthwise.cu.j2"

    symbol: str
    workspace_symbol: str
    epilogue: EpilogueCode
    element_in: str
    element_d: str
    vector: int
    multiplier: int
    window: str
    threads: int
    rows: int
    columns: int
    with_input: str


def stem(spec: KernelSpec) -> str:
    """Return a name for people, `depthwise_sm80_3s1_1x4_t128_v8`."""
    config, traits = _parts(spec)
    window = traits.window
    taps = "any" if window is None else f"{window.taps}s{window.stride}"
    joined = "_with_input" if traits.with_input else ""
    return (
        f"depthwise_{spec.arch.replace('_', '')}_{taps}_{config.tile}_t{config.threads}"
        f"_v{traits.vector}{joined}"
    )


def describe(spec: KernelSpec) -> dict[str, str]:
    """Describe what the kernel computes and how: texts by their labels, for `boltgen inspect`."""
    config, traits = _parts(spec)
    window = traits.window
    columns = "any" if window is None else f"{window.taps}, stride {window.stride}"
    filters = "" if traits.multiplier == 1 else f", {traits.multiplier} filters of each channel"
    if traits.with_input:
        filters += ", D begins with A's channels"
    operands, result = traits.in_dtype.value, traits.out_dtype.value
    return {
        "Problem": f"Depthwise, A: (N, H, W, C) {operands}, B: (R, S, K, 1) {operands}, "
        f"D: (N, P, Q, K) {result}, sums in float32; filter columns: {columns}{filters}",
        "Epilogue": traits.epilogue.formula,
        "Alignment": f"{traits.vector} elements",
        "Config": f"{config.rows} rows and {config.columns} columns of a thread, "
        f"{config.threads} threads",
        "Arch": spec.arch,
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> DepthwiseView:
    """The variables of the kernel's template."""
    config, traits = _parts(spec)
    return DepthwiseView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        epilogue=emit_epilogue(traits.epilogue),
        element_in=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        vector=traits.vector,
        multiplier=traits.multiplier,
        window=window_text(traits.window),
        threads=config.threads,
        rows=config.rows,
        columns=config.columns,
        with_input=str(traits.with_input).lower(),
    )


def _parts(spec: KernelSpec) -> tuple[DepthwiseConfig, DepthwiseTraits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, DepthwiseConfig)
    assert isinstance(traits, DepthwiseTraits)
    return config, traits
