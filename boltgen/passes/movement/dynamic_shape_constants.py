"""Precompute tensors that depend only on dynamic dimensions at their maximum size. For both IRs.

    bias[bucket(arange(keys) - arange(queries))]    ->    constant[:queries, :keys]

A relative position's bias, a mask of places and a rotary table have at each place what they have
there of any size. So they are computed here, of the greatest sizes, and no kernel makes them again
in each inference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np

from boltgen.graph.attributes import Axis, Count, DynamicSlice, Reduce, RunningSum, Take
from boltgen.graph.facts import POINTWISE, permutation
from boltgen.graph.graph import CONSTANT, CORNER, Array, Expr, Graph, GraphBuilder, written_anew
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.ir.extent import Dim, has_dynamic
from boltgen.passes.precision.fold import applied
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE

# If an array is larger than this on the way, it stays a computation: libraries carry their
# constants. It is enough for the biases of 16 heads over 512 x 512 places, in FP32.
_MOST_BYTES = 32 << 20

_SLICE, _BROADCAST = "strided_slice", "broadcast_to"


@dataclass(frozen=True, slots=True)
class _Sized:
    """A tensor that depends only on sizes: its value at the greatest sizes.

    `array` has a dimension for each of `extents`; each dimension of the tensor is as many
    neighbouring ones as `counts` says, none if its extent is 1. A broadcast array is a view, which
    repeats its elements by a stride of 0. Computing it takes `steps` operators.
    """

    array: Array
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    steps: int = 0

    @property
    def is_plain(self) -> bool:
        """Return whether no dimension is made of several."""
        return all(count < 2 for count in self.counts)

    @property
    def full(self) -> Array:
        """The tensor at the greatest sizes, if it is plain."""
        sizes = iter(self.array.shape)
        return self.array.reshape([next(sizes) if count else 1 for count in self.counts])

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's own extents, if it is plain."""
        extents = iter(self.extents)
        return tuple(next(extents) if count else 1 for count in self.counts)


def with_corners(graph: Graph) -> Graph:
    """Return `graph` with tensors that depend only on dynamic sizes as slices of maximum-size
    constants.
    """
    if not any(expr.op in {"arange", "triu", "tril", _SLICE, CORNER} for expr in graph.exprs):
        return graph
    sized = _sized(graph)
    found = {index: each for index, each in sized.items() if _is_kept(graph, index, sized)}
    if not found:
        return graph
    corners: dict[Hashable, int] = {}

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr | int:
        if index not in found:
            return expr
        # Models make masks and biases anew in each layer.
        array, shape = _narrowest(found[index].full, expr.static_shape)
        alike = shape, expr.dtype, hashlib.sha256(array.tobytes()).digest()
        if alike not in corners:
            is_open = has_dynamic(shape)
            corners[alike] = builder.corner(array, shape) if is_open else builder.constant(array)
        return builder.broadcast_to(corners[alike], expr.static_shape)

    return written_anew(graph, write)


def corners_where_read(graph: Graph) -> Graph:
    """Return `graph` with a slice of its own for each elementwise operator that reads one.

    TVM fuses a slice into its reader where it has one reader, and else writes it.
    """
    if CORNER not in graph.operators:
        return graph

    def write(_: int, expr: Expr, builder: GraphBuilder) -> Expr:
        if expr.op not in ELEMENTWISE:
            return expr
        corners = [arg for arg in dict.fromkeys(expr.args) if builder[arg].op == CORNER]
        own = {arg: builder.add(builder[arg]) for arg in corners}
        return replace(expr, args=tuple(own.get(arg, arg) for arg in expr.args))

    return written_anew(graph, write)


