"""sm_90a's attention kernels as text: the view of their template, and descriptions for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from boltgen.arch import arch_named
from boltgen.families.attention_sm90.config import AttentionSm90Config
from boltgen.families.attention_sm90.legality import stages
from boltgen.families.chain.traits import ChainTraits
from boltgen.families.heads.code import LayerView, kind_text, layer_views, problem_texts
from boltgen.families.space import Shape
from boltgen.ir.kernel import KernelSpec

HEADERS = ("boltgen/activations.h", "boltgen/attention_sm90.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSm90View:
    """One attention kernel of sm_90a; `tile` is its rows, keys per step, and columns of Q."""

    TEMPLATE: ClassVar[str] = "attention_sm90.cu.j2"

    symbol: str
    workspace_symbol: str
    scores: LayerView
    output: LayerView
    tile: str
    columns: int
    stages: int
    element_d: str
    element: str
    is_causal: str
    window: int


def stem(spec: KernelSpec) -> str:
    """Return a name for people with rows, keys and head: `attention_sm90a_128x128x64`."""
    config, traits = _parts(spec)
    tile = f"{config.rows}x{config.keys}x{config.columns}"
    return f"{kind_text(traits)}_{spec.arch.replace('_', '')}_{tile}"


def describe(spec: KernelSpec) -> dict[str, str]:
    """Return labelled texts on what the kernel computes and how, for `boltgen inspect`."""
    config, traits = _parts(spec)
    count = stages(config, traits.in_dtype, arch_named(spec.arch))
    return {
        **problem_texts(traits),
        "Config": f"{config.rows} rows of Q, {config.keys} keys of a step, Q of {config.depth} "
        f"columns and V of {config.columns}, {config.warpgroups} warpgroups multiply by wgmma, one "
        f"loads by TMA, {count} stages, persistent",
        "Alignment": f"16 bytes of Q, K and V, which TMA needs; D in vectors of "
        f"{traits.layers[-1].alignment_d}",
        "Arch": spec.arch,
        "CUTLASS": "CuTe",
    }


def view(spec: KernelSpec, symbol: str, workspace_symbol: str) -> AttentionSm90View:
    """Return the variables of the kernel's template."""
    config, traits = _parts(spec)
    scores, output = layer_views(traits)
    return AttentionSm90View(
        symbol=symbol,
        workspace_symbol=workspace_symbol,
        scores=scores,
        output=output,
        tile=Shape(config.rows, config.keys, config.depth).cutlass,
        columns=config.columns,
        stages=stages(config, traits.in_dtype, arch_named(spec.arch)),
        element=traits.in_dtype.cutlass,
        element_d=traits.out_dtype.cutlass,
        is_causal="true" if traits.is_causal else "false",
        window=traits.window,
    )


def _parts(spec: KernelSpec) -> tuple[AttentionSm90Config, ChainTraits]:
    config, traits = spec.config, spec.traits
    assert isinstance(config, AttentionSm90Config)
    assert isinstance(traits, ChainTraits)
    return config, traits
