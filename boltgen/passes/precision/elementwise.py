"""Normalise elementwise operators and casts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from boltgen.graph.attributes import NONE, Axis, Clip, Sharpness, Slope
from boltgen.graph.facts import BYTES, COMPARISONS
from boltgen.graph.numpy_semantics.operation import along
from boltgen.ir.dtypes import DType
from boltgen.ir.key_masks import HIDDEN
from boltgen.passes.precision.call import Item, OperatorCall, Rule, common_order
from boltgen.passes.precision.reach import (
    BEYOND,
    WITHIN,
    Reach,
    clipped_reach,
    floor_of,
    power_reach,
    reach_of,
    smallest_floor,
)
from boltgen.passes.precision.values import (
    FLAT,
    FLOATS,
    Order,
    Store,
    Value,
    identity,
    is_same,
    moves_nothing,
    permuted,
)
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE
from boltgen.passes.weights.checks import FP16_MAX

# Their intermediate values leave FP16's range for ordinary arguments, or lose too many digits.
_WIDE = frozenset(
    {"exp", "log", "power", "square", "sqrt", "rsqrt", "sin", "cos", "tan", "nn.softplus"}
)
# Elementwise, though no epilogue has them.
_OTHERS = (
    *("sign", "floor", "ceil", "round", "trunc", "sin", "cos", "tan", "where", *COMPARISONS),
    *("logical_and", "logical_or", "logical_not"),
)
# FP16 and BF16 have every number of these types: their significands have at least 8 bits.
SMALL = BYTES | {"bool"}


def apply(call: OperatorCall, name: str, *args: Value, **changes: Any) -> Value:
    """Compute the elementwise operator `name` on `args` in place of `call`."""
    options = {"original": None, "attrs": NONE, **changes}
    made = elementwise(replace(call, name=name, args=args, **options))
    assert isinstance(made, Value)
    return made


def softplus(call: OperatorCall, beta: float) -> Item:
    """Write a softplus of the operand in place of `call`."""
    x = call.tensor(0)
    if beta == 1.0:
        return apply(call, "nn.softplus", x, attrs=Sharpness(1.0))
    factor = call.store.of_array(np.array(beta, x.dtype))
    bent = apply(call, "nn.softplus", apply(call, "multiply", x, factor), attrs=Sharpness(1.0))
    return apply(call, "divide", bent, factor)


def _prelu(call: OperatorCall) -> Item | None:
    """Write PReLU as ordinary elementwise operators, since its slopes have an axis of their own."""
    x, slopes = call.tensor(0), call.tensor(1).constant
    if slopes is None or x.flat is not None:
        return None
    rank = len(x.shape)
    zero, slope = np.zeros((), slopes.dtype), along(call.attrs.of(Axis).at(rank), slopes, rank)
    negative = apply(call, "minimum", x, call.store.of_array(zero), single_use=True)
    scaled = apply(call, "multiply", call.store.of_array(slope), negative, single_use=True)
    positive = apply(call, "nn.relu", x, single_use=True)
    return apply(call, "add", positive, scaled)


def _astype(call: OperatorCall) -> Item | None:
    x = call.tensor(0)
    narrow = call.narrow
    known = FLOATS | {narrow}  # inputs and outputs of a BF16 program are BF16
    if call.dtype not in known:
        return None
    if x.dtype not in known:
        return _from_integer(call, x)
    call.store.settle(x)
    narrows = call.dtype != "float32"
    if narrows and x.stored == narrow:
        stored = narrow
    elif not narrows and x.dtype == "float16":
        stored = "float32"  # the author of an FP16 model asks for FP32 here
    else:
        stored = narrow if narrows else x.stored
    value = call.store.of_expr(call.store.get(x, x.order, stored), x.shape, call.dtype, x.order)
    value.flat, value.single_use, value.moved_from = x.flat, call.single_use, x.elements_of
    value.reach = WITHIN if narrows else x.reach
    if x.stored == narrow and x.constant is None:
        value.forms[x.order, narrow] = x.forms[x.order, narrow]
        value.is_exact = True
    return value


def _from_integer(call: OperatorCall, x: Value) -> Item:
    """Keep a number that is made from an integer in FP32: FP16 is exact to 2048, BF16 to 256."""
    made = call.store.of_expr(call.store.get(x, x.order, call.dtype), x.shape, call.dtype, x.order)
    made.single_use = call.single_use
    made.reach = WITHIN if x.dtype in SMALL or call.dtype != "float32" else BEYOND
    return made


def _add(call: OperatorCall) -> Item | None:
    """Fold a constant bias into an anchor that is not emitted yet; else add as usual."""
    for value, other in ((0, 1), (1, 0)):
        x, bias = call.tensor(value), call.tensor(other).constant
        if x.pending is None or not x.single_use or bias is None or x.shape != call.shape:
            continue
        channels = x.shape[x.pending.channel]
        full = (1,) * (len(x.shape) - bias.ndim) + bias.shape
        others = {e for axis, e in enumerate(full) if axis != x.pending.channel}
        if others <= {1} and bias.size == channels:
            x.pending.add(bias.reshape(channels))
            x.single_use = call.single_use
            return x
    return elementwise(call)


def _bias_add(call: OperatorCall) -> Item | None:
    """Write an `add` whose second operand lies along an axis of its own."""
    x, bias, rank = call.tensor(0), call.tensor(1), len(call.shape)
    axis = call.attrs.of(Axis).at(rank)
    if bias.constant is not None:
        placed = call.store.of_array(along(axis, bias.constant, rank))
    else:
        shape = tuple(bias.shape[0] if at == axis else 1 for at in range(rank))
        expr = call.builder.reshape(call.store.get(bias), shape)
        placed = call.store.of_expr(expr, shape, bias.dtype)
    return _add(replace(call, name="add", original=None, attrs=NONE, args=(x, placed)))


def elementwise(call: OperatorCall) -> Item | None:
    """Apply the operator in the order and dtype in which its operands are stored."""
    store = call.store
    for value in call.tensors:
        store.settle(value)
    masked = _with_saturated_masks(call)
    if masked is not None:
        return _sum_within(masked)
    values = call.tensors
    variables = [value for value in values if value.constant is None]
    constants = [value.constant for value in values if value.constant is not None]
    has_lost = any(v.constant is not None and v.reach.is_fine for v in values)
    order = common_order(values, call.shape, is_score=call.is_score)
    flat = variables[0].flat if len(variables) == 1 else None
    flat = flat if all(array.size == 1 for array in constants) else None
    order = order if flat is None else FLAT
    reach = _reach(call)
    is_wide = (
        call.compute_dtype(reach) == "float32"
        or call.name in _WIDE
        or any(v.is_float and v.stored == "float32" for v in variables)
        or has_lost
    )
    computed = "float32" if is_wide else call.narrow
    args = [
        _aligned(store, value, order, computed if value.is_float else value.dtype, len(call.shape))
        for value in values
    ]
    dtype = computed if call.dtype in FLOATS else call.dtype
    shape = call.shape if flat is not None else permuted(call.shape, order)
    early = any(v.is_float and v.stored == call.narrow for v in variables)
    early = early and call.name not in _WIDE and not has_lost
    result = call.result(call.again(args, shape, dtype), order, reach=reach, narrow_early=early)
    result.flat = flat
    return result


def _reach(call: OperatorCall) -> Reach:
    values, precision = call.tensors, call.store.precision
    reaches = [value.reach for value in values]
    constants = [v.constant for v in values if v.constant is not None and v.constant.size == 1]
    number = float(constants[0].reshape(())) if len(constants) == 1 else None
    if call.name == "multiply" and is_same(*values):
        return reach_of("square", reaches[:1])
    if call.name == "power":
        exponent = values[1].constant
        is_number = exponent is not None and exponent.size == 1
        return power_reach(number if is_number else None, reaches[0])
    if call.name == "clip":
        clip = call.attrs.of(Clip)
        return clipped_reach(clip.low, clip.high, reaches[0], precision)
    if call.name == "nn.leakyrelu":
        slope = floor_of(call.attrs.of(Slope).alpha, precision)
        return replace(reaches[0], floor=min(reaches[0].floor, slope))
    if call.name in {"maximum", "minimum"}:
        reaches = [
            replace(each.reach, floor=smallest_floor(each.constant, precision))
            if each.constant is not None
            else each.reach
            for each in values
        ]
    means = [value.mean for value in values if value.mean is not None]
    mean = means[0] if means and (call.name == "multiply" or values[0].mean) else None
    if mean is not None and number and call.name in {"divide", "multiply"}:
        factor = 1 / number if call.name == "divide" else number
        if abs(factor) * mean.count <= 2.0:  # a mean, written as a sum and a division
            return mean.reach
    return reach_of(call.name, reaches)


def _with_saturated_masks(call: OperatorCall) -> OperatorCall | None:
    """Return `call` with its masks in FP16, if only a softmax reads scores and masks.

    Additive masks have numbers such as -1e9. FP16's lowest number serves as well: the exponential
    of its difference to any score is zero. -inf stays -inf: a row of nothing else is NaN.
    """
    if call.store.precision.max_exponent == DType.F32.max_exponent:
        return None  # BF16 has FP32's range
    if not call.is_score or call.context.is_mixed or call.name not in {"add", "where"}:
        return None
    floats = [value for value in call.tensors if value.is_float]
    masks = [value for value in floats if value.reach.is_beyond]
    others = [value for value in floats if value not in masks and value.constant is None]
    if not masks or [value.stored for value in others] != ["float16"]:
        return None
    if call.name == "where" and any(mask.constant is None for mask in masks):
        return None
    call.context.note(
        "a mask's finite numbers below FP16's lowest, -65504, are raised to it: a softmax makes "
        "zero of both"
    )
    lowest = HIDDEN if _is_infinite(call) else -FP16_MAX
    args = tuple(_saturated(call, v, lowest) if v in masks else v for v in call.tensors)
    return replace(call, args=args)


def _is_infinite(call: OperatorCall) -> bool:
    """Return whether a sum may be -inf because its author says so, and so may have no bounds.

    Its masks are half of FP16's range at most then: a sum with a score of the other half is finite.
    """
    return call.name == "add" and any(value.is_infinite for value in call.tensors)


def _saturated(call: OperatorCall, mask: Value, lowest: float) -> Value:
    if mask.constant is not None:
        finite = np.clip(mask.constant, lowest, FP16_MAX)
        narrow = np.where(np.isinf(mask.constant), mask.constant, finite).astype(np.float16)
        return call.store.of_array(narrow)
    if lowest not in mask.saturated:
        expr = call.builder.astype(_within(call, mask, lowest), "float16")
        made = call.store.of_expr(expr, mask.shape, mask.dtype, mask.order)
        mask.saturated[lowest] = made
    return mask.saturated[lowest]


def _within(call: OperatorCall, mask: Value, lowest: float) -> int:
    """Clip a mask's numbers to bounds, in FP32; -inf stays."""
    builder, wide = call.builder, call.store.get(mask, mask.order, "float32")
    finite = builder.elementwise("clip", wide, low=lowest, high=FP16_MAX)
    if not mask.is_infinite:
        return finite
    hidden = builder.constant(np.array(-np.inf, np.float32))
    shape = builder.shape(wide)
    is_hidden = builder.operator("equal", (wide, hidden), shape, "bool")
    return builder.where(is_hidden, hidden, finite)


