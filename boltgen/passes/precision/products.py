"""Normalise matmuls, convolutions, and the batch norms that follow them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from boltgen.graph.attributes import BatchNorm, Convolution
from boltgen.graph.graph import DEPTHWISE_KERNEL, GROUPED, RECURRENT, Array, Expr
from boltgen.graph.numpy_semantics.operation import along
from boltgen.ir.dtypes import FLOAT8, DType, alignment_elements
from boltgen.passes.precision.call import DeclinedError, Item, OperatorCall, Rule
from boltgen.passes.precision.constants import as_weight, check_unscaled, fold_constants
from boltgen.passes.precision.elementwise import apply
from boltgen.passes.precision.quantised_values import integer_conv2d, integer_matmul
from boltgen.passes.precision.reach import BEYOND, WITHIN, Reach
from boltgen.passes.precision.values import (
    FLOATS,
    Linear,
    Order,
    Value,
    identity,
    is_same,
    order_of,
)

# The layouts of activations that convolutions are written for, by images or volumes.
LAYOUTS = frozenset({"NCHW", "NHWC", "NCDHW", "NDHWC"})
# A sine of a sum of at most so many products is taken of a position.
_FEW_POSITIONS = 16
# Channels of a group that fill at most half of a step of 32.
_FEW_CHANNELS = 16


def _check_narrow(call: OperatorCall, *operands: Value) -> None:
    """Check that a product of `operands` can be computed in FP16 or BF16.

    BF16 has FP32's range, so that nothing is beyond it.

    Raises:
        DeclinedError: it cannot.
    """
    is_short = call.store.precision.max_exponent < DType.F32.max_exponent
    for value in operands:
        if value.constant is not None:
            continue  # a constant is judged by its numbers
        reach = call.store.settle(value).reach
        if is_short and reach.is_small and not value.is_exact:
            raise DeclinedError(
                f"an operand's numbers are small, about {reach.size:.0e}, and FP16 has few bits of "
                "such: multiply the product's result by the small factor, and not its operand"
            )
        if is_short and reach.is_outside and not value.is_exact:
            raise DeclinedError(
                "FP16 may not hold an operand: squares, sums, positions or large numbers are in "
                "it; normalise or clip it before the product"
            )
        if call.context.is_mixed and value.dtype == "float32" and not value.is_exact:
            raise DeclinedError(
                "its author made an operand float32 in a model with float16 products: cast it to "
                "float16 before the product"
            )


def _result_dtype(call: OperatorCall) -> tuple[str, Reach]:
    """Return the dtype of a product's result, and whether FP16 may not hold it.

    FP32 where its author made FP32 of FP16 operands, where a sine is taken of it, where it was seen
    to leave FP16's range, and where it is a sum of squares.
    """
    if call.is_kept_wide or is_same(*call.tensors[:2]):
        return "float32", BEYOND
    if call.context.is_mixed and call.dtype == "float32":
        return "float32", WITHIN
    return call.narrow, WITHIN


def pixels_of(layout: str) -> str:
    """Return the letters of a layout's spatial axes."""
    return "".join(letter for letter in layout if letter not in "NC")


