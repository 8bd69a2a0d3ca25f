"""Recognise causal masks. A causal kernel loads no mask, and needs half the time.

    softmax(scores + where(row >= key, 0, lowest))    ->    causal softmax(scores)

A sliding window of W keys also hides the keys W or more before a row's own.

The mask is constant, or computed from positions in the model. A computed mask must be square, so
that equal positions meet on the diagonal. In a constant mask the last row and the last key meet,
and there may be more keys, as in a step with a cache. A number hides keys if it is at most
PyTorch's: half of FP16's range below visible scores. Exponentials of such differences are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from boltgen.graph.attributes import Diagonal
from boltgen.graph.facts import AND, NOT, behind, counts
from boltgen.graph.graph import CONSTANT, CORNER, Array, Expr, Graph
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Unary,
    operands,
)
from boltgen.ir.extent import Dim
from boltgen.ir.functions import UnaryOp
from boltgen.ir.key_masks import HIDDEN
from boltgen.passes.regions.activations import renumbered
from boltgen.passes.regions.products import Product

# The operator by which a mask joins the scores, and the least number that leaves them as they are:
# any, for a sum.
_NEUTRAL = {BinaryOp.ADD: 0.0, BinaryOp.MINIMUM: 65504.0}


def causal(graph: Graph, pair: tuple[Product, Product]) -> tuple[Product, Product]:
    """Return `pair`, the matmuls of scores and values, without a mask that hides keys after a row's
    own.
    """
    scores, values = pair
    assert values.prologue is not None
    mask = _mask(graph, scores)
    if mask is None:
        return pair
    found, window = mask
    tail = scores.tail
    loaded = list(tail.operands)
    hiding = loaded.pop(loads_of(tail.epilogue).index(found))
    shorter = replace(tail, epilogue=_without(tail.epilogue, found), operands=tuple(loaded))
    return (
        replace(scores, tail=shorter),
        replace(values, prologue=replace(values.prologue, causal=hiding.expr, window=window)),
    )


def loads_of(epilogue: ElementwiseGraph) -> list[int]:
    """Return the nodes of an epilogue that load."""
    return [index for index, node in enumerate(epilogue.nodes) if isinstance(node, Load)]


def _mask(graph: Graph, scores: Product) -> tuple[int, int] | None:
    """Return the node of the scores' epilogue that loads a causal mask, if one does, and its
    window.
    """
    epilogue = scores.tail.epilogue
    rows, keys = scores.anchor.problem.matrix
    is_known = not (isinstance(rows, Dim) or isinstance(keys, Dim))
    if epilogue.stores or not (rows == keys or (is_known and rows < keys)):
        return None
    loads = zip(loads_of(epilogue), epilogue.loads, scores.tail.operands, strict=True)
    for index, load, operand in loads:
        op = joins(epilogue, index)
        shape = graph[operand.expr].static_shape
        is_one = shape[-2:] == (rows, keys) and all(extent == 1 for extent in shape[:-2])
        if load.kind is LoadKind.TENSOR and op is not None and is_one:
            window = _window(graph, operand.expr, _NEUTRAL[op])
            if window is not None:
                return index, window
    return None


def joins(epilogue: ElementwiseGraph, load: int) -> BinaryOp | None:
    """Return how a mask joins the scores; None if later operators could show hidden keys."""
    nodes = epilogue.nodes
    at, joined = load, None
    while at + 1 < len(nodes) or joined is None:
        readers = [i for i, each in enumerate(nodes) if at in operands(each)]
        if len(readers) != 1:
            return None
        reader = nodes[readers[0]]
        if _keeps(reader):
            at = readers[0]
            continue
        if not isinstance(reader, Binary) or reader.op not in _NEUTRAL or reader.lhs == reader.rhs:
            return None
        # Other masks join what is hidden, and hide more.
        other = nodes[reader.lhs if reader.rhs == at else reader.rhs]
        if joined and not isinstance(other, Load):
            return None
        joined, at = joined or reader.op, readers[0]
    return joined


def _keeps(node: Node) -> bool:
    """Return whether hidden keys stay hidden, and visible keys stay visible."""
    if not isinstance(node, Unary) or node.op is not UnaryOp.CLIP:
        return isinstance(node, Cast)
    low, high = node.params
    return low <= HIDDEN and high >= _NEUTRAL[BinaryOp.MINIMUM]


def _without(epilogue: ElementwiseGraph, mask: int) -> ElementwiseGraph:
    """Return `epilogue` without the mask that node `mask` loads, and without its operator."""
    names: dict[int, int] = {}
    nodes: list[Node] = []
    for index, node in enumerate(epilogue.nodes):
        if index == mask:
            continue
        if isinstance(node, Binary) and mask in {node.lhs, node.rhs}:
            names[index] = names[node.rhs if node.lhs == mask else node.lhs]
            continue
        names[index] = len(nodes)
        nodes.append(renumbered(node, names))
    return ElementwiseGraph(tuple(nodes))


def _window(graph: Graph, index: int, neutral: float) -> int | None:
    """Return how many keys up to its own a row of a (rows, keys) mask sees, 0 for all; its numbers
    are `neutral` there, and hide elsewhere. Return None for any other tensor.
    """
    expr = graph[behind(graph, index, _AS_NUMBERS)]
    if expr.op == CONSTANT:
        return None if expr.array is None else _window_of_numbers(expr.array, neutral)
    if expr.op == "triu" and expr.attrs == Diagonal(1) and _is_square(expr):
        # Zeros up to the diagonal, and one number behind it.
        return 0 if neutral == 0.0 and _is_hiding(graph, expr.args[0]) else None
    if expr.op != "where":
        return None
    truths, *choices = expr.args
    seen = _seen(graph, truths)
    if seen is None:
        return None
    shown, hidden = choices if seen.holds else reversed(choices)
    number = graph[shown].scalar
    is_neutral = number is not None and (number == 0.0 if neutral == 0.0 else number >= neutral)
    return seen.window if is_neutral and _is_hiding(graph, hidden) else None


def _is_square(expr: Expr) -> bool:
    return len(expr.static_shape) > 1 and expr.static_shape[-1] == expr.static_shape[-2]


def _is_hiding(graph: Graph, index: int) -> bool:
    """Whether a tensor is one number that hides."""
    expr = graph[behind(graph, index, {"broadcast_to"})]
    number = expr.scalar
    if number is None and expr.array is not None and expr.array.size:
        number = float(expr.array.max())
    return number is not None and number <= HIDDEN


def _window_of_numbers(mask: Array, neutral: float) -> int | None:
    numbers = mask.reshape(mask.shape[-2:]).astype(np.float64)
    shown = numbers == 0.0 if neutral == 0.0 else numbers >= neutral
    window = _window_of_truths(shown)
    return window if window is not None and (numbers[~shown] <= HIDDEN).all() else None


def _window_of_truths(shown: Array) -> int | None:
    """Return how many keys up to its own each row sees; 0 for all, None for other patterns."""
    rows, keys = shown.shape
    ahead, window = keys - rows, int(shown[-1].sum())
    seen = np.tri(rows, keys, ahead, bool) & ~np.tri(rows, keys, ahead - window, bool)
    if window == 0 or not (shown == seen).all():
        return None
    return window if window < keys else 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A boolean tensor that is `holds` for the `window` keys up to a row's own, 0 for all, and
    nowhere else.
    """

    holds: bool
    window: int = 0