def _narrowest(array: Array, shape: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """Return an array, at the greatest sizes of `shape`, without dynamic dimensions of equal
    elements.
    """
    once = _once(array)
    shape = tuple(
        extent if kept == whole else 1
        for extent, kept, whole in zip(shape, once.shape, array.shape, strict=True)
    )
    array = once
    for axis, extent in enumerate(shape):
        first = array.take([0], axis)
        if isinstance(extent, Dim) and (array == first).all():
            array, shape = first, (*shape[:axis], 1, *shape[axis + 1 :])
    return array, shape


def _is_kept(graph: Graph, index: int, sized: Mapping[int, _Sized]) -> bool:
    """Return whether something else reads the value, and it takes more than numbering positions."""
    expr, value = graph[index], sized[index]
    is_read = index in graph.escaping or any(r not in sized for r in graph.consumers[index])
    is_open = has_dynamic(expr.static_shape)
    return is_read and is_open and expr.op != CORNER and value.is_plain and value.steps > 0


def _sized(graph: Graph) -> dict[int, _Sized]:
    """Return the values that depend on sizes and constants alone; constants are among them."""
    found: dict[int, _Sized] = {}
    for index, expr in enumerate(graph.exprs):
        if not expr.is_static or expr.pinned:
            continue
        made = _made(graph, expr, found)
        if made is not None and _once(made.array).nbytes <= _MOST_BYTES:
            found[index] = made
    return found


def _made(graph: Graph, expr: Expr, found: Mapping[int, _Sized]) -> _Sized | None:
    if expr.op == CONSTANT:
        return None if expr.array is None else _of_array(expr.array, expr.static_shape)
    if expr.op == "arange":
        return _counted(expr)
    if not expr.args or any(arg not in found for arg in expr.args):
        return None
    args = [found[arg] for arg in expr.args]
    if expr.op == CORNER:
        return _of_array(args[0].full, expr.static_shape, steps=1)
    if expr.op in _OF_PLAIN:
        return _OF_PLAIN[expr.op](expr, args) if all(arg.is_plain for arg in args) else None
    rule = _RULES.get(expr.op, _elementwise if expr.op in POINTWISE else None)
    return None if rule is None else rule(expr, args)


def _of_array(array: Array, shape: Sequence[int], steps: int = 0) -> _Sized:
    """Return a plain value of `shape`, which is `array` at the greatest sizes."""
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    return _Sized(
        array=array.reshape([array.shape[axis] for axis in kept]),
        extents=tuple(shape[axis] for axis in kept),
        counts=tuple(int(extent != 1) for extent in shape),
        steps=steps,
    )


def _most(extent: int) -> int:
    """Return the greatest value of an extent, or an upper bound."""
    return extent.bounds[1] if isinstance(extent, Dim) else extent


def _once(array: Array, *kept: int) -> Array:
    """Return an array's elements once along the dimensions that repeat them, except `kept` ones."""
    return array[
        tuple(
            slice(1 if stride == 0 and axis not in kept else None)
            for axis, stride in enumerate(array.strides)
        )
    ]


def _counted(expr: Expr) -> _Sized | None:
    (extent,) = expr.static_shape
    size = _most(extent) * np.dtype(expr.dtype).itemsize
    if not isinstance(expr.attrs, Count) or size > _MOST_BYTES:
        return None
    numbers = expr.attrs.begin + expr.attrs.step * np.arange(_most(extent))
    return _of_array(numbers.astype(expr.dtype), expr.static_shape)


def _steps(args: Sequence[_Sized]) -> int:
    return sum(arg.steps for arg in args)


def _applied(expr: Expr, arrays: Sequence[Array], shape: Sequence[int]) -> Array | None:
    """Return the result of `shape` on `arrays`, in as many positions as `expr` has at most."""
    if prod(shape) * np.dtype(expr.dtype).itemsize > _MOST_BYTES:
        return None
    return applied(Operation.of(expr, shape), arrays)


def _result(expr: Expr, args: Sequence[_Sized], made: Array | None) -> _Sized | None:
    """A plain value: `made`, which is broadcast to the result's greatest sizes."""
    if made is None:
        return None
    whole = np.broadcast_to(made, tuple(map(_most, expr.static_shape)))
    return _of_array(whole, expr.static_shape, _steps(args) + 1)


def _whole(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """An operator on plain values."""
    shape = tuple(map(_most, expr.static_shape))
    return _result(expr, args, _applied(expr, [arg.full for arg in args], shape))


def _along(expr: Expr, args: Sequence[_Sized], axis: int | None) -> _Sized | None:
    """An operator on plain values along one of their dimensions; None if it is along all."""
    if axis is None:
        return None
    wholes = [arg.full for arg in args]
    axis %= wholes[0].ndim
    kept = [
        at
        for at in range(wholes[0].ndim)
        if at == axis or any(whole.strides[at] for whole in wholes)
    ]
    once = [_once(whole, *kept) for whole in wholes]
    shape = [_most(extent) if at in kept else 1 for at, extent in enumerate(expr.static_shape)]
    return _result(expr, args, _applied(expr, once, shape))


def _elementwise(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    if all(arg.is_plain for arg in args):
        once = [_once(arg.full) for arg in args]
        shape = np.broadcast_shapes(*(array.shape for array in once))
        return _result(expr, args, _applied(expr, once, shape))
    first, *others = args
    if any(other.extents for other in others):
        return None
    # A value of joined dimensions, and numbers.
    array = _once(first.array)
    made = _applied(expr, [array, *(other.array for other in others)], array.shape)
    if made is None:
        return None
    made = np.broadcast_to(made, first.array.shape)
    return _Sized(made, first.extents, first.counts, _steps(args) + 1)


def _viewed(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Merge neighbouring dimensions, or split a merged one again."""
    (x,) = args
    counts, at = [], 0
    for extent in expr.static_shape:
        count = 0
        while prod(x.extents[at : at + count]) != extent:
            count += 1
            if at + count > len(x.extents):
                return None
        counts.append(count)
        at += count
    return _Sized(x.array, x.extents, tuple(counts), x.steps) if at == len(x.extents) else None


def _permuted(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    (x,) = args
    return _of_array(x.full.transpose(permutation(expr)), expr.static_shape, x.steps)


def _broadcast(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    (x,) = args
    shape = tuple(map(_most, expr.static_shape))
    return _of_array(np.broadcast_to(x.full, shape), expr.static_shape, x.steps)


def _cut(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Slice a tensor from known positions on, ending within it."""
    (x,) = args
    if not isinstance(expr.attrs, DynamicSlice):
        return None
    ends = [*map(_most, expr.static_shape)]
    begins = [0] * len(ends)
    for axis, begin in expr.attrs.within:
        begins[axis] = begin
        ends[axis] += begin
    if any(end > extent for end, extent in zip(ends, x.full.shape, strict=True)):
        return None
    return _of_array(x.full[tuple(map(slice, begins, ends))], expr.static_shape, x.steps + 1)


def _taken(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Gather rows of a table of known size, by positions in it."""
    table, places = args
    if not table.is_plain or has_dynamic(table.extents) or expr.attrs.of(Take).axis != 0:
        return None
    once, columns = _once(places.array), table.full.shape[1:]
    if not _are_within(once, table.full.shape[0]):
        return None
    if once.size * prod(columns) * table.array.itemsize > _MOST_BYTES:
        return None
    found = table.full[once].reshape(*once.shape, *(extent for extent in columns if extent != 1))
    made = _of_array(table.full[0], columns)
    return _Sized(
        array=np.broadcast_to(found, (*places.array.shape, *made.array.shape)),
        extents=(*places.extents, *made.extents),
        counts=(*places.counts, *made.counts),
        steps=_steps(args) + 1,
    )


def _gathered(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Gather elements of a table of known size, by positions along one of its dimensions."""
    table, places = args
    axis = expr.attrs.of(Axis).axis
    if axis is None or has_dynamic(table.extents):
        return None
    is_within = _are_within(places.array, table.full.shape[axis])
    return _along(expr, args, axis) if is_within else None


def _are_within(places: Array, extent: int) -> bool:
    if places.dtype.kind not in "iu":
        return False
    return places.size == 0 or bool(0 <= places.min() <= places.max() < extent)


def _joined(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Join tensors side by side. Along that dimension only the last one may be dynamic."""
    axis = expr.attrs.of(Axis).axis
    if axis is None:
        return None
    is_open = any(isinstance(arg.shape[axis], Dim) for arg in args[:-1])
    return None if is_open else _along(expr, args, axis)


def _chosen(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Return the greatest or the least along one dimension, if later positions do not change it.

    Positions up to the least size always exist, and positions up to a row's own if there are as
    many rows.
    """
    (x,) = args
    axes = expr.attrs.of(Reduce).axis
    if axes is None or len(axes) != 1:
        return None
    axis = axes[0] % len(x.shape)
    extent = x.shape[axis]
    if isinstance(extent, Dim):
        alike = [at for at, other in enumerate(x.shape) if other == extent]
        once = _once(x.full, *alike)
        places = np.indices(once.shape, sparse=True)
        own = [places[at] for at in alike if at != axis]
        there = reduce(np.maximum, own, np.asarray(extent.bounds[0] - 1))
        so_far = _ACCUMULATED[expr.op].accumulate(once, axis)
        if not ((so_far == so_far.take([-1], axis)) | (places[axis] < there)).all():
            return None
    return _along(expr, args, axis)


_ACCUMULATED = {"max": np.maximum, "min": np.minimum}


def _multiplied(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Return a matmul whose sums are of known length."""
    left, right = args
    if min(len(left.counts), len(right.counts)) < 2:
        return None
    inner = left.extents[-1] if left.counts[-1] else 1
    return None if isinstance(inner, Dim) else _whole(expr, args)


_Rule = Callable[[Expr, Sequence[_Sized]], "_Sized | None"]
# Rules of operators on plain values, and of operators on others too.
_OF_PLAIN: Mapping[str, _Rule] = {
    "permute_dims": _permuted,
    _BROADCAST: _broadcast,
    _SLICE: _cut,
    **dict.fromkeys(
        ("triu", "tril"),
        lambda expr, args: _whole(expr, args) if len(expr.static_shape) > 1 else None,
    ),
    "concat": _joined,
    "cumsum": lambda expr, args: _along(expr, args, expr.attrs.of(RunningSum).axis),
    **dict.fromkeys(_ACCUMULATED, _chosen),
    "gather_elements": _gathered,
    "matmul": _multiplied,
}
_RULES: Mapping[str, _Rule] = {
    "reshape": _viewed,
    "take": _taken,
}
