"""Express moves that keep rows whole by their effect on row numbers. For both IRs.

    (2 x 8 x 8, C) -> reshape (2, 2, 4, 2, 4, C) -> permute_dims (0, 1, 3, 2, 4, 5)

Rows are along the last axis. A move maps each row of its result to a row of its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from boltgen.graph.attributes import Axis, Slice, SteppedSlice
from boltgen.graph.facts import permutation
from boltgen.graph.graph import CONSTANT, Array, Expr, Graph
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.recursion import Steps, answer
from boltgen.ir.extent import has_dynamic
from boltgen.passes.precision.fold import applied

# Numbers of rows, in the shape that a tensor has before its last axis.
Rows: TypeAlias = NDArray[np.int32]

TRANSPOSE, TAKE, CONCAT = "permute_dims", "take", "concat"
_SLICE, _BROADCAST = "strided_slice", "broadcast_to"
MOVES = frozenset({"reshape", TRANSPOSE, TAKE, CONCAT, _SLICE, _BROADCAST})
# Operators on row numbers, as exporters write a roll: mod(arange + shift, extent).
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "mod", "reshape", "astype", "concat"})


def is_known(expr: Expr) -> bool:
    """Return whether a value has rows, and all of its sizes are numbers."""
    if not expr.is_static or not expr.static_shape:
        return False
    return not has_dynamic(expr.static_shape)


def in_order(shape: Sequence[int]) -> Rows:
    """Number the rows of a tensor of `shape`, in order."""
    leading = tuple(shape[:-1])
    return np.arange(np.prod(leading, dtype=np.int64), dtype=np.int32).reshape(leading)


def moved_tensors(graph: Graph, expr: Expr) -> tuple[int, ...]:
    """Return the tensors whose rows a move may move, if all sizes are known; empty for other
    operators.
    """
    if expr.op not in MOVES or expr.pinned or not is_known(expr):
        return ()
    tensors = expr.args if expr.op == CONCAT else expr.args[:1]
    return tensors if all(is_known(graph[arg]) for arg in tensors) else ()


def moved_rows(graph: Graph, expr: Expr, given: Sequence[Rows]) -> Rows | None:
    """Return the rows of a move's result for operands with rows `given`; None if it splits rows."""
    before, after = graph[expr.args[0]].static_shape, expr.static_shape
    last = len(before) - 1
    first = given[0]
    if expr.op in {"reshape", _BROADCAST}:
        is_same = before[-1] == after[-1] if expr.op == "reshape" else before == after
        return first.reshape(after[:-1]) if is_same else None
    if expr.op == TRANSPOSE:
        order = permutation(expr)
        return first.transpose(order[:-1]) if order[-1] == last else None
    if isinstance(expr.attrs, SteppedSlice):
        along, begin, step = expr.attrs.every
        every = (slice(None),) * along + (slice(begin, None, step),)
        return first[every] if along < last else None
    attrs = expr.attrs
    if not isinstance(attrs, Axis | Slice) or attrs.axis is None:
        return None
    axis = attrs.axis % (last + 1)
    if axis == last:
        return None
    if expr.op == CONCAT:
        return np.concatenate(given, axis)
    if isinstance(attrs, Slice):
        return first[(slice(None),) * axis + (slice(attrs.begin, attrs.end),)]
    places = answer(partial(_integers, graph), expr.args[1])
    if places is None or places.size == 0:
        return None
    if places.min() < 0 or places.max() >= before[axis]:
        return None
    return first.take(places, axis)


def _integers(graph: Graph, index: int) -> Steps[int, Array | None]:
    """Return the integers at `index` if they depend only on constants."""
    expr = graph[index]
    if not expr.is_static or not expr.dtype.startswith("int"):
        return None
    if expr.op == CONSTANT:
        return expr.array
    if expr.op not in _ARITHMETIC:
        return None
    known: list[Array] = []
    for arg in expr.args:
        array = yield arg
        if array is None:
            return None
        known.append(array)
    return applied(Operation.of(expr), known)
