"""Normalisation of matrix products, convolutions and the batch norms that follow them."""

from __future__ import annotations

import numpy as np
from tvm import ir, relax

from boltgen.frontend.relax.normalise.call import Item, OperatorCall, Rule
from boltgen.frontend.relax.normalise.elementwise import elementwise
from boltgen.frontend.relax.normalise.fold import Array
from boltgen.frontend.relax.normalise.values import (
    FLOATS,
    Linear,
    Order,
    Value,
    as_weight,
    identity,
)
from boltgen.ir.dtypes import DType, alignment_elements

_ACTIVATION_LAYOUTS = frozenset({"NCHW", "NHWC"})
_KERNEL_LAYOUTS = frozenset({"OIHW", "OHWI", "HWIO"})


def _order(layout: str, goal: str) -> Order:
    return tuple(layout.index(letter) for letter in goal)


def _conv2d(call: OperatorCall) -> Item | None:
    attrs = call.call.attrs
    layout, kernel_layout = attrs.data_layout, attrs.kernel_layout
    known = layout in _ACTIVATION_LAYOUTS and kernel_layout in _KERNEL_LAYOUTS
    x, weight = call.tensor(0), call.tensor(1)
    if not known or attrs.out_layout not in {"", layout} or x.keep_wide or call.dtype not in FLOATS:
        return None
    store = call.store
    order = _order(layout, "NHWC")
    kernel_order = _order(kernel_layout, "OHWI")
    # What TVM computes, it accumulates in the output's type.
    is_grouped = attrs.groups != 1

    def emit(filters: ir.Expr, bias: ir.Expr | None) -> ir.Expr:
        product = relax.op.nn.conv2d(
            store.get(x, order, "float16"),
            filters,
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            data_layout="NHWC",
            kernel_layout="OHWI",
            out_dtype="float32" if is_grouped else None,
        )
        expr = store.emit(product)
        if is_grouped:
            expr = store.emit(relax.op.astype(expr, "float16"))
        return expr if bias is None else store.emit(relax.op.add(expr, bias))

    if weight.constant is None:
        return call.result(emit(store.get(weight, kernel_order, "float16"), None), order)

    def emit_folded(array: Array, bias: Array | None) -> ir.Expr:
        filters = as_weight(array, "conv2d", allow_nonfinite=call.allow_nonfinite)
        ohwi = np.asarray(filters.transpose(kernel_order), order="C")
        return emit(relax.const(ohwi, "float16"), _bias(call, bias, (1, 1, 1, -1)))

    linear = Linear(emit_folded, weight.constant, kernel_layout.index("O"), layout.index("C"))
    return _pending(call, linear, order)


def _bias(call: OperatorCall, bias: Array | None, shape: tuple[int, ...]) -> ir.Expr | None:
    if bias is None:
        return None
    narrow = as_weight(bias, call.name, allow_nonfinite=call.allow_nonfinite)
    return relax.const(narrow.reshape(shape), "float16")


def _pending(call: OperatorCall, linear: Linear, order: Order) -> Value:
    return Value(
        shape=call.shape,
        dtype=call.dtype,
        order=order,
        stored="float16",
        pending=linear,
        single_use=call.single_use,
    )


def _matmul(call: OperatorCall) -> Item | None:
    a, b = call.tensor(0), call.tensor(1)
    if min(len(a.shape), len(b.shape)) < 2 or call.dtype not in FLOATS:
        return None
    if a.keep_wide or b.keep_wide or not (a.is_float and b.is_float):
        return None
    store = call.store
    if b.constant is None or b.constant.ndim != 2:
        right = _right_operand(call, b)
        return call.result(store.emit(relax.op.matmul(store.get(a, None, "float16"), right)))
    weight = b.constant
    if a.flat is not None and a.shape[-1] == weight.shape[0]:
        # The activation lies in the order H, W, C: the weight's rows follow it.
        c, h, w = a.flat
        weight = weight.reshape(c, h, w, -1).transpose(1, 2, 0, 3).reshape(weight.shape)
    flat_order = a.order if a.flat is not None else None

    def emit(array: Array, bias: Array | None) -> ir.Expr:
        narrow = as_weight(array, "matmul", allow_nonfinite=call.allow_nonfinite)
        left = store.get(a, flat_order, "float16")
        expr = store.emit(relax.op.matmul(left, _weight(call, narrow)))
        added = _bias(call, bias, (-1,))
        return expr if added is None else store.emit(relax.op.add(expr, added))

    linear = Linear(emit, weight, axis=1, channel=len(call.shape) - 1)
    return _pending(call, linear, identity(len(call.shape)))


def _weight(call: OperatorCall, narrow: Array) -> ir.Expr:
    """A (K, N) weight in the layout whose rows allow the wider vector loads."""
    k, n = narrow.shape
    if alignment_elements(DType.F16, n) >= alignment_elements(DType.F16, k):
        return relax.const(np.asarray(narrow, order="C"), "float16")
    stored = relax.const(np.asarray(narrow.T, order="C"), "float16")
    return call.store.emit(relax.op.permute_dims(stored))


def _right_operand(call: OperatorCall, b: Value) -> ir.Expr:
    """B as rows, or, where its K lies contiguous in memory, as columns that need no transpose."""
    store = call.store
    rank = len(b.shape)
    columns = (*range(rank - 2), rank - 1, rank - 2)
    store.settle(b)
    if b.constant is None and b.flat is None and b.order[-1] == rank - 2:
        return store.emit(relax.op.permute_dims(store.get(b, columns, "float16"), columns))
    return store.get(b, None, "float16")


def _batch_norm(call: OperatorCall) -> Item | None:
    """Into the weights of the product before it; where there is none, a scale and a shift."""
    attrs = call.call.attrs
    x = call.tensor(0)
    parameters = [value.constant for value in call.tensors[1:]]
    if attrs.training or not x.is_float or any(array is None for array in parameters):
        return None
    gamma, beta, mean, variance = (
        array.astype(np.float64) for array in parameters if array is not None
    )
    scale = 1.0 / np.sqrt(variance + attrs.epsilon)
    scale = scale * gamma if attrs.scale else scale
    shift = (beta if attrs.center else 0.0) - mean * scale
    statistics = (call.tensor(3), call.tensor(4))
    axis = attrs.axis % len(x.shape)
    if x.pending is not None and x.single_use and x.pending.channel == axis:
        x.pending.scale(scale)
        x.pending.add(shift)
        return (x, *statistics)
    shape = [1] * len(x.shape)
    shape[axis] = -1
    scaled = _apply(call, "multiply", x, scale.astype(np.float32).reshape(shape), single_use=True)
    shifted = shift.astype(np.float32).reshape(shape)
    return (_apply(call, "add", scaled, shifted, single_use=call.single_use), *statistics)


def _apply(call: OperatorCall, name: str, x: Value, array: Array, *, single_use: bool) -> Value:
    """`x` and a constant under the elementwise operator `name`."""
    operator = ir.Call(ir.Op.get(f"relax.{name}"), [])
    result = elementwise(
        OperatorCall(
            name=name,
            call=operator,
            args=(x, call.store.of_array(array)),
            shape=x.shape,
            dtype=x.dtype,
            single_use=single_use,
            store=call.store,
            allow_nonfinite=call.allow_nonfinite,
        )
    )
    assert isinstance(result, Value)
    return result


RULES: dict[str, Rule] = {
    "nn.conv2d": _conv2d,
    "matmul": _matmul,
    "nn.batch_norm": _batch_norm,
}
