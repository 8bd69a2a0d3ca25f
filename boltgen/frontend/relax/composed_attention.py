"""TVM's operators of attention as the products and the softmax that they are made of.

Their kernel is one. Source: relax.op.nn.attention; query, key and value are (batch, sequence,
heads, head), the bias is added to the scores.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir

from boltgen.frontend.graph import GraphBuilder
from boltgen.ir.extent import Dim

OPERATORS = frozenset({"nn.attention", "nn.attention_bias"})


def composed_attention(builder: GraphBuilder, call: ir.Call, args: tuple[int, ...]) -> int | None:
    """The result of an attention of `args`; None where it has a window, or sizes are not known."""
    attrs = call.attrs
    if attrs.window_size is not None or not all(builder[arg].is_static for arg in args):
        return None
    query, key, value, *bias = args
    dtype, (_, rows, _, head) = builder.dtype(query), builder.shape(query)
    mask = _causal(attrs.causal_mask, rows, builder.shape(key)[1])
    if isinstance(head, Dim) or (mask is None and attrs.causal_mask is not None):
        return None
    q, v = (builder.permute_dims(each, (0, 2, 1, 3)) for each in (query, value))
    k = builder.permute_dims(key, (0, 2, 3, 1))
    factor = 1.0 / math.sqrt(head) if attrs.scale is None else float(attrs.scale)
    scale = builder.constant(np.array(factor, np.float32))
    scores = builder.elementwise("multiply", builder.matmul(q, k, "float32"), scale)
    added = [builder.astype(each, "float32") for each in bias]
    if mask is not None:
        added.append(builder.constant(mask))
    for each in added:
        scores = builder.elementwise("add", scores, each)
    weights = builder.operator("nn.softmax", (scores,), builder.shape(scores), "float32", axis=-1)
    mixed = builder.matmul(builder.astype(weights, dtype), v, dtype)
    return builder.permute_dims(mixed, (0, 2, 1, 3))


def _causal(kind: str | None, rows: int, keys: int) -> np.ndarray[Any, Any] | None:
    """What a causal mask adds to scores; None without one, or where its sizes are open."""
    offsets = {"TopLeft": 0, "BottomRight": abs(rows - keys)}
    if kind not in offsets or isinstance(rows, Dim) or isinstance(keys, Dim):
        return None
    mask = np.full((rows, keys), -np.inf, np.float32)
    mask[np.tri(rows, keys, offsets[kind], bool)] = 0.0
    return mask
