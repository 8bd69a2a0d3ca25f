"""Normalisation of matrix products, convolutions and the batch norms that follow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from boltgen.frontend.graph import GROUPED, REASON, Array, GraphBuilder
from boltgen.frontend.passes.normalise.call import Declined, Item, OperatorCall, Rule
from boltgen.frontend.passes.normalise.elementwise import apply
from boltgen.frontend.passes.normalise.movement import viewed
from boltgen.frontend.passes.normalise.reach import BEYOND, WITHIN, Reach
from boltgen.frontend.passes.normalise.values import (
    FLOATS,
    Linear,
    Order,
    Value,
    as_c_array,
    as_weight,
    fits,
    identity,
    is_same,
    keeps,
    permuted,
    power_of_two,
)
from boltgen.ir.dtypes import DType, alignment_elements

_ACTIVATION_LAYOUTS = frozenset({"NCHW", "NHWC"})
_LAYOUT_NAMES = ("data_layout", "kernel_layout", "out_layout")
# A sine of a sum of at most so many products is taken of a position.
_FEW_POSITIONS = 16


def _order(layout: str, goal: str) -> Order:
    return tuple(layout.index(letter) for letter in goal)


def _kept_wide(call: OperatorCall, *operands: Value) -> str | None:
    """Why a product of `operands` cannot be computed in FP16 or BF16; None where it can.

    BF16 has FP32's range, so that nothing is beyond it.
    """
    is_short = call.store.precision.max_exponent < DType.F32.max_exponent
    for value in operands:
        if value.constant is not None:
            continue  # what is known is judged by its numbers
        reach = call.store.settle(value).reach
        if is_short and reach.is_small and not value.is_exact:
            return (
                f"an operand's numbers are small, about {reach.size:.0e}, and FP16 has few bits of "
                "such: multiply the product's result by the small factor, and not its operand"
            )
        if is_short and reach.is_outside and not value.is_exact:
            return (
                "FP16 may not hold an operand: squares, sums, positions or large numbers are in "
                "it; normalise or clip it before the product"
            )
        if call.context.is_mixed and value.dtype == "float32" and not value.is_exact:
            return (
                "its author made an operand float32 in a model with float16 products: cast it to "
                "float16 before the product"
            )
    return None


def _result_dtype(call: OperatorCall) -> tuple[str, Reach]:
    """The dtype of a product's result, and whether FP16 may not hold it.

    FP32 where its author made FP32 of FP16 operands, where a sine is taken of it, where it was seen
    to leave FP16's range, and where it is a sum of squares.
    """
    if call.is_kept_wide or is_same(*call.tensors[:2]):
        return "float32", BEYOND
    if call.context.is_mixed and call.dtype == "float32":
        return "float32", WITHIN
    return call.narrow, WITHIN


def _conv2d(call: OperatorCall) -> Item | Declined | None:
    attrs = call.attrs
    layout, kernel_layout = str(attrs["data_layout"]), str(attrs["kernel_layout"])
    known = layout in _ACTIVATION_LAYOUTS and set(kernel_layout) == set("OIHW")
    x, weight = call.tensor(0), call.tensor(1)
    if not known or attrs["out_layout"] != layout or call.dtype not in FLOATS:
        return None
    if (reason := _kept_wide(call, x, weight)) is not None:
        return Declined(reason)
    groups = cast("int", attrs["groups"])
    channels = x.shape[layout.index("C")]
    filters = weight.shape[kernel_layout.index("O")]
    if groups != 1 and not call.context.grouped_nhwc and not groups == channels == filters:
        return None
    x, padding = _with_padding(x, layout, cast("tuple[int, ...]", attrs["padding"]))
    order, kernel_order = _order(layout, "NHWC"), _order(kernel_layout, "OHWI")
    shape = tuple(call.shape[axis] for axis in order)
    store, builder = call.store, call.builder
    store.settle(x)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    written = {**attrs, "padding": padding, **layouts}
    out_dtype, reach = _result_dtype(call)

    def product(kernel: int, dtype: str, wanted: str, **more: object) -> int:
        # What TVM computes, it accumulates in the output's type: grouped ones are summed in FP32.
        summed = "float32" if groups != 1 else wanted
        args = [store.get(x, order, dtype), kernel]
        expr = builder.operator("nn.conv2d", args, shape, summed, **written, **more)
        return expr if summed == wanted else builder.astype(expr, wanted)

    if weight.constant is None:
        made = product(store.get(weight, kernel_order, call.narrow), call.narrow, out_dtype)
        return call.result(made, order, reach=reach)

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        laid, along = array.transpose(kernel_order), (1, 1, 1, -1)
        folded = _folded(call, laid, bias, reach, axis=0, along=along)
        made = product(folded.weight, folded.dtype, folded.summed, **folded.attrs)
        return folded.finish(builder, made)

    linear = Linear(emit, weight.constant, kernel_layout.index("O"), layout.index("C"))
    return _pending(call, linear, order, out_dtype, reach)


def _conv1d(call: OperatorCall) -> Item | Declined | None:
    """A convolution of images whose height is one."""
    attrs = call.attrs
    layout, kernel_layout = str(attrs["data_layout"]), str(attrs["kernel_layout"])
    known = layout in {"NCW", "NWC"} and set(kernel_layout) == set("OIW")
    if not known or attrs["out_layout"] != layout:
        return None

    def taller(shape: tuple[int, ...], given: str) -> tuple[int, ...]:
        at = given.index("W")
        return (*shape[:at], 1, *shape[at:])

    def seen(x: Value, given: str) -> Value:
        shape = taller(x.shape, given)
        if x.constant is not None:
            return call.store.of_array(x.constant.reshape(shape))
        made = viewed(replace(call, args=(x,), shape=shape, dtype=x.dtype))
        made.single_use = x.single_use
        return made

    left, right = cast("tuple[int, int]", attrs["padding"])
    (stride,), (dilation,) = (cast("tuple[int]", attrs[key]) for key in ("strides", "dilation"))
    wide = replace(
        call,
        name="nn.conv2d",
        original=None,
        args=(seen(call.tensor(0), layout), seen(call.tensor(1), kernel_layout)),
        shape=taller(call.shape, layout),
        attrs={
            **attrs,
            "strides": (1, stride),
            "dilation": (1, dilation),
            "padding": (0, left, 0, right),
            **{key: str(attrs[key]).replace("W", "HW") for key in _LAYOUT_NAMES},
        },
    )
    made = _conv2d(wide)
    if not isinstance(made, Value):
        return made
    order = _order(layout, "NWC")
    pending, shape = made.pending, permuted(call.shape, order)
    if pending is None:
        expr = call.builder.reshape(call.store.get(made, made.order), shape)
        return call.result(expr, order, reach=made.reach)

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        return call.builder.reshape(pending.emit(array, bias, reach), shape)

    linear = Linear(emit, pending.weight, pending.axis, layout.index("C"))
    return _pending(call, linear, order, made.stored, made.reach)


def _with_padding(x: Value, layout: str, padding: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """What a convolution reads, and its padding, with zeros around the image made part of it."""
    if x.padded is None:
        return x, padding
    widths = dict(zip(layout, x.padded.widths, strict=True))
    if widths["N"] != (0, 0) or widths["C"] != (0, 0):
        return x, padding
    more = (widths["H"][0], widths["W"][0], widths["H"][1], widths["W"][1])
    return x.padded.source, tuple(a + b for a, b in zip(padding, more, strict=True))


def _unfit(call: OperatorCall, *operands: Value) -> str | None:
    """Why constants that are multiplied as they are cannot be so in FP16; None where they can."""
    precision = call.store.precision
    for array in (value.constant for value in operands):
        if array is not None and not fits(array, precision):
            return _too_large(precision, array)
        if array is not None and not keeps(array, precision):
            return (
                f"a constant of it reaches no more than {np.abs(array).max():.0e}, and "
                f"{precision.value} has few bits of such numbers: scale it up"
            )
    return None


def _too_large(precision: DType, *arrays: Array) -> str:
    largest = max(float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in arrays)
    return (
        f"a weight of it reaches {largest:g}, and {precision.value} ends at "
        f"{precision.largest:g}: scale it down"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    """A product's constant operands and what follows it, as expressions.

    The product multiplies `weight` in `dtype` and is in `summed`; `factors` and `bias` bring it to
    its result, which is in `stored`.
    """

    weight: int
    bias: int | None
    dtype: str
    summed: str
    stored: str
    factors: int | None = None
    attrs: Mapping[str, object] = field(default_factory=dict)

    def finish(self, builder: GraphBuilder, made: int) -> int:
        """The result of the product `made`."""
        if self.factors is not None:
            made = builder.elementwise("multiply", made, self.factors)
        if self.summed != self.stored:
            made = builder.astype(made, self.stored)
        return made if self.bias is None else builder.elementwise("add", made, self.bias)


def _folded(
    call: OperatorCall,
    weight: Array,
    bias: Array | None,
    reach: Reach,
    *,
    axis: int,
    along: tuple[int, ...],
) -> _Folded:
    """The constant operands in the type of products where it holds both; else FP32 and why.

    Weights of which FP16 has few bits are multiplied by powers of two, and the result by their
    inverses, which changes no bit. `axis` is the output channel's in the weight; in the result the
    channels lie `along` the last dimension.
    """
    arrays = [weight] if bias is None else [weight, bias]
    precision, allow = call.store.precision, call.context.allow_nonfinite
    if not all(fits(each, precision) for each in arrays):
        wide = "float32"
        added = _along(call, bias, along, wide)
        kernel = call.builder.constant(as_c_array(np.asarray(weight, np.float32)))
        attrs = {REASON: _too_large(precision, *arrays)}
        return _Folded(weight=kernel, bias=added, dtype=wide, summed=wide, stored=wide, attrs=attrs)
    if bias is not None:
        as_weight(bias, call.name, precision, allow_nonfinite=allow)
    stored = call.compute_dtype(reach)
    factors = power_of_two(weight, axis, precision, by_channel=reach.is_small)
    scales = None
    if factors is not None:
        shape = [1] * weight.ndim
        shape[axis] = -1
        weight = weight * factors.reshape(shape)
        scales = _along(call, 1.0 / factors, along if factors.size > 1 else (), "float32")
    added = _along(call, bias, along, stored)
    narrow = as_weight(weight, call.name, precision, allow_nonfinite=allow)
    return _Folded(
        weight=call.builder.constant(as_c_array(narrow)),
        bias=added,
        dtype=call.narrow,
        summed=stored if factors is None else "float32",
        stored=stored,
        factors=scales,
    )


def _along(
    call: OperatorCall, array: Array | None, shape: tuple[int, ...], dtype: str
) -> int | None:
    """One number for each channel, as a constant."""
    if array is None:
        return None
    with np.errstate(over="ignore"):  # the numbers that are too large are infinite on purpose
        return call.builder.constant(as_c_array(array.astype(dtype).reshape(shape)))


def _pending(call: OperatorCall, linear: Linear, order: Order, stored: str, reach: Reach) -> Value:
    return Value(
        shape=call.shape,
        dtype=call.dtype,
        order=order,
        stored=stored,
        pending=linear,
        reach=call.scaled(reach),
        single_use=call.single_use,
    )


def _matmul(call: OperatorCall) -> Item | Declined | None:
    a, b = call.tensor(0), call.tensor(1)
    if min(len(a.shape), len(b.shape)) < 2 or call.dtype not in FLOATS:
        return None
    if not (a.is_float and b.is_float):
        return None
    if (reason := _kept_wide(call, a, b)) is not None:
        return Declined(reason)
    if call.is_angle and a.shape[-1] <= _FEW_POSITIONS:
        return Declined(f"it computes angles, for which {call.narrow} has too few digits")
    store = call.store
    store.settle(a)
    out_dtype, reach = _result_dtype(call)
    if b.constant is None or b.constant.ndim != 2:
        store.settle(b)
        if (reason := _unfit(call, a, b)) is not None:
            return Declined(reason)
        turned = _transposed(len(call.shape))
        is_moved = a.flat is None and b.flat is None and b.constant is None
        if is_moved and a.order == turned == b.order:
            # Both lie as the transposed product multiplies them.
            left, right = (store.get(each, turned, call.narrow) for each in (b, a))
            return call.result(call.builder.matmul(left, right, out_dtype), turned, reach=reach)
        right = _right_operand(call, b)
        expr = call.builder.matmul(store.get(a, None, call.narrow), right, out_dtype)
        return call.result(expr, reach=reach)
    weight = b.constant
    if a.flat is not None and a.shape[-1] == weight.shape[0]:
        # The activation lies in the order H, W, C: the weight's rows follow it.
        c, h, w = a.flat
        weight = weight.reshape(c, h, w, -1).transpose(1, 2, 0, 3).reshape(weight.shape)
    flat_order = a.order if a.flat is not None else None

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        k, n = array.shape
        precision = store.precision
        # In the layout whose rows allow the wider vector loads.
        as_columns = alignment_elements(precision, k) > alignment_elements(precision, n)
        laid = array.T if as_columns else array
        axis = 0 if as_columns else 1
        folded = _folded(call, laid, bias, reach, axis=axis, along=(-1,))
        right = folded.weight
        right = call.builder.permute_dims(right, (1, 0)) if as_columns else right
        left = store.get(a, flat_order, folded.dtype)
        expr = call.builder.matmul(left, right, folded.summed, **folded.attrs)
        return folded.finish(call.builder, expr)

    linear = Linear(emit, weight, axis=1, channel=len(call.shape) - 1)
    return _pending(call, linear, identity(len(call.shape)), out_dtype, reach)


def _grouped_matmul(call: OperatorCall) -> Item | Declined | None:
    a, b, ends = call.tensors
    if call.dtype not in FLOATS or not (a.is_float and b.is_float):
        return None
    if (reason := _kept_wide(call, a, b)) is not None:
        return Declined(reason)
    store = call.store
    store.settle(a)
    store.settle(b)
    if b.constant is not None and not fits(b.constant, store.precision):
        return Declined(_too_large(store.precision, b.constant))
    out_dtype, reach = _result_dtype(call)
    args = (store.get(a, None, call.narrow), _right_operand(call, b), store.get(ends))
    return call.result(call.builder.operator(GROUPED, args, call.shape, out_dtype), reach=reach)


def _transposed(rank: int) -> Order:
    """The order of matrices whose columns are contiguous."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _right_operand(call: OperatorCall, b: Value) -> int:
    """B as rows, or, where its K lies contiguous, as columns that are transposed."""
    rank = len(b.shape)
    columns = _transposed(rank)
    if b.constant is None and b.flat is None and b.order[-1] == rank - 2:
        return call.builder.permute_dims(call.store.get(b, columns, call.narrow), columns)
    if b.constant is not None:
        allow = call.context.allow_nonfinite
        as_weight(b.constant, call.name, call.store.precision, allow_nonfinite=allow)
    return call.store.get(b, None, call.narrow)


