"""The operators that passes make or know: one record each.

A record has the number of operands, and the result's shape and dtype as they follow from operands
and attributes. `boltgen.graph.verify` holds graphs to the records. An operator without a record is
its author's, and passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TypeAlias

from boltgen.graph.attributes import (
    AdaptivePool,
    Axis,
    Cast,
    Convolution,
    Pad,
    Permutation,
    Pool,
    RecurrentSteps,
    Reduce,
    Slice,
    Unpack,
)
from boltgen.graph.graph import (
    CONSTANT,
    CORNER,
    GROUPED,
    INPUT,
    OPAQUE,
    PART,
    RECURRENT,
    REGION,
    UNPACK,
    Expr,
)
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim, broadcast
from boltgen.ir.recurrence import Cell

Shape: TypeAlias = "tuple[int, ...]"
# An inferred shape may have None for an extent that no rule computes.
Inferred: TypeAlias = "tuple[int | None, ...] | None"
ShapeRule: TypeAlias = "Callable[[Expr, Sequence[Shape]], Inferred]"
DtypeRule: TypeAlias = "Callable[[Expr, Sequence[str]], str | None]"
_BOOL = "bool"


class OperandError(ValueError):
    """Operands or attributes that do not fit together; the message says which rule they break."""


def _unknown(*_: object) -> None:
    """Infer nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator: `least` to `most` operands (None: any number), and inference.

    `shape` and `dtype` return None where they do not follow from the operands.
    """

    name: str
    least: int
    most: int | None
    shape: ShapeRule = _unknown
    dtype: DtypeRule = _unknown


def differs(extent: int, other: int) -> bool:
    """Whether two extents are different for all values of their symbols."""
    if not isinstance(extent, Dim) and not isinstance(other, Dim):
        return extent != other
    difference = extent - other
    if not isinstance(difference, Dim):
        return difference != 0
    low, high = difference.bounds
    return low > 0 or high < 0


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise OperandError(rule)


def _first_dtype(_: Expr, dtypes: Sequence[str]) -> str | None:
    return dtypes[0]


def _equal_dtypes(_: Expr, dtypes: Sequence[str]) -> str | None:
    _require(len(set(dtypes)) == 1, f"operands of the dtypes {', '.join(dtypes)} must be equal")
    return dtypes[0]


def _truth(*_: object) -> str:
    return _BOOL


def _same(_: Expr, shapes: Sequence[Shape]) -> Inferred:
    return shapes[0]


def _broadcast(_: Expr, shapes: Sequence[Shape]) -> Inferred:
    """The common shape; a symbolic extent that may equal another one is not compared."""
    if not any(isinstance(extent, Dim) for shape in shapes for extent in shape):
        try:
            return broadcast(*shapes)
        except ValueError as error:
            raise OperandError(str(error)) from None
    made: list[int | None] = []
    for extents in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1):
        others = [extent for extent in extents if isinstance(extent, Dim) or extent != 1]
        for other in others[1:]:
            _require(not differs(others[0], other), f"{others[0]} and {other} must broadcast")
        is_known = len(set(others)) <= 1
        made.append((others or [1])[0] if is_known else None)
    return tuple(made[::-1])


def _elements(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    """A view: as many elements as the operand."""
    if not expr.is_static:
        return None
    before, after = prod(shapes[0]), expr.elements
    _require(not differs(before, after), f"{before} elements cannot be {after}")
    return expr.static_shape


def _axis(axis: int, rank: int) -> int:
    _require(-rank <= axis < rank, f"axis={axis} must be an axis of {rank}")
    return axis % rank


def _permuted(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    (shape,), axes = shapes, expr.attrs.of(Permutation).axes
    order = [axis % len(shape) for axis in axes] if axes is not None else range(len(shape))[::-1]
    _require(sorted(order) == list(range(len(shape))), f"axes={axes} must name each axis once")
    return tuple(shape[axis] for axis in order)


def _broadcast_to(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    if not expr.is_static:
        return None
    wanted = expr.static_shape
    made = _broadcast(expr, [*shapes, wanted])
    _require(made is not None and len(made) == len(wanted), f"{wanted} must be the larger shape")
    return made


def _concatenated(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    first, along = shapes[0], expr.attrs.of(Axis).axis
    if along is None:
        return None
    axis = _axis(along, len(first))
    for shape in shapes[1:]:
        _require(len(shape) == len(first), "operands must have one rank")
        for place, (left, right) in enumerate(zip(first, shape, strict=True)):
            _require(
                place == axis or not differs(left, right),
                f"extents {left} and {right} of axis {place} must be equal",
            )
    total = sum((shape[axis] for shape in shapes[1:]), start=first[axis])
    return (*first[:axis], total, *first[axis + 1 :])


def _stacked(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    along = expr.attrs.of(Axis).axis
    if along is None:
        return None
    axis = _axis(along, len(shapes[0]) + 1)
    return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])


def _sliced(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    """Neighbours along one axis; other slices are their author's."""
    if not isinstance(expr.attrs, Slice):
        return None
    axis, begin, end = _axis(expr.attrs.axis, len(shapes[0])), expr.attrs.begin, expr.attrs.end
    extent = shapes[0][axis]
    if not isinstance(extent, Dim):
        _require(0 <= begin <= end <= extent, f"{begin}:{end} must be within {extent}")
    return (*shapes[0][:axis], end - begin, *shapes[0][axis + 1 :])