def _seen(graph: Graph, index: int, *, joins: bool = True) -> _Seen | None:
    """Return the keys that booleans show, and if it `joins`, the keys that `_both` joins too."""
    holds = True
    while True:
        index = behind(graph, index, _AS_TRUTHS)
        if graph[index].op not in NOT or graph[index].dtype != "bool":
            break
        holds, index = not holds, graph[index].args[0]
    seen = _both(graph, *graph[index].args) if joins and _is_and(graph[index]) else None
    seen = seen or _seen_alone(graph, index)
    return None if seen is None else replace(seen, holds=seen.holds == holds)


def _is_and(expr: Expr) -> bool:
    return expr.op in AND and expr.dtype == "bool"


def _seen_alone(graph: Graph, index: int) -> _Seen | None:
    expr = graph[index]
    if expr.op == CONSTANT and expr.array is not None and len(expr.array.shape) > 1:
        if expr.dtype != "bool" or expr.array.size != prod(expr.array.shape[-2:]):
            return None
        known = expr.array.reshape(expr.array.shape[-2:])
        for holds in (True, False):
            window = _window_of_truths(known == holds)
            if window is not None:
                return _Seen(holds, window)
        return None
    if expr.op not in _COMPARISONS or not _is_square(expr):
        return None
    lhs, rhs = (_place(graph, arg) for arg in expr.args)
    found = _COMPARISONS[expr.op].get((lhs, rhs))
    return None if found is None else _Seen(found)


def _both(graph: Graph, *args: int) -> _Seen | None:
    """Combine two tests: up to the diagonal, and less than a window before it."""
    for diagonal, reach in (args, args[::-1]):
        seen = _seen(graph, diagonal, joins=False)
        window = _reach(graph, reach)
        if seen == _Seen(holds=True) and window is not None:
            return _Seen(holds=True, window=window)
    return None


def _reach(graph: Graph, index: int) -> int | None:
    """Return W if a boolean tensor is key > row - W."""
    expr = graph[behind(graph, index, {"reshape", "broadcast_to"})]
    if expr.op not in {"greater", "less"}:
        return None
    key, row = expr.args if expr.op == "greater" else reversed(expr.args)
    if graph[row].op != "subtract" or _place(graph, key) != "keys":
        return None
    place, distance = graph[row].args
    window = graph[distance].scalar
    is_whole = window is not None and window >= 1 and window == int(window)
    return int(window) if window and is_whole and _place(graph, place) == "rows" else None


_AS_NUMBERS = frozenset({"astype", "reshape", "broadcast_to", CORNER})
_AS_TRUTHS = frozenset({"reshape", "broadcast_to", CORNER})
# By which of the two operands has places of rows: whether a comparison holds up to the diagonal
# (True), or behind it (False).
_COMPARISONS = {
    "greater_equal": {("rows", "keys"): True},
    "less_equal": {("keys", "rows"): True},
    "greater": {("keys", "rows"): False},
    "less": {("rows", "keys"): False},
}


def _place(graph: Graph, index: int) -> str:
    """Return "rows" for positions of rows in a column, "keys" for positions of keys in a row, else
    "".
    """
    shape = graph[index].static_shape
    if not counts(graph, index):
        return ""
    if len(shape) > 1 and shape[-1] == 1 and all(extent == 1 for extent in shape[:-2]):
        return "rows"
    return "keys" if all(extent == 1 for extent in shape[:-1]) else ""
