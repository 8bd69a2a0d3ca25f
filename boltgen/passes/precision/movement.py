"""Normalise operators that move or reduce elements: reshapes, pools, norms, joins."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from boltgen.graph.attributes import (
    Axis,
    ImageNorm,
    Layouts,
    Pad,
    Permutation,
    Reduce,
    Repeat,
    Resize,
    Slice,
    Take,
)
from boltgen.graph.graph import CORNER, IMAGE_NORM
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Dim, greatest
from boltgen.passes.norms.image_norms import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
)
from boltgen.passes.precision.call import Item, OperatorCall, Rule, common_order
from boltgen.passes.precision.elementwise import SMALL, apply
from boltgen.passes.precision.reach import Reach, floor_of, power_reach, side_by_side
from boltgen.passes.precision.values import (
    FLAT,
    FLOATS,
    NHWC,
    Mean,
    Order,
    Padded,
    Value,
    identity,
    inverse,
    moves_nothing,
    permuted,
    regrouped,
)

# A sum of so few elements is no more than the additions that models are full of.
_FEW = 16


def permute_dims(call: OperatorCall) -> Item | None:
    """Record the permutation only: it is applied where a reader needs its result."""
    x = call.store.settle(call.tensor(0))
    rank = len(x.shape)
    if x.flat is not None:
        return None
    axes = call.attrs.of(Permutation).axes
    back = inverse(tuple(axis % rank for axis in (range(rank)[::-1] if axes is None else axes)))
    value = replace(
        x,
        shape=call.shape,
        order=permuted(back, x.order),
        forms={(permuted(back, order), dtype): expr for (order, dtype), expr in x.forms.items()},
        constant=None,
        single_use=call.single_use,
        moved_from=x.elements_of,
        stacked=(),
        padded=None,
        saturated={},
    )
    if x.constant is not None:
        value.forms[value.order, value.stored] = call.store.get(x)
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
        value = call.result(call.builder.reshape(expr, call.shape), FLAT, reach=x.reach)
        _, c, h, w = x.shape
        value.flat, value.moved_from = (c, h, w), x.elements_of
        return value
    return viewed(call)


def viewed(call: OperatorCall) -> Value:
    """Return the same elements in the call's shape, in their own order if there is one."""
    x, store, builder = call.store.settle(call.tensor(0)), call.store, call.builder
    given: Order | None = x.order if x.flat is None else None
    order: Order | None = identity(len(call.shape))
    if given is not None and not moves_nothing(x.shape, given):
        order = regrouped(x.shape, given, call.shape)
    if given is None or order is None:
        given, order = None, identity(len(call.shape))
    shape = permuted(call.shape, order)
    # The fewer bytes the fewer are moved, where they have to be.
    moves = given is None and x.is_float and not moves_nothing(x.shape, x.order)
    dtype = call.compute_dtype(x.reach) if moves and x.stored != call.narrow else x.stored
    made = builder.reshape(store.get(x, given, dtype), shape)
    value = call.result(made, order, reach=x.reach)
    value.mean, value.moved_from = x.mean, x.elements_of
    if x.is_exact:
        narrow = builder.reshape(store.get(x, given, call.narrow), shape)
        value.forms[value.order, call.narrow] = narrow
        value.is_exact = True
    return value


def _as_it_lies(call: OperatorCall) -> Item | None:
    """Slice, or gather by a row of known indices, along one axis of a tensor as it lies."""
    x, attrs = call.store.settle(call.tensor(0)), call.attrs
    if isinstance(attrs, Take) and attrs.axis is not None:
        rows = call.tensor(1).constant
        is_known = rows is not None and rows.ndim == 1
    else:
        is_known = isinstance(attrs, Slice)
    is_moved = x.is_float and x.flat is None and not moves_nothing(x.shape, x.order)
    if not is_known or not is_moved or x.constant is not None or x.reach.is_beyond:
        return _movement(call)
    assert isinstance(attrs, Slice | Take) and attrs.axis is not None
    args = [call.store.get(x, x.order), *map(call.store.result, call.tensors[1:])]
    own, shape = replace(attrs, axis=x.order.index(attrs.axis)), permuted(call.shape, x.order)
    made = call.builder.operator(call.name, args, shape, x.stored, own)
    return call.result(made, x.order, reach=x.reach)


