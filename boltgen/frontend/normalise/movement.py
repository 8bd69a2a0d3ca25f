"""Normalisation of operators that move or reduce elements: reshapes, pools, norms, joins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from boltgen.frontend.normalise.call import Item, OperatorCall, Rule, common_order
from boltgen.frontend.normalise.dialect import IRExpr
from boltgen.frontend.normalise.elementwise import elementwise
from boltgen.frontend.normalise.values import (
    FLAT,
    FLOATS,
    NHWC,
    Order,
    Store,
    Value,
    identity,
    inverse,
    moves_nothing,
    permuted,
)


def _permute_dims(call: OperatorCall) -> Item | None:
    """Only the bookkeeping changes: the permutation happens where someone needs its result."""
    x = call.store.settle(call.tensor(0))
    rank = len(x.shape)
    axes = call.attrs["axes"]
    axes = tuple(reversed(range(rank))) if axes is None else tuple(int(a) % rank for a in axes)
    if x.flat is not None:
        return None
    back = inverse(axes)
    value = Value(
        shape=call.shape,
        dtype=call.dtype,
        order=permuted(back, x.order),
        stored=x.stored,
        forms={(permuted(back, order), dtype): expr for (order, dtype), expr in x.forms.items()},
        keep_wide=x.keep_wide,
        single_use=call.single_use,
    )
    return value


def _reshape(call: OperatorCall) -> Item | None:
    x = call.store.settle(call.tensor(0))
    if x.shape == call.shape:
        x.single_use = x.single_use and call.single_use
        return x
    flattens = (
        x.order == NHWC
        and x.is_float
        and call.shape == (x.shape[0], prod(x.shape[1:]))
        and not moves_nothing(x.shape, x.order)
    )
    if flattens:
        expr = call.store.get(x, x.order, x.stored)
        value = call.result(call.dialect.reshape(expr, call.shape), FLAT, wide=x.keep_wide)
        _, c, h, w = x.shape
        value.flat = (c, h, w)
        return value
    is_in_place = x.flat is None and moves_nothing(x.shape, x.order)
    expr = call.store.get(x, x.order if is_in_place else None, x.stored)
    return call.result(call.dialect.reshape(expr, call.shape), wide=x.keep_wide)


def _spatial(layout: str) -> Order | None:
    orders = {"NCHW": NHWC, "NHWC": identity(4)}
    return orders.get(layout)


def _pool(*, wide: bool) -> Rule:
    def rule(call: OperatorCall) -> Item | None:
        attrs = call.attrs
        order = _spatial(attrs["layout"])
        x = call.store.settle(call.tensor(0))
        if order is None or attrs["out_layout"] not in {"", attrs["layout"]} or not x.is_float:
            return None
        expr = call.store.get(x, order, "float32" if wide else None)
        return call.result(call.dialect.pool(call.name, expr, attrs), order, wide=x.keep_wide)

    return rule


def _image_mean(call: OperatorCall, x: Value, order: Order, *, keepdims: bool) -> IRExpr:
    """The means of an image's channels, in FP32, where `order` makes it NHWC.

    A cast that nobody has asked for so far is read by nothing else.
    """
    is_cast = x.stored == "float16" and (order, "float32") not in x.forms
    wide = call.store.get(x, order, "float32")
    if is_cast:
        return call.dialect.image_mean(wide, keepdims=keepdims)
    return call.dialect.reduce("mean", wide, [1, 2], keepdims=keepdims)


def _adaptive_avg_pool2d(call: OperatorCall) -> Item | None:
    """A mean where one pixel is left, for which TVM has a better schedule."""
    attrs = call.attrs
    order = _spatial(attrs["layout"])
    x = call.store.settle(call.tensor(0))
    if order is None or attrs["out_layout"] not in {"", attrs["layout"]} or not x.is_float:
        return None
    if permuted(call.shape, order)[1:3] == (1, 1):
        expr = _image_mean(call, x, order, keepdims=True)
    else:
        expr = call.dialect.adaptive_avg_pool2d(call.store.get(x, order, "float32"), attrs)
    return call.result(expr, order, wide=x.keep_wide)


def _stack(call: OperatorCall) -> Item | None:
    """Where what it becomes is read by nothing but a reduction along it, nothing is left of it."""
    joined = _joined(call)
    if joined is None or call.attrs["axis"] != 0:
        return None
    order = common_order(joined.values, call.shape[1:])
    expr = call.store.dialect.stack(joined.in_order(call.store, order))
    behind = tuple(axis + 1 for axis in order)
    result = call.result(expr, (0, *behind), wide=joined.wide)
    result.stacked = tuple(joined.values)
    return result


def _broadcast_to(call: OperatorCall) -> Item | None:
    """Nothing where the shape stays: importers of variadic operators broadcast every operand."""
    x = call.tensor(0)
    if x.shape != call.shape:
        return _movement(call)
    x.single_use = x.single_use and call.single_use
    return x


# What reduces a stack of tensors to one, as an operator on two of them.
_PAIRWISE = {"sum": "add", "max": "maximum", "min": "minimum"}


def _of_stack(call: OperatorCall) -> Item | None:
    """The reduction of a stack along it, one tensor after another: ONNX's Sum, Max and Min."""
    x = call.tensor(0)
    axes = call.attrs["axis"]
    along = axes is not None and [int(axis) % len(x.shape) for axis in axes] == [0]
    if len(x.stacked) < 2 or not along or call.attrs["keepdims"]:
        return None
    result: Item | None = x.stacked[0]
    for index, value in enumerate(x.stacked[1:], 1):
        is_last = index + 1 == len(x.stacked)
        result = elementwise(
            replace(
                call,
                name=_PAIRWISE[call.name],
                original=None,
                attrs={},
                args=(result, value),
                single_use=call.single_use if is_last else True,
            )
        )
    return result


