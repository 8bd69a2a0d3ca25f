"""Decompose TVM's operators of attention into matmuls and a softmax.

Their kernel is one. Source: relax.op.nn.attention; query, key and value are (batch, sequence,
heads, head), the bias is added to the scores. A causal row sees so many keys as its window; source:
tvm.contrib.cutlass, window_size_left.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir

from boltgen.errors import ModelImportError
from boltgen.graph.graph import GraphBuilder
from boltgen.ir.extent import Dim

_VARIABLE = "nn.attention_var_len"
OPERATORS = frozenset({"nn.attention", "nn.attention_bias", _VARIABLE})


def composed_attention(builder: GraphBuilder, call: ir.Call, args: tuple[int, ...]) -> int | None:
    """Return the result of an attention of `args`; None if sizes are unknown, and TVM computes it.

    Raises:
        ModelImportError: TVM does not compute it, and no kernel does.
    """
    if call.op.name == f"relax.{_VARIABLE}":
        raise ModelImportError(
            f"relax.{_VARIABLE}: neither TVM nor boltgen computes attention of concatenated "
            "sequences; pad them to a batch, with a bias that hides the padding"
        )
    attrs = call.attrs
    made = _composed(builder, attrs, args)
    if made is None and attrs.window_size is not None:
        raise ModelImportError(
            f"{call.op.name} has a window of {attrs.window_size} keys: TVM computes none, and "
            "boltgen one of at least 1 key, of known sizes, with a causal mask; give window_size a "
            "causal_mask, and its input known rows, or a bias instead of both"
        )
    return made


def _composed(builder: GraphBuilder, attrs: Any, args: tuple[int, ...]) -> int | None:
    if not all(builder[arg].is_static for arg in args):
        return None
    query, key, value, *bias = args
    dtype, (_, rows, _, head) = builder.dtype(query), builder.shape(query)
    window = None if attrs.window_size is None else int(attrs.window_size)
    mask = _causal(attrs.causal_mask, rows, builder.shape(key)[1], window)
    is_masked = attrs.causal_mask is not None or window is not None
    if isinstance(head, Dim) or (mask is None and is_masked):
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


def _causal(
    kind: str | None, rows: int, keys: int, window: int | None
) -> np.ndarray[Any, Any] | None:
    """Return the bias of a causal mask; None without a mask, or if its sizes are dynamic.

    A `window` keeps the last keys up to the diagonal of each row; None if it keeps no key.
    """
    offsets = {"TopLeft": 0, "BottomRight": abs(rows - keys)}
    if kind not in offsets or isinstance(rows, Dim) or isinstance(keys, Dim):
        return None
    if window is not None and window < 1:
        return None
    mask = np.full((rows, keys), -np.inf, np.float32)
    seen = np.tri(rows, keys, offsets[kind], bool)
    if window is not None:
        seen &= ~np.tri(rows, keys, offsets[kind] - window, bool)
    mask[seen] = 0.0
    return mask