def _spatial(layout: str) -> Order | None:
    return {"NCHW": NHWC, "NHWC": identity(4)}.get(layout)


def _image(call: OperatorCall) -> Order | None:
    """Return the order that makes the operator's image NHWC, or None if its layouts are unknown."""
    attrs = call.attrs.of(Layouts)
    order = _spatial(attrs.layout)
    # A maximum is of any numbers, all else of floats.
    is_known = call.tensor(0).is_float or call.name == "nn.max_pool2d"
    if attrs.out_layout not in {"", attrs.layout} or not is_known:
        return None
    return order


def _on_image(call: OperatorCall, x: Value, order: Order, dtype: str | None) -> int:
    """Apply the operator to an image in NHWC."""
    expr = call.store.get(x, order, dtype)
    attrs = replace(call.attrs.of(Layouts), layout="NHWC", out_layout="")
    shape = permuted(call.shape, order)
    return call.builder.operator(call.name, [expr], shape, call.builder.dtype(expr), attrs)


def _pool(call: OperatorCall) -> Item | None:
    order = _image(call)
    if order is None:
        return None
    x = call.store.settle(call.tensor(0))
    made = _on_image(call, x, order, "float32" if call.name == "nn.avg_pool2d" else None)
    return call.result(made, order, reach=x.reach, narrow_early=x.stored == call.narrow)


def _image_mean(call: OperatorCall, x: Value, order: Order, *, keepdims: bool) -> int:
    """Compute the means of an image's channels, in FP32, if `order` makes it NHWC.

    A cast that nobody has asked for so far is read by nothing else; emitters may fuse it.
    """
    is_cast = x.stored == call.narrow and (order, "float32") not in x.forms
    has_size = not any(isinstance(x.shape[axis], Dim) for axis in order[1:3])
    wide = call.store.get(x, order, "float32")
    name = "image_mean" if is_cast and has_size else "mean"
    return call.builder.reduce(name, wide, (1, 2), keepdims=keepdims)


def _adaptive_avg_pool2d(call: OperatorCall) -> Item | None:
    """Write a mean if one pixel is left: TVM has a better schedule for it."""
    order = _image(call)
    if order is None:
        return None
    x = call.store.settle(call.tensor(0))
    if permuted(call.shape, order)[1:3] == (1, 1):
        expr = _image_mean(call, x, order, keepdims=True)
    else:
        expr = _on_image(call, x, order, "float32")
    return call.result(expr, order, reach=x.reach)


def _broadcast_to(call: OperatorCall) -> Item | None:
    """Drop a broadcast that keeps the shape: importers of variadic operators broadcast every
    operand.
    """
    x = call.tensor(0)
    if x.shape != call.shape:
        return _movement(call, narrows=True)
    x.single_use = x.single_use and call.single_use
    return x


def _repeat(call: OperatorCall) -> Item | None:
    """Write copies of matrices as a broadcast: attention reads the matrices once."""
    x, attrs, rank = call.tensor(0), call.attrs.of(Repeat), len(call.shape)
    is_moved = attrs.axis is None or attrs.axis % rank > rank - 3
    if attrs.axis is None or is_moved or not x.is_float or x.constant is not None:
        return _movement(call)
    place = attrs.axis % rank + 1
    apart = (*x.shape[:place], 1, *x.shape[place:])
    copied = (*x.shape[:place], attrs.repeats, *x.shape[place:])
    dtype = call.compute_dtype(x.reach)  # the fewer bytes the fewer are copied
    expr = call.builder.reshape(call.store.get(x, None, dtype), apart)
    expr = call.builder.operator("broadcast_to", [expr], copied, dtype)
    return call.result(call.builder.reshape(expr, call.shape), reach=x.reach)


