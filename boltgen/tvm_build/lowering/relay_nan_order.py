"""Make sorts, argmax and argmin in Relay respect NaN, as `nan_order` does for Relax.

Operators compare integers in the order of floats: NaN is beyond both infinities, and the first NaN
is the position of an extreme.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay

_WIDTHS = {
    "float16": ("float32", "int32"),
    "bfloat16": ("float32", "int32"),
    "float32": ("float32", "int32"),
    "float64": ("float64", "int64"),
}


def with_ordered_nan(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the operators of `module` that compare floats, because TVM ignores NaN in them."""
    typed = relay.transform.InferType()(module)
    writer = _Writer()
    body = writer.visit(typed["main"])
    if not writer.written:
        return module
    made = tvm.IRModule(dict(typed.functions.items()), typed.type_definitions)
    made["main"] = body
    return relay.transform.InferType()(made)


class _Writer(relay.ExprMutator):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def visit_call(self, call: Any) -> Any:
        made = super().visit_call(call)
        name = getattr(call.op, "name", "")
        if name not in _RULES:
            return made
        kind = call.args[0].checked_type
        if kind.dtype not in _WIDTHS:
            return made
        self.written += 1
        return _RULES[name](made.args[0], call.attrs, kind)


def _keys(x: Any, kind: Any, *, nan_is_greatest: bool = True) -> Any:
    wide, dtype = _WIDTHS[kind.dtype]
    most = tvm.tir.max_value(dtype).value
    # Relay has no literal for the least integer.
    beyond = relay.const(most if nan_is_greatest else -most, dtype)
    number = x if kind.dtype == wide else relay.cast(x, wide)
    bits = relay.reinterpret(number, dtype)
    zero = relay.const(0, dtype)
    # For negative floats the greater integer is the smaller number.
    ordered = relay.where(
        relay.less(bits, zero), relay.bitwise_xor(bits, relay.const(most, dtype)), bits
    )
    signed = relay.where(relay.equal(number, relay.const(0.0, wide)), zero, ordered)
    return relay.where(relay.isnan(number), beyond, signed)


def _greatest_place(x: Any, attrs: Any, kind: Any) -> Any:
    return relay.argmax(_keys(x, kind), **_of_position(attrs))


def _least_place(x: Any, attrs: Any, kind: Any) -> Any:
    return relay.argmin(_keys(x, kind, nan_is_greatest=False), **_of_position(attrs))


def _of_position(attrs: Any) -> dict[str, Any]:
    axis = None if attrs.axis is None else [int(each) for each in attrs.axis]
    return {
        "axis": axis,
        "keepdims": bool(attrs.keepdims),
        "exclude": bool(attrs.exclude),
        "select_last_index": bool(attrs.select_last_index),
    }


def _places(x: Any, attrs: Any, kind: Any) -> Any:
    return relay.argsort(
        _keys(x, kind), axis=int(attrs.axis), is_ascend=bool(attrs.is_ascend), dtype=attrs.dtype
    )


def _sorted(x: Any, attrs: Any, kind: Any) -> Any:
    keys, axis = _keys(x, kind), int(attrs.axis)
    places = relay.argsort(keys, axis=axis, is_ascend=bool(attrs.is_ascend), dtype="int64")
    return relay.gather(x, axis, places)


def _most(x: Any, attrs: Any, kind: Any) -> Any:
    axis, dtype = int(attrs.axis), str(attrs.dtype)
    options = {"k": int(attrs.k), "axis": axis, "is_ascend": bool(attrs.is_ascend)}
    places = relay.topk(_keys(x, kind), ret_type="indices", dtype="int64", **options)
    values, own = relay.gather(x, axis, places), relay.cast(places, dtype)
    if attrs.ret_type == "both":
        return relay.Tuple([values, own])
    return values if attrs.ret_type == "values" else own


_RULES = {
    "argmax": _greatest_place,
    "argmin": _least_place,
    "argsort": _places,
    "sort": _sorted,
    "topk": _most,
}
