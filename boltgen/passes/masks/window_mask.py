"""Turn masks of the windows of each image into masks of all windows. For both IRs.

    scores (B W, H, M, N) -> reshape (B, W, H, M, N) -> + mask (1, W, 1, M, N) -> reshape, as before
    scores + masks, (B W, 1, M, N)

A kernel of attention reads a mask for each sequence, or for each head. A shifted window has the
mask of its position in the image; a constant repeats it for each image.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from boltgen.graph.facts import recursive_fact
from boltgen.graph.graph import Array, Graph, GraphBuilder
from boltgen.graph.patterns import Match, Reader, Var, op
from boltgen.graph.recursion import Steps
from boltgen.graph.rules import Rule, rewrite
from boltgen.ir.extent import has_dynamic

_VIEW = "reshape"
_COMBINED = frozenset({"add", "subtract", "multiply", "minimum", "maximum"})
# A larger constant stays as it is, because libraries carry their constants. It is enough for the
# masks of 100 images of 64 windows of 49 tokens, in FP16.
_MOST_BYTES = 32 << 20


def masks_of_all_windows(graph: Graph) -> Graph:
    """Return `graph` with constants combined with scores whose images and windows are one
    dimension.
    """
    return rewrite(graph, _RULES)


def _splits(found: Match) -> bool:
    """Return whether a view splits the first of at least three dimensions in two."""
    before, after = found.expr("scores").static_shape, found.expr("split").static_shape
    is_known = not has_dynamic((*before, *after))
    return is_known and len(before) > 2 and before == (prod(after[:2]), *after[2:])


def _mask(found: Match) -> Array | None:
    """Return the mask of all windows; None if it is no constant, or too large for a library."""
    masks = [found.values[arg].array for arg in found.expr().args if arg != found["split"]]
    return _repeated(masks[0], found.expr().static_shape) if masks else None


def _obstacle(found: Match) -> str | None:
    is_whole = found.shape("split") == found.shape()
    if not is_whole or not _splits(found) or not _is_joined(found.source, found.origin):
        return ""
    return "the mask is no constant, or is too large" if _mask(found) is None else None


def _combined(found: Match, builder: GraphBuilder) -> int:
    mask, expr = _mask(found), found.expr()
    assert mask is not None  # or the rule would not have fired
    at = builder.constant(mask)
    args = tuple(found["scores"] if arg == found["split"] else at for arg in expr.args)
    made = builder.add(replace(expr, args=args, shape=builder.shape(found["scores"])))
    return builder.reshape(made, expr.static_shape)


@recursive_fact
def _is_joined(graph: Graph, index: int) -> Steps[int, bool]:
    """Return whether split scores are read only until a view undoes the split."""
    if not graph[index].is_static:
        return False
    shape = graph[index].static_shape
    joined = (prod(shape[:2]), *shape[2:])
    readers = graph.consumers[index]
    if not readers or index in graph.escaping:
        return False
    for each in readers:
        if graph[each].op == _VIEW:
            is_back = graph[each].shape == joined
        else:
            is_back = graph[each].op in _COMBINED and (yield each)
        if not is_back:
            return False
    return True


def _repeated(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Return a constant for a tensor of `shape` whose first two dimensions are one; None if it is
    too large for a library.
    """
    if array is None:
        return None
    whole: Array = array.reshape((*(1,) * (len(shape) - array.ndim), *array.shape))
    if whole.shape[0] == whole.shape[1] == 1:
        first: Array = whole[0]
        return first
    made = np.broadcast_to(whole, (*shape[:2], *whole.shape[2:]))
    if made.nbytes > _MOST_BYTES:
        return None
    return np.ascontiguousarray(made).reshape(prod(shape[:2]), *made.shape[2:])


_SPLIT = op(_VIEW, Var("scores"), name="split")
_RULES = (
    Rule(
        name="repeat a mask for all windows",
        pattern=Reader(_COMBINED, _SPLIT),
        write=_combined,
        unless=_obstacle,
    ),
    Rule(
        name="undo a split",
        pattern=op(_VIEW, _SPLIT),
        write=lambda found, _: found["scores"],
        unless=lambda found: (
            None if _splits(found) and found.shape() == found.shape("scores") else ""
        ),
    ),
)