# Operators that reduce a stack of tensors to one, as operators on two of them.
_PAIRWISE = {"sum": "add", "max": "maximum", "min": "minimum"}


def _of_stack(call: OperatorCall) -> Item | None:
    """Reduce a stack along its axis, one tensor after another: ONNX's Sum, Max and Min."""
    x, attrs = call.tensor(0), call.attrs.of(Reduce)
    if len(x.stacked) < 2 or attrs.axes(len(x.shape)) != (0,) or attrs.keepdims:
        return None
    result, *others = x.stacked
    for value in others:
        single = call.single_use or value is not others[-1]
        result = apply(call, _PAIRWISE[call.name], result, value, single_use=single)
    return result


def _reduction_reach(name: str, x: Value, count: int) -> Reach:
    if name == "variance":
        return power_reach(2.0, x.reach)
    if name == "std":
        return x.reach
    if name == "sum" and (count > _FEW or x.reach.over or x.reach.under):
        return replace(x.reach, over=True, under=True)
    return x.reach


def _reduction(call: OperatorCall) -> Item | None:
    if call.name in _PAIRWISE and (pairwise := _of_stack(call)) is not None:
        return pairwise
    x = call.store.settle(call.tensor(0))
    if not x.is_float or x.flat is not None:
        return None
    rank = len(x.shape)
    attrs = call.attrs.of(Reduce)
    axes, keepdims = attrs.axes(rank), attrs.keepdims
    stored_axes = sorted(x.order.index(each) for each in axes)
    order = x.order
    if not keepdims:
        kept = [each for each in range(rank) if each not in axes]
        order = tuple(kept.index(each) for each in x.order if each in kept)
    if call.name == "mean" and (rank, stored_axes) == (4, [1, 2]):
        reduced = _image_mean(call, x, x.order, keepdims=keepdims)
    else:
        expr = call.store.get(x, x.order, None if call.name in {"max", "min"} else "float32")
        reduced = call.builder.reduce(call.name, expr, stored_axes, keepdims=keepdims)
    count = prod(x.shape[axis] for axis in axes)
    # Few elements are left of many: readers take them in FP32.
    result = call.result(reduced, order, reach=_reduction_reach(call.name, x, greatest(count)))
    is_mean = call.name == "sum" and not isinstance(count, Dim)
    result.mean = Mean(count, x.reach) if is_mean else None
    return result


def softmax(call: OperatorCall) -> Item | None:
    """A softmax or its logarithm along one axis, in FP32."""
    x = call.store.settle(call.tensor(0))
    if not x.is_float or x.flat is not None:
        return None
    axis = call.attrs.of(Axis).at(len(x.shape))
    wide = call.store.get(x, x.order, "float32")
    expr = call.builder.operator(
        call.name, [wide], call.builder.shape(wide), "float32", axis=x.order.index(axis)
    )
    return call.result(expr, x.order, narrow_early=True)


def _layer_norm(call: OperatorCall) -> Item | None:
    """Keep FP16 if the input is FP16: emitters let it reduce in FP32.

    TVM has none in BF16.
    """
    x = call.store.settle(call.tensor(0))
    if not all(value.is_float for value in call.tensors):
        return None
    dtype = call.compute_dtype(x.reach)
    is_missing = dtype == DType.BF16.value
    dtype = "float32" if is_missing else dtype
    args = [call.store.get(value, None, dtype) for value in call.tensors]
    return call.result(call.again(args, call.shape, dtype), narrow_early=is_missing)


def _image_norm(call: OperatorCall) -> Item | None:
    """Keep NHWC if its images lie so. A kernel reads an FP32 tensor that exists anyway."""
    x = call.store.settle(call.tensor(0))
    if not x.is_float or x.flat is not None:
        return None
    is_last = x.order == NHWC and x.constant is None
    order = NHWC if is_last else identity(len(x.shape))
    axis = CHANNELS_LAST if is_last else CHANNELS_FIRST
    attrs = replace(call.attrs.of(ImageNorm), channel_axis=axis)
    stored, shape = call.store.get(x, order, x.stored), permuted(call.shape, order)
    made = call.builder.operator(IMAGE_NORM, (stored,), shape, call.compute_dtype(), attrs)
    return call.result(made, order)


