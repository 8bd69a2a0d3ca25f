"""A Relax module's inputs and outputs in a narrower type than their author's."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from boltgen.frontend.relax.branches import Substitution
from boltgen.ir.dtypes import DType

_WIDE = DType.F32.value


def with_narrow_border(module: tvm.IRModule, border: DType) -> tvm.IRModule:
    """`module`, whose `main` takes and returns `border` where it had FP32; it casts.

    The operators between its inputs and its results stay as they are.
    """
    normal = relax.transform.Normalize()(module)
    main = normal["main"]
    params = [relax.Var(each.name, _narrow(each.ty, border)) for each in main.params]
    casts = [
        relax.VarBinding(relax.Var(f"{given.name}_wide", own.ty), relax.op.astype(given, _WIDE))
        for own, given in zip(main.params, params, strict=True)
        if _is_wide(own.ty)
    ]
    wide = iter(casts)
    names = {
        own: next(wide).var if _is_wide(own.ty) else given
        for own, given in zip(main.params, params, strict=True)
    }
    body = Substitution(names).visit_expr(main.body)
    result = relax.SeqExpr([relax.BindingBlock(casts), *body.blocks], _cast(body.body, border))
    function = relax.Function(
        params, result, _narrow(main.ret_ty, border), main.is_pure, main.attrs
    )
    functions = dict(normal.functions.items())
    functions[normal.get_global_var("main")] = function
    made = tvm.IRModule(functions, normal.attrs, global_infos=normal.global_infos)
    return relax.transform.Normalize()(made)


def _cast(result: ir.Expr, border: DType) -> ir.Expr:
    """A result, or each of a tuple, in `border` where it is FP32."""
    if isinstance(result, ir.Tuple):
        return ir.Tuple([_cast(each, border) for each in result.fields])
    if isinstance(result.ty, relax.TupleType):
        parts = [ir.TupleGetItem(result, place) for place in range(len(result.ty.fields))]
        return ir.Tuple([_cast(each, border) for each in parts])
    return relax.op.astype(result, border.value) if _is_wide(result.ty) else result


def _is_wide(type_: object) -> bool:
    return isinstance(type_, relax.TensorType) and str(type_.dtype) == _WIDE


def _narrow(type_: ir.Type, border: DType) -> ir.Type:
    if isinstance(type_, relax.TupleType):
        return relax.TupleType([_narrow(each, border) for each in type_.fields])
    if not _is_wide(type_):
        return type_
    if type_.shape is None:
        return relax.TensorType(dtype=border.value, ndim=type_.ndim, vdevice=type_.vdevice)
    return relax.TensorType(type_.shape, border.value, type_.vdevice)
