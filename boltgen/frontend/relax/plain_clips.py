"""Rewrite the loops that TVM's ONNX converter writes for a Clip as plain `maximum` and `minimum`.

The converter (TVM 0.27) calls loops of its own for each bound, which no pass looks into, so that
every ReLU6 would cut a model apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx, topi

_PLAIN: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "maximum": (topi.maximum, relax.op.maximum),
    "minimum": (topi.minimum, relax.op.minimum),
}


def write_plain_clips(module: tvm.IRModule) -> tvm.IRModule:
    """The module with each call of TVM's own maximum or minimum loops as the operator."""
    writer = _Writer(module)
    for gvar, function in module.functions_items():
        if isinstance(function, relax.Function):
            writer.builder_.update_func(gvar, writer.visit_expr(function))
    if not writer.written:
        return module
    return relax.transform.DeadCodeElimination()(writer.builder_.get())


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module
        self._known: dict[tuple[str, str, str], tirx.PrimFunc] = {}
        self.written = 0

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = super().visit_call_(call)
        if call.op != ir.Op.get("relax.call_tir") or len(call.args) != 2:
            return call
        callee, arguments = call.args
        name = str(callee.name_hint).rstrip("0123456789_")
        if name not in _PLAIN or len(arguments.fields) != 2:
            return call
        loops, operator = _PLAIN[name]
        left, right = arguments.fields
        key = (name, str(left.ty), str(right.ty))
        if key not in self._known:
            self._known[key] = _loops(loops, left, right)
        if not tvm_ffi.structural_equal(self._module[callee], self._known[key]):
            return call
        self.written += 1
        return operator(left, self._bound(right))

    def _bound(self, bound: ir.Expr) -> ir.Expr:
        """Return a bound without the converter's check for NaN, if it is a constant and not NaN."""
        value = self.lookup_binding(bound) if isinstance(bound, relax.Var) else bound
        if isinstance(value, ir.Call) and value.op == ir.Op.get("relax.where"):
            constant = value.args[2]
            if isinstance(constant, ir.GenericConst):
                array = constant.value.numpy()
                if (array == array).all():  # noqa: PLR0124  NaN differs from itself
                    return constant
        return bound


def _loops(loops: Callable[..., Any], left: ir.Expr, right: ir.Expr) -> tirx.PrimFunc:
    """The function that TVM makes of an operator's loops on tensors of these types."""
    builder = relax.BlockBuilder()
    operands = [relax.Var(name, each.ty) for name, each in (("a", left), ("b", right))]
    with builder.function("main", operands):
        builder.emit_func_output(builder.emit_te(loops, *operands))
    (made,) = [f for _, f in builder.get().functions_items() if isinstance(f, tirx.PrimFunc)]
    return made