def _batch_norm(call: OperatorCall) -> Item | None:
    """Into the weights of the product before it; where there is none, a scale and a shift."""
    attrs = call.attrs
    x = call.tensor(0)
    parameters = [value.constant for value in call.tensors[1:]]
    if attrs["training"] or not x.is_float or any(array is None for array in parameters):
        return None
    known = (array.astype(np.float64) for array in parameters if array is not None)
    gamma, beta, mean, variance = known
    scale = 1.0 / np.sqrt(variance + cast("float", attrs["epsilon"]))
    scale = scale * gamma if attrs["scale"] else scale
    shift = (beta if attrs["center"] else 0.0) - mean * scale
    axis = cast("int", attrs["axis"]) % len(x.shape)
    if x.pending is not None and x.single_use and x.pending.channel == axis:
        x.pending.scale(scale)
        x.pending.add(shift)
        return x
    shape = [1] * len(x.shape)
    shape[axis] = -1
    factors, shifts = (
        call.store.of_array(each.astype(np.float32).reshape(shape)) for each in (scale, shift)
    )
    return apply(call, "add", apply(call, "multiply", x, factors, single_use=True), shifts)


RULES: dict[str, Rule] = {
    "nn.conv1d": _conv1d,
    "nn.conv2d": _conv2d,
    "matmul": _matmul,
    GROUPED: _grouped_matmul,
    "nn.batch_norm": _batch_norm,
}
