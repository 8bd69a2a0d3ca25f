"""The rewrite itself: one walk over each function, one rule per operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import tvm
from tvm import ir, relax

from boltgen.frontend.relax.normalise import elementwise, movement, products
from boltgen.frontend.relax.normalise.call import Item, OperatorCall
from boltgen.frontend.relax.normalise.fold import evaluate, to_array
from boltgen.frontend.relax.normalise.values import Store, Value
from boltgen.frontend.relax.translate import dtype_of, operator_name, scalar_of, shape_of

_RULES = {**elementwise.RULES, **movement.RULES, **products.RULES}


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
        self._store = Store(self._builder)
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
                result = self._plain(self._item(function.body.body))
                output = self._builder.emit_output(result)
            self._builder.emit_func_output(output)
        made = self._builder.get()[name]
        return relax.Function(made.params, made.body, made.ret_ty, function.is_pure, function.attrs)

    def _wrap(self, expr: ir.Expr) -> Item:
        """A variable's value, or a tuple of the values that it holds."""
        if isinstance(expr.ty, relax.TupleType):
            parts = range(len(expr.ty.fields))
            return tuple(
                self._wrap(self._store.emit(ir.TupleGetItem(expr, part))) for part in parts
            )
        shape = shape_of(expr.ty)
        assert shape is not None
        static = tuple(extent for extent in shape if isinstance(extent, int))
        return self._store.of_expr(expr, static, dtype_of(expr.ty))

    def _item(self, expr: ir.Expr) -> Item:
        if expr in self._items:
            return self._items[expr]
        if isinstance(expr, ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
            self._items[expr] = self._store.of_array(to_array(expr))
            return self._items[expr]
        if isinstance(expr, ir.Tuple):
            return tuple(self._item(part) for part in expr.fields)
        return expr

    def _plain(self, item: Item) -> ir.Expr:
        """The expression that the author's graph has in this place."""
        if isinstance(item, Value):
            return self._store.result(item)
        if isinstance(item, tuple):
            return ir.Tuple([self._plain(part) for part in item])
        return item

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
        softplus = spelled_softplus(call, self._calls)
        call = call if softplus is None else softplus
        name = operator_name(call)
        args = tuple(self._item(arg) for arg in call.args)
        tensors = [arg for arg in args if isinstance(arg, Value)]
        arrays = [value.constant for value in tensors if value.constant is not None]
        if tensors and len(arrays) == len(tensors):
            folded = evaluate(name, call, arrays)
            if folded is not None:
                return self._store.of_array(folded)
        if name in _RULES and tensors_or_tuple(args):
            item = _RULES[name](self._operator_call(name, call, args, single_use=single_use))
            if item is not None:
                return item
        plain = [self._plain(arg) for arg in args]
        emitted = self._store.emit(ir.Call(call.op, plain, call.attrs, call.ty_args))
        return self._wrap(emitted)

    def _operator_call(
        self, name: str, call: ir.Call, args: tuple[Item, ...], *, single_use: bool
    ) -> OperatorCall:
        type_ = call.ty
        if isinstance(type_, relax.TupleType):
            type_ = type_.fields[0]
        shape = shape_of(type_) or ()
        return OperatorCall(
            name=name,
            call=call,
            args=args,
            shape=tuple(extent for extent in shape if isinstance(extent, int)),
            dtype=dtype_of(type_),
            single_use=single_use,
            store=self._store,
            allow_nonfinite=self._allow_nonfinite,
        )


def spelled_softplus(call: ir.Call, definitions: Mapping[relax.Var, ir.Call]) -> ir.Call | None:
    """A softplus, where `call` is where(x > 20, x, log(exp(x) + 1)).

    That is what TVM makes of PyTorch's softplus and mish. The branch only keeps exp from
    overflowing: from x = 17 on both sides are equal in FP32.
    """

    def arguments(expr: object, name: str) -> list[ir.Expr] | None:
        made = definitions.get(expr) if isinstance(expr, relax.Var) else None
        return list(made.args) if made is not None and operator_name(made) == name else None

    if operator_name(call) != "where":
        return None
    condition, x, otherwise = call.args
    comparison, logarithm = arguments(condition, "greater"), arguments(otherwise, "log")
    total = arguments(logarithm[0], "add") if logarithm else None
    power = arguments(total[0], "exp") if total else None
    if (
        not (comparison and total and power)
        or not x.same_as(comparison[0])
        or not x.same_as(power[0])
    ):
        return None
    limit, one = scalar_of(comparison[1]), scalar_of(total[1])
    if limit is None or limit < 17.0 or one != 1.0:
        return None
    softplus: ir.Call = relax.op.nn.softplus(x)
    return ir.Call(softplus.op, softplus.args, softplus.attrs, ret_ty=call.ty)


def tensors_or_tuple(args: tuple[Item, ...]) -> bool:
    """Whether the first argument is one that rules know."""
    return bool(args) and isinstance(args[0], (Value, tuple))
