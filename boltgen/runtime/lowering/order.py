"""The order of a function's bindings, where extents depend on data.

TVM 0.27 fuses operators in the place of the first one. A kernel then stands before the binding that
says how large its tensors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx


def with_extents_first(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, in whose blocks each `match_cast` comes before what reads its symbols."""
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
    """Bindings in their order, but each behind what it reads; `known` symbols are defined."""
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
    """The variables of TIR in an expression or a type."""
    found: set[Any] = set()
    tvm_ffi.structural_walk(part, (tirx.Var, found.add), order="post")
    return found