def convolution(call: OperatorCall) -> Item | None:
    """Write a convolution of images in NHWC, with filters in OHWI; one of volumes has D as well."""
    if call.dtype == DType.I32.value:
        return integer_conv2d(call)
    attrs = call.attrs.of(Convolution)
    layout, kernel_layout, groups = attrs.data_layout, attrs.kernel_layout, attrs.groups
    pixels = pixels_of(layout)
    known = layout in LAYOUTS and sorted(kernel_layout) == sorted(f"OI{pixels}")
    x, weight = call.tensor(0), call.tensor(1)
    if not known or attrs.out_layout != layout or call.dtype not in FLOATS:
        return None
    _check_narrow(call, x, weight)
    if "D" in pixels:
        _check_volumes(call, groups)
    channels = x.shape[layout.index("C")]
    x, padding = with_padding(x, layout, attrs.padding)
    is_depthwise = 1 < groups == channels
    goal, last = DEPTHWISE_KERNEL if is_depthwise else f"O{pixels}I", f"N{pixels}C"
    order, kernel_order = order_of(layout, last), order_of(kernel_layout, goal)
    shape = tuple(call.shape[axis] for axis in order)
    store, builder = call.store, call.builder
    store.settle(x)
    joint = 1 if is_depthwise or weight.constant is None else _joint_groups(groups, channels)
    written = replace(
        attrs,
        padding=padding,
        groups=groups // joint,
        data_layout=last,
        kernel_layout=goal,
        out_layout=last,
    )
    out_dtype, reach = _result_dtype(call)

    def product(kernel: int, dtype: str, wanted: str, reason: str = "") -> int:
        args = (store.get(x, order, dtype), kernel)
        made: dict[str, Any] = {"attrs": written, "reason": reason}
        operator = f"nn.conv{len(pixels)}d"
        return builder.add(Expr(op=operator, args=args, shape=shape, dtype=wanted, **made))

    if weight.constant is None:
        made = product(store.get(weight, kernel_order, call.narrow), call.narrow, out_dtype)
        return call.result(made, order, reach=reach)

    def emit(array: Array, bias: Array | None, reach: Reach) -> int:
        laid, along = array.transpose(kernel_order), (*(1,) * (len(order) - 1), -1)
        axis = goal.index("O")
        laid = _of_joint_groups(laid, groups, joint)
        folded = fold_constants(call, laid, bias, reach, axis=axis, along=along)
        made = product(folded.weight, folded.dtype, folded.summed, folded.reason)
        return folded.finish(builder, made)

    linear = Linear(emit, weight.constant, kernel_layout.index("O"), layout.index("C"))
    return pending(call, linear, order, out_dtype, reach)


def _check_volumes(call: OperatorCall, groups: int) -> None:
    """Check that a convolution of volumes has a kernel.

    Raises:
        DeclinedError: it has none.
    """
    if not call.context.writes_volumes:
        raise DeclinedError("Relay does not compute convolutions of volumes in NDHWC")
    if groups != 1:
        raise DeclinedError(
            f"it is of volumes with groups={groups}: kernels exist for one group only"
        )


