"""Views: tensors with the elements of another tensor, in other dimensions.

`Moved` has factors of the extents of its source, `Strided` the strides of its dimensions in memory.
A reshape of either splits and joins its parts: `in_shape`. `Spread` repeats elements along
dimensions of a larger tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TypeVar

from boltgen.graph.attributes import Slice
from boltgen.graph.facts import permutation
from boltgen.graph.graph import Expr
from boltgen.ir.extent import Dim, divides

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of an extent of the source, at a `place` that says in which order they lie."""

    extent: int
    place: tuple[int, ...]


Factors = tuple[Factor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The elements of `source`, an expression of the new graph, as a tensor of these `dims`.

    `plain` is the author's way to it, with so many `moves` and `transposes` after the source; None
    if that way does not start at this source, but at a slice, or at a matmul of rows in another
    order. Such a `product` has swapped the factors from axis 0 on with the factors from axis
    `second` on.
    """

    source: int
    dims: tuple[Factors, ...]
    plain: int | None
    moves: int = 0
    transposes: int = 0
    product: int | None = None
    second: int = 0

    @property
    def factors(self) -> Factors:
        """The factors of all dimensions, in their order."""
        return tuple(factor for dim in self.dims for factor in dim)

    @property
    def lying(self) -> Factors:
        """The same in the order in which they lie."""
        return tuple(sorted(self.factors, key=lambda factor: factor.place))

    @property
    def is_view(self) -> bool:
        """Whether a reshape of the source is all that it is."""
        return self.factors == self.lying

    @property
    def is_turned_back(self) -> bool:
        """Whether the rows of a product that changed their order are wanted in their author's."""
        axes = [factor.place[0] for factor in self.factors]
        is_both = 0 in axes and self.second in axes
        return self.product is not None and is_both and axes.index(self.second) < axes.index(0)


def whole(at: int, shape: tuple[int, ...]) -> Moved:
    """A tensor that lies as it is written."""
    dims = tuple(
        () if extent == 1 else (Factor(extent, (axis,)),) for axis, extent in enumerate(shape)
    )
    return Moved(source=at, dims=dims, plain=at)


def passes_one_row(x: Moved, order: Sequence[int]) -> bool:
    """Return whether a transpose only moves heads past one row, with a dynamic extent.

    As a view it would be one that TVM copies, since it cannot tell; attention reads past it.
    """
    is_open = any(isinstance(factor.extent, Dim) for factor in x.factors)
    moved = [axis for axis in order if x.dims[axis]]
    return is_open and moved == sorted(moved) and order[-1] == len(order) - 1


def extent_of(factor: Factor) -> int:
    """Its extent, for `in_shape`."""
    return factor.extent


def extent(factors: Sequence[Factor]) -> int:
    """The extent of a dimension of these factors."""
    return prod(factor.extent for factor in factors)


def in_shape(
    parts: Sequence[T],
    shape: tuple[int, ...],
    size: Callable[[T], int],
    split: Callable[[T, int], tuple[T, T]],
) -> tuple[tuple[T, ...], ...] | None:
    """The parts of all dimensions, in order, by the dimensions of another shape.

    `size` is the extent of a part; `split` divides it into an outer part of that extent and an
    inner one. Return None if parts cannot be multiplied to an extent of the shape.
    """
    left = list(parts)
    dims: list[tuple[T, ...]] = []
    for wanted in shape:
        dim: list[T] = []
        rest = wanted
        while rest != 1:
            if not left:
                return None
            part = left.pop(0)
            if size(part) == rest:
                rest = 1
            elif divides(size(part), rest):
                rest = rest // size(part)
            elif divides(rest, size(part)):
                part, inner = split(part, rest)
                left.insert(0, inner)
                rest = 1
            else:
                return None
            dim.append(part)
        dims.append(tuple(dim))
    return tuple(dims) if not left else None


def split_factor(factor: Factor, outer: int) -> tuple[Factor, Factor]:
    """An outer factor of the extent `outer`, and an inner one of what is left."""
    inner = factor.extent // outer
    return Factor(outer, (*factor.place, 0)), Factor(inner, (*factor.place, 1))


def runs(dim: Factors, lying: Factors) -> list[Factors]:
    """Split a dimension's factors into runs that lie side by side."""
    found: list[Factors] = []
    for factor in dim:
        before = found[-1][-1] if found else None
        is_next = before is not None and lying.index(factor) == lying.index(before) + 1
        if before is not None and is_next and before.place[0] == factor.place[0]:
            found[-1] = (*found[-1], factor)
        else:
            found.append((factor,))
    return found


def swapped(moved: Moved) -> tuple[Factors, int] | None:
    """Return the factors of a matrix's rows as they lie, if rows are (B, S) there and (S, B) in the
    matrix; and how many are B's.

    Other orders, as of windows of an image, are left: there it is the rows that others view.
    """
    rows = tuple(factor for dim in moved.dims[:-1] for factor in dim)
    lying = tuple(sorted(rows, key=lambda factor: factor.place))
    breaks = [
        place
        for place, (before, after) in enumerate(pairwise(lying), 1)
        if rows.index(after) != rows.index(before) + 1
    ]
    return (lying, breaks[0]) if rows != lying and len(breaks) == 1 else None


# Extents above one, each with its stride: as few as say where a dimension's elements are.
Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor whose elements lie in another one: where its first is, and how dimensions lie."""

    dims: tuple[Steps, ...]
    offset: int = 0

    def permuted(self, axes: Sequence[int]) -> Strided:
        """The dimensions in another order."""
        return replace(self, dims=tuple(self.dims[axis] for axis in axes))

    def reshaped(self, shape: tuple[int, ...]) -> Strided | None:
        """The elements in another shape; None where steps cannot be multiplied to an extent."""
        steps = [step for dim in self.dims for step in dim]
        dims = in_shape(steps, shape, lambda step: step[0], _split_step)
        return None if dims is None else replace(self, dims=tuple(map(merged, dims)))

    def after(self, expr: Expr) -> Strided | None:
        """Return the result of an operator on this; None where no strides lead to its elements."""
        if expr.op == "reshape":
            return self.reshaped(expr.static_shape)
        if expr.op == "permute_dims":
            return self.permuted(permutation(expr))
        if not isinstance(expr.attrs, Slice):
            return None
        axis = expr.attrs.axis
        return self.sliced(axis, expr.attrs.begin, expr.static_shape[axis])

    def before(self, expr: Expr, shape: tuple[int, ...]) -> Strided | None:
        """Return the operand, of that shape, of a reshape or transpose whose result is this."""
        if expr.op == "reshape":
            return self.reshaped(shape)
        axes = permutation(expr)
        return self.permuted(tuple(axes.index(axis) for axis in range(len(axes))))

    def steps(self, first: int, last: int) -> Steps:
        """Return the dimensions from `first` to before `last` as one."""
        return merged([step for dim in self.dims[first:last] for step in dim])

    def sliced(self, axis: int, begin: int, count: int) -> Strided | None:
        """So many neighbours along an axis; None where no one stride leads along that."""
        if len(self.dims[axis]) != 1:
            return None
        ((_, stride),) = self.dims[axis]
        dims = list(self.dims)
        dims[axis] = merged([(count, stride)])
        return Strided(tuple(dims), self.offset + begin * stride)


def strided_whole(shape: tuple[int, ...]) -> Strided:
    """A tensor that lies row by row, as it is written."""
    strides = (prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Strided(tuple(merged([each]) for each in zip(shape, strides, strict=True)))


def merged(steps: Sequence[tuple[int, int]]) -> Steps:
    """As few extents and strides as say the same."""
    found: list[tuple[int, int]] = []
    for extent, stride in steps:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Spread:
    """A tensor that is broadcast to the shape `wanted`; it has the extents `own` there."""

    own: tuple[int, ...]
    wanted: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sequence[int], wanted: Sequence[int]) -> Spread | None:
        """Return a tensor of `shape` as part of a broadcast; None if it has more dimensions."""
        missing = len(wanted) - len(shape)
        return None if missing < 0 else cls((1,) * missing + tuple(shape), tuple(wanted))

    def keeps(self, first: int = 0, last: int | None = None) -> bool:
        """Return whether each place in the dimensions from `first` to before `last` has its own
        elements.
        """
        return self.own[first:last] == self.wanted[first:last]

    def repeats(self, first: int = 0, last: int | None = None) -> bool:
        """Return whether all places in these dimensions share their elements."""
        return prod(self.own[first:last]) == 1


def _split_step(step: tuple[int, int], outer: int) -> tuple[tuple[int, int], tuple[int, int]]:
    extent, stride = step
    inner = extent // outer
    return (outer, stride * inner), (inner, stride)
