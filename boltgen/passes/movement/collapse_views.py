"""Collapse chains of reshapes, transposes and slices into as few as possible. For both IRs.

    (S, B, 3 H D) -> (S, B, 3, H D) -> (3, S, B, H D) -> take -> (S, B H, D) -> (B H, S, D)

PyTorch's multi-head attention and einsum cut heads out of rows by chains like this one. Its steps
are no views, but the whole is one. A tensor is followed through them as factors of the extents of
its source. A transpose of sequences and batches before a product of rows goes behind it, and on
past a bias, to where the one that takes it back cancels it. IR-neutral.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import prod

from boltgen.graph.attributes import Axis, Indexed, Pad, Slice, Take
from boltgen.graph.facts import permutation
from boltgen.graph.graph import CONSTANT, PART, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.graph.view import (
    Factors,
    Moved,
    extent,
    extent_of,
    in_shape,
    passes_one_row,
    runs,
    split_factor,
    swapped,
    whole,
)
from boltgen.ir.extent import Dim, has_dynamic
from boltgen.passes.regions.anchor import MATMUL
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE, OF_AN_AXIS, VIEW

_TRANSPOSE, _BROADCAST, _TAKE = "permute_dims", "broadcast_to", "take"
_SLICE, _SPLIT, _PAD = "strided_slice", "split", "nn.pad"
# A reshape, a transpose and a reshape.
_MOST_MOVES = 3
_POINTWISE = ELEMENTWISE - {VIEW} - OF_AN_AXIS | {"astype"}


def with_fewer_moves(graph: Graph) -> Graph:
    """Return `graph` with chains of views as one reshape, transpose and reshape at most."""
    kept: set[int] = set()
    while True:
        walk = _Walk(graph, frozenset(kept))
        made = walk.run()
        if not walk.turned_back:
            return made
        kept |= walk.turned_back


class _Walk:
    """One graph under way; the rows of the matmuls `kept` stay in their author's order.

    `turned_back` are other matmuls whose rows had to be permuted back. `_known` has the sources of
    tensors, `_made` the tensors that were written with fewer views than their author's, `_names`
    the new expressions of operands.
    """

    def __init__(self, graph: Graph, kept: frozenset[int]) -> None:
        self.turned_back: set[int] = set()
        self._graph = graph
        self._kept = kept
        self._builder = GraphBuilder()
        self._names: dict[int, int] = {}
        self._known: dict[int, Moved] = {}
        self._made: dict[int, int] = {}

    def run(self) -> Graph:
        """Rewrite the whole graph."""
        for index, expr in enumerate(self._graph.exprs):
            moved = self._moved(index, expr)
            if moved is not None:
                self._known[index] = moved
                continue
            for arg in expr.args:
                self._names[arg] = self._written(arg)
            at = self._names[index] = self._builder.add(renamed(expr, self._names))
            if expr.is_static:
                self._known[index] = whole(at, expr.static_shape)
        results = {index: self._written(index) for index in self._graph.escaping}
        return self._builder.graph(mapped(self._graph.results, results))

    def _written(self, index: int) -> int:
        """Return a value's expression in the new graph: its author's, if none has fewer views."""
        moved = self._known.get(index)
        if moved is None:
            return self._names[index]
        if (plain := _authored(moved)) is not None:
            return plain
        if index not in self._made:
            self._made[index] = self._of(moved)
            if moved.product is not None and moved.is_turned_back:
                self.turned_back.add(moved.product)
        return self._made[index]

    def _of(self, moved: Moved) -> int:
        """Write a value by a reshape, a transpose and a reshape, as far as needed."""
        shape = tuple(extent(dim) for dim in moved.dims)
        at = moved.source
        if not moved.is_view:
            wanted = [run for dim in moved.dims for run in runs(dim, moved.lying)]
            apart = sorted(wanted, key=lambda run: run[0].place)
            at = self._builder.in_shape(at, tuple(map(extent, apart)))
            at = self._builder.permute_dims(at, tuple(apart.index(run) for run in wanted))
        return self._builder.in_shape(at, shape)

    def _moved(self, index: int, expr: Expr) -> Moved | None:
        """Return the source of an expression's tensor, if this pass rewrites the expression."""
        if not expr.is_static or expr.pinned or not expr.args:
            return None
        if expr.op == PART:
            return self._part(expr)
        x = self._known.get(expr.args[0])
        if expr.op == MATMUL:
            return self._product(index, expr)
        if x is None or not self._graph[expr.args[0]].is_static:
            return None
        if expr.op == VIEW:
            dims = in_shape(x.factors, expr.static_shape, extent_of, split_factor)
            return self._step(expr, x, dims)
        if expr.op == _TRANSPOSE:
            order = permutation(expr)
            if passes_one_row(x, order):
                return None
            return self._step(expr, x, tuple(x.dims[axis] for axis in order))
        if expr.op == _BROADCAST or (expr.op == _PAD and not _pads(expr)):
            return x if self._graph[expr.args[0]].shape == expr.shape else None
        if expr.op == _TAKE:
            return self._taken(expr, x)
        attrs = expr.attrs
        if expr.op == _SLICE and isinstance(attrs, Slice) and _authored(x) is None:
            made = self._sliced(x, attrs.axis, attrs.begin, attrs.end)
            return None if made is None else self._step(expr, made, made.dims, of=x)
        return self._behind(expr) if expr.op in _POINTWISE else None

    def _step(
        self,
        expr: Expr,
        x: Moved,
        dims: tuple[Factors, ...] | None,
        of: Moved | None = None,
    ) -> Moved | None:
        """Add one more view, of `x` or, if `x` is a part of it, `of` another tensor."""
        before = of or x
        if dims is None:
            return None
        if before.plain is None:
            return replace(x, dims=dims, plain=None)
        names = {**self._names, expr.args[0]: before.plain}
        for arg in expr.args[1:]:
            names[arg] = self._written(arg)
        plain = self._builder.add(renamed(expr, names))
        return Moved(
            source=x.source,
            dims=dims,
            plain=plain,
            moves=before.moves + 1,
            transposes=before.transposes + (expr.op == _TRANSPOSE),
        )

    def _part(self, expr: Expr) -> Moved | None:
        """A part of a tensor that is split, as a slice of it."""
        (at,) = expr.args
        split = self._graph[at]
        x = self._known.get(split.args[0]) if split.op == _SPLIT else None
        if x is None:
            return None
        parts = self._graph.consumers[at]
        if any(not self._graph[part].is_static for part in parts):
            return None
        shape = self._graph[split.args[0]].static_shape
        axis = split.attrs.of(Axis).at(len(shape))
        read = [self._graph[part] for part in parts]
        extents = {each.attrs.of(Indexed).index: each.static_shape[axis] for each in read}
        numbers = sorted(extents)
        ends = list(accumulate(extents[number] for number in numbers))
        if numbers != list(range(len(numbers))) or ends[-1] != shape[axis]:
            return None  # parts that nothing reads are not in the graph
        end = ends[expr.attrs.of(Indexed).index]
        return self._sliced(x, axis, end - expr.static_shape[axis], end)

    def _taken(self, expr: Expr, x: Moved) -> Moved | None:
        """Select one element along an axis, which disappears."""
        number = self._graph[expr.args[1]]
        axis, shape = expr.attrs.of(Take).axis, self._graph[expr.args[0]].static_shape
        if number.op != CONSTANT or number.scalar is None or number.shape != ():
            return None
        if axis is None or isinstance(shape[axis], Dim):
            return None
        axis, at = axis % len(shape), int(number.scalar)
        at = at + shape[axis] if at < 0 else at
        if not 0 <= at < shape[axis]:
            return None
        made = self._sliced(x, axis, at, at + 1)
        if made is None:
            return None
        return replace(made, dims=(*made.dims[:axis], *made.dims[axis + 1 :]), plain=None)

    def _sliced(self, x: Moved, axis: int, begin: int, end: int) -> Moved | None:
        """Slice neighbours along an axis from the source; None if they lie apart there."""
        if (plain := _authored(x)) is not None:
            x = whole(plain, self._builder.shape(plain))
        shape: tuple[int, ...] = self._builder.shape(x.source)
        dim = x.dims[axis]
        if len(dim) > 1 or has_dynamic((begin, end)):
            return None
        if not dim:
            return x if (begin, end) == (0, 1) else None
        (factor,) = dim
        at = factor.place[0]
        own = [each for each in x.lying if each.place[0] == at]
        if any(isinstance(each.extent, Dim) for each in own):
            return None
        place = own.index(factor)
        source, factors = x.source, {each: each for each in x.factors}
        if place:  # the elements before it become an axis of their own
            before = prod(each.extent for each in own[:place])
            split = (*shape[:at], before, shape[at] // before, *shape[at + 1 :])
            source = self._builder.reshape(source, split)
            for each in x.factors:
                if each.place[0] > at or (each.place[0] == at and each not in own[:place]):
                    later = (each.place[0] + 1, *each.place[1:])
                    factors[each] = replace(each, place=later)
            shape, at = split, at + 1
        behind = prod(each.extent for each in own[place + 1 :])
        source = self._builder.slice(source, at, begin * behind, end * behind)
        left = replace(factors[factor], extent=end - begin)
        dims = tuple(
            tuple(left if each == factor else factors[each] for each in old) for old in x.dims
        )
        without = tuple(tuple(each for each in old if each.extent != 1) for old in dims)
        return replace(x, source=source, dims=without, plain=None, moves=0, transposes=0)

    def _product(self, index: int, expr: Expr) -> Moved | None:
        """Multiply rows as they lie, if only the two parts of their order are swapped.

        A weight that is repeated for each product of a batch is one weight.
        """
        a, b = expr.args
        rows = self._graph[a]
        if rows.is_static and rows.static_shape[:-1] == expr.static_shape[:-1]:
            b = self._repeated(b)
        right = self._graph[b]
        moved = self._known.get(a)
        if moved is None or not right.is_static or len(right.static_shape) != 2:
            return None
        may_swap = len(moved.dims) > 1 and index not in self._kept
        rows_of, second = (swapped(moved) if may_swap else None) or (None, 0)
        if rows_of is None and b == expr.args[1]:
            return None
        if rows_of is None:
            args = self._written(a), self._written(b)
            return whole(
                self._builder.add(replace(expr, args=args, origin=None)), expr.static_shape
            )
        left = self._of(replace(moved, dims=(*((each,) for each in rows_of), moved.dims[-1])))
        extents = (*(each.extent for each in rows_of), expr.static_shape[-1])
        args = left, self._written(b)
        made = replace(expr, args=args, shape=extents, origin=None)
        apart = whole(self._builder.add(made), extents)
        lies = dict(zip(rows_of, apart.dims, strict=False))
        dims = [sum((lies[each] for each in dim), start=()) for dim in moved.dims[:-1]]
        dims.append(apart.dims[-1])
        return replace(apart, dims=tuple(dims), plain=None, product=index, second=second)

    def _repeated(self, b: int) -> int:
        """Return the matrix that is repeated for each matmul of a batch; `b` itself if none is."""
        at = b
        while self._graph[at].op in {_BROADCAST, VIEW}:
            (inner,) = self._graph[at].args
            if not (self._graph[at].is_static and self._graph[inner].is_static):
                break
            before, after = self._graph[inner].static_shape, self._graph[at].static_shape
            if len(before) < 2 or before[-2:] != after[-2:]:
                break
            at = inner
        return at if len(self._graph[at].shape or ()) == 2 else b

    def _behind(self, expr: Expr) -> Moved | None:
        """Apply an elementwise operator to permuted rows before they are moved."""
        floating = [arg for arg in expr.args if self._is_floating(arg)]
        if len(set(floating)) != 1:
            return None
        x = self._known[floating[0]]
        shape = self._graph[floating[0]].static_shape
        last = x.dims[-1]
        if expr.static_shape != shape or not last or x.lying[-len(last) :] != last:
            return None
        others = [self._graph[arg] for arg in expr.args if arg not in floating]
        if any(each.shape not in {(), (1,), shape[-1:]} for each in others):
            return None
        if self._builder.shape(x.source)[-1] != shape[-1]:
            return None
        args = tuple(x.source if arg in floating else self._written(arg) for arg in expr.args)
        made = self._builder.add(replace(expr, args=args, shape=self._builder.shape(x.source)))
        return replace(x, source=made)

    def _is_floating(self, index: int) -> bool:
        """Return whether a value is transposed at its source only, and lies otherwise there."""
        moved = self._known.get(index)
        return moved is not None and moved.plain is None and not moved.is_view


def _pads(expr: Expr) -> bool:
    """Return whether a pad adds or removes anything."""
    return any(width != 0 for pair in expr.attrs.of(Pad).widths for width in pair)


def _authored(moved: Moved) -> int | None:
    """Return a value as its author made it, unless by more transposes, or more views beside one."""
    if moved.is_view:
        is_short = moved.transposes == 0
    else:
        is_short = moved.transposes == 1 and moved.moves <= _MOST_MOVES
    return moved.plain if is_short else None
