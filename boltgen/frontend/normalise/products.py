"""Normalisation of matrix products, convolutions and the batch norms that follow them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from boltgen.frontend.normalise.call import Item, OperatorCall, Rule
from boltgen.frontend.normalise.dialect import Array, IRExpr, as_c_array
from boltgen.frontend.normalise.elementwise import elementwise
from boltgen.frontend.normalise.values import (
    FLOATS,
    Linear,
    Order,
    Value,
    as_weight,
    identity,
)
from boltgen.ir.dtypes import DType, alignment_elements

_ACTIVATION_LAYOUTS = frozenset({"NCHW", "NHWC"})


def _order(layout: str, goal: str) -> Order:
    return tuple(layout.index(letter) for letter in goal)


def _conv2d(call: OperatorCall) -> Item | None:
    attrs = call.attrs
    layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
    known = layout in _ACTIVATION_LAYOUTS and set(kernel_layout) == set("OIHW")
    x, weight = call.tensor(0), call.tensor(1)
    if not known or attrs["out_layout"] != layout or x.keep_wide or call.dtype not in FLOATS:
        return None
    store, dialect = call.store, call.dialect
    order = _order(layout, "NHWC")
    goal = dialect.filter_layout(
        channels=x.shape[layout.index("C")],
        filters=weight.shape[kernel_layout.index("O")],
        groups=attrs["groups"],
    )
    if goal is None:
        return None
    kernel_order = _order(kernel_layout, goal)

    def emit(filters: IRExpr, bias: IRExpr | None) -> IRExpr:
        # What TVM computes, it accumulates in the output's type: grouped ones are summed in FP32.
        expr = dialect.conv2d(store.get(x, order, "float16"), filters, goal, attrs)
        if attrs["groups"] != 1:
            expr = dialect.astype(expr, "float16")
        return expr if bias is None else dialect.elementwise("add", expr, bias)

    if weight.constant is None:
        return call.result(emit(store.get(weight, kernel_order, "float16"), None), order)

    def emit_folded(array: Array, bias: Array | None) -> IRExpr:
        filters = as_weight(array, "conv2d", allow_nonfinite=call.allow_nonfinite)
        reordered = dialect.constant(as_c_array(filters.transpose(kernel_order)))
        return emit(reordered, _bias(call, bias, (1, 1, 1, -1)))

    linear = Linear(emit_folded, weight.constant, kernel_layout.index("O"), layout.index("C"))
    return _pending(call, linear, order)


def _bias(call: OperatorCall, bias: Array | None, shape: tuple[int, ...]) -> IRExpr | None:
    if bias is None:
        return None
    narrow = as_weight(bias, call.name, allow_nonfinite=call.allow_nonfinite)
    return call.dialect.constant(narrow.reshape(shape))


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
        return call.result(right(store.get(a, None, "float16")))
    weight = b.constant
    if a.flat is not None and a.shape[-1] == weight.shape[0]:
        # The activation lies in the order H, W, C: the weight's rows follow it.
        c, h, w = a.flat
        weight = weight.reshape(c, h, w, -1).transpose(1, 2, 0, 3).reshape(weight.shape)
    flat_order = a.order if a.flat is not None else None

    def emit(array: Array, bias: Array | None) -> IRExpr:
        narrow = as_weight(array, "matmul", allow_nonfinite=call.allow_nonfinite)
        left = store.get(a, flat_order, "float16")
        expr = _times_weight(call, left, narrow)
        added = _bias(call, bias, (-1,))
        return expr if added is None else call.dialect.elementwise("add", expr, added)

    linear = Linear(emit, weight, axis=1, channel=len(call.shape) - 1)
    return _pending(call, linear, identity(len(call.shape)))


def _times_weight(call: OperatorCall, left: IRExpr, narrow: Array) -> IRExpr:
    """The product with a (K, N) weight in the layout whose rows allow the wider vector loads."""
    k, n = narrow.shape
    if alignment_elements(DType.F16, n) >= alignment_elements(DType.F16, k):
        return call.dialect.matmul(left, call.dialect.constant(as_c_array(narrow)))
    return call.dialect.matmul_columns(left, call.dialect.constant(as_c_array(narrow.T)))


def _right_operand(call: OperatorCall, b: Value) -> Callable[[IRExpr], IRExpr]:
    """The product with B as rows, or, where its K lies contiguous, as columns, untransposed."""
    store = call.store
    rank = len(b.shape)
    columns = (*range(rank - 2), rank - 1, rank - 2)
    store.settle(b)
    if b.constant is None and b.flat is None and b.order[-1] == rank - 2:
        right = store.get(b, columns, "float16")
        return lambda left: call.dialect.matmul_columns(left, right)
    right = store.get(b, None, "float16")
    return lambda left: call.dialect.matmul(left, right)


def _batch_norm(call: OperatorCall) -> Item | None:
    """Into the weights of the product before it; where there is none, a scale and a shift."""
    attrs = call.attrs
    x = call.tensor(0)
    parameters = [value.constant for value in call.tensors[1:]]
    if attrs["training"] or not x.is_float or any(array is None for array in parameters):
        return None
    gamma, beta, mean, variance = (
        array.astype(np.float64) for array in parameters if array is not None
    )
    scale = 1.0 / np.sqrt(variance + attrs["epsilon"])
    scale = scale * gamma if attrs["scale"] else scale
    shift = (beta if attrs["center"] else 0.0) - mean * scale
    statistics = (call.tensor(3), call.tensor(4))
    axis = attrs["axis"] % len(x.shape)
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
    result = elementwise(
        OperatorCall(
            name=name,
            original=None,
            attrs={},
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