def _joined(call: OperatorCall) -> Item | None:
    """Join tensors along an axis that they have, or stack them along a new first one.

    An operator that reduces a stack along that dimension reads the tensors themselves.
    """
    values, axis = [call.store.settle(value) for value in call.tensors], call.attrs.of(Axis).axis
    is_stack = call.name == "stack"
    if call.dtype not in FLOATS or (is_stack and axis != 0):
        return None
    reach = side_by_side([value.reach for value in values])
    dtype = call.compute_dtype(reach)
    order = common_order(values, call.shape[1:] if is_stack else call.shape)
    args = [call.store.get(value, order, dtype) for value in values]
    behind = (0, *(each + 1 for each in order)) if is_stack else order
    place = behind.index((axis or 0) % len(call.shape))
    shape = permuted(call.shape, behind)
    expr = call.builder.operator(call.name, args, shape, dtype, axis=place)
    result = call.result(expr, behind, reach=reach)
    result.stacked = tuple(values) if is_stack else ()
    return result


def _pad(call: OperatorCall) -> Item | None:
    x = call.store.settle(call.tensor(0))
    if not (x.is_float or x.dtype in SMALL) or x.flat is not None:
        return None
    attrs = call.attrs.of(Pad)
    logical, value, mode = attrs.widths, attrs.value, attrs.mode
    widths = [logical[axis] for axis in x.order]
    floor = floor_of(value, call.store.precision) if mode == "constant" else 1.0
    reach = replace(x.reach, floor=min(x.reach.floor, floor))
    dtype = "float32" if reach.has_guard and x.is_float else x.stored
    expr = call.builder.pad(call.store.get(x, x.order, dtype), widths, value, mode)
    result = call.result(expr, x.order, reach=reach)
    if mode == "constant" and value == 0.0 and all(min(pair) >= 0 for pair in logical):
        result.padded = Padded(x, logical)
    return result


def _resize2d(call: OperatorCall) -> Item | None:
    attrs, x = call.attrs.of(Resize), call.tensor(0)
    order = _spatial(attrs.layout)
    if order is None or not x.is_float or attrs.out_dtype:
        return None
    expr = _on_image(call, x, order, "float32")  # it interpolates in its operand's type
    return call.result(expr, order, reach=x.reach)


def _movement(call: OperatorCall, *, narrows: bool = False) -> Item | None:
    """Copy elements of its first operand as they are stored, in the narrow type if allowed."""
    x = call.tensor(0)
    if not x.is_float or any(value.is_float for value in call.tensors[1:]):
        return None
    rest = [call.store.result(value) for value in call.tensors[1:]]
    is_chosen = narrows or x.constant is not None or x.reach.is_beyond
    dtype = call.compute_dtype(x.reach) if is_chosen else None
    first = call.store.get(x, None, dtype)
    made = call.again([first, *rest], call.shape, call.builder.dtype(first))
    return call.result(made, reach=x.reach)


RULES: dict[str, Rule] = {
    "permute_dims": permute_dims,
    "reshape": _reshape,
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    "nn.adaptive_avg_pool2d": _adaptive_avg_pool2d,
    **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), _reduction),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), softmax),
    "nn.layer_norm": _layer_norm,
    IMAGE_NORM: _image_norm,
    **dict.fromkeys(("concat", "stack"), _joined),
    "broadcast_to": _broadcast_to,
    "nn.pad": _pad,
    "image.resize2d": _resize2d,
    **dict.fromkeys(("tile", "flip", CORNER), _movement),
    **dict.fromkeys(("strided_slice", "take"), _as_it_lies),
    "repeat": _repeat,
}
