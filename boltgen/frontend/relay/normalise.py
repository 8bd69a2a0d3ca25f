"""Normalisation of a Relay module: one walk over each function; the rules are the neutral ones.

TVM has passes for each part (SimplifyInference, FoldScaleAxis, ConvertLayout, ToMixedPrecision).
They fold constants by compiling, reduce in FP16, and leave casts and transposes where they meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import ir, relay

from boltgen.frontend.normalise.call import Item, OperatorCall
from boltgen.frontend.normalise.dialect import Attributes
from boltgen.frontend.normalise.softplus import softplus, spelled_softplus
from boltgen.frontend.normalise.values import Store, Value
from boltgen.frontend.normalise.walk import RULES, as_written, rewrite
from boltgen.frontend.relay.attributes import RULE_NAMES, UnknownForm, attributes
from boltgen.frontend.relay.dialect import RelayDialect
from boltgen.frontend.relay.patterns import is_model
from boltgen.frontend.relay.translate import (
    dtype_of,
    expressions,
    is_dataflow,
    is_product,
    operator_name,
    scalar_of,
    shape_of,
    static_shape,
    transposes,
)


def normalise(module: tvm.IRModule, *, allow_nonfinite: bool = False) -> tvm.IRModule:
    """`module`, whose types are known, with its functions in FP16 and NHWC, signatures unchanged.

    A function with branches, calls of other functions, or dynamic shapes stays as it is.

    Raises:
        ModelImportError: a weight is NaN or infinite in FP16, and `allow_nonfinite` is not set.
    """
    functions = {
        gvar: _Rewrite(function, allow_nonfinite=allow_nonfinite).run()
        if isinstance(function, relay.Function) and _is_rewritable(function)
        else function
        for gvar, function in module.functions.items()
    }
    return relay.transform.InferType()(tvm.IRModule(functions, module.type_definitions))


def _is_static(type_: object) -> bool:
    if isinstance(type_, ir.TupleType):
        return all(map(_is_static, type_.fields))
    shape = shape_of(type_)
    return shape is not None and all(isinstance(extent, int) for extent in shape)


def _is_rewritable(function: relay.Function) -> bool:
    if not is_model(function) or not is_dataflow(function):
        return False
    return all(
        _is_static(expr.checked_type)
        and (not isinstance(expr, relay.Call) or isinstance(expr.op, ir.Op))
        for expr in (*function.params, *expressions(function))
    )


class _Rewrite:
    """One function under normalisation."""

    def __init__(self, function: relay.Function, *, allow_nonfinite: bool) -> None:
        self._function = function
        self._allow_nonfinite = allow_nonfinite
        self._dialect = RelayDialect()
        self._store = Store(self._dialect)
        self._items: dict[relay.Expr, Item] = {}
        self._exprs: Sequence[relay.Expr] = expressions(function)
        self._uses = self._count_uses()
        self._parts = Counter(
            (expr.tuple_value, expr.index)
            for expr in self._exprs
            if isinstance(expr, relay.TupleGetItem)
        )

    def _count_uses(self) -> Counter[relay.Expr]:
        uses: Counter[relay.Expr] = Counter([self._function.body])
        for expr in self._exprs:
            if isinstance(expr, relay.Call):
                uses.update(expr.args)
            elif isinstance(expr, relay.Tuple):
                uses.update(expr.fields)
            elif isinstance(expr, relay.TupleGetItem):
                uses.update([expr.tuple_value])
        return uses

    def run(self) -> relay.Function:
        """The function anew."""
        function = self._function
        for param in function.params:
            self._items[param] = self._wrap(param, param.checked_type)
        for expr in self._exprs:
            if expr not in self._items:
                self._items[expr] = self._rewrite(expr)
        body = as_written(self._store, self._items[function.body])
        return relay.Function(
            function.params, body, function.ret_type, function.type_params, function.attrs
        )

    def _rewrite(self, expr: relay.Expr) -> Item:
        if isinstance(expr, relay.Constant):
            return self._store.of_array(expr.data.numpy())
        if isinstance(expr, relay.Tuple):
            return tuple(self._items[part] for part in expr.fields)
        if isinstance(expr, relay.TupleGetItem):
            return self._part(expr)
        return self._call(expr)

    def _part(self, expr: relay.TupleGetItem) -> Item:
        whole = self._items[expr.tuple_value]
        assert isinstance(whole, tuple)
        item: Item = whole[expr.index]
        if isinstance(item, Value):
            # The tuple's other parts are values of their own; only this part's readers count.
            is_read_once = self._parts[expr.tuple_value, expr.index] == 1
            item.single_use = is_read_once and self._uses[expr] == 1
        return item

    def _wrap(self, expr: relay.Expr, type_: object) -> Item:
        """A new expression's value, or a tuple of the values that it holds."""
        if isinstance(type_, ir.TupleType):
            fields = enumerate(type_.fields)
            return tuple(self._wrap(relay.TupleGetItem(expr, i), field) for i, field in fields)
        self._dialect.know(expr, dtype_of(type_))
        return self._store.of_expr(expr, static_shape(type_), dtype_of(type_))

    def _call(self, call: relay.Call) -> Item:
        name = RULE_NAMES.get(call.op.name, call.op.name)
        args = tuple(self._items[arg] for arg in call.args)
        try:
            attrs = attributes(name, call)
        except UnknownForm:
            return self._unchanged(call, args)
        operands = args[:1] if name == "nn.pad" else args
        if is_product(call):
            name, operands = "matmul", self._straightened(call, args)
        neutral = self._operator_call(name, call, attrs, operands)
        spelled = spelled_softplus(call, _operands, scalar_of)
        if spelled is not None:
            item = softplus(neutral, self._items[spelled.x], spelled.beta)
        else:
            item = rewrite(neutral)
        return self._unchanged(call, args) if item is None else item

    def _straightened(self, call: relay.Call, args: tuple[Item, ...]) -> tuple[Item, ...]:
        """A matrix product's operands as (M, K) and (K, N), whichever way it reads them."""
        operands: list[Item] = []
        for arg, is_transposed in zip(args, transposes(call), strict=True):
            operands.append(self._swapped(arg) if is_transposed else arg)
        return tuple(operands)

    def _swapped(self, item: Item) -> Item:
        assert isinstance(item, Value)
        rank = len(item.shape)
        axes = (*range(rank - 2), rank - 1, rank - 2)
        if item.constant is not None:
            return self._store.of_array(item.constant.transpose(axes))
        swapped = OperatorCall(
            name="permute_dims",
            original=None,
            attrs={"axes": axes},
            args=(item,),
            shape=tuple(item.shape[axis] for axis in axes),
            dtype=item.dtype,
            single_use=True,
            store=self._store,
            allow_nonfinite=self._allow_nonfinite,
        )
        made = RULES["permute_dims"](swapped)
        if made is not None:
            return made
        expr = self._dialect.permute_dims(self._store.get(item), axes)
        return self._store.of_expr(expr, swapped.shape, item.dtype)

    def _unchanged(self, call: relay.Call, args: tuple[Item, ...]) -> Item:
        """The operator as its author wrote it, in the author's dtypes and layouts."""
        plain = [as_written(self._store, arg) for arg in args]
        made = relay.Call(call.op, plain, call.attrs, call.type_args, call.span)
        return self._wrap(made, call.checked_type)

    def _operator_call(
        self, name: str, call: relay.Call, attrs: Attributes, args: tuple[Item, ...]
    ) -> OperatorCall:
        type_: Any = call.checked_type
        if isinstance(type_, ir.TupleType):
            type_ = type_.fields[0]
        return OperatorCall(
            name=name,
            original=call,
            attrs=attrs,
            args=args,
            shape=static_shape(type_),
            dtype=dtype_of(type_),
            single_use=self._uses[call] == 1,
            store=self._store,
            allow_nonfinite=self._allow_nonfinite,
        )


def _operands(expr: relay.Expr, name: str) -> Sequence[relay.Expr] | None:
    return expr.args if operator_name(expr) == name else None
