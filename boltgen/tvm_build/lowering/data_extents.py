"""Correct kernels whose extents depend on data: their order, and an extent of 0.

TVM 0.27 puts a fused kernel at the place of its first operator, which may precede the binding that
defines its extents. TVM also launches one block if a grid has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx

_CALL_TIR = ir.Op.get("relax.call_tir")


def with_extents_first(module: tvm.IRModule) -> tvm.IRModule:
    """Return `module` with each `match_cast` before the readers of its symbols, in each block."""
    made = {
        gvar: _ordered(function)
        for gvar, function in module.functions_items()
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr)
    }
    functions = {**dict(module.functions_items()), **made}
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _ordered(function: relax.Function) -> relax.Function:
    blocks = list(function.body.blocks)
    if not any(isinstance(each, relax.MatchCast) for block in blocks for each in block.bindings):
        return function
    known = set().union(*(_symbols(param.ty) for param in function.params))
    written = [type(block)(_in_order(block.bindings, known)) for block in blocks]
    body = relax.SeqExpr(written, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _in_order(bindings: Sequence[relax.Binding], known: set[Any]) -> list[relax.Binding]:
    """Sort bindings so that each follows the values that it reads; `known` symbols are defined."""
    makers: dict[Any, int] = {}
    for place, binding in enumerate(bindings):
        makers[binding.var] = place
        if isinstance(binding, relax.MatchCast):
            for symbol in _symbols(binding.ty) - known:
                makers[symbol] = place
                known.add(symbol)
    found: list[relax.Binding] = []
    begun: set[int] = set()

    def write(place: int) -> None:
        if place in begun:
            return
        begun.add(place)
        binding = bindings[place]
        read = {*relax.analysis.free_vars(binding.value), *_symbols(binding.value)}
        for each in sorted({makers[each] for each in read if each in makers}):
            write(each)
        found.append(binding)

    for place in range(len(bindings)):
        write(place)
    return found


def _symbols(part: object) -> set[Any]:
    """Return the TIR variables in an expression or a type."""
    found: set[Any] = set()
    tvm_ffi.structural_walk(part, (tirx.Var, found.add), order="post")
    return found


def kernels_of_data(module: tvm.IRModule) -> frozenset[str]:
    """Return the kernels that are called with extents that depend on data, and so may be 0.

    A model's own dimensions are at least 1.
    """
    return frozenset(name for _, each in module.functions_items() for name in _called(each))


def _called(function: object) -> set[str]:
    """Return the kernels that a function calls with symbols that its parameters do not have."""
    if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
        return set()
    given = set().union(*(_symbols(param.ty) for param in function.params))
    bindings = [each for block in function.body.blocks for each in block.bindings]
    calls = [each.value for each in bindings if isinstance(each, relax.VarBinding)]
    return {
        str(call.args[0].name_hint)
        for call in calls
        if isinstance(call, ir.Call)
        and call.op == _CALL_TIR
        and {*_symbols(call.ty), *(s for arg in call.args[1].fields for s in _symbols(arg.ty))}
        - given
    }


def guarded(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel without barriers that does nothing if its grid is empty."""

    def guard(loop: tirx.For) -> tirx.Stmt:
        is_grid = loop.thread_binding is not None and "blockIdx" in loop.thread_binding.thread_tag
        if not is_grid or isinstance(loop.extent, tirx.IntImm):
            return loop

        def narrow(block: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
            is_any = tirx.all(block.predicate, loop.loop_var < loop.extent)
            return s_tir.SBlockRealize(block.iter_values, is_any, block.block)

        # With the bare extent TVM assumes that the first block exists.
        extent = tirx.max(loop.extent, tirx.IntImm(loop.extent.ty.dtype, 1))
        return tirx.For(
            loop.loop_var,
            loop.min,
            extent,
            loop.kind,
            tvm_ffi.structural_map(loop.body, (s_tir.SBlockRealize, narrow)),
            loop.thread_binding,
            loop.annotations,
        )

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, guard)))
