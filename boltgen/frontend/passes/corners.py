"""What a model makes of open sizes alone, as the corner of a constant. For both IRs.

    bias[bucket(arange(keys) - arange(queries))]    ->    constant[:queries, :keys]

A relative position's bias, a mask of places and a rotary table have at each place what they have
there of any size. So they are computed here, of the greatest sizes, and no kernel makes them again
in each inference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from boltgen.frontend.graph import (
    CONSTANT,
    CORNER,
    Array,
    Expr,
    Graph,
    GraphBuilder,
    mapped,
    renamed,
)
from boltgen.frontend.passes.epilogue_rules import ELEMENTWISE
from boltgen.frontend.passes.normalise.fold import Applied, applied
from boltgen.ir.extent import Dim

# What is larger than this on the way to a constant stays a computation: libraries carry their
# constants. It is enough for the biases of 16 heads over 512 x 512 places, in FP32.
_MOST_BYTES = 32 << 20

_SLICE, _BROADCAST = "strided_slice", "broadcast_to"
_VIEWS = frozenset({"reshape", "expand_dims", "squeeze", "flatten"})
# What computes each element from those in the same place.
_ELEMENTWISE = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negative"),
        *("abs", "sqrt", "rsqrt", "square", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
        *("floor", "ceil", "where", "equal", "not_equal", "greater", "greater_equal", "less"),
        *("less_equal", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or"),
        *("bitwise_not", "astype", "clip"),
    }
)


@dataclass(frozen=True, slots=True)
class _Sized:
    """A tensor that is made of sizes: what it is where all of them have their greatest values.

    `array` has a dimension for each of `extents`; of the tensor's own dimensions each is so many
    neighbouring ones as `counts` says, none where its extent is 1. It takes `steps` operators that
    compute.
    """

    array: Array
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    steps: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether no dimension is made of several."""
        return all(count < 2 for count in self.counts)

    @property
    def full(self) -> Array:
        """The tensor itself, of the greatest sizes, where it is plain."""
        sizes = iter(self.array.shape)
        return self.array.reshape([next(sizes) if count else 1 for count in self.counts])


