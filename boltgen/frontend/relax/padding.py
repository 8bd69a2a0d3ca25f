"""Applies a padding plan to a Relax module."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax

from boltgen.frontend.padding import plan_padding
from boltgen.frontend.padding_edits import Edit, edits
from boltgen.frontend.relax.patterns import is_model
from boltgen.frontend.relax.translate import Translation, translate
from boltgen.ir.padding import PaddingCosts


def pad(module: tvm.IRModule, costs: PaddingCosts) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """`module` with tensors padded as `costs` say; and the plan in words.

    Signatures do not change. A function with several blocks or branches stays as it is.
    """
    functions, said = {}, []
    for gvar, function in module.functions.items():
        functions[gvar] = function
        if is_model(function) and _is_one_block(function):
            translation = translate(function)
            plan = plan_padding(translation.graph, costs)
            said += [padding.describe(translation.graph) for padding in plan]
            if any(padding.is_padded for padding in plan):
                changed = edits(translation.graph, plan)
                functions[gvar] = _Padder(translation, changed).run(gvar.name_hint, function)
    padded = tvm.IRModule(functions, module.attrs, global_infos=module.global_infos)
    return padded, tuple(said)


def _is_one_block(function: relax.Function) -> bool:
    body = function.body
    if not isinstance(body, relax.SeqExpr) or len(body.blocks) != 1 or not function.is_pure:
        return False
    (block,) = body.blocks
    return isinstance(block, relax.DataflowBlock) and all(
        isinstance(binding, relax.VarBinding) and not isinstance(binding.value, relax.If)
        for binding in block.bindings
    )


class _Padder:
    """Writes one function anew."""

    def __init__(self, translation: Translation, changed: dict[int, Edit]) -> None:
        self._translation = translation
        self._changed = changed
        self._builder = relax.BlockBuilder()
        self._renewed: dict[ir.Expr, ir.Expr] = {}

    def run(self, name: str, function: relax.Function) -> relax.Function:
        """The function, its operators on padded operands."""
        with self._builder.function(name, list(function.params)):
            with self._builder.dataflow():
                for binding in function.body.blocks[0].bindings:
                    self._renewed[binding.var] = self._bound(binding)
                output = self._builder.emit_output(self._part(function.body.body))
            self._builder.emit_func_output(output)
        made = self._builder.get()[name]
        return relax.Function(made.params, made.body, made.ret_ty, function.is_pure, function.attrs)

    def _bound(self, binding: relax.Binding) -> ir.Expr:
        value = binding.value
        if not isinstance(value, ir.Call):
            return self._part(value)
        edit = self._changed.get(self._translation.indices[binding.var])
        args = [self._part(arg) if edit is None else self._operand(arg, edit) for arg in value.args]
        return self._builder.emit(ir.Call(value.op, args, value.attrs, value.ty_args))

    def _part(self, expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Tuple):
            return ir.Tuple([self._part(part) for part in expr.fields])
        if isinstance(expr, ir.TupleGetItem):
            return self._builder.emit(ir.TupleGetItem(self._part(expr.tuple_value), expr.index))
        return self._renewed.get(expr, expr)

    def _operand(self, arg: ir.Expr, edit: Edit) -> ir.Expr:
        index = self._translation.indices.get(arg, -1)
        if index in edit.constants:
            widths = [(0, width) for width in edit.constants[index]]
            array = np.pad(arg.value.numpy(), widths)
            return relax.const(array, str(array.dtype))
        if index in edit.values:
            flat = [side for width in edit.values[index] for side in (0, width)]
            return self._builder.emit(relax.op.nn.pad(self._part(arg), flat, "constant", 0.0))
        return self._part(arg)
