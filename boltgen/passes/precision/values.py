"""A model's values under normalisation: their contents, layouts and dtypes.

A value's *logical* form is the one that the model's author wrote. It is *stored* with its
dimensions permuted (`order`), and narrowed to FP16 or BF16; converting back waits until someone
asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from boltgen.graph.graph import Array, GraphBuilder
from boltgen.graph.numpy_semantics.operation import along
from boltgen.graph.view import Factor, Factors, extent_of, in_shape, split_factor
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.reach import WITHIN, Reach

Order = tuple[int, ...]
NHWC: Order = (0, 2, 3, 1)  # for a logical NCHW
FLAT: Order = (-1,)  # for a logical (N, C*H*W) that is stored as (N, H*W*C)
FLOATS = frozenset({"float16", "float32"})
# Weights up to it are looked at more closely: the largest of most is greater.
_ORDINARY = 2.0**-6


def identity(rank: int) -> Order:
    """The order of a value that is stored as it is written."""
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """The order that undoes `order`."""
    return tuple(order.index(axis) for axis in range(len(order)))


def permuted(shape: tuple[int, ...], order: Order) -> tuple[int, ...]:
    """`shape` with its dimensions in `order`."""
    return tuple(shape[axis] for axis in order)


def order_of(layout: str, goal: str) -> Order:
    """The axes of `layout` in the order of `goal`: both are words such as NCHW."""
    return tuple(layout.index(letter) for letter in goal)


def moves_nothing(shape: tuple[int, ...], order: Order) -> bool:
    """Whether permuting only moves dimensions of extent 1: the memory stays as it is."""
    kept = [axis for axis in order if shape[axis] != 1]
    return kept == sorted(kept)


def regrouped(shape: tuple[int, ...], order: Order, target: tuple[int, ...]) -> Order | None:
    """Return the order of `target`, with the elements of `shape` in the layout `order`.

    Return None if elements would have to move: if dimensions that are merged do not lie side by
    side.
    """
    lying = [axis for axis in order if shape[axis] != 1]
    parts = [Factor(e, (lying.index(axis),)) for axis, e in enumerate(shape) if e != 1]
    dims = in_shape(parts, target, extent_of, split_factor)
    if dims is None or not all(len(dim) < 2 or _is_run(dim) for dim in dims):
        return None
    axes = [axis for axis, dim in enumerate(dims) if dim]
    found = sorted(axes, key=lambda axis: dims[axis][0].place)
    # An extent of 1 lies before the dimension that it is written before.
    for axis in reversed(range(len(target))):
        if axis not in found:
            found.insert(found.index(axis + 1) if axis + 1 in found else len(found), axis)
    return tuple(found)


def _is_run(dim: Factors) -> bool:
    """Return whether factors are whole dimensions that lie side by side."""
    first = dim[0].place[0]
    return [factor.place for factor in dim] == [(first + at,) for at in range(len(dim))]


def as_c_array(array: Array) -> Array:
    """The array in C order, its rank kept (which `ascontiguousarray` does not do for scalars)."""
    return np.asarray(array, order="C")


@dataclass(slots=True)
class Linear:
    """A product whose weight and bias are constants and which is not emitted yet.

    A batch norm that follows goes into both. `axis` is the output channel's in the weight;
    `channel` its axis in the logical result. `emit` writes the product of a weight and a bias,
    whose result has the given reach.
    """

    emit: Callable[[Array, Array | None, Reach], int]
    weight: Array
    axis: int
    channel: int
    bias: Array | None = None

    def scale(self, scale: Array) -> None:
        """Multiply the result by `scale`, one number per channel."""
        factors = along(self.axis, scale.astype(np.float32), self.weight.ndim)
        self.weight = self.weight * factors
        self.bias = None if self.bias is None else self.bias * scale

    def add(self, shift: Array) -> None:
        """Add `shift`, one number per channel, to the result."""
        bias = 0.0 if self.bias is None else self.bias
        self.bias = bias + shift.astype(np.float64)

    def reach(self, given: Reach) -> Reach:
        """The reach `given`, made smaller where weights and bias make all results small."""
        if max(self.weight.max(initial=0.0), -self.weight.min(initial=0.0)) > _ORDINARY:
            return given
        others = tuple(axis for axis in range(self.weight.ndim) if axis != self.axis)
        squares = np.square(self.weight, dtype=np.float64).sum(others)
        bias = 0.0 if self.bias is None else np.abs(self.bias)
        size = float((np.sqrt(squares) + bias).max(initial=0.0))
        return replace(given, size=min(given.size, size)) if 0.0 < size < 1.0 else given


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum over `count` elements, which divided by their number is within `reach`."""

    count: int
    reach: Reach


@dataclass(frozen=True, slots=True)
class Padded:
    """Zeros around the spatial dimensions of `source`, (before, after) for each logical axis."""

    source: Value
    widths: tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)
