"""A Relay module's inputs and outputs in a narrower type than their author's."""

from __future__ import annotations

import tvm
from tvm import ir, relay

from boltgen.frontend.relay.operators import dtype_of
from boltgen.ir.dtypes import DType

_WIDE = DType.F32.value


def with_narrow_border(module: tvm.IRModule, border: DType) -> tvm.IRModule:
    """`module`, whose types are known and whose `main` takes and returns `border` where it had
    FP32; it casts.

    The operators between its inputs and its results stay as they are.
    """
    main = module["main"]
    params, casts = [], {}
    for own in main.params:
        type_ = own.checked_type
        if dtype_of(type_) != _WIDE:
            params.append(own)
            continue
        params.append(relay.Var(own.name_hint, relay.TensorType(type_.shape, border.value)))
        casts[own] = relay.cast(params[-1], _WIDE)
    result = _cast(main.body, main.body.checked_type, border)
    body = relay.bind(result, casts)
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = relay.Function(
        params, body, None, main.type_params, main.attrs
    )
    return relay.transform.InferType()(tvm.IRModule(functions, module.type_definitions))


def _cast(result: relay.Expr, type_: ir.Type, border: DType) -> relay.Expr:
    """A result, or each of a tuple, in `border` where it is FP32."""
    if isinstance(type_, ir.TupleType):
        parts = (
            result.fields
            if isinstance(result, relay.Tuple)
            else [relay.TupleGetItem(result, place) for place in range(len(type_.fields))]
        )
        return relay.Tuple(
            [_cast(each, field, border) for each, field in zip(parts, type_.fields, strict=True)]
        )
    return relay.cast(result, border.value) if dtype_of(type_) == _WIDE else result
