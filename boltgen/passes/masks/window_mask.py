"""Turn masks of the windows of each image into masks of all windows. For both IRs.

    scores (B W, H, M, N) -> reshape (B, W, H, M, N) -> + mask (1, W, 1, M, N) -> reshape, as before
    scores + masks, (B W, 1, M, N)

A kernel of attention reads a mask for each sequence, or for each head. A shifted window has the
mask of its position in the image; a constant repeats it for each image.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from boltgen.graph.graph import CONSTANT, Array, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.extent import Dim

_VIEW = "reshape"
_COMBINED = frozenset({"add", "subtract", "multiply", "minimum", "maximum"})
# A larger constant stays as it is, because libraries carry their constants. It is enough for the
# masks of 100 images of 64 windows of 49 tokens, in FP16.
_MOST_BYTES = 32 << 20


def masks_of_all_windows(graph: Graph) -> Graph:
    """Return `graph` with constants combined with scores whose images and windows are one
    dimension.
    """
    if not any(expr.op == _VIEW and _splits(graph[expr.args[0]], expr) for expr in graph.exprs):
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    joined: dict[int, bool] = {}
    for index, expr in enumerate(graph.exprs):
        made = _combined(graph, index, builder, names, joined)
        names[index] = builder.add(renamed(expr, names)) if made is None else made
    return builder.graph(mapped(graph.results, names))


def _splits(whole: Expr, view: Expr) -> bool:
    """Return whether a view of `whole` splits the first of at least three dimensions in two."""
    if not (_is_known(whole) and _is_known(view)):
        return False
    before, after = whole.static_shape, view.static_shape
    return len(before) > 2 and before[1:] == after[2:] and before[0] == prod(after[:2])


def _is_known(expr: Expr) -> bool:
    return expr.is_static and not any(isinstance(extent, Dim) for extent in expr.static_shape)


def _combined(
    graph: Graph,
    index: int,
    builder: GraphBuilder,
    names: dict[int, int],
    joined: dict[int, bool],
) -> int | None:
    """Apply an operator on split scores and a constant before the split; None for others.

    A view behind it that takes the split back is no operator. `joined` has what is known of scores.
    """
    expr = graph[index]
    if expr.op == _VIEW:
        view = builder[names[expr.args[0]]]
        is_back = view.op == _VIEW and builder[view.args[0]].shape == expr.shape
        return view.args[0] if is_back and _splits(builder[view.args[0]], view) else None
    if expr.op not in _COMBINED or not _is_known(expr):
        return None
    if not answer(partial(_is_joined, graph), index, joined):
        return None
    for place, arg in enumerate(expr.args):
        view, mask = builder[names[arg]], graph[expr.args[1 - place]]
        is_split = view.op == _VIEW and _splits(builder[view.args[0]], view)
        if not is_split or view.shape != expr.shape or mask.op != CONSTANT or mask.array is None:
            continue
        repeated = _repeated(mask.array, expr.static_shape)
        if repeated is None:
            continue
        (scores,) = view.args
        args = (scores, builder.constant(repeated))
        shape = builder.shape(scores)
        made = replace(expr, args=args if place == 0 else args[::-1], shape=shape)
        return builder.reshape(builder.add(made), expr.static_shape)
    return None


def _is_joined(graph: Graph, index: int) -> Steps[int, bool]:
    """Return whether split scores are read only until a view undoes the split."""
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


def _repeated(array: Array, shape: tuple[int, ...]) -> Array | None:
    """A constant that is combined with a tensor of `shape`, whose first two dimensions are one.

    Return None if it is too large for a library.
    """
    whole: Array = array.reshape((*(1,) * (len(shape) - array.ndim), *array.shape))
    if whole.shape[0] == whole.shape[1] == 1:
        first: Array = whole[0]
        return first
    made = np.broadcast_to(whole, (*shape[:2], *whole.shape[2:]))
    if made.nbytes > _MOST_BYTES:
        return None
    return np.ascontiguousarray(made).reshape(prod(shape[:2]), *made.shape[2:])