def with_corners(graph: Graph) -> Graph:
    """`graph` with what is made of open sizes alone as corners of constants."""
    if not any(expr.op in {"arange", "triu", "tril", _SLICE, CORNER} for expr in graph.exprs):
        return graph
    sized = _sized(graph)
    found = {index: each for index, each in sized.items() if _is_kept(graph, index, sized)}
    if not found:
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    corners: dict[Hashable, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index not in found:
            names[index] = builder.add(renamed(expr, names))
            continue
        # Models make masks and biases anew in each layer.
        array, shape = _narrowest(found[index].full, expr.static_shape)
        alike = shape, expr.dtype, hashlib.sha256(array.tobytes()).digest()
        if alike not in corners:
            is_open = any(isinstance(extent, Dim) for extent in shape)
            corners[alike] = builder.corner(array, shape) if is_open else builder.constant(array)
        names[index] = corners[alike]
        if shape != expr.static_shape:
            names[index] = builder.operator(
                _BROADCAST, [corners[alike]], expr.static_shape, expr.dtype
            )
    return builder.graph(mapped(graph.results, names))


def corners_where_read(graph: Graph) -> Graph:
    """`graph` with a corner of its own for each elementwise operator that reads one.

    TVM fuses a slice into its reader where it has one reader, and else writes it.
    """
    if not any(expr.op == CORNER for expr in graph.exprs):
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        corners = _corners(graph, expr) if expr.op in ELEMENTWISE else []
        own = {arg: builder.add(builder[names[arg]]) for arg in corners}
        names[index] = builder.add(renamed(expr, names | own if own else names))
    return builder.graph(mapped(graph.results, names))


def _corners(graph: Graph, expr: Expr) -> list[int]:
    return [arg for arg in dict.fromkeys(expr.args) if graph[arg].op == CORNER]


def _narrowest(array: Array, shape: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """An array, of the greatest sizes of `shape`, without open dimensions of equal elements."""
    for axis, extent in enumerate(shape):
        first = array.take([0], axis)
        if isinstance(extent, Dim) and (array == first).all():
            array, shape = first, (*shape[:axis], 1, *shape[axis + 1 :])
    return array, shape


def _is_kept(graph: Graph, index: int, sized: Mapping[int, _Sized]) -> bool:
    """Whether something else reads the value, and it takes more than numbering places."""
    expr, value = graph[index], sized[index]
    is_read = index in graph.escaping or any(r not in sized for r in graph.consumers[index])
    is_open = any(isinstance(extent, Dim) for extent in expr.static_shape)
    return is_read and is_open and expr.op != CORNER and value.is_plain and value.steps > 0


def _sized(graph: Graph) -> dict[int, _Sized]:
    """The values that depend on sizes and constants alone; constants are among them."""
    found: dict[int, _Sized] = {}
    for index, expr in enumerate(graph.exprs):
        if not expr.is_static or expr.pinned:
            continue
        made = _made(graph, expr, found)
        if made is not None and made.array.nbytes <= _MOST_BYTES:
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
    if _bytes(expr) > _MOST_BYTES:
        return None
    rule = _RULES.get(expr.op, _elementwise if expr.op in _ELEMENTWISE else None)
    return None if rule is None else rule(expr, args)


def _of_array(array: Array, shape: Sequence[int], steps: int = 0) -> _Sized:
    """A plain value of `shape`, which is `array` where sizes are greatest."""
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    return _Sized(
        array=array.reshape([array.shape[axis] for axis in kept]),
        extents=tuple(shape[axis] for axis in kept),
        counts=tuple(int(extent != 1) for extent in shape),
        steps=steps,
    )


def _most(extent: int) -> int:
    """The greatest value of an extent, or one above."""
    return extent.bounds[1] if isinstance(extent, Dim) else extent


def _bytes(expr: Expr) -> int:
    """The bytes of a tensor of the greatest sizes, in the widest type."""
    return prod(map(_most, expr.static_shape)) * np.dtype(expr.dtype).itemsize


def _counted(expr: Expr) -> _Sized | None:
    begin, step = expr.attrs.get("begin"), expr.attrs.get("step")
    if begin is None or step is None or _bytes(expr) > _MOST_BYTES:
        return None
    (extent,) = expr.static_shape
    numbers = cast("int", begin) + cast("int", step) * np.arange(_most(extent))
    return _of_array(numbers.astype(expr.dtype), expr.static_shape)


def _steps(args: Sequence[_Sized]) -> int:
    return sum(arg.steps for arg in args)


def _applied(expr: Expr, args: Sequence[_Sized], arrays: Sequence[Array]) -> Array | None:
    del args
    shape = tuple(map(_most, expr.static_shape))
    operator = Applied(name=expr.op, attrs=expr.attrs, shape=shape, dtype=expr.dtype)
    return applied(operator, arrays)


def _whole(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """An operator on plain values, each dimension of whose result is as the operands have it."""
    if not all(arg.is_plain for arg in args):
        return None
    made = _applied(expr, args, [arg.full for arg in args])
    return None if made is None else _of_array(made, expr.static_shape, _steps(args) + 1)


def _elementwise(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    if all(arg.is_plain for arg in args):
        return _whole(expr, args)
    first, *others = args
    if any(other.extents for other in others):
        return None
    # A value of joined dimensions, and numbers.
    operator = Applied(name=expr.op, attrs=expr.attrs, shape=first.array.shape, dtype=expr.dtype)
    made = applied(operator, [first.array, *(other.array for other in others)])
    if made is None:
        return None
    return _Sized(made, first.extents, first.counts, _steps(args) + 1)


def _viewed(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Dimensions side by side may become one, and one of those again what it was made of."""
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
    rank = len(expr.static_shape)
    axes = cast("tuple[int, ...] | None", expr.attrs["axes"])
    if not x.is_plain:
        return None
    order = tuple(axis % rank for axis in axes) if axes is not None else tuple(range(rank))[::-1]
    return _of_array(x.full.transpose(order), expr.static_shape, x.steps)


def _broadcast(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    (x,) = args
    if not x.is_plain:
        return None
    shape = tuple(map(_most, expr.static_shape))
    return _of_array(np.broadcast_to(x.full, shape), expr.static_shape, x.steps)


def _cut(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """A slice that begins where its tensor does, and ends within it."""
    (x,) = args
    shape = tuple(map(_most, expr.static_shape))
    if not expr.attrs.get("corner") or not x.is_plain:
        return None
    if any(most > extent for most, extent in zip(shape, x.full.shape, strict=True)):
        return None
    return _of_array(x.full[tuple(map(slice, shape))], expr.static_shape, x.steps + 1)


def _taken(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Rows of a table of known size, by places in it."""
    table, places = args
    is_known = table.is_plain and not any(isinstance(extent, Dim) for extent in table.extents)
    if not is_known or expr.attrs.get("axis") != 0 or places.array.dtype.kind not in "iu":
        return None
    rows, *columns = table.full.shape
    if places.array.size and not 0 <= places.array.min() <= places.array.max() < rows:
        return None
    made = _of_array(table.full[0], tuple(columns))
    return _Sized(
        array=table.full[places.array].reshape(*places.array.shape, *made.array.shape),
        extents=(*places.extents, *made.extents),
        counts=(*places.counts, *made.counts),
        steps=_steps(args) + 1,
    )


def _triangular(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    return _whole(expr, args) if len(expr.static_shape) > 1 else None


def _joined(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """Tensors side by side along a dimension of known size."""
    axis = expr.attrs["axis"]
    if not isinstance(axis, int) or isinstance(expr.static_shape[axis], Dim):
        return None
    return _whole(expr, args)


def _multiplied(expr: Expr, args: Sequence[_Sized]) -> _Sized | None:
    """A product of matrices, whose sums are of known length."""
    left, right = args
    if not (left.is_plain and right.is_plain) or min(len(left.counts), len(right.counts)) < 2:
        return None
    inner = left.extents[-1] if left.counts[-1] else 1
    return None if isinstance(inner, Dim) else _whole(expr, args)


_Rule = Callable[[Expr, Sequence[_Sized]], "_Sized | None"]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_VIEWS, _viewed),
    "permute_dims": _permuted,
    _BROADCAST: _broadcast,
    _SLICE: _cut,
    "take": _taken,
    **dict.fromkeys(("triu", "tril"), _triangular),
    "concat": _joined,
    "matmul": _multiplied,
}
