"""Rewrite operators that TVM would compute wrongly for NaN, infinities and zeros.

Sorts, argmax and argmin compare integers in place of floats: NaN is the greatest number, as in
PyTorch, and the first NaN is the position of an extreme. Scalar zeros become tensors, because TVM
simplifies x * 0 and 0 / x to 0 for every x, and rejects x / 0. TVM's `full` cannot fill a tensor
with an infinity, so a broadcast does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, te, tirx, topi

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# The operators whose scalar zero TVM simplifies.
_OF_ZERO = ("multiply", "divide", "floor_divide", "mod", "floor_mod")


def with_ordered_nan(module: tvm.IRModule) -> tvm.IRModule:
    """Return `module`, before its operators are lowered, in a form that TVM computes correctly."""
    writer = _Writer(module)
    for name, function in module.functions_items():
        if isinstance(function, relax.Function):
            writer.builder_.update_func(name, writer.visit_expr(function))
    return writer.builder_.get() if writer.written else module


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.written = 0
        self._rules: dict[str, Callable[[ir.Call], ir.Expr]] = {
            "relax.argmax": self._position,
            "relax.argmin": self._position,
            "relax.sort": self._sorted,
            "relax.argsort": self._places,
            "relax.topk": self._most,
            "relax.full": self._filled,
            "relax.full_like": self._filled,
            **{f"relax.{name}": self._with_tensors for name in _OF_ZERO},
        }

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = super().visit_call_(call)
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        if name not in self._rules or str(call.args[-1].ty.dtype) not in _FLOATS:
            return call
        made = self._rules[name](call)
        self.written += made is not call
        return made

    def _position(self, call: ir.Call) -> ir.Expr:
        is_max = call.op.name == "relax.argmax"
        reduce = topi.argmax if is_max else topi.argmin
        axis, keepdims = call.attrs.axis, call.attrs.keepdims

        def of_keys(x: te.Tensor) -> te.Tensor:
            return reduce(_keys(x, nan_is_greatest=is_max), axis, keepdims)

        return self.builder_.call_te(of_keys, call.args[0], primfunc_name_hint=reduce.__name__)

    def _sorted(self, call: ir.Call) -> ir.Expr:
        keys = self._keys(call.args[0])
        ordered = relax.op.sort(keys, call.attrs.axis, call.attrs.descending)
        return self._numbers(self.builder_.emit(ordered), call.args[0])

    def _places(self, call: ir.Call) -> ir.Expr:
        attrs = call.attrs
        keys = self._keys(call.args[0])
        return relax.op.argsort(keys, attrs.axis, attrs.descending, str(attrs.dtype))

    def _most(self, call: ir.Call) -> ir.Expr:
        x, attrs = call.args[0], call.attrs
        options = (int(attrs.k), int(attrs.axis), attrs.ret_type, attrs.largest, str(attrs.dtype))
        found = self.builder_.emit(relax.op.topk(self._keys(x), *options))
        if attrs.ret_type == "indices":
            return found
        if attrs.ret_type == "values":
            return self._numbers(found, x)
        values, places = (relax.TupleGetItem(found, place) for place in (0, 1))
        return relax.Tuple([self._numbers(self.builder_.emit(values), x), places])

    def _keys(self, x: ir.Expr) -> ir.Expr:
        made = self.builder_.call_te(_keys, x, primfunc_name_hint="keys_of_floats")
        return self.builder_.emit(made)

    def _numbers(self, keys: ir.Expr, x: ir.Expr) -> ir.Expr:
        dtype = str(x.ty.dtype)
        made = self.builder_.call_te(_numbers, keys, dtype, primfunc_name_hint="floats_of_keys")
        return self.builder_.emit(made)

    def _filled(self, call: ir.Call) -> ir.Expr:
        number = call.args[1]
        is_infinite = isinstance(number, ir.GenericConst) and np.isinf(number.value.numpy())
        return relax.op.broadcast_to(number, call.ty.shape) if is_infinite else call

    def _with_tensors(self, call: ir.Call) -> ir.Expr:
        args = [_as_tensor(arg) for arg in call.args]
        if args == list(call.args):
            return call
        made = ir.Call(call.op, args, call.attrs)
        if call.ty.ndim:
            return made
        return relax.op.reshape(self.builder_.emit(made), ())


def _as_tensor(operand: ir.Expr) -> ir.Expr:
    """Return a scalar zero as a tensor of one dimension, and any other operand unchanged."""
    if not isinstance(operand, ir.GenericConst) or operand.ty.ndim:
        return operand
    array = operand.value.numpy()
    return operand if array.any() else relax.const(array.reshape(1), str(operand.ty.dtype))


def _widths(dtype: str) -> tuple[str, str]:
    """Return the types of floats and integers that order numbers of type `dtype`."""
    return ("float64", "int64") if dtype == "float64" else ("float32", "int32")


def _keys(x: te.Tensor, *, nan_is_greatest: bool = True) -> te.Tensor:
    """Return integers in the order of floats; both zeros are 0, NaN is beyond both infinities."""
    wide, dtype = _widths(str(x.dtype))
    extreme = (tirx.max_value if nan_is_greatest else tirx.min_value)(dtype)

    def key(*place: Any) -> Any:
        number = x[place].astype(wide)
        bits = tirx.reinterpret(dtype, number)
        # For negative floats the greater integer is the smaller number.
        ordered = tirx.Select(bits < 0, bits ^ tirx.max_value(dtype), bits)
        signed = tirx.Select(number == 0, tirx.const(0, dtype), ordered)
        return tirx.Select(tirx.isnan(number), extreme, signed)

    return te.compute(x.shape, key, "keys", tag=topi.tag.ELEMWISE)


def _numbers(keys: te.Tensor, dtype: str) -> te.Tensor:
    """Return the floats of type `dtype` for the integers `keys`."""
    wide, narrow = _widths(dtype)

    def number(*place: Any) -> Any:
        key = keys[place]
        bits = tirx.Select(key < 0, key ^ tirx.max_value(narrow), key)
        return tirx.reinterpret(wide, bits).astype(dtype)

    return te.compute(keys.shape, number, "numbers", tag=topi.tag.ELEMWISE)
