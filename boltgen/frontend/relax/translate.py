"""Arrow: a Relax function to the neutral graph.

Every binding becomes one expression; tuples and other names of a value become none. An attribute,
or a number among the arguments, becomes an attribute under the neutral name. An operator without a
neutral name is opaque, and keeps its author's expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from boltgen.frontend.attributes import integers, read
from boltgen.frontend.imported import TensorType
from boltgen.frontend.relax.composed_attention import OPERATORS as ATTENTIONS
from boltgen.frontend.relax.composed_attention import composed_attention
from boltgen.frontend.relax.grouped import grouped_matmul
from boltgen.frontend.relax.recurrent import recurrent_steps
from boltgen.frontend.relax.symbols import Symbols, extent_text
from boltgen.frontend.translation import Translation
from boltgen.graph.attributes import (
    NONE,
    Attributes,
    Count,
    DynamicSlice,
    Opaque,
    Scatter,
    Slice,
    SteppedSlice,
)
from boltgen.graph.graph import OPAQUE, Array, Expr, Graph, Structure, leaves
from boltgen.ir.extent import Dim


def dtype_of(type_: object) -> str:
    """The dtype of a tensor type, "" where it has none."""
    return str(type_.dtype) if isinstance(type_, relax.TensorType) else ""


def shape_of(type_: object) -> tuple[int | str, ...] | None:
    """Return the shape of a tensor type, symbolic dimensions by their names; None if unknown."""
    if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
        return None
    return tuple(
        int(extent) if isinstance(extent, tirx.IntImm) else extent_text(extent)
        for extent in type_.shape.values
    )


def tensor_type(type_: object) -> TensorType:
    """Shape and dtype of a type."""
    return shape_of(type_), dtype_of(type_)


def _number(expr: object) -> float:
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    raise TypeError(f"{expr} is no number")


def _pad(call: ir.Call) -> dict[str, object]:
    flat = integers(call.attrs.pad_width)
    return {
        "widths": tuple(zip(flat[::2], flat[1::2], strict=True)),
        "value": float(call.attrs.pad_value),
        "mode": str(call.attrs.pad_mode),
    }


def _counted(call: ir.Call) -> Attributes:
    begin, _, step = call.args
    known = isinstance(begin, tirx.IntImm) and isinstance(step, tirx.IntImm)
    return Count(int(begin.value), int(step.value)) if known else NONE


def _slice(call: ir.Call) -> Attributes:
    """Return the attributes of a slice of one of the known kinds; of another slice, none."""
    shape, parts = shape_of(call.args[0].ty), call.args[1:]
    if shape is None or not all(isinstance(part, ir.Tuple) for part in parts):
        return NONE
    axes: list[Any]
    bounds: list[list[Any]]
    axes, *bounds = (
        [each.value if isinstance(each, tirx.IntImm) else None for each in part.fields]
        for part in parts
    )
    begins, ends, *steps = bounds
    if None not in axes and call.attrs.assume_inbound:
        places = [axis % len(shape) for axis in axes]
        is_open = None in ends or any(isinstance(shape[place], str) for place in places)
        if is_open and None not in begins and min(begins) >= 0 and set(*steps) <= {1}:
            return DynamicSlice(tuple(zip(places, begins, strict=True)))
    numbers = [each[0] for each in bounds] if len(axes) == 1 else [None]
    if axes[0] is None or None in numbers:
        return NONE
    axis = int(axes[0]) % len(shape)
    extent = shape[axis]
    if not isinstance(extent, int):
        return NONE
    begin, end, step = slice(*numbers).indices(extent)
    if step > 1 and end == extent:
        return SteppedSlice((axis, begin, step))
    return Slice(axis, begin, max(begin, end)) if step == 1 else NONE


def _scatter(call: ir.Call) -> Attributes:
    """Return the slice of the first operand that the second one replaces, if it is known."""
    numbers = [int(each.value) for each in call.args[2:] if isinstance(each, tirx.IntImm)]
    return Scatter(int(call.attrs.axis), *numbers) if len(numbers) == 3 else NONE


# Relax's names of operators that the neutral graph calls otherwise.
_NAMES = dict.fromkeys(("squeeze", "expand_dims", "flatten", "nn.batch_flatten"), "reshape")
# Attributes that follow from an operator's arguments.
_RECORDS: Mapping[str, Callable[[ir.Call], Attributes]] = {
    "strided_slice": _slice,
    "slice_scatter": _scatter,
    "arange": _counted,
}
# Fields that Relax has as arguments, or under other names.
_FIELDS: Mapping[str, Callable[[ir.Call], dict[str, object]]] = {
    "nn.pad": _pad,
    "image.resize2d": lambda call: {"size": integers(call.args[1].values)},
    "nn.group_norm": lambda call: {"groups": int(call.attrs.num_groups)},
    **dict.fromkeys(("triu", "tril"), lambda call: {"k": int(_number(call.args[1]))}),
    "clip": lambda call: {"low": _number(call.args[1]), "high": _number(call.args[2])},
    "astype": lambda call: {"from_dtype": dtype_of(call.args[0].ty)},
}


def _attributes(name: str, call: ir.Call) -> Attributes:
    """Return the attributes of a call of the operator of that name.

    Raises:
        TypeError: a number is not known before the model runs.
    """
    if name in _RECORDS:
        return _RECORDS[name](call)
    return read(name, call.attrs, **_FIELDS[name](call) if name in _FIELDS else {})


# A tensor of one number that is no larger is a constant, which masks are made of.
_MOST_FILLED = 1 << 20


def translate(function: relax.Function) -> Graph:
    """The graph of a function whose body is in normal form; branches within are opaque."""
    return _Translation(function).run(function)


class _Translation(Translation):
    """One function under translation; `_items` has the result for each variable and constant."""

    def __init__(self, function: relax.Function) -> None:
        self._symbols = Symbols(function)
        super().__init__(self._symbols.tensor_type, relax.TupleType)
        self._is_pure = bool(function.is_pure)
        self._items: dict[ir.Expr, Structure] = {}

    def run(self, function: relax.Function) -> Graph:
        for param in function.params:
            self._items[param] = self._input(param, param.ty)
        body = function.body
        is_sequence = isinstance(body, relax.SeqExpr)
        for block in body.blocks if is_sequence else ():
            for binding in block.bindings:
                self._items[binding.var] = self._bound(binding)
        return self._builder.graph(self._structure(body.body if is_sequence else body))

    def _structure(self, expr: ir.Expr) -> Structure:
        """The value of an expression that names or joins others; an opaque one is added."""
        if expr in self._items:
            return self._items[expr]
        if isinstance(expr, ir.GenericConst):
            self._items[expr] = self._constant_of(expr, _to_array(expr), expr.ty)
            return self._items[expr]
        if isinstance(expr, ir.Tuple):
            return tuple(self._structure(part) for part in expr.fields)
        if isinstance(expr, (ir.Call, ir.TupleGetItem)):  # which a `match_cast` may contain
            self._items[expr] = self._computed(expr, expr.ty)
            return self._items[expr]
        return self._opaque(expr, expr.ty, type(expr).__name__.lower())

    def _bound(self, binding: relax.Binding) -> Structure:
        value, type_ = binding.value, binding.var.ty
        if isinstance(binding, relax.MatchCast):
            args = tuple(leaves(self._structure(value)))
            return self._opaque(binding, type_, "match_cast", args, pinned=True)
        if isinstance(value, relax.Function):
            return self._opaque(binding, type_, "function")
        return self._computed(value, type_)

    def _computed(self, value: ir.Expr, type_: object) -> Structure:
        match value:
            case relax.Var() | ir.GenericConst() | ir.Tuple():
                return self._structure(value)
            case ir.TupleGetItem():
                whole = self._structure(value.tuple_value)
                assert isinstance(whole, tuple)
                part: Structure = whole[value.index]
                return part
            case ir.Call():
                return self._call(value, type_)
        return self._opaque(value, type_, type(value).__name__.lower())

    def _call(self, call: ir.Call, type_: object) -> Structure:
        args = self._leaves(call.op, *call.args)
        if not isinstance(call.op, ir.Op) or call.op.name in _CALLS:
            made = grouped_matmul(self._builder, call, args)
            made = recurrent_steps(self._builder, call, args) if made is None else made
            return self._opaque(call, type_, _callee(call), args) if made is None else made
        name = str(call.op.name).removeprefix("relax.")
        name = _NAMES.get(name, name)
        try:
            attrs = _attributes(name, call)
        except TypeError:  # a number that is not known before the model runs
            return self._opaque(call, type_, name, args)
        composed = composed_attention(self._builder, call, args) if name in ATTENTIONS else None
        if composed is not None:
            return composed
        if (filled := self._filled(name, call, args)) is not None:
            return filled
        if (known := self._of_inference(call, type_, name, args, attrs)) is not None:
            return known
        pinned = not self._is_pure and dtype_of(type_) == ""
        return self._kept(call, type_, name, args, attrs, pinned=pinned)

    def _filled(self, name: str, call: ir.Call, args: tuple[int, ...]) -> int | None:
        """Return a tensor of one number, or of one row of numbers: a constant, or a broadcast
        number.

        TVM 0.27 cannot lower `full` and its kin.
        """
        shape, dtype = self._tensor_type(call.ty)
        if shape is None:
            return None
        if name == "arange" and all(isinstance(arg, tirx.IntImm) for arg in call.args):
            return self._builder.constant(np.arange(*map(int, call.args), dtype=dtype))
        number = self._builder[args[-1]].scalar if name in {"full", "full_like"} else None
        number = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0}.get(name, number)
        if number is None or np.dtype(dtype).kind not in "fiub":
            return None
        known = tuple(each for each in shape if isinstance(each, int) and not isinstance(each, Dim))
        if len(known) == len(shape) and prod(known) <= _MOST_FILLED:
            return self._builder.constant(np.full(known, number, dtype))
        one = self._builder.constant(np.full((), number, dtype))
        return self._builder.operator("broadcast_to", [one], shape, dtype)

    def _opaque(
        self,
        origin: object,
        type_: object,
        callee: str,
        args: tuple[int, ...] | None = None,
        *,
        pinned: bool = False,
    ) -> Structure:
        """Add an expression that passes through; its operands are its free variables by default."""
        if args is None:
            value = origin.value if isinstance(origin, relax.Binding) else origin
            args = tuple(self._indices(var) for var in free_variables(value) if var in self._items)
        body = origin.value if isinstance(origin, relax.VarBinding) else None
        inside = translate(body) if isinstance(body, relax.Function) else None
        attrs, pinned = Opaque(callee, inside), pinned or not self._is_pure
        return self._kept(origin, type_, OPAQUE, args, attrs, pinned=pinned)

    def _indices(self, var: relax.Var) -> int:
        found = self._items[var]
        return found if isinstance(found, int) else self._joined(var, found)

    def _joined(self, var: relax.Var, parts: Structure) -> int:
        """Return a tuple as one value, for an expression that reads it whole."""
        joined = Expr(op=OPAQUE, args=tuple(leaves(parts)), attrs=Opaque("tuple"), origin=var)
        return self._builder.add(joined)

    def _leaves(self, *exprs: ir.Expr) -> tuple[int, ...]:
        """Return the values among arguments, tuples flattened; numbers and shapes are no values."""
        found: list[int] = []
        for expr in exprs:
            if isinstance(expr, ir.Tuple):
                found += self._leaves(*expr.fields)
            elif self._symbols.has(expr):
                continue
            elif isinstance(expr, (relax.Var, ir.GenericConst)):
                found += leaves(self._structure(expr))
        return tuple(found)


# Operators that call a function, which is one of their arguments.
_CALLS = frozenset(
    f"relax.{name}"
    for name in (
        *("call_tir", "call_tir_inplace", "call_tir_with_grad", "call_dps_packed"),
        *("call_pure_packed", "call_py_func", "call_inplace_packed", "invoke_closure"),
        *("invoke_pure_closure", "make_closure"),
    )
)


def _callee(call: ir.Call) -> str:
    """The name of the function that a call calls."""
    function = call.args[0] if isinstance(call.op, ir.Op) and call.args else call.op
    if isinstance(function, ir.GlobalVar):
        return str(function.name_hint)
    if isinstance(function, relax.ExternFunc):
        return str(function.global_symbol)
    return str(getattr(function, "name", "function"))


def free_variables(expr: object) -> list[relax.Var]:
    """The variables that an expression takes from outside, each once."""
    return list(relax.analysis.free_vars(expr))


def _to_array(constant: ir.GenericConst) -> Array | None:
    """A constant's elements, without a copy where DLPack knows the dtype."""
    if not isinstance(constant.ty, relax.TensorType):
        return None
    try:
        array: Array = np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):
        array = constant.value.numpy()
    return array
