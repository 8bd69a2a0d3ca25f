"""Workspaces that TVM's memory planner places: each is one more output of a region's function."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import ir, relay
from tvm.relay.expr_functor import ExprMutator


class _Calls(ExprMutator):  # type: ignore[misc]
    """Calls `regions`, by their names, and takes the result out of what each returns."""

    def __init__(self, regions: Mapping[str, ir.GlobalVar]) -> None:
        super().__init__()
        self._regions = regions

    def visit_call(self, call: relay.Call) -> relay.Expr:
        made = super().visit_call(call)
        name = call.op.name_hint if isinstance(call.op, ir.GlobalVar) else ""
        if name not in self._regions:
            return made
        return relay.TupleGetItem(relay.Call(self._regions[name], made.args), 0)


def with_workspaces(module: tvm.IRModule, workspaces: Mapping[str, int]) -> tvm.IRModule:
    """`module`, each of whose regions in `workspaces` also returns a tensor of that many bytes.

    The tensor is memory that TVM plans with all others; what is in it means nothing.
    """
    if not workspaces:
        return module
    regions = {name: ir.GlobalVar(name) for name in workspaces}  # of another type than before
    functions = {}
    for gvar, function in module.functions.items():
        name = gvar.name_hint
        if name in workspaces:
            functions[regions[name]] = _returning(function, workspaces[name])
        else:
            functions[gvar] = _Calls(regions).visit(function)
    made = tvm.IRModule(functions, module.type_definitions)
    return relay.transform.InferType()(made)


def _returning(function: relay.Function, size: int) -> relay.Function:
    body = relay.Tuple([function.body, relay.zeros((size,), "uint8")])
    result = ir.TupleType([function.ret_type, relay.TensorType((size,), "uint8")])
    return relay.Function(function.params, body, result, function.type_params, function.attrs)


def result_of(function: relay.Function) -> relay.Expr:
    """What a region computes, without its workspace."""
    return function.body.fields[0] if isinstance(function.body, relay.Tuple) else function.body
