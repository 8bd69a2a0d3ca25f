"""Keep NaN and infinities in the kernels that TVM generates from Relay; see `special_values`.

The last pass of `relay.build` changes TVM's loops after they are scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import tir
from tvm.tir import stmt_functor

from boltgen.tvm_build.cuda_compiler import DEVICE_PREFIX

_NAMES = {tir.Max: "maximum", tir.Min: "minimum"}
# A call with a name, a type and two operands.
_Call = Callable[[str, Any], Any]


def config() -> dict[str, Any]:
    """Return options of a `tvm.transform.PassContext` that keep NaN and infinities."""
    keep = tir.transform.prim_func_pass(_kept, opt_level=0, name="boltgen.relay.SpecialValues")
    last = 3  # Source: tvm/driver/driver_api.cc, the phases of tir.add_lower_pass
    return {"tir.add_lower_pass": [(last, keep)]}


def _kept(function: tir.PrimFunc, _: tvm.IRModule, __: tvm.transform.PassContext) -> tir.PrimFunc:
    """Return `function` with NaN propagated, and with maxima from -inf and minima from inf on."""
    sums = _accumulators(function.body)
    call = _device_call if _has_threads(function.body) else _host_call

    def changed(node: Any) -> Any:
        match node:
            case tir.Max() | tir.Min():
                return call(_NAMES[type(node)], node) if _is_float(node) else node
            case tir.BufferStore() if node.buffer.data in sums:
                return tir.BufferStore(node.buffer, _infinity(node.value), node.indices)
            case tir.AttrStmt() if isinstance(node.node, tir.CommReducer):
                return tir.AttrStmt(_reducer(node.node, call), node.attr_key, node.value, node.body)
            case tir.NE() if call is _host_call and _is_float(node.a):
                # On the host TVM's != is false if an operand is NaN.
                return tir.Not(tir.EQ(node.a, node.b))
            case _:
                return node

    kinds = ["tir.Max", "tir.Min", "tir.BufferStore", "tir.AttrStmt", "tir.NE"]
    return function.with_body(stmt_functor.ir_transform(function.body, None, changed, kinds))


def _accumulators(body: Any) -> set[Any]:
    """Return the buffers that accumulate a maximum or a minimum."""
    found = set()

    def visit(node: Any) -> None:
        if isinstance(node, tir.BufferStore) and type(node.value) in _NAMES:
            operands = (node.value.a, node.value.b)
            loads = (each for each in operands if isinstance(each, tir.BufferLoad))
            if any(each.buffer.data.same_as(node.buffer.data) for each in loads):
                found.add(node.buffer.data)

    stmt_functor.post_order_visit(body, visit)
    return found


def _has_threads(body: Any) -> bool:
    found = []

    def visit(node: Any) -> None:
        if isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent":
            found.append(node)

    stmt_functor.post_order_visit(body, visit)
    return bool(found)


def _is_float(node: Any) -> bool:
    return str(node.dtype).startswith("float")


def _device_call(name: str, node: Any) -> Any:
    return tir.call_pure_extern(node.dtype, DEVICE_PREFIX + name, node.a, node.b)


def _host_call(name: str, node: Any) -> Any:
    """Return a selection that computes each operand once; LLVM 10 has no instruction for it."""
    a, b = (tir.Var(each, node.dtype) for each in ("a", "b"))
    compared = a > b if name == "maximum" else a < b
    is_kept = tir.Or(tir.Not(tir.EQ(a, a)), compared)
    return tir.Let(a, node.a, tir.Let(b, node.b, tir.Select(is_kept, a, b)))


def _reducer(reducer: tir.CommReducer, call: _Call) -> tir.CommReducer:
    if [type(each) in _NAMES and _is_float(each) for each in reducer.result] != [True]:
        return reducer
    (result,), (first,) = reducer.result, reducer.identity_element
    combined = call(_NAMES[type(result)], result)
    return tir.CommReducer(reducer.lhs, reducer.rhs, [combined], [_infinity(first)])


def _infinity(value: Any) -> Any:
    """Return an infinity for a type's greatest or least number, and any other value unchanged."""
    if not isinstance(value, tir.FloatImm) or not _is_float(value):
        return value
    if abs(value.value) != tir.max_value(value.dtype).value:
        return value
    return tir.FloatImm(value.dtype, math.copysign(math.inf, value.value))
