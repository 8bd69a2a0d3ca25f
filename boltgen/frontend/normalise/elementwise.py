"""Normalisation of elementwise operators, and of casts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boltgen.frontend.epilogue_walk import ELEMENTWISE
from boltgen.frontend.normalise.call import Item, OperatorCall, Rule, common_order
from boltgen.frontend.normalise.dialect import Array, IRExpr, as_c_array
from boltgen.frontend.normalise.values import (
    FLAT,
    FLOATS,
    Order,
    Store,
    Value,
    identity,
    moves_nothing,
    needs_range,
    permuted,
)

# Their results, or what they compute on the way, leave FP16's range for ordinary arguments.
_WIDE = frozenset(
    {"exp", "log", "power", "square", "sqrt", "rsqrt", "sin", "cos", "tan", "nn.softplus"}
)
# Elementwise, though no epilogue has them.
_OTHERS = (
    *("nn.selu", "sign", "floor", "ceil", "round", "trunc", "sin", "cos", "tan", "where"),
    *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
    *("logical_and", "logical_or", "logical_not"),
)


def _prelu(call: OperatorCall) -> Item | None:
    """PReLU as ordinary elementwise operators, since its slopes have an axis of their own."""
    x, slopes = call.tensor(0), call.tensor(1)
    if slopes.constant is None or x.flat is not None:
        return None
    shape = [1] * len(x.shape)
    if slopes.constant.size > 1:
        shape[call.attrs["axis"]] = slopes.constant.size
    order = call.store.settle(x).order
    expr = call.store.get(x, order, "float16")
    apply = call.dialect.elementwise
    zero = call.dialect.constant(np.array(0.0, "float16"))
    slope = _constant(call.store, slopes.constant.reshape(shape), order, "float16")
    negative = apply("multiply", slope, apply("minimum", expr, zero))
    return call.result(apply("add", apply("nn.relu", expr), negative), order)


def _astype(call: OperatorCall) -> Item | None:
    x = call.tensor(0)
    if not x.is_float or call.dtype not in FLOATS:
        return None
    call.store.settle(x)
    narrows = call.dtype == "float16"
    if narrows and x.stored == "float16":
        stored = "float16"
    elif not narrows and x.dtype == "float16":
        stored = "float32"  # the author of an FP16 model asks for FP32 here
    else:
        stored = call.dtype if narrows else x.stored
    value = call.store.of_expr(call.store.get(x, x.order, stored), x.shape, call.dtype, x.order)
    value.flat, value.keep_wide, value.single_use = x.flat, x.keep_wide, call.single_use
    return value


def _add(call: OperatorCall) -> Item | None:
    """A constant bias joins the product that is not emitted yet; else as any other operator."""
    for value, other in ((0, 1), (1, 0)):
        x, bias = call.tensor(value), call.tensor(other).constant
        if x.pending is None or not x.single_use or bias is None or x.shape != call.shape:
            continue
        channels = x.shape[x.pending.channel]
        full = (1,) * (len(x.shape) - bias.ndim) + bias.shape
        along = tuple(e for axis, e in enumerate(full) if axis != x.pending.channel)
        if set(along) <= {1} and bias.size == channels:
            x.pending.add(bias.reshape(channels))
            x.single_use = call.single_use
            return x
    return elementwise(call)


def _bias_add(call: OperatorCall) -> Item | None:
    """An `add` whose second operand lies along an axis of its own."""
    x, bias = call.tensor(0), call.tensor(1)
    shape = [1] * len(x.shape)
    shape[call.attrs["axis"]] = bias.shape[0]
    if bias.constant is not None:
        along = call.store.of_array(bias.constant.reshape(shape))
    else:
        expr = call.dialect.reshape(call.store.get(bias), shape)
        along = call.store.of_expr(expr, tuple(shape), bias.dtype)
    return _add(replace(call, name="add", original=None, args=(x, along)))


def elementwise(call: OperatorCall) -> Item | None:
    """Applies the operator in the order and dtype in which its operands are stored."""
    values = call.tensors
    store = call.store
    for value in values:
        store.settle(value)
    variables = [value for value in values if value.constant is None]
    constants = [value.constant for value in values if value.constant is not None]
    order = common_order(values, call.shape)
    flat = variables[0].flat if len(variables) == 1 else None
    flat = flat if all(array.size == 1 for array in constants) else None
    order = order if flat is None else FLAT
    keep_wide = any(value.keep_wide for value in values) or any(map(needs_range, constants))
    is_wide = (
        keep_wide
        or call.name in _WIDE
        or any(v.is_float and v.stored == "float32" for v in variables)
    )
    narrow = "float32" if is_wide else "float16"
    args: list[IRExpr] = []
    for arg in call.args:
        if isinstance(arg, Value):
            dtype = narrow if arg.is_float else arg.dtype
            args.append(_aligned(store, arg, order, dtype, len(call.shape)))
        else:
            args.append(arg)
    result = call.result(call.again(args), order, wide=keep_wide)
    result.flat = flat
    return result


def _constant(store: Store, array: Array, order: Order, dtype: str) -> IRExpr:
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    return store.dialect.constant(as_c_array(narrow.transpose(order)))


def _aligned(store: Store, value: Value, order: Order, dtype: str, rank: int) -> IRExpr:
    """`value` in `order` of the result's `rank` dimensions, extents of 1 put in front."""
    if value.constant is not None:
        if value.constant.size == 1:
            return store.dialect.constant(value.constant.astype(dtype).reshape(()))
        if order != identity(rank):
            full = (1,) * (rank - value.constant.ndim) + value.constant.shape
            return _constant(store, value.constant.reshape(full), order, dtype)
        return store.get(value, None, dtype)
    if len(value.shape) == rank or order == identity(rank):
        return store.get(value, order if len(value.shape) == rank else None, dtype)
    full = (1,) * (rank - len(value.shape)) + value.shape
    expr = store.dialect.reshape(store.get(value, None, dtype), full)
    if moves_nothing(full, order):
        return store.dialect.reshape(expr, permuted(full, order))
    return store.dialect.permute_dims(expr, order)


RULES: dict[str, Rule] = {
    **dict.fromkeys((*ELEMENTWISE, *_OTHERS), elementwise),
    "add": _add,
    "nn.bias_add": _bias_add,
    "astype": _astype,
    "nn.prelu": _prelu,
}
del RULES["reshape"]
