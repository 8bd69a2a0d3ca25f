"""Rows of scores without visible keys, whose weights a model makes zero. For both IRs.

    w = softmax(scores + where(seen, 0, -inf));  where(isnan(w), 0, w) V
    -> (softmax(scores + where(seen, 0, HIDDEN)) V) * any(seen)

PyTorch's exporter to ONNX writes attention with a boolean mask so, and where(seen, scores, -inf).
Behind the product the zeros are a factor of its rows, and the rest is attention. The factor must
find numbers there, so a row without keys has any: -inf becomes `HIDDEN`, whose exponential is zero
beside a key that is seen. Nothing else reads the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from boltgen.graph.graph import Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.ir.key_masks import HIDDEN
from boltgen.passes.precision.purpose import infinities
from boltgen.passes.regions.anchor import MATMUL

_SOFTMAX, _CHOICE, _NAN = "nn.softmax", "where", "isnan"


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A choice that returns `weights`, but zero in rows where the booleans `seen` have no key.

    `choice` selects -inf for the keys that a row does not see: the keys whose boolean is `hidden`.
    """

    weights: int
    seen: int
    choice: int
    hidden: bool


def empty_rows_behind_products(graph: Graph) -> Graph:
    """Return `graph` with rows without keys zeroed after the matmul of their weights."""
    infinite = infinities(graph)
    guarded = {index: _guarded(graph, index, infinite) for index in range(len(graph))}
    found = {index: each for index, each in guarded.items() if each is not None}
    if not found:
        return graph
    products = {graph.consumers[index][0]: index for index in found}
    choices = {each.choice: each for each in found.values()}
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in found:
            names[index] = names[found[index].weights]
            continue
        written = renamed(expr, names)
        if index in choices:
            written = _finite(builder, written, choices[index])
        names[index] = builder.add(written)
        if index in products:
            names[index] = _kept(builder, names[index], found[products[index]], names)
    return builder.graph(mapped(graph.results, names))


def _finite(builder: GraphBuilder, choice: Expr, guarded: _Guarded) -> Expr:
    """Replace -inf by a finite number in the choice."""
    condition, *numbers = choice.args
    numbers[0 if guarded.hidden else 1] = builder.constant(np.array(HIDDEN, choice.dtype))
    return replace(choice, args=(condition, *numbers))


def _kept(builder: GraphBuilder, product: int, guarded: _Guarded, names: dict[int, int]) -> int:
    """Multiply a matmul's rows by 1 if any key is visible, and else by 0."""
    seen = names[guarded.seen]
    if guarded.hidden:
        seen = builder.elementwise("logical_not", seen)
    numbers = builder.astype(seen, builder.dtype(product))
    shape = (*builder.shape(seen)[:-1], 1)
    any_ = builder.operator(
        "max", [numbers], shape, builder.dtype(numbers), axis=(len(shape) - 1,), keepdims=True
    )
    rows = (*shape[:-2], builder.shape(product)[-2], 1)
    if rows != shape:
        any_ = builder.operator("broadcast_to", [any_], rows, builder.dtype(any_))
    return builder.elementwise("multiply", product, any_)


def _guarded(graph: Graph, index: int, infinite: frozenset[int]) -> _Guarded | None:
    """Match a choice of zero for NaN weights, if one matmul multiplies it and all is known.

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
    if not _has_readers(graph, weights, condition, index):
        return None
    if not _has_readers(graph, condition, index):
        return None
    if softmax.attrs["axis"] not in {-1, len(expr.static_shape) - 1}:
        return None
    readers = graph.consumers[index]
    if len(readers) != 1 or graph[readers[0]].op != MATMUL or not graph[readers[0]].is_static:
        return None
    if graph[readers[0]].args[0] != index or graph[readers[0]].args[1] == index:
        return None
    (scores,) = softmax.args
    choice = _masked(graph, scores, weights, infinite)
    if choice is None:
        return None
    seen = graph[choice].args[0]
    rank = len(expr.static_shape)
    if not graph[seen].is_static or len(graph[seen].static_shape) != rank:
        return None
    return _Guarded(weights, seen, choice, graph[graph[choice].args[1]].scalar == -inf)


def _has_readers(graph: Graph, index: int, *readers: int) -> bool:
    """Return whether only these operators read a value."""
    return index not in graph.escaping and set(graph.consumers[index]) == set(readers)


def _masked(graph: Graph, scores: int, reader: int, infinite: frozenset[int]) -> int | None:
    """Match the choice of -inf for keys that a row does not see, in a mask or in the scores.

    Nothing else hides a key with -inf.
    """
    if not _has_readers(graph, scores, reader):
        return None
    if graph[scores].op == _CHOICE:
        _, *numbers = graph[scores].args
        others = [each for each in numbers if graph[each].scalar != -inf]
        is_mask = len(others) == 1 and others[0] not in infinite
        return scores if is_mask else None
    if graph[scores].op != "add":
        return None
    for mask, other in (graph[scores].args, graph[scores].args[::-1]):
        if graph[mask].op != _CHOICE or graph[graph[mask].args[0]].shape != graph[mask].shape:
            continue
        scalars = {graph[each].scalar for each in graph[mask].args[1:]}
        if scalars == {0.0, -inf} and other not in infinite and _has_readers(graph, mask, scores):
            return mask
    return None
