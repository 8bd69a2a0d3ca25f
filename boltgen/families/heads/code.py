"""Views and texts that are common to attention kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boltgen.codegen import cpp_names
from boltgen.codegen.cpp_text import float_literal
from boltgen.codegen.epilogue import EpilogueCode, emit_epilogue
from boltgen.families.chain.traits import ChainTraits, LayerTraits
from boltgen.families.heads.scale import scale_of
from boltgen.ir.key_masks import key_masks


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """One of the two matmuls; `scale` is a literal if its graph only multiplies by this number."""

    epilogue: EpilogueCode
    scale: str
    layout_b: str
    alignment_b: int
    alignment_d: int


def problem_texts(traits: ChainTraits) -> dict[str, str]:
    """Describe the computation of an attention kernel of any family."""
    scores, output = traits.layers
    layouts = f"K {scores.b_layout.value}-major as B, V {output.b_layout.value}-major"
    softmax = "causal softmax" if traits.is_causal else "softmax"
    softmax += f" of {traits.window} keys" if traits.window else ""
    return {
        "Problem": f"{softmax}(Q K) V, Q: (M, depth), D: (M, columns) row-major, {layouts}; "
        f"{traits.in_dtype.value} to {traits.out_dtype.value}, float32 between",
        "Epilogue": f"scores = {scores.epilogue.describe()}; D = {output.epilogue.describe()}",
    }


def kind_text(traits: ChainTraits) -> str:
    """Return the beginning of a kernel's symbol."""
    if traits.window:
        return f"local{traits.window}_attention"
    return "causal_attention" if traits.is_causal else "attention"


def layer_views(traits: ChainTraits) -> tuple[LayerView, LayerView]:
    """Return the texts for the matmul of scores, and for the matmul of values."""
    scores, output = traits.layers
    return _layer_view(scores, key_masks(scores.epilogue)), _layer_view(output, {})


def _layer_view(layer: LayerTraits, masks: Mapping[int, float]) -> LayerView:
    scale = scale_of(layer.epilogue)
    return LayerView(
        epilogue=emit_epilogue(layer.epilogue, masks),
        scale="" if scale is None else float_literal(scale),
        layout_b=cpp_names.LAYOUT[layer.b_layout],
        alignment_b=layer.alignment_b,
        alignment_d=layer.alignment_d,
    )
