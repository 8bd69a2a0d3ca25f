"""Applies a padding plan to a Relay module."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relay

from boltgen.frontend.padding import plan_padding
from boltgen.frontend.padding_edits import Edit, edits
from boltgen.frontend.relay.patterns import is_model, with_parts
from boltgen.frontend.relay.translate import Translation, expressions, is_dataflow, translate
from boltgen.ir.padding import PaddingCosts


def pad(module: tvm.IRModule, costs: PaddingCosts) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """`module`, whose types are known, with tensors padded as `costs` say; and the plan in words.

    Signatures do not change.
    """
    functions, said = {}, []
    for gvar, function in module.functions.items():
        functions[gvar] = function
        if is_model(function) and is_dataflow(function):
            translation = translate(function)
            plan = plan_padding(translation.graph, costs)
            said += [padding.describe(translation.graph) for padding in plan]
            if any(padding.is_padded for padding in plan):
                functions[gvar] = _padded(function, translation, edits(translation.graph, plan))
    padded = tvm.IRModule(functions, module.type_definitions)
    return relay.transform.InferType()(padded), tuple(said)


def _padded(
    function: relay.Function, translation: Translation, changed: dict[int, Edit]
) -> relay.Function:
    renewed: dict[Any, relay.Expr] = {}
    for expr in expressions(function):
        edit = changed.get(translation.indices.get(expr, -1))
        if edit is None:
            renewed[expr] = with_parts(expr, renewed)
        else:
            renewed[expr] = _edited(expr, edit, translation, renewed)
    return relay.Function(
        function.params, renewed[function.body], None, function.type_params, function.attrs
    )


def _edited(
    call: relay.Call, edit: Edit, translation: Translation, renewed: dict[Any, relay.Expr]
) -> relay.Call:
    args = []
    for arg in call.args:
        index = translation.indices[arg]
        if index in edit.constants:
            args.append(_constant(arg, edit.constants[index]))
        elif index in edit.values:
            widths = [(0, width) for width in edit.values[index]]
            args.append(relay.nn.pad(renewed[arg], widths, 0.0))
        else:
            args.append(renewed[arg])
    if call.op.name == "nn.conv2d":
        return _conv2d(call, *args)
    if call.op.name == "nn.dense":
        return relay.nn.dense(*args, out_dtype=call.attrs.out_dtype)
    if call.op.name == "nn.matmul":
        attrs = call.attrs
        return relay.nn.matmul(
            *args, None, attrs.out_dtype, bool(attrs.transpose_a), bool(attrs.transpose_b)
        )
    return relay.Call(call.op, args, call.attrs, call.type_args)


def _constant(constant: relay.Constant, widths: tuple[int, ...]) -> relay.Constant:
    array = np.pad(constant.data.numpy(), [(0, width) for width in widths])
    return relay.const(array, str(array.dtype))


def _conv2d(call: relay.Call, x: relay.Expr, weight: relay.Expr) -> relay.Call:
    attrs = call.attrs
    filters = weight.data.shape[str(attrs.kernel_layout).index("O")]
    return relay.nn.conv2d(
        x,
        weight,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
        channels=filters,
        kernel_size=attrs.kernel_size,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        out_dtype=attrs.out_dtype,
    )