class Value:
    """One tensor.

    Exactly one of `constant` (logical form), `pending` and `forms` is what it is made of; `forms`
    has its expressions by (order, dtype). `flat` is (C, H, W) of a logical (N, C*H*W) that is
    stored in the order H, W, C. `reach` says whether FP16 may not hold it. `stacked` has the
    tensors that are one after another along a new first dimension. `saturated` has the value within
    FP16's range by its least number, once that was asked for. An `is_infinite` value may have an
    infinity that the model's author wrote. `origin` is the IR's own form of a constant,
    `moved_from` the value whose elements these are in another order, shape or dtype.
    """

    shape: tuple[int, ...]
    dtype: str  # logical
    order: Order
    stored: str = ""  # dtype
    constant: Array | None = None
    pending: Linear | None = None
    forms: dict[tuple[Order, str], int] = field(default_factory=dict)
    flat: tuple[int, int, int] | None = None
    stacked: tuple[Value, ...] = ()
    padded: Padded | None = None
    mean: Mean | None = None
    saturated: dict[float, Value] = field(default_factory=dict)
    reach: Reach = WITHIN
    is_exact: bool = False
    is_infinite: bool = False
    single_use: bool = False
    origin: Any = None
    moved_from: Value | None = None

    @property
    def elements_of(self) -> Value:
        """The value that computed these elements."""
        return self if self.moved_from is None else self.moved_from

    @property
    def is_float(self) -> bool:
        """Whether narrowing concerns it."""
        return self.dtype in FLOATS


def is_same(a: Value, b: Value) -> bool:
    """Return whether two values have the same elements, in any order and shape."""
    return a.elements_of is b.elements_of


class Store:
    """Convert values from one form to another, and emit the necessary operators.

    `precision` is the type that products multiply, `narrow` the name of its arrays.
    """

    def __init__(self, builder: GraphBuilder, precision: DType = DType.F16) -> None:
        self.builder = builder
        self.precision = precision
        self.narrow: str = precision.value

    def of_array(self, array: Array, origin: Any = None) -> Value:
        """A constant."""
        return Value(
            shape=array.shape,
            dtype=str(array.dtype),
            order=identity(array.ndim),
            stored=str(array.dtype),
            constant=array,
            origin=origin,
            reach=Reach.of_constant(array, self.precision),
        )

    def of_expr(
        self, expr: int, shape: tuple[int, ...], dtype: str, order: Order | None = None
    ) -> Value:
        """A value of logical `shape` and `dtype` that `expr` computes in `order`."""
        order = identity(len(shape)) if order is None else order
        stored = self.builder.dtype(expr)
        forms = {(order, stored): expr}
        return Value(shape=shape, dtype=dtype, order=order, stored=stored, forms=forms)

    def settle(self, value: Value) -> Value:
        """`value` with its pending product emitted."""
        if value.pending is not None:
            linear, value.pending = value.pending, None
            value.reach = linear.reach(value.reach)
            expr = linear.emit(linear.weight, linear.bias, value.reach)
            value.stored = self.builder.dtype(expr)
            value.forms[value.order, value.stored] = expr
        return value

    def get(self, value: Value, order: Order | None = None, dtype: str | None = None) -> int:
        """Return the expression of `value` in `order` and `dtype`; by default logical and as
        stored.
        """
        self.settle(value)
        order = identity(len(value.shape)) if order is None else order
        dtype = value.stored if dtype is None else dtype
        if (order, dtype) in value.forms:
            return value.forms[order, dtype]
        if value.constant is not None:
            made = self._constant(value, order, dtype)
        elif (order, value.stored) in value.forms:
            made = self.builder.astype(value.forms[order, value.stored], dtype)
        else:
            made = self._reordered(value, order, dtype)
        value.forms[order, dtype] = made
        return made

    def _constant(self, value: Value, order: Order, dtype: str) -> int:
        array = value.constant
        assert array is not None
        if str(array.dtype) == dtype and order == identity(array.ndim):
            return self.builder.constant(array, value.origin)
        return self.array(array, order, dtype)

    def array(self, array: Array, order: Order, dtype: str) -> int:
        """The expression of a constant with its dimensions in `order`."""
        with np.errstate(over="ignore"):  # to infinity, which `reach` and `as_weight` decide on
            narrow = array.astype(dtype, copy=False)
        return self.builder.constant(as_c_array(narrow.transpose(order)))

    def _reordered(self, value: Value, order: Order, dtype: str) -> int:
        # Narrow before moving, widen after: fewer bytes go through the permutation.
        before = dtype if dtype == self.narrow and value.stored == "float32" else value.stored
        expr = self.get(value, value.order, before)
        if value.flat is not None:
            c, h, w = value.flat
            expr = self.builder.reshape(expr, (value.shape[0], h, w, c))
            expr = self.builder.permute_dims(expr, inverse(NHWC))
            expr = self.builder.reshape(expr, value.shape)
            if order != identity(len(value.shape)):
                expr = self.builder.permute_dims(expr, order)
        else:
            stored_shape = permuted(value.shape, value.order)
            back = inverse(value.order)
            step = tuple(back[axis] for axis in order)
            if moves_nothing(stored_shape, step):
                expr = self.builder.reshape(expr, permuted(value.shape, order))
            elif step != identity(len(step)):
                expr = self.builder.permute_dims(expr, step)
        if before != dtype:
            value.forms[order, before] = expr
            expr = self.builder.astype(expr, dtype)
        return expr

    def result(self, value: Value) -> int:
        """Return the logical form in the logical dtype, which leaves the function."""
        return self.get(value, None, value.dtype)
