"""Arrow: a Relax function to the neutral graph.

Every binding becomes one expression; tuples and other names of a value become none. What Relax
writes as an attribute or as a number among the arguments becomes an attribute under the neutral
name. What has no neutral name is opaque, and keeps its author's expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from boltgen.frontend.graph import (
    CONSTANT,
    INPUT,
    OPAQUE,
    PART,
    Array,
    Expr,
    Graph,
    GraphBuilder,
    Structure,
    leaves,
)
from boltgen.frontend.imported import TensorType


def dtype_of(type_: object) -> str:
    """The dtype of a tensor type, "" where it has none."""
    return str(type_.dtype) if isinstance(type_, relax.TensorType) else ""


def shape_of(type_: object) -> tuple[int | str, ...] | None:
    """The shape of a tensor type, symbolic dimensions by their names; None where not known."""
    if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
        return None
    return tuple(
        int(extent) if isinstance(extent, tirx.IntImm) else str(extent)
        for extent in type_.shape.values
    )


def tensor_type(type_: object) -> TensorType:
    """Shape and dtype of a type."""
    return shape_of(type_), dtype_of(type_)


def _number(expr: object) -> float:
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    raise TypeError(f"{expr} is no number")


def _integers(values: Any) -> tuple[int, ...] | None:
    return None if values is None else tuple(int(value) for value in values)


def _named(*names: str) -> Callable[[ir.Call], dict[str, object]]:
    """The attributes that have the same names in Relax."""
    return lambda call: {name: getattr(call.attrs, name) for name in names}


def _conv2d(call: ir.Call) -> dict[str, object]:
    attrs = call.attrs
    return {
        "strides": _integers(attrs.strides),
        "padding": _integers(attrs.padding),
        "dilation": _integers(attrs.dilation),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": str(attrs.kernel_layout),
        "out_layout": str(attrs.out_layout or attrs.data_layout),
    }


def _pad(call: ir.Call) -> dict[str, object]:
    flat = [int(width) for width in call.attrs.pad_width]
    return {
        "widths": tuple(zip(flat[::2], flat[1::2], strict=True)),
        "value": float(call.attrs.pad_value),
        "mode": str(call.attrs.pad_mode),
    }


def _pool(call: ir.Call) -> dict[str, object]:
    attrs = call.attrs
    return {
        "pool_size": _integers(attrs.pool_size),
        "strides": _integers(attrs.strides),
        "padding": _integers(attrs.padding),
        "dilation": _integers(attrs.dilation),
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": bool(attrs.count_include_pad),
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _adaptive(call: ir.Call) -> dict[str, object]:
    return {
        "output_size": _integers(call.attrs.output_size),
        "layout": str(call.attrs.layout),
        "out_layout": str(call.attrs.out_layout),
    }


def _resize2d(call: ir.Call) -> dict[str, object]:
    attrs = call.attrs
    return {
        "size": _integers(call.args[1].values),
        "roi": tuple(float(edge.value) for edge in attrs.roi),
        "layout": str(attrs.layout),
        "method": attrs.method,
        "coordinate_transformation_mode": attrs.coordinate_transformation_mode,
        "rounding_method": attrs.rounding_method,
        "cubic_alpha": attrs.cubic_alpha,
        "cubic_exclude": attrs.cubic_exclude,
        "extrapolation_value": attrs.extrapolation_value,
        "out_dtype": attrs.out_dtype,
    }


def _reduction(call: ir.Call) -> dict[str, object]:
    return {"axis": _integers(call.attrs.axis), "keepdims": bool(call.attrs.keepdims)}


def _axis(call: ir.Call) -> dict[str, object]:
    axis = call.attrs.axis
    return {"axis": None if axis is None else int(axis)}


_ATTRIBUTES: Mapping[str, Callable[[ir.Call], dict[str, object]]] = {
    "nn.conv2d": _conv2d,
    "permute_dims": lambda call: {"axes": _integers(call.attrs.axes)},
    "nn.pad": _pad,
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    "nn.adaptive_avg_pool2d": _adaptive,
    **dict.fromkeys(("mean", "sum", "variance", "std", "max", "min"), _reduction),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "concat", "stack", "nn.prelu", "take"), _axis),
    "nn.batch_norm": _named("axis", "epsilon", "center", "scale", "training"),
    "image.resize2d": _resize2d,
    "nn.leakyrelu": _named("alpha"),
    "nn.softplus": _named("beta"),
    **dict.fromkeys(("triu", "tril"), lambda call: {"k": int(_number(call.args[1]))}),
    "clip": lambda call: {"low": _number(call.args[1]), "high": _number(call.args[2])},
    "astype": lambda call: {"from_dtype": dtype_of(call.args[0].ty)},
    **dict.fromkeys(
        ("nn.conv1d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose"), _named("groups")
    ),
}


# A tensor of one number that is no larger is a constant, which masks are made of.
_MOST_FILLED = 1 << 20


def translate(function: relax.Function) -> Graph:
    """The graph of a function whose body is in normal form; branches within are opaque."""
    translation = _Translation(is_pure=bool(function.is_pure))
    return translation.run(function)


class _Translation:
    """One function under translation; `_items` has what became of each variable and constant."""

    def __init__(self, *, is_pure: bool) -> None:
        self._is_pure = is_pure
        self._builder = GraphBuilder()
        self._items: dict[ir.Expr, Structure] = {}

    def run(self, function: relax.Function) -> Graph:
        for param in function.params:
            shape, dtype = tensor_type(param.ty)
            index = self._builder.add(Expr(op=INPUT, shape=shape, dtype=dtype, origin=param))
            self._items[param] = self._parts(index, param.ty)
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
            self._items[expr] = self._constant(expr)
            return self._items[expr]
        if isinstance(expr, ir.Tuple):
            return tuple(self._structure(part) for part in expr.fields)
        return self._opaque(expr, expr.ty, type(expr).__name__.lower())

    def _constant(self, constant: ir.GenericConst) -> int:
        array = _to_array(constant)
        if array is not None:
            return self._builder.constant(array, constant)
        shape, dtype = tensor_type(constant.ty)
        return self._builder.add(Expr(op=CONSTANT, shape=shape, dtype=dtype, origin=constant))

    def _bound(self, binding: relax.Binding) -> Structure:
        value, type_ = binding.value, binding.var.ty
        if isinstance(binding, relax.MatchCast):
            return self._opaque(binding, type_, "match_cast", self._leaves(value), pinned=True)
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
            case relax.Function():
                return self._opaque(binding, type_, "function")
        return self._opaque(value, type_, type(value).__name__.lower())

    def _call(self, call: ir.Call, type_: object) -> Structure:
        args = self._leaves(call.op, *call.args)
        if not isinstance(call.op, ir.Op) or call.op.name in _CALLS:
            return self._opaque(call, type_, _callee(call), args)
        name = str(call.op.name).removeprefix("relax.")
        try:
            attrs = _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
        except TypeError:  # a number that is not known before the model runs
            return self._opaque(call, type_, name, args)
        if (filled := self._filled(name, call, args)) is not None:
            return filled
        if name == "nn.dropout":  # nothing at inference, where nobody reads the mask
            return (args[0], args[0])
        if name == "nn.batch_norm" and not attrs["training"]:
            shape, dtype = tensor_type(type_.fields[0])  # type: ignore[attr-defined]
            made = Expr(op=name, args=args, shape=shape, dtype=dtype, attrs=attrs, origin=call)
            return (self._builder.add(made), args[3], args[4])
        shape, dtype = tensor_type(type_)
        pinned = not self._is_pure and dtype == ""
        made = Expr(
            op=name, args=args, shape=shape, dtype=dtype, attrs=attrs, origin=call, pinned=pinned
        )
        return self._parts(self._builder.add(made), type_)

    def _filled(self, name: str, call: ir.Call, args: tuple[int, ...]) -> int | None:
        """A tensor of one number, or of a row of them: a constant, or a number that is broadcast.

        TVM 0.27 cannot lower `full` and its kin.
        """
        shape, dtype = tensor_type(call.ty)
        if shape is None or any(isinstance(extent, str) for extent in shape):
            return None
        if name == "arange" and all(isinstance(arg, tirx.IntImm) for arg in call.args):
            return self._builder.constant(np.arange(*map(int, call.args), dtype=dtype))
        number = self._builder[args[-1]].scalar if name in {"full", "full_like"} else None
        number = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0}.get(name, number)
        if number is None or np.dtype(dtype).kind not in "fiub":
            return None
        extents = tuple(extent for extent in shape if isinstance(extent, int))
        if prod(extents) <= _MOST_FILLED:
            return self._builder.constant(np.full(extents, number, dtype))
        one = self._builder.constant(np.full((), number, dtype))
        return self._builder.operator("broadcast_to", [one], extents, dtype)

    def _opaque(
        self,
        origin: object,
        type_: object,
        callee: str,
        args: tuple[int, ...] | None = None,
        *,
        pinned: bool = False,
    ) -> Structure:
        """An expression that passes through; by default on all variables that are free in it."""
        if args is None:
            value = origin.value if isinstance(origin, relax.Binding) else origin
            args = tuple(self._indices(var) for var in free_variables(value) if var in self._items)
        shape, dtype = tensor_type(type_)
        body = origin.value if isinstance(origin, relax.VarBinding) else None
        inside = translate(body) if isinstance(body, relax.Function) else None
        made = Expr(
            op=OPAQUE,
            args=args,
            shape=shape,
            dtype=dtype,
            attrs={"callee": callee, "inside": inside},
            origin=origin,
            pinned=pinned or not self._is_pure,
        )
        return self._parts(self._builder.add(made), type_)

    def _indices(self, var: relax.Var) -> int:
        found = self._items[var]
        return found if isinstance(found, int) else self._joined(var, found)

    def _joined(self, var: relax.Var, parts: Structure) -> int:
        """A tuple as one value, for what reads it whole and cannot be written anew."""
        joined = Expr(op=OPAQUE, args=tuple(leaves(parts)), attrs={"callee": "tuple"}, origin=var)
        return self._builder.add(joined)

    def _leaves(self, *exprs: ir.Expr) -> tuple[int, ...]:
        """The values among arguments, tuples taken apart; numbers and shapes are none."""
        found: list[int] = []
        for expr in exprs:
            if isinstance(expr, ir.Tuple):
                found += self._leaves(*expr.fields)
            elif isinstance(expr, (relax.Var, ir.GenericConst)):
                found += leaves(self._structure(expr))
        return tuple(found)

    def _parts(self, index: int, type_: object) -> Structure:
        """A value, or a tuple of the parts that it holds."""
        if not isinstance(type_, relax.TupleType):
            return index
        parts = []
        for position, field in enumerate(type_.fields):
            shape, dtype = tensor_type(field)
            part = Expr(op=PART, args=(index,), shape=shape, dtype=dtype, attrs={"index": position})
            parts.append(self._parts(self._builder.add(part), field))
        return tuple(parts)


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
    """A constant's elements, without a copy where DLPack knows the dtype; None without numpy's."""
    if not isinstance(constant.ty, relax.TensorType):
        return None
    try:
        array: Array = np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):
        array = constant.value.numpy()
    is_known = str(array.dtype) == dtype_of(constant.ty) and array.dtype.kind in "fiub"
    return array if is_known else None