def _taken(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    (x, rows), along = shapes, expr.attrs.of(Axis).axis
    if along is None:
        return rows
    axis = _axis(along, len(x))
    return (*x[:axis], *rows, *x[axis + 1 :])


def _reduced(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    rank, attrs = len(shapes[0]), expr.attrs.of(Reduce)
    axes = set(range(rank)) if attrs.axis is None else {axis % rank for axis in attrs.axis}
    if attrs.keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shapes[0]))
    return tuple(extent for axis, extent in enumerate(shapes[0]) if axis not in axes)


def _mean_of_image(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    n, _, _, c = shapes[0]
    return (n, 1, 1, c) if expr.attrs.of(Reduce).keepdims else (n, c)


def _multiplied(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        return None
    _require(not differs(a[-1], b[-2]), f"inner extents {a[-1]} and {b[-2]} must be equal")
    batch = _broadcast(expr, (a[:-2], b[:-2])) or ()
    return (*batch, a[-2], b[-1])


def _multiplied_in_groups(_: Expr, shapes: Sequence[Shape]) -> Inferred:
    a, b, ends = shapes
    _require(len(a) == 2 and len(b) == 3, "operands must be (M, K) and (groups, K, N)")
    _require(not differs(a[-1], b[1]), f"inner extents {a[-1]} and {b[1]} must be equal")
    _require(len(ends) == 1 and not differs(ends[0], b[0]), "each group must have an end")
    return a[0], b[2]


def _recurred(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    a, weights = shapes[:2]
    attrs = expr.attrs.of(RecurrentSteps)
    cell, roles = Cell(attrs.cell), attrs.roles
    _require(len(shapes) == 2 + len(roles), f"operands must be a, weights, {', '.join(roles)}")
    _require(len(a) == 3 and len(weights) == 3, "a and weights must have three dimensions")
    (steps, batch, columns), (directions, width, hidden) = a, weights
    gates = cell.gates
    _require(width == gates * hidden, f"{width} rows of weights must be {gates} of {hidden}")
    _require(columns == directions * width, f"{columns} columns must be {directions} of {width}")
    last = cell.states if attrs.keeps_last else 0
    return steps + last, batch, directions * hidden


def _convolved(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    attrs = expr.attrs.of(Convolution)
    data, kernel, out = attrs.data_layout, attrs.kernel_layout, attrs.out_layout
    pixels = "DHW"[-(len(data) - 2) :]
    if sorted(data) != sorted(out) or sorted(data) != sorted("NC" + pixels):
        return None
    if sorted(kernel) != sorted("OI" + pixels):
        return None
    x, w = dict(zip(data, shapes[0], strict=True)), dict(zip(kernel, shapes[1], strict=True))
    _require(
        not differs(x["C"], w["I"] * attrs.groups),
        f"{x['C']} channels must be {w['I']} times {attrs.groups} groups",
    )
    made = {"N": x["N"], "C": w["O"]} | _placed(attrs, pixels, x, w)
    return tuple(made[axis] for axis in out)


def _placed(
    attrs: Convolution | Pool, pixels: str, x: Mapping[str, int], window: Mapping[str, int]
) -> dict[str, int | None]:
    """Return the number of windows along each axis of pixels; None along a dynamic one."""
    made: dict[str, int | None] = dict.fromkeys(pixels)
    for place, axis in enumerate(pixels):
        if not isinstance(x[axis], Dim):
            before, after = attrs.padding[place], attrs.padding[place + len(pixels)]
            free = x[axis] + before + after - attrs.dilation[place] * (window[axis] - 1) - 1
            step = attrs.strides[place]
            # TVM and PyTorch have a last window that begins behind the image in different cases.
            is_unknown = isinstance(attrs, Pool) and attrs.ceil_mode and free % step
            made[axis] = None if is_unknown else free // step + 1
    return made


def _pooled(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    attrs = expr.attrs.of(Pool)
    if sorted(attrs.layout) != sorted("NCHW") or attrs.out_layout not in {"", attrs.layout}:
        return None
    x = dict(zip(attrs.layout, shapes[0], strict=True))
    windows = dict(zip("HW", attrs.pool_size, strict=True))
    made = x | _placed(attrs, "HW", x, windows)
    return tuple(made[axis] for axis in attrs.layout)


def _pooled_to_size(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    attrs = expr.attrs.of(AdaptivePool)
    if sorted(attrs.layout) != sorted("NCHW") or attrs.out_layout not in {"", attrs.layout}:
        return None
    size = attrs.output_size * (2 // len(attrs.output_size))
    made = dict(zip(attrs.layout, shapes[0], strict=True)) | dict(zip("HW", size, strict=True))
    return tuple(made[axis] for axis in attrs.layout)


def _gathered(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    """The indices' shape; `x` is as large along the other axes at least."""
    (x, places), along = shapes, expr.attrs.of(Axis).axis
    _require(len(x) == len(places), f"{len(x)} axes must have {len(places)} axes of indices")
    axis = _axis(along or 0, len(x))
    for at, (extent, wanted) in enumerate(zip(x, places, strict=True)):
        is_beyond = not isinstance(wanted - extent, Dim) and wanted > extent
        _require(at == axis or not is_beyond, f"{wanted} indices must be within {extent}")
    return places


def _indexed(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    """The common shape of the indices, and the axes that they leave."""
    x, *indices = shapes
    _require(len(indices) <= len(x), f"{len(indices)} indices must be of {len(x)} axes")
    made = _broadcast(expr, indices)
    return None if made is None else (*made, *x[len(indices) :])


def _padded(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    widths = expr.attrs.of(Pad).widths
    _require(len(widths) == len(shapes[0]), f"{len(widths)} widths must be {len(shapes[0])}")
    return tuple(
        before + extent + after for extent, (before, after) in zip(shapes[0], widths, strict=True)
    )


def _cut(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    _require(len(shapes[0]) == len(expr.shape or ()), "the rank must stay")
    return None


def _unpacked(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    return shapes[0][0], expr.attrs.of(Unpack).k


def _quantised(expr: Expr, shapes: Sequence[Shape]) -> Inferred:
    """The tensor's shape; there is one scale and zero point, or one for each place of the axis."""
    along = shapes[0][_axis(expr.attrs.of(Axis).axis or 0, len(shapes[0]))] if shapes[0] else 1
    for count in map(prod, shapes[1:]):
        _require(count == 1 or not differs(count, along), f"{count} scales must be 1 or {along}")
    return shapes[0]


def _halved(_: Expr, shapes: Sequence[Shape]) -> Inferred:
    *rows, columns = shapes[0]
    _require(columns % 2 == 0, f"{columns} columns must be even")
    return (*rows, columns // 2)


def _float16(*_: object) -> str:
    return DType.F16.value


def _cast_from(expr: Expr, dtypes: Sequence[str]) -> str | None:
    source = expr.attrs.of(Cast).from_dtype
    _require(source == dtypes[0], f"from_dtype={source} must be the operand's, {dtypes[0]}")
    return None


def _chosen(_: Expr, dtypes: Sequence[str]) -> str | None:
    _require(dtypes[0] == _BOOL, f"the condition is {dtypes[0]} and must be bool")
    _require(dtypes[1] == dtypes[2], f"choices of {dtypes[1]} and {dtypes[2]} must be equal")
    return dtypes[1]


def _of(
    least: int,
    most: int | None,
    *names: str,
    shape: ShapeRule = _unknown,
    dtype: DtypeRule = _unknown,
) -> list[Operator]:
    """Records of operators that differ in their names only."""
    return [Operator(name=name, least=least, most=most, shape=shape, dtype=dtype) for name in names]


_UNARY = (
    *("abs", "ceil", "cos", "erf", "exp", "floor", "log", "negative", "round", "rsqrt", "sign"),
    *("sigmoid", "sin", "sqrt", "square", "tan", "tanh", "trunc", "bitwise_not", "clip", "nn.relu"),
    *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus"),
)
OPERATORS: Mapping[str, Operator] = {
    each.name: each
    for each in [
        # Values that compute nothing.
        *_of(0, 0, INPUT, CONSTANT),
        *_of(0, None, OPAQUE),
        *_of(1, 1, PART),
        *_of(0, None, REGION),
        # Elementwise operators of one tensor.
        *_of(1, 1, *_UNARY, shape=_same, dtype=_first_dtype),
        *_of(1, 1, "isnan", "logical_not", shape=_same, dtype=_truth),
        *_of(1, 1, "astype", shape=_same, dtype=_cast_from),
        # Elementwise operators of several.
        *_of(2, 2, "add", "subtract", "multiply", "divide", shape=_broadcast, dtype=_equal_dtypes),
        *_of(2, 2, "maximum", "minimum", "power", shape=_broadcast, dtype=_equal_dtypes),
        *_of(2, 2, "mod", "floor_mod", shape=_broadcast, dtype=_equal_dtypes),
        *_of(2, 2, "bitwise_and", "bitwise_or", shape=_broadcast, dtype=_equal_dtypes),
        *_of(2, 2, "logical_and", "logical_or", shape=_broadcast, dtype=_truth),
        *_of(2, 2, "equal", "not_equal", shape=_broadcast, dtype=_truth),
        *_of(2, 2, "greater", "greater_equal", shape=_broadcast, dtype=_truth),
        *_of(2, 2, "less", "less_equal", shape=_broadcast, dtype=_truth),
        *_of(3, 3, "where", shape=_broadcast, dtype=_chosen),
        *_of(3, 3, "quantize", "dequantize", shape=_quantised),
        *_of(2, 2, "nn.prelu", "nn.bias_add", shape=_same, dtype=_first_dtype),
        # Views and other movements.
        *_of(1, 1, "reshape", shape=_elements, dtype=_first_dtype),
        *_of(1, 1, "permute_dims", shape=_permuted, dtype=_first_dtype),
        *_of(1, 1, "broadcast_to", shape=_broadcast_to, dtype=_first_dtype),
        *_of(1, None, "concat", shape=_concatenated, dtype=_equal_dtypes),
        *_of(1, None, "stack", shape=_stacked, dtype=_equal_dtypes),
        *_of(1, 1, "split"),
        *_of(1, 1, "strided_slice", shape=_sliced, dtype=_first_dtype),
        *_of(2, 2, "take", shape=_taken, dtype=_first_dtype),
        *_of(2, 2, "gather_elements", shape=_gathered, dtype=_first_dtype),
        *_of(2, None, "index_tensor", shape=_indexed, dtype=_first_dtype),
        *_of(1, 1, "triu", "tril", shape=_same, dtype=_first_dtype),
        *_of(1, 1, "nn.pad", shape=_padded, dtype=_first_dtype),
        *_of(1, 1, CORNER, shape=_cut, dtype=_first_dtype),
        # Reductions, norms and softmax.
        *_of(1, 1, "mean", "sum", "max", "min", "variance", "std", shape=_reduced),
        *_of(1, 1, "image_mean", shape=_mean_of_image, dtype=_first_dtype),
        *_of(1, 1, "nn.softmax", "nn.log_softmax", shape=_same, dtype=_first_dtype),
        *_of(1, None, "nn.layer_norm", "nn.rms_norm", "nn.group_norm", shape=_same),
        *_of(5, 5, "nn.batch_norm", shape=_same),
        *_of(1, 1, "group_norm", shape=_same),
        *_of(2, None, "boltgen.normed", shape=_same),
        # Anchors. The dtype is the one in which products are summed and stored.
        *_of(2, 2, "matmul", shape=_multiplied),
        *_of(3, 3, GROUPED, shape=_multiplied_in_groups),
        *_of(2, 5, RECURRENT, shape=_recurred),
        *_of(2, 2, "nn.conv1d", "nn.conv2d", "nn.conv3d", shape=_convolved),
        *_of(1, 1, "nn.max_pool2d", "nn.avg_pool2d", shape=_pooled, dtype=_first_dtype),
        *_of(1, 1, "nn.adaptive_avg_pool2d", shape=_pooled_to_size, dtype=_first_dtype),
        *_of(1, 1, UNPACK, shape=_unpacked, dtype=_float16),
        *_of(1, 1, "boltgen.half", shape=_halved, dtype=_first_dtype),
    ]
}