def _joint_groups(groups: int, channels: int) -> int:
    """Return the number of groups that are multiplied as one: as few as have enough channels.

    Tensor cores multiply a step of K whether or not it has so many channels: a convolution of 32
    groups of 4 channels takes as long as one of 4 groups of 32.
    """
    enough = (
        count
        for count in range(1, groups + 1)
        if groups % count == 0 and count * (channels // groups) > _FEW_CHANNELS
    )
    return next(enough, groups)


def _of_joint_groups(weight: Array, groups: int, joint: int) -> Array:
    """Return filters (O, H, W, I) of `groups` as filters of fewer groups, with zeros for the
    channels of the others: (O, H, W, joint x I).

    An infinite number in one of the joint groups makes NaN in all of them.
    """
    if joint == 1:
        return weight
    filters, high, wide, channels = weight.shape
    apart = weight.reshape(groups, filters // groups, high, wide, channels)
    made = np.zeros((*apart.shape[:4], joint, channels), weight.dtype)
    for group in range(groups):
        made[group, ..., group % joint, :] = apart[group]
    return made.reshape(filters, high, wide, joint * channels)


def with_padding(x: Value, layout: str, padding: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """Return a convolution's operand and padding, with zeros around the image, or around the rows,
    merged into the padding.
    """
    if x.padded is None:
        return x, padding
    widths = dict(zip(layout, x.padded.widths, strict=True))
    if widths["N"] != (0, 0) or widths["C"] != (0, 0):
        return x, padding
    more = [widths[axis][side] for side in (0, 1) for axis in pixels_of(layout)]
    return x.padded.source, tuple(a + b for a, b in zip(padding, more, strict=True))


def pending(call: OperatorCall, linear: Linear, order: Order, stored: str, reach: Reach) -> Value:
    """Return the result of a product that is not written yet, in `order` and stored as `stored`."""
    return Value(
        shape=call.shape,
        dtype=call.dtype,
        order=order,
        stored=stored,
        pending=linear,
        reach=call.scaled(reach),
        single_use=call.single_use,
    )


def _matmul(call: OperatorCall) -> Item | None:
    if call.dtype == DType.I32.value or call.tensor(0).dtype in FLOAT8:
        return integer_matmul(call)
    a, b = call.tensor(0), call.tensor(1)
    if min(len(a.shape), len(b.shape)) < 2 or call.dtype not in FLOATS:
        return None
    if not (a.is_float and b.is_float):
        return None
    _check_narrow(call, a, b)
    if call.is_angle and a.shape[-1] <= _FEW_POSITIONS:
        raise DeclinedError(f"it computes angles, for which {call.narrow} has too few digits")
    store = call.store
    store.settle(a)
    out_dtype, reach = _result_dtype(call)
    if b.constant is None or b.constant.ndim != 2:
        store.settle(b)
        check_unscaled(call, a, b)
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
        folded = fold_constants(call, laid, bias, reach, axis=axis, along=(-1,))
        right = folded.weight
        right = call.builder.permute_dims(right, (1, 0)) if as_columns else right
        left = store.get(a, flat_order, folded.dtype)
        expr = call.builder.matmul(left, right, folded.summed, folded.reason)
        return folded.finish(call.builder, expr)

    linear = Linear(emit, weight, axis=1, channel=len(call.shape) - 1)
    return pending(call, linear, identity(len(call.shape)), out_dtype, reach)


def _grouped_matmul(call: OperatorCall) -> Item | None:
    a, b, ends = call.tensors
    if call.dtype not in FLOATS or not (a.is_float and b.is_float):
        return None
    _check_narrow(call, a, b)
    store = call.store
    store.settle(a)
    store.settle(b)
    check_unscaled(call, b)
    out_dtype, reach = _result_dtype(call)
    args = (store.get(a, None, call.narrow), _right_operand(call, b), store.get(ends))
    return call.result(call.builder.operator(GROUPED, args, call.shape, out_dtype), reach=reach)


def _recurrent(call: OperatorCall) -> Item | None:
    a, weights, *more = call.tensors
    if call.dtype not in FLOATS or not (a.is_float and weights.is_float):
        return None
    _check_narrow(call, a, weights)
    store = call.store
    store.settle(a)
    if weights.constant is not None:
        allow = call.context.allow_nonfinite
        as_weight(weights.constant, call.name, store.precision, allow_nonfinite=allow)
    floats = (store.get(each, None, call.narrow) for each in (a, weights))
    given = (store.get(each, None, call.narrow if each.is_float else None) for each in more)
    args = (*floats, *given)
    made = call.builder.operator(RECURRENT, args, call.shape, call.narrow, call.attrs)
    return call.result(made)


def _transposed(rank: int) -> Order:
    """Return the order of matrices whose columns are contiguous."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _right_operand(call: OperatorCall, b: Value) -> int:
    """Return B as rows or, if its K is contiguous, as transposed columns."""
    rank = len(b.shape)
    columns = _transposed(rank)
    if b.constant is None and b.flat is None and b.order[-1] == rank - 2:
        return call.builder.permute_dims(call.store.get(b, columns, call.narrow), columns)
    if b.constant is not None:
        allow = call.context.allow_nonfinite
        as_weight(b.constant, call.name, call.store.precision, allow_nonfinite=allow)
    return call.store.get(b, None, call.narrow)


def _batch_norm(call: OperatorCall) -> Item | None:
    """Fold a batch norm into the weights of the anchor before it; else scale and shift."""
    attrs = call.attrs.of(BatchNorm)
    x = call.tensor(0)
    parameters = [value.constant for value in call.tensors[1:]]
    if attrs.training or not x.is_float or any(array is None for array in parameters):
        return None
    known = (array.astype(np.float64) for array in parameters if array is not None)
    gamma, beta, mean, variance = known
    scale = 1.0 / np.sqrt(variance + attrs.epsilon)
    scale = scale * gamma if attrs.scale else scale
    shift = (beta if attrs.center else 0.0) - mean * scale
    axis = attrs.axis % len(x.shape)
    if x.pending is not None and x.single_use and x.pending.channel == axis:
        x.pending.scale(scale)
        x.pending.add(shift)
        return x
    arrays = (along(axis, each.astype(np.float32), len(x.shape)) for each in (scale, shift))
    factors, shifts = map(call.store.of_array, arrays)
    return apply(call, "add", apply(call, "multiply", x, factors, single_use=True), shifts)


RULES: dict[str, Rule] = {
    "nn.conv2d": convolution,
    "matmul": _matmul,
    GROUPED: _grouped_matmul,
    RECURRENT: _recurrent,
    "nn.batch_norm": _batch_norm,
}
