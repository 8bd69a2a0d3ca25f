"""Rows of scores without keys, whose weights a model makes zero. For both IRs.

    w = softmax(scores + where(seen, 0, -inf));  where(isnan(w), 0, w) V
    -> (softmax(scores + where(seen, 0, -inf)) V) * any(seen)

PyTorch's exporter to ONNX writes attention with a boolean mask so. Behind the product the zeros are
a factor of its rows, and the rest is attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from boltgen.frontend.graph import Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.frontend.passes.anchor import MATMUL

_SOFTMAX, _CHOICE, _NAN = "nn.softmax", "where", "isnan"


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A choice whose value is `weights`, but zero in rows that the truths `seen` leave empty."""

    weights: int
    seen: int


def empty_rows_behind_products(graph: Graph) -> Graph:
    """`graph` with the zeros of rows without keys behind the products of their weights."""
    found = {index: each for index in range(len(graph)) if (each := _guarded(graph, index))}
    if not found:
        return graph
    products = {graph.consumers[index][0]: index for index in found}
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in found:
            names[index] = names[found[index].weights]
            continue
        names[index] = builder.add(renamed(expr, names))
        if index in products:
            seen = names[found[products[index]].seen]
            names[index] = _kept(builder, names[index], seen)
    return builder.graph(mapped(graph.results, names))


def _kept(builder: GraphBuilder, product: int, seen: int) -> int:
    """A product, whose rows are multiplied by 1 where anything is seen, and else by 0."""
    numbers = builder.astype(seen, builder.dtype(product))
    shape = (*builder.shape(seen)[:-1], 1)
    any_ = builder.operator(
        "max", [numbers], shape, builder.dtype(numbers), axis=(len(shape) - 1,), keepdims=True
    )
    rows = (*shape[:-2], builder.shape(product)[-2], 1)
    if rows != shape:
        any_ = builder.operator("broadcast_to", [any_], rows, builder.dtype(any_))
    return builder.elementwise("multiply", product, any_)


def _guarded(graph: Graph, index: int) -> _Guarded | None:
    """What a choice of zero for NaN weights is, where one product multiplies it, and all is known.

    The scores themselves are taken for numbers: NaN among them would be zero weights, too.
    """
    expr = graph[index]
    if expr.op != _CHOICE or not expr.is_static or index in graph.escaping:
        return None
    condition, zero, weights = expr.args
    is_guard = graph[condition].op == _NAN and graph[condition].args == (weights,)
    softmax = graph[weights]
    if not is_guard or graph[zero].scalar != 0.0 or softmax.op != _SOFTMAX:
        return None
    if softmax.attrs["axis"] not in {-1, len(expr.static_shape) - 1}:
        return None
    readers = graph.consumers[index]
    if len(readers) != 1 or graph[readers[0]].op != MATMUL or not graph[readers[0]].is_static:
        return None
    if graph[readers[0]].args[0] != index or graph[readers[0]].args[1] == index:
        return None
    seen = _seen(graph, graph[softmax.args[0]])
    rank = len(expr.static_shape)
    if seen is None or not graph[seen].is_static or len(graph[seen].static_shape) != rank:
        return None
    return _Guarded(weights, seen)


def _seen(graph: Graph, scores: Expr) -> int | None:
    """The truths of the mask that is added to scores, if it is one of 0 and -inf."""
    if scores.op != "add":
        return None
    for arg in scores.args:
        mask = graph[arg]
        if mask.op != _CHOICE or graph[mask.args[0]].shape != mask.shape:
            continue
        if tuple(graph[each].scalar for each in mask.args[1:]) == (0.0, -inf):
            return mask.args[0]
    return None
