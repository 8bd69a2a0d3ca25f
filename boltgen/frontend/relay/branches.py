"""Give the arms of branches functions of their own, so that matmuls in them get kernels too."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import ir, relay

from boltgen.frontend.relay.emit import emit
from boltgen.frontend.relay.translate import PRODUCTS, branches, free_variables, translate
from boltgen.graph.graph import Expr


def with_lifted_branches(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, whose types are known, with each arm that has products in a function of its own."""
    taken = {gvar.name_hint for gvar in module.get_global_vars()}
    functions = dict(module.functions.items())
    lifted: dict[ir.GlobalVar, relay.Function] = {}

    def called(arm: relay.Expr) -> relay.Expr:
        if not _has_products(arm):
            return arm
        outside = free_variables(arm)
        params = [relay.Var(var.name_hint, var.checked_type) for var in outside]
        body = relay.bind(arm, dict(zip(outside, params, strict=True)))
        name = next(name for n in range(len(taken) + 1) if (name := f"branch_{n}") not in taken)
        taken.add(name)
        lifted[ir.GlobalVar(name)] = relay.Function(params, body, arm.checked_type)
        return relay.Call(next(reversed(lifted)), outside)

    def without_products(expr: Expr) -> Expr:
        branch = expr.origin
        if not isinstance(branch, relay.If) or not _has_products(branches(branch)):
            return expr
        arms = (called(branch.true_branch), called(branch.false_branch))
        return replace(expr, origin=relay.If(branch.cond, *arms))

    for gvar, function in module.functions.items():
        if isinstance(function, relay.Function) and _has_branches(function):
            graph = translate(function)
            exprs = tuple(map(without_products, graph.exprs))
            functions[gvar] = emit(replace(graph, exprs=exprs), function, {}, {})
    if not lifted:
        return module
    made = tvm.IRModule({**functions, **lifted}, module.type_definitions)
    return with_lifted_branches(relay.transform.InferType()(made))


def _has_branches(function: relay.Function) -> bool:
    return any(isinstance(part, relay.If) for part in _parts(function))


def _has_products(expr: relay.Expr) -> bool:
    ops = (part.op for part in _parts(expr) if isinstance(part, relay.Call))
    return any(isinstance(op, ir.Op) and op.name in PRODUCTS for op in ops)


def _parts(expr: relay.Expr) -> list[relay.Expr]:
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(expr, found.append)
    return found