def _sum_within(call: OperatorCall) -> Item | None:
    """Add scores and finite masks such that they stay finite: a row of -inf has no softmax."""
    made = elementwise(call)
    if call.name != "add" or not isinstance(made, Value) or _is_infinite(call):
        return made
    expr = call.store.get(made, made.order, "float16")
    within = call.builder.elementwise("clip", expr, low=-FP16_MAX, high=FP16_MAX)
    return call.result(within, made.order)


def _aligned(store: Store, value: Value, order: Order, dtype: str, rank: int) -> int:
    """Return `value` in `order` of the result's `rank` dimensions, with leading extents of 1."""
    full = (1,) * (rank - len(value.shape)) + value.shape
    is_plain = full == value.shape or order == identity(rank)
    if value.constant is not None and (value.constant.size == 1 or not is_plain):
        is_scalar = value.constant.size == 1
        array = value.constant.reshape(() if is_scalar else full)
        return store.array(array, () if is_scalar else order, dtype)
    if is_plain:
        return store.get(value, order if full == value.shape else None, dtype)
    expr = store.builder.reshape(store.get(value, None, dtype), full)
    if moves_nothing(full, order):
        return store.builder.reshape(expr, permuted(full, order))
    return store.builder.permute_dims(expr, order)


RULES: dict[str, Rule] = {
    **dict.fromkeys((*ELEMENTWISE, *_OTHERS), elementwise),
    "add": _add,
    "nn.bias_add": _bias_add,
    "astype": _astype,
    "nn.prelu": _prelu,
}
del RULES["reshape"]
