"""Sink `broadcast_to` below elementwise operators, so that masks stay small. For both IRs.

    where(broadcast_to(seen (B, 1, 1, K), (B, 1, M, K)), 0, lowest)
    ->  broadcast_to(where(seen, 0, lowest), (B, 1, M, K))

PyTorch broadcasts a mask of keys to rows and keys. If the scores have that shape anyway, no
broadcast is left, and attention's kernel reads the mask of keys itself.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import AND, COMPARISONS, NOT, OR
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.ir.extent import broadcast
from boltgen.passes.precision.fold import applied

_BROADCAST = "broadcast_to"
# Operators that compute each element from elements at the same place.
POINTWISE = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negative"),
        *("abs", "sqrt", "rsqrt", "square", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
        *("floor", "ceil", "where", "astype", "clip", *COMPARISONS, *AND, *OR, *NOT),
    }
)
# Reductions that return one of equal elements.
_CHOICES = frozenset({"max", "min"})
# Operators that leave the other operand as it is where one is this number.
_NEUTRAL = {"add": 0.0, "multiply": 1.0, "bitwise_and": 1.0, "logical_and": 1.0}
# Constants of masks have at least these dimensions: sequences, rows and keys.
_MASK_RANK = 3


def with_late_broadcasts(graph: Graph) -> Graph:
    """Return `graph` with broadcasts as late as possible, and without broadcasts to scores."""
    return _Walk(graph).run()


class _Walk:
    """One graph, written anew."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder()
        self._narrowed: dict[int, int] = {}

    def run(self) -> Graph:
        names: dict[int, int] = {}
        for index, expr in enumerate(self._graph.exprs):
            names[index] = self._written(renamed(expr, names))
        return self._builder.graph(mapped(self._graph.results, names))

    def _written(self, expr: Expr) -> int:
        tensors = (expr, *(self._builder[arg] for arg in expr.args))
        if expr.pinned or not all(each.is_static for each in tensors):
            return self._builder.add(expr)
        if expr.op in POINTWISE:
            return self._pointwise(expr)
        if expr.op in _CHOICES:
            return self._chosen(expr)
        if expr.op == _BROADCAST:
            return self._wide(self._source(expr.args[0]), expr)
        return self._builder.add(expr)

    def _pointwise(self, expr: Expr) -> int:
        wide = tuple(self._narrow(arg) for arg in expr.args)
        args = tuple(self._source(arg) for arg in wide)
        shape = broadcast(*(self._builder.shape(arg) for arg in args))
        made = self._number(expr, args, shape)
        if made is None:
            made = self._kept(expr, args)
        if made is None:
            if shape == expr.static_shape:
                # Kernels load a number of each row, and none of all rows of a matrix.
                args = tuple(map(self._of_rows, wide, args))
            made = self._builder.add(replace(expr, args=args, shape=shape))
        return self._wide(made, expr)

    def _of_rows(self, wide: int, source: int) -> int:
        """Return an operand, broadcast along the rows of a column if it is so."""
        shape = self._builder.shape(wide)
        is_column = len(shape) > 1 and shape[-1] == 1 and shape[-2] != 1
        return wide if is_column else source

    def _number(self, expr: Expr, args: tuple[int, ...], shape: tuple[int, ...]) -> int | None:
        """Return a single number that is computed from others."""
        arrays = [self._builder[arg].array for arg in args]
        known = [array for array in arrays if array is not None]
        if prod(shape) != 1 or len(known) < len(args):
            return None
        operator = Operation(name=expr.op, attrs=expr.attrs, shape=shape, dtype=expr.dtype)
        made = applied(operator, known)
        return None if made is None else self._builder.constant(made)

    def _kept(self, expr: Expr, args: tuple[int, ...]) -> int | None:
        """Return the operand that an operator leaves as it is, if it does."""
        if expr.op not in _NEUTRAL or not (expr.dtype == "bool" or expr.op in {"add", "multiply"}):
            return None
        for kept, number in (args, args[::-1]):
            if self._builder[number].scalar == _NEUTRAL[expr.op]:
                return kept
        return None

    def _chosen(self, expr: Expr) -> int:
        """Reduce to a maximum or minimum; along some dimensions all elements may be equal."""
        source = self._source(expr.args[0])
        attrs, shape = expr.attrs.of(Reduce), self._builder.shape(source)
        if source == expr.args[0] or attrs.axis is None or not attrs.keepdims:
            return self._builder.add(expr)
        rank = len(expr.static_shape)
        reduced = {each - (rank - len(shape)) for each in attrs.axes(rank)}
        if all(each < 0 or shape[each] == 1 for each in reduced):
            return self._wide(source, expr)
        if len(shape) != rank:
            return self._builder.add(expr)
        kept = tuple(1 if place in reduced else extent for place, extent in enumerate(shape))
        return self._wide(self._builder.add(replace(expr, args=(source,), shape=kept)), expr)

    def _source(self, index: int) -> int:
        """Return the source of a broadcast value; else the value itself."""
        expr = self._builder[index]
        return expr.args[0] if expr.op == _BROADCAST and expr.is_static else index

    def _wide(self, index: int, expr: Expr) -> int:
        """A value, broadcast to the shape of `expr`."""
        if self._builder.shape(index) == expr.static_shape:
            return index
        return self._builder.operator(_BROADCAST, [index], expr.static_shape, expr.dtype)

    def _narrow(self, index: int) -> int:
        """Return a mask's constant without dimensions of equal elements, broadcast to its shape."""
        expr = self._builder[index]
        if expr.op != CONSTANT or expr.array is None or expr.array.ndim < _MASK_RANK:
            return index
        if index not in self._narrowed:
            array = _narrowed(expr.array)
            is_same = array.shape == expr.static_shape
            one = index if is_same else self._builder.constant(array)
            self._narrowed[index] = self._wide(one, expr)
        return self._narrowed[index]


def _narrowed(array: np.ndarray) -> np.ndarray:
    for axis, extent in enumerate(array.shape):
        first = array.take([0], axis) if extent > 1 else array
        if extent > 1 and (array == first).all():
            array = first
    return array
