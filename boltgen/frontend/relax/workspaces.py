"""Workspaces that TVM's memory planner places: each is one more output of a region's call."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator


@mutator
class _Workspaces(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, workspaces: Mapping[str, int]) -> None:
        super().__init__(module)
        self._workspaces = workspaces

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = super().visit_call_(call)
        callee = call.args[0] if call.args else None
        if not isinstance(callee, relax.ExternFunc):
            return call
        size = self._workspaces.get(str(callee.global_symbol))
        if size is None:
            return call
        (result,) = call.ty_args
        outputs = [result, relax.TensorType((size,), "uint8")]
        both = self.builder_.emit(relax.call_dps_packed(callee, call.args[1], out_ty=outputs))
        return ir.TupleGetItem(both, 0)


def with_workspaces(module: tvm.IRModule, workspaces: Mapping[str, int]) -> tvm.IRModule:
    """`module`, where each call of a symbol in `workspaces` passes that many bytes behind D.

    The memory planner gives them what no other tensor needs at that time.
    """
    if not workspaces:
        return module
    mutate = _Workspaces(module, workspaces)
    for gvar, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutate.builder_.update_func(gvar, mutate.visit_expr(function))
    made = mutate.builder_.get()
    return tvm.IRModule(made.functions, module.attrs, global_infos=module.global_infos)
