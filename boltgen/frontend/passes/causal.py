"""Masks that hide all keys behind a row's own. A kernel that knows needs none, and half the time.

    softmax(scores + where(row >= key, 0, lowest))    ->    causal softmax(scores)

The mask is known, or made of places in the model. Its rows are as many as its keys, so that the row
and the key of the same place meet. A number that hides is at most that of PyTorch's attention, half
of FP16's range below what is seen: exponentials of such differences are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from boltgen.frontend.graph import CONSTANT, Array, Graph
from boltgen.frontend.passes.products import Product
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    LoadKind,
    Node,
    Unary,
)
from boltgen.ir.functions import UnaryOp

_HIDDEN = -32768.0
# How a mask joins the scores, and the least number that leaves them as they are: all, for a sum.
_NEUTRAL = {BinaryOp.ADD: 0.0, BinaryOp.MINIMUM: 65504.0}


def causal(graph: Graph, pair: tuple[Product, Product]) -> tuple[Product, Product]:
    """`pair`, the products of scores and values, without a mask that hides what is behind a row."""
    scores, values = pair
    assert values.prologue is not None
    found = _mask(graph, scores)
    if found is None:
        return pair
    tail = scores.tail
    operands = list(tail.operands)
    mask = operands.pop(_loads(tail.epilogue).index(found))
    shorter = replace(tail, epilogue=_without(tail.epilogue, found), operands=tuple(operands))
    return (
        replace(scores, tail=shorter),
        replace(values, prologue=replace(values.prologue, causal=mask.expr)),
    )


def _loads(epilogue: ElementwiseGraph) -> list[int]:
    return [index for index, node in enumerate(epilogue.nodes) if isinstance(node, Load)]


def _mask(graph: Graph, scores: Product) -> int | None:
    """The node of the scores' epilogue that loads a causal mask, if one does."""
    epilogue = scores.tail.epilogue
    rows, keys = scores.anchor.problem.matrix
    if epilogue.stores or rows != keys:
        return None
    for load, operand in zip(_loads(epilogue), scores.tail.operands, strict=True):
        op = _joins(epilogue, load)
        shape = graph[operand.expr].static_shape
        is_one = shape[-2:] == (rows, keys) and all(extent == 1 for extent in shape[:-2])
        if op is not None and is_one and _is_causal(graph, operand.expr, _NEUTRAL[op]):
            return load
    return None


def _joins(epilogue: ElementwiseGraph, load: int) -> BinaryOp | None:
    """How a mask joins the scores; None where what follows could show what it hides."""
    nodes = epilogue.nodes
    node = nodes[load]
    assert isinstance(node, Load)
    if node.kind is not LoadKind.TENSOR:
        return None
    at, joined = load, None
    while at + 1 < len(nodes) or joined is None:
        readers = [i for i, each in enumerate(nodes) if at in _read(each)]
        if len(readers) != 1:
            return None
        reader = nodes[readers[0]]
        if _keeps(reader):
            at = readers[0]
            continue
        if not isinstance(reader, Binary) or reader.op not in _NEUTRAL or reader.lhs == reader.rhs:
            return None
        joined = joined or reader.op
        # Other masks join what is hidden, and hide more.
        other = nodes[reader.lhs if reader.rhs == at else reader.rhs]
        if at != load and not isinstance(other, Load):
            return None
        at = readers[0]
    return joined


def _keeps(node: Node) -> bool:
    """Whether what is hidden stays so."""
    return isinstance(node, Unary) and node.op is UnaryOp.CLIP and node.params[0] <= _HIDDEN


