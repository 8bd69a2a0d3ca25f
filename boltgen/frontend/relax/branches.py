"""Give the arms of branches functions of their own, so that matmuls in them get kernels too."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from boltgen.frontend.relax.translate import free_variables
from boltgen.passes.regions.anchor import ANCHORS

_PRODUCTS = frozenset(f"relax.{name}" for name in ANCHORS)


@mutator
class Substitution(PyExprMutator):  # type: ignore[misc]
    """Puts new expressions in the place of variables, in nested functions and branches too."""

    def __init__(self, names: Mapping[relax.Var, ir.Expr]) -> None:
        super().__init__()
        self._names = names

    def visit_var_(self, var: relax.Var) -> ir.Expr:
        """The new expression of a variable, or the variable."""
        return self._names.get(var, var)

    def visit_dataflow_var_(self, var: relax.Var) -> ir.Expr:
        """The new expression of a variable, or the variable."""
        return self._names.get(var, var)


def has_products(expr: ir.Expr) -> bool:
    """Return whether an expression has matmuls or convolutions, including branches within it."""
    found: list[bool] = []

    def visit(part: ir.Expr) -> None:
        if isinstance(part, ir.Call) and isinstance(part.op, ir.Op) and part.op.name in _PRODUCTS:
            found.append(True)

    relax.analysis.post_order_visit(expr, visit)
    return bool(found)


@mutator
class _Lifting(PyExprMutator):  # type: ignore[misc]
    """Move arms with matmuls out of one function; `lifted` collects the arms of all functions."""

    def __init__(self, module: tvm.IRModule, *, is_pure: bool) -> None:
        super().__init__(module)
        self._taken = {gvar.name_hint for gvar in module.get_global_vars()}
        self._is_pure = is_pure
        self.lifted: dict[ir.GlobalVar, relax.Function] = {}

    def visit_if_(self, branch: relax.If) -> ir.Expr:
        """The branch, each arm of which that has products is the call of a function."""
        arms = [
            self._call(arm) if has_products(arm) else arm
            for arm in (branch.true_branch, branch.false_branch)
        ]
        return relax.If(branch.cond, *arms)

    def _call(self, arm: relax.SeqExpr) -> relax.SeqExpr:
        outside = free_variables(arm)
        params = [relax.Var(var.name, var.ty) for var in outside]
        body = Substitution(dict(zip(outside, params, strict=True))).visit_expr(arm)
        function = relax.Function(params, body, arm.ty, is_pure=self._is_pure)
        gvar = ir.GlobalVar(self._name())
        relax.expr._update_type(gvar, function.ty)
        self.lifted[gvar] = relax.utils.copy_with_new_vars(function)
        result = relax.Var("arm", arm.ty)
        binding = relax.VarBinding(result, ir.Call(gvar, outside))
        return relax.SeqExpr([relax.BindingBlock([binding])], result)

    def _name(self) -> str:
        name = next(
            name for n in range(len(self._taken) + 1) if (name := f"branch_{n}") not in self._taken
        )
        self._taken.add(name)
        return name


def with_lifted_branches(module: tvm.IRModule) -> tvm.IRModule:
    """`module` with each arm of a branch that has products in a function of its own."""
    functions = dict(module.functions.items())
    pending = [gvar for gvar, f in functions.items() if isinstance(f, relax.Function)]
    while pending:
        gvar = pending.pop()
        function = functions[gvar]
        lifting = _Lifting(tvm.IRModule(functions), is_pure=bool(function.is_pure))
        functions[gvar] = lifting.visit_expr(function)
        functions.update(lifting.lifted)
        pending += lifting.lifted
    made = tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)
    return relax.transform.Normalize()(made)
