"""Attention kernels as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.attention.resources import holds_queries
from boltgen.families.chain.traits import ChainTraits
from boltgen.families.heads.code import LayerView, kind_text, layer_views, problem_texts
from boltgen.families.space import Shape
from boltgen.ir.kernel import KernelSpec

HEADERS = ("boltgen/activations.h", "boltgen/attention.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionView:
    """One attention kernel; `tile` is its rows, its keys per step, and the columns of Q."""

    TEMPLATE: ClassVar[str] = "attention.cu.j2"

    symbol: str
    workspace_symbol: str
    scores: LayerView
    output: LayerView
    tile: str
    columns: int
    warps: int
    stages: int
    splits: int
    key_warps: int
    holds_queries: str
    instruction: str
    element_d: str
    alignment_a: int
    element: str
    is_causal: str
    window: int
    has_async_copies: str


def stem(spec: KernelSpec) -> str:
    """Return a name for people with rows, keys and head: `attention_sm80_64x64x64_s2`."""
    config, traits = _parts(spec)
    tile = f"{config.rows}x{config.keys}x{config.columns}"
    split = f"_split{config.splits}" if config.splits > 1 else ""
    warps = f"_k{config.key_warps}" if config.key_warps > 1 else ""
    return f"{kind_text(traits)}_{spec.arch.replace('_', '')}_{tile}_s{config.stages}{split}{warps}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    scores, output = traits.layers
    return {
        **problem_texts(traits),
        "Config": f"{config.rows} rows of Q, {config.keys} keys of a step, Q of {config.depth} "
        f"columns and V of {config.columns}, {config.warps} warps, {config.stages} stages, "
        f"{_sharing(config)}"
        f"instruction {_instruction(spec)}; Q in vectors of {traits.alignment_a}, K of "
        f"{scores.alignment_b}, V of {output.alignment_b}, D of {output.alignment_d}",
        "Arch": spec.arch,
    }


def _sharing(config: AttentionConfig) -> str:
    if config.key_warps > 1:
        return f"{config.key_warps} warps share the keys of their rows, "
    return f"{config.splits} threadblocks share the keys, " if config.splits > 1 else ""


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> AttentionView:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    scores, output = layer_views(traits)
    return AttentionView(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        scores=scores,
        output=output,
        tile=Shape(config.rows, config.keys, config.depth).cutlass,
        columns=config.columns,
        warps=config.warps,
        stages=config.stages,
        splits=config.splits,
        key_warps=config.key_warps,
        holds_queries=str(_holds_queries(spec)).lower(),
        instruction=_instruction(spec).cutlass,
        element=traits.in_dtype.cutlass,
        is_causal="true" if traits.is_causal else "false",
        window=traits.window,
        element_d=traits.out_dtype.cutlass,
        alignment_a=traits.alignment_a,
        has_async_copies="true" if arch_named(spec.arch).has_async_copies else "false",
    )


def _holds_queries(spec: KernelSpec) -> bool:
    config, traits = _parts(spec)
    is_async = arch_named(spec.arch).has_async_copies
    is_async &= all(layer.alignment_b > 1 for layer in traits.layers)
    return holds_queries(config, is_async=is_async)


def _instruction(spec: KernelSpec) -> Shape:
    return Shape(*arch_named(spec.arch).mma_shapes[0])


def _parts(spec: KernelSpec) -> tuple[AttentionConfig, ChainTraits]:
    return spec.config, spec.traits
