"""Masks of keys that attention's kernel may skip: padding, as lengths or a tokenizer's mask say.

    softmax(scores + where(key < length, 0, lowest)), the mask: (B, 1, 1, keys)

All rows of a sequence share such a mask, so its kernel finds the first and the last key that is
seen before it begins. That a number of at most `HIDDEN` hides is what `passes.masks.causal` takes
for granted too: exponentials of such differences are 0. Rows that see no key at all keep theirs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boltgen.graph.graph import Expr, Graph
from boltgen.ir.elementwise import Load, LoadKind
from boltgen.passes.masks.causal import joins, loads_of
from boltgen.passes.regions.products import Product

# A bias of positions within this bound, either way, hides no key, and shows no hidden key.
_MOST_BIAS = 1024.0


def hiding(graph: Graph, scores: Product) -> Product:
    """Mark the key mask of `scores` as one that hides keys.

    A mask of rows and keys beside it might hide the keys that it shows, unless its numbers are
    known. Then `scores` stay as they are.
    """
    epilogue = scores.tail.epilogue
    loads = zip(loads_of(epilogue), epilogue.loads, scores.tail.operands, strict=True)
    masks = [
        index
        for index, load, operand in loads
        if load.kind is not LoadKind.COLUMN and not _is_bias(graph[operand.expr])
    ]
    if len(masks) != 1 or epilogue.stores:
        return scores
    (index,) = masks
    mask = epilogue.nodes[index]
    assert isinstance(mask, Load)
    if mask.kind is not LoadKind.ROW or joins(epilogue, index) is None:
        return scores
    nodes = list(epilogue.nodes)
    nodes[index] = replace(mask, hides=True)
    hidden = replace(epilogue, nodes=tuple(nodes))
    return replace(scores, tail=replace(scores.tail, epilogue=hidden))


def _is_bias(expr: Expr) -> bool:
    return expr.array is not None and bool((np.abs(expr.array) <= _MOST_BIAS).all())
