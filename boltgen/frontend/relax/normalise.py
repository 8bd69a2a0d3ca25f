"""Normalisation of a Relax module: one walk over each function; the rules are the neutral ones.

TVM has passes for each part (FoldConstant, ConvertLayout, ToMixedPrecision). One rewrite of our own
takes their place, because it knows all layouts and dtypes at once: weights end up as constants in
their final form, permutations meet and vanish, reductions stay in FP32, and a model takes a second
instead of minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import ir, relax

from boltgen.frontend.normalise.call import Item, OperatorCall
from boltgen.frontend.normalise.dialect import Array
from boltgen.frontend.normalise.softplus import softplus, spelled_softplus
from boltgen.frontend.normalise.values import Store, Value
from boltgen.frontend.normalise.walk import as_written, rewrite
from boltgen.frontend.relax.attributes import attributes
from boltgen.frontend.relax.dialect import RelaxDialect
from boltgen.frontend.relax.translate import (
    dtype_of,
    operator_name,
    scalar_of,
    shape_of,
    static_shape,
)


def normalise(module: tvm.IRModule, *, allow_nonfinite: bool = False) -> tvm.IRModule:
    """`module` with its Relax functions in FP16 and NHWC, their signatures unchanged.

    A function with branches, calls of other functions, or symbolic shapes stays as it is.

    Raises:
        ModelImportError: a weight is NaN or infinite in FP16, and `allow_nonfinite` is not set.
    """
    entries = [
        gvar.name_hint
        for gvar, function in module.functions.items()
        if isinstance(function, relax.Function) and _is_rewritable(function)
    ]
    if not entries:
        return module
    names = [gvar.name_hint for gvar in module.get_global_vars()]
    live = relax.transform.DeadCodeElimination(names)(
        relax.transform.CanonicalizeBindings()(module)
    )
    functions = {
        gvar: _Rewrite(function, allow_nonfinite=allow_nonfinite).run(gvar.name_hint)
        if gvar.name_hint in entries
        else function
        for gvar, function in live.functions.items()
    }
    rewritten = tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)
    return relax.transform.DeadCodeElimination(names)(rewritten)


def _is_static(type_: object) -> bool:
    if isinstance(type_, relax.TupleType):
        return all(map(_is_static, type_.fields))
    if not isinstance(type_, relax.TensorType):
        return False
    shape = shape_of(type_)
    return shape is not None and all(isinstance(extent, int) for extent in shape)


def _is_rewritable(function: relax.Function) -> bool:
    if not isinstance(function.body, relax.SeqExpr) or not function.is_pure:
        return False
    if {"Codegen", "Composite", "Primitive"} & set(function.attrs.keys()):
        return False
    if not all(_is_static(param.ty) for param in function.params):
        return False
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not isinstance(binding, relax.VarBinding) or isinstance(value, relax.If):
                return False
            if isinstance(value, ir.Call):
                is_operator = isinstance(value.op, ir.Op)
                if not is_operator or any(isinstance(a, ir.GlobalVar) for a in value.args):
                    return False
            if not _is_static(binding.var.ty):
                return False
    return True


class _Rewrite:
    """One function under normalisation."""

    def __init__(self, function: relax.Function, *, allow_nonfinite: bool) -> None:
        self._function = function
        self._allow_nonfinite = allow_nonfinite
        self._builder = relax.BlockBuilder()
        self._dialect = RelaxDialect(self._builder)
        self._store = Store(self._dialect)
        self._items: dict[ir.Expr, Item] = {}
        self._uses = self._count_uses()
        self._calls = {
            binding.var: binding.value
            for block in function.body.blocks
            for binding in block.bindings
            if isinstance(binding.value, ir.Call)
        }

    def _count_uses(self) -> Counter[ir.Expr]:
        uses: Counter[ir.Expr] = Counter()

        def count(expr: ir.Expr) -> None:
            if isinstance(expr, relax.Var):
                uses[expr] += 1
            elif isinstance(expr, ir.Tuple):
                for part in expr.fields:
                    count(part)

        for block in self._function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, ir.Call):
                    for arg in value.args:
                        count(arg)
                else:
                    count(value.tuple_value if isinstance(value, ir.TupleGetItem) else value)
        count(self._function.body.body)
        return uses

    def run(self, name: str) -> relax.Function:
        """The function anew."""
        function = self._function
        for param in function.params:
            self._items[param] = self._wrap(param)
        with self._builder.function(name, list(function.params)):
            with self._builder.dataflow():
                for block in function.body.blocks:
                    for binding in block.bindings:
                        self._bind(binding.var, binding.value)
                result = as_written(self._store, self._item(function.body.body))
                output = self._builder.emit_output(result)
            self._builder.emit_func_output(output)
        made = self._builder.get()[name]
        return relax.Function(made.params, made.body, made.ret_ty, function.is_pure, function.attrs)

    def _wrap(self, expr: ir.Expr) -> Item:
        """A variable's value, or a tuple of the values that it holds."""
        if isinstance(expr.ty, relax.TupleType):
            parts = range(len(expr.ty.fields))
            return tuple(
                self._wrap(self._dialect.emit(ir.TupleGetItem(expr, part))) for part in parts
            )
        return self._store.of_expr(expr, static_shape(expr.ty), dtype_of(expr.ty))

    def _item(self, expr: ir.Expr) -> Item:
        if expr in self._items:
            return self._items[expr]
        if isinstance(expr, ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
            self._items[expr] = self._store.of_array(_to_array(expr))
            return self._items[expr]
        if isinstance(expr, ir.Tuple):
            return tuple(self._item(part) for part in expr.fields)
        return expr

    def _bind(self, var: relax.Var, value: ir.Expr) -> None:
        single_use = self._uses[var] == 1
        if isinstance(value, ir.Call):
            self._items[var] = self._call(value, single_use=single_use)
            return
        if isinstance(value, ir.TupleGetItem):
            whole = self._item(value.tuple_value)
            assert isinstance(whole, tuple)
            item = whole[value.index]
            shared = self._uses[value.tuple_value] != 1
        else:
            item, shared = self._item(value), self._uses[value] != 1
        if isinstance(item, Value):
            item.single_use = single_use and not shared
        self._items[var] = item

    def _call(self, call: ir.Call, *, single_use: bool) -> Item:
        neutral = self._operator_call(call, single_use=single_use)
        spelled = spelled_softplus(call, self._operands, scalar_of)
        if spelled is not None:
            item = softplus(neutral, self._item(spelled.x), spelled.beta)
        else:
            item = rewrite(neutral)
        if item is not None:
            return item
        plain = [as_written(self._store, arg) for arg in neutral.args]
        return self._wrap(self._dialect.again(call, plain))

    def _operands(self, expr: ir.Expr, name: str) -> Sequence[ir.Expr] | None:
        """The operands of an expression, or of what a variable is bound to, if it is a `name`."""
        call = self._calls.get(expr) if isinstance(expr, relax.Var) else expr
        return call.args if isinstance(call, ir.Call) and operator_name(call) == name else None

    def _operator_call(self, call: ir.Call, *, single_use: bool) -> OperatorCall:
        type_ = call.ty
        if isinstance(type_, relax.TupleType):
            type_ = type_.fields[0]
        name = operator_name(call)
        return OperatorCall(
            name=name,
            original=call,
            attrs=attributes(name, call),
            args=tuple(self._item(arg) for arg in call.args),
            shape=static_shape(type_),
            dtype=dtype_of(type_),
            single_use=single_use,
            store=self._store,
            allow_nonfinite=self._allow_nonfinite,
        )


def _to_array(constant: ir.GenericConst) -> Array:
    """A constant's elements, without a copy where DLPack knows the dtype."""
    try:
        return np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):
        array: Array = constant.value.numpy()
        return array
