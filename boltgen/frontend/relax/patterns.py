"""Carves regions out of a Relax module: one function per region, as TVM's RunCodegen expects.

This takes the place of FuseOpsByPattern: a region's operators move into a function with the
attributes "Codegen" and "global_symbol". What is left behind is one call per region.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import ir, relax

from boltgen.frontend.carving import (
    CODEGEN,
    NOTE,
    Found,
    Symbols,
    find_regions,
    in_order,
    offloaded,
    stays,
)
from boltgen.frontend.graph import Graph
from boltgen.frontend.relax.lower import lower
from boltgen.frontend.relax.translate import Translation, static_shape, translate
from boltgen.ir.chain import Cutter, separate
from boltgen.ir.region import AnyRegion, Placement


def is_region(function: object) -> bool:
    """Whether a module's function is a region of ours."""
    return (
        isinstance(function, relax.Function)
        and "Codegen" in function.attrs
        and str(function.attrs["Codegen"]) == CODEGEN
    )


def is_model(function: object) -> bool:
    """Whether a module's function is one that its author wrote, and no part of another."""
    if not isinstance(function, relax.Function):
        return False
    return not {"Codegen", "Composite", "Primitive"} & set(function.attrs.keys())


class _Carver:
    """Builds the new module; one region at a time."""

    def __init__(self, module: tvm.IRModule, cut: Cutter) -> None:
        self._cut = cut
        self._symbols = Symbols(gvar.name_hint for gvar in module.get_global_vars())
        self.functions: dict[ir.GlobalVar, relax.Function] = {}

    def carve(self, function: relax.Function) -> relax.Function:
        """`function` with a call in the place of each region."""
        translation = translate(function)
        graph = translation.graph
        calls: dict[relax.Var, ir.Call] = {}
        moved: set[relax.Var] = set()
        for found in find_regions(graph, self._cut):
            call = self._region(translation, graph, found, function)
            calls[translation.leaves[found.output]] = call
            moved.update(
                translation.leaves[member]
                for product in found.products
                for member in product.tail.members
            )
        if not calls:
            return function
        blocks = []
        for block in function.body.blocks:
            bindings = [
                relax.VarBinding(binding.var, calls[binding.var])
                if binding.var in calls
                else binding
                for binding in block.bindings
                if binding.var in calls or binding.var not in moved
            ]
            blocks.append(type(block)(bindings))
        body = relax.SeqExpr(blocks, function.body.body)
        return relax.Function(
            function.params, body, function.ret_ty, function.is_pure, function.attrs
        )

    def _region(
        self, translation: Translation, graph: Graph, found: Found, function: relax.Function
    ) -> ir.Call:
        """Adds the region's function; returns the call of it."""
        bindings = {
            binding.var: binding.value
            for block in function.body.blocks
            for binding in block.bindings
        }
        renamed: dict[ir.Expr, ir.Expr] = {}
        arguments: list[ir.Expr] = []
        params: list[relax.Var] = []
        body: list[relax.Binding] = []

        def local(arg: ir.Expr) -> ir.Expr:
            if arg in renamed:
                return renamed[arg]
            index = translation.indices.get(arg)
            if index is None or graph[index].scalar is not None:
                return arg  # a number, a shape, or a constant that the kernel is generated with
            renamed[arg] = param = relax.Var(f"p{len(params)}", arg.ty)
            arguments.append(arg)
            params.append(param)
            return param

        for member in found.members:
            var = translation.leaves[member]
            value = bindings[var]
            call = ir.Call(value.op, [local(arg) for arg in value.args], value.attrs, value.ty_args)
            is_last = member == found.output
            kind = relax.Var if is_last else relax.DataflowVar
            renamed[var] = kind(f"v{len(body)}", var.ty)
            body.append(relax.VarBinding(renamed[var], call))
        result = renamed[translation.leaves[found.output]]
        symbol = self._symbols.fresh(graph, found)
        region = relax.Function(
            params,
            relax.SeqExpr([relax.DataflowBlock(body)], result),
            result.ty,
            is_pure=True,
            attrs=ir.DictAttrs({"Codegen": CODEGEN, "global_symbol": symbol, NOTE: found.reason}),
        )
        gvar = ir.GlobalVar(symbol)
        relax.expr._update_type(gvar, region.ty)
        self.functions[gvar] = region
        return ir.Call(gvar, arguments)


def annotate(module: tvm.IRModule, cut: Cutter = separate) -> tvm.IRModule:
    """`module` with every region that boltgen can compute in a function of its own.

    `cut` says which products become one kernel.
    """
    carver = _Carver(module, cut)
    functions = {
        gvar: carver.carve(function) if is_model(function) else function
        for gvar, function in module.functions.items()
    }
    annotated = tvm.IRModule(
        {**functions, **carver.functions}, module.attrs, global_infos=module.global_infos
    )
    return tvm.transform.Sequential(
        [relax.transform.Normalize(), relax.transform.DeadCodeElimination(_entries(module))]
    )(annotated)


def _entries(module: tvm.IRModule) -> list[str]:
    return [gvar.name_hint for gvar, function in module.functions.items() if is_model(function)]


def regions(module: tvm.IRModule) -> tuple[AnyRegion, ...]:
    """The regions of an annotated module, in the order of their symbols' numbers.

    Raises:
        InvalidProblemError: a region that boltgen did not make itself cannot be lowered.
    """
    return lower_all(function for function in module.functions.values() if is_region(function))


def lower_all(functions: Iterable[relax.Function]) -> tuple[AnyRegion, ...]:
    """The regions that `functions` compute.

    Raises:
        InvalidProblemError: one cannot be lowered; the message has its operators and the reason.
    """
    return in_order((str(f.attrs["global_symbol"]), lower(f)) for f in functions)


def placements(module: tvm.IRModule) -> tuple[Placement, ...]:
    """Where each operator of an annotated module runs, in the order in which they run."""
    by_symbol = {region.symbol: region for region in regions(module)}
    placed: list[Placement] = []
    for function in module.functions.values():
        if is_model(function):
            placed.extend(_placements(function, by_symbol))
    return tuple(placed)


def _placements(function: relax.Function, by_symbol: dict[str, AnyRegion]) -> list[Placement]:
    translation = translate(function)
    graph = translation.graph
    calls = {
        binding.var: binding.value
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, (ir.Call, relax.If))
    }
    placed = []
    for index, leaf in enumerate(translation.leaves):
        if leaf not in calls:
            continue
        callee = calls[leaf].op if isinstance(calls[leaf], ir.Call) else None
        region = by_symbol.get(callee.name_hint) if isinstance(callee, ir.GlobalVar) else None
        shape = static_shape(leaf.ty)
        if region is not None:
            placed.append(offloaded(region, shape))
        else:
            placed.append(stays(graph, index, shape, "if" if callee is None else str(callee)))
    return placed