def _reduction(*, wide: bool) -> Rule:
    def rule(call: OperatorCall) -> Item | None:
        if call.name in _PAIRWISE and (pairwise := _of_stack(call)) is not None:
            return pairwise
        x = call.store.settle(call.tensor(0))
        if not x.is_float or x.flat is not None:
            return None
        rank = len(x.shape)
        axis, keepdims = call.attrs["axis"], bool(call.attrs["keepdims"])
        axes = range(rank) if axis is None else [int(each) % rank for each in axis]
        stored_axes = sorted(x.order.index(each) for each in axes)
        order = x.order
        if not keepdims:
            kept = [each for each in range(rank) if each not in axes]
            order = tuple(kept.index(each) for each in x.order if each in kept)
        if call.name == "mean" and (rank, stored_axes) == (4, [1, 2]):
            reduced = _image_mean(call, x, x.order, keepdims=keepdims)
        else:
            expr = call.store.get(x, x.order, "float32" if wide else None)
            reduced = call.dialect.reduce(call.name, expr, stored_axes, keepdims=keepdims)
        return call.result(reduced, order, wide=x.keep_wide)

    return rule


def _softmax(call: OperatorCall) -> Item | None:
    x = call.store.settle(call.tensor(0))
    if not x.is_float or x.flat is not None:
        return None
    axis = x.order.index(call.attrs["axis"] % len(x.shape))
    expr = call.dialect.softmax(call.name, call.store.get(x, x.order, "float32"), axis)
    return call.result(expr, x.order)


def _layer_norm(call: OperatorCall) -> Item | None:
    """In FP16 where its input is, if TVM's layer norm reduces in FP32 all the same."""
    x = call.store.settle(call.tensor(0))
    if not all(value.is_float for value in call.tensors):
        return None
    narrow = call.dialect.layer_norm_is_wide and not x.keep_wide
    dtype = "float16" if narrow else "float32"
    args = [call.store.get(value, None, dtype) for value in call.tensors]
    return call.result(call.again(args))


@dataclass(frozen=True, slots=True)
class _Joined:
    """The tensors that an operator puts together, and whether FP16 cannot hold one of them."""

    values: list[Value]
    wide: bool

    def in_order(self, store: Store, order: Order) -> list[IRExpr]:
        """Their expressions."""
        dtype = "float32" if self.wide else "float16"
        return [store.get(value, order, dtype) for value in self.values]


def _joined(call: OperatorCall) -> _Joined | None:
    """What `call` joins, where all of it is of floating point."""
    (parts,) = call.args
    if not isinstance(parts, tuple) or call.dtype not in FLOATS:
        return None
    values = [call.store.settle(part) for part in parts if isinstance(part, Value)]
    if len(values) != len(parts):
        return None
    return _Joined(values, any(value.keep_wide for value in values))


def _concat(call: OperatorCall) -> Item | None:
    joined = _joined(call)
    if joined is None:
        return None
    order = common_order(joined.values, call.shape)
    axis = call.attrs["axis"]
    axis = order.index((0 if axis is None else axis) % len(call.shape))
    expr = call.dialect.concat(joined.in_order(call.store, order), axis)
    return call.result(expr, order, wide=joined.wide)


def _pad(call: OperatorCall) -> Item | None:
    x = call.store.settle(call.tensor(0))
    if not x.is_float or x.flat is not None:
        return None
    widths = [call.attrs["widths"][axis] for axis in x.order]
    expr = call.dialect.pad(call.store.get(x, x.order, x.stored), widths, call.attrs)
    return call.result(expr, x.order, wide=x.keep_wide)


def _resize2d(call: OperatorCall) -> Item | None:
    attrs = call.attrs
    order = _spatial(attrs["layout"])
    x = call.tensor(0)
    if order is None or not x.is_float or attrs["out_dtype"]:
        return None
    wide = call.store.get(x, order, "float32")  # it interpolates in its operand's type
    return call.result(call.dialect.resize2d(wide, attrs), order, wide=x.keep_wide)


def _dropout(call: OperatorCall) -> Item | None:
    """Nothing at inference; the mask is never used."""
    return (call.tensor(0), call.tensor(0))


def _movement(call: OperatorCall) -> Item | None:
    """Copies elements of its first operand as they are stored."""
    x = call.tensor(0)
    if not x.is_float:
        return None
    rest: list[IRExpr] = []
    for arg in call.args[1:]:
        if isinstance(arg, tuple) or (isinstance(arg, Value) and arg.is_float):
            return None
        rest.append(call.store.result(arg) if isinstance(arg, Value) else arg)
    dtype = "float32" if x.keep_wide else ("float16" if x.constant is not None else None)
    return call.result(call.again([call.store.get(x, None, dtype), *rest]), wide=x.keep_wide)


RULES: dict[str, Rule] = {
    "permute_dims": _permute_dims,
    **dict.fromkeys(("reshape", "flatten", "squeeze", "expand_dims", "nn.batch_flatten"), _reshape),
    "nn.max_pool2d": _pool(wide=False),
    "nn.avg_pool2d": _pool(wide=True),
    "nn.adaptive_avg_pool2d": _adaptive_avg_pool2d,
    **dict.fromkeys(("mean", "sum", "variance", "std"), _reduction(wide=True)),
    **dict.fromkeys(("max", "min"), _reduction(wide=False)),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _softmax),
    "nn.layer_norm": _layer_norm,
    "concat": _concat,
    "stack": _stack,
    "broadcast_to": _broadcast_to,
    "nn.pad": _pad,
    "nn.dropout": _dropout,
    "image.resize2d": _resize2d,
    **dict.fromkeys(("take", "strided_slice", "tile", "repeat", "flip"), _movement),
}