def _read(node: Node) -> tuple[int, ...]:
    match node:
        case Unary(x=x) | Cast(x=x):
            return (x,)
        case Binary(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
    return ()


def _without(epilogue: ElementwiseGraph, mask: int) -> ElementwiseGraph:
    """`epilogue` without the mask that node `mask` loads, and what joins it to the scores."""
    names: dict[int, int] = {}
    nodes: list[Node] = []
    for index, node in enumerate(epilogue.nodes):
        if index == mask:
            continue
        if isinstance(node, Binary) and mask in {node.lhs, node.rhs}:
            names[index] = names[node.rhs if node.lhs == mask else node.lhs]
            continue
        names[index] = len(nodes)
        nodes.append(_renamed(node, names))
    return ElementwiseGraph(tuple(nodes))


def _renamed(node: Node, names: Mapping[int, int]) -> Node:
    match node:
        case Unary(x=x) | Cast(x=x):
            return replace(node, x=names[x])
        case Binary(lhs=lhs, rhs=rhs):
            return replace(node, lhs=names[lhs], rhs=names[rhs])
    return node


def _is_causal(graph: Graph, index: int, neutral: float) -> bool:
    """Whether a tensor of (rows, keys) has numbers that are `neutral` up to the diagonal, and that
    hide behind it.
    """
    expr = graph[index]
    if expr.op == CONSTANT:
        return expr.array is not None and _is_split(expr.array, neutral)
    if expr.op in {"astype", "reshape", "broadcast_to"}:
        return _is_causal(graph, expr.args[0], neutral)
    if expr.op == "triu" and expr.attrs["k"] == 1:
        # Zeros up to the diagonal, and one number behind it.
        return neutral == 0.0 and _is_hiding(graph, expr.args[0])
    if expr.op != "where":
        return False
    seen, *choices = expr.args
    is_seen = _is_seen(graph, seen)
    if is_seen is None:
        return False
    shown, hidden = choices if is_seen else reversed(choices)
    number = graph[shown].scalar
    is_neutral = number is not None and (number == 0.0 if neutral == 0.0 else number >= neutral)
    return is_neutral and _is_hiding(graph, hidden)


def _is_hiding(graph: Graph, index: int) -> bool:
    """Whether a tensor is one number that hides."""
    expr = graph[index]
    if expr.op == "broadcast_to":
        return _is_hiding(graph, expr.args[0])
    number = expr.scalar
    if number is None and expr.array is not None and expr.array.size:
        number = float(expr.array.max())
    return number is not None and number <= _HIDDEN


def _is_split(mask: Array, neutral: float) -> bool:
    rows, keys = mask.shape[-2:]
    seen = np.tri(rows, keys, dtype=bool)
    numbers = mask.reshape(rows, keys).astype(np.float64)
    up_to = numbers[seen]
    is_neutral = (up_to == 0.0).all() if neutral == 0.0 else (up_to >= neutral).all()
    return bool(is_neutral and (numbers[~seen] <= _HIDDEN).all())


def _is_seen(graph: Graph, index: int) -> bool | None:
    """True where a tensor of truths is true up to the diagonal, False where it is behind it, and
    nowhere else; None for anything else.
    """
    expr = graph[index]
    if expr.op == CONSTANT and expr.array is not None and len(expr.array.shape) > 1:
        rows, keys = expr.array.shape[-2:]
        known = expr.array.reshape(-1, keys)
        triangle = np.tri(rows, keys, dtype=bool)
        if known.shape != triangle.shape or expr.dtype != "bool":
            return None
        return next((way for way in (True, False) if ((known == triangle) == way).all()), None)
    if expr.op in {"reshape", "broadcast_to"}:
        return _is_seen(graph, expr.args[0])
    if expr.op == "logical_not":
        seen = _is_seen(graph, expr.args[0])
        return None if seen is None else not seen
    if expr.op not in _COMPARISONS:
        return None
    lhs, rhs = (_place(graph, arg) for arg in expr.args)
    return _COMPARISONS[expr.op].get((lhs, rhs))


# By which of the two operands has places of rows: whether a comparison holds up to the diagonal
# (True), or behind it (False).
_COMPARISONS = {
    "greater_equal": {("rows", "keys"): True},
    "less_equal": {("keys", "rows"): True},
    "greater": {("keys", "rows"): False},
    "less": {("rows", "keys"): False},
}


def _place(graph: Graph, index: int) -> str:
    """What a tensor has: the places of rows, in a column, or those of keys, in a row; else ""."""
    shape = graph[index].static_shape
    if not _counts(graph, index):
        return ""
    if len(shape) > 1 and shape[-1] == 1 and all(extent == 1 for extent in shape[:-2]):
        return "rows"
    return "keys" if all(extent == 1 for extent in shape[:-1]) else ""


def _counts(graph: Graph, index: int) -> bool:
    """Whether a tensor has the numbers 0, 1, 2 and so on, in whatever shape."""
    expr = graph[index]
    if expr.op in {"reshape", "astype"}:
        return _counts(graph, expr.args[0])
    if expr.op == CONSTANT and expr.array is not None:
        return bool((expr.array.reshape(-1) == np.arange(expr.array.size)).all())
    if expr.op != "arange":
        return False
    begin, step = expr.attrs.get("begin"), expr.attrs.get("step")
    return begin == 0 and step == 1
