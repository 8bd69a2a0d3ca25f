"""Rewrite PyTorch's `scaled_dot_product_attention` as matmuls and a softmax, which one kernel
computes.

PyTorch's own decomposition replaces the weights of rows without keys by zeros, between the softmax
and the product, and scales Q and K apart. Here the scores are scaled, and a row without keys is
multiplied by zero at the end. Source: torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

import math
from typing import Any

from boltgen.errors import ModelImportError
from boltgen.ir.key_masks import HIDDEN

# The bias of a masked key's score: half of FP16's range, so that the sum with a score of the other
# half stays finite in FP16. Beside a score that is not masked its exponential is zero. Lower values
# of a float mask are raised to it.
_MASKED = HIDDEN


def decompositions() -> Any:
    """torch.export's decompositions, but for attention."""
    import torch  # noqa: PLC0415

    table = torch.export.default_decompositions()
    table[torch.ops.aten.scaled_dot_product_attention.default] = _attention
    return table


def _attention(  # noqa: PLR0917  (PyTorch's signature)
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise ModelImportError(
            f"scaled_dot_product_attention drops out weights with dropout_p={dropout_p}: export "
            "the module in eval mode (module.eval())"
        )
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (_repeated(each, groups) for each in (key, value))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        # Each row has the first key at least.
        scores = scores + _lowered(_causal(scores), scores)
    if attn_mask is None:
        return scores.softmax(-1) @ value
    if attn_mask.is_floating_point():
        lowered = attn_mask.clamp(min=_MASKED).to(scores.dtype)
        has_keys = (attn_mask > -math.inf).any(-1, keepdim=True)
    else:
        lowered, has_keys = _lowered(attn_mask, scores), attn_mask.any(-1, keepdim=True)
    result = (scores + lowered).softmax(-1) @ value
    rows = (*has_keys.shape[:-2], result.shape[-2], 1)
    return result * has_keys.to(result.dtype).expand(rows)


def _repeated(x: Any, groups: int) -> Any:
    """Repeat each head of K or V as often as heads of Q read it, one after another."""
    *leading, heads, rows, columns = x.shape
    grown = x.unsqueeze(-3).expand(*leading, heads, groups, rows, columns)
    return grown.reshape(*leading, heads * groups, rows, columns)


def _lowered(is_read: Any, scores: Any) -> Any:
    """Return the bias of a mask that is true for a key that is read."""
    import torch  # noqa: PLC0415

    zero, masked = (scores.new_full((), number) for number in (0.0, _MASKED))
    return torch.where(is_read, zero, masked)


def _causal(scores: Any) -> Any:
    """Return which keys each row reads: its own place and all before."""
    import torch  # noqa: PLC0415

    rows, keys = scores.shape[-2:]
    place = torch.arange(rows, device=scores.device).unsqueeze(1)
    return place >= torch.arange(keys, device=scores.device).unsqueeze(0)
