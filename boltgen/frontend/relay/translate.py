"""Arrow: a Relay function to the neutral graph.

Every value that the function computes becomes one expression; tuples, names of values and ways to
spell one operator become none. What has no neutral name is opaque, and keeps its author's
expression. Shared values are visited once, and nothing here recurs on a value's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tvm import ir, relay, tir

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
from boltgen.frontend.relay.versions import integers

_Attributes = dict[str, object]


class _UnknownFormError(ValueError):
    """An operator with attributes or operands that the neutral graph has no name for."""


def dtype_of(type_: object) -> str:
    """The dtype of a tensor type, "" where it has none."""
    return str(type_.dtype) if isinstance(type_, ir.TensorType) else ""


def shape_of(type_: object) -> tuple[int | str, ...] | None:
    """The shape of a tensor type, "?" for a dynamic dimension; None where it is no tensor's."""
    if not isinstance(type_, ir.TensorType):
        return None
    return tuple(
        int(extent)
        if isinstance(extent, (int, tir.IntImm))
        else ("?" if isinstance(extent, tir.Any) else str(extent))
        for extent in type_.shape
    )


def tensor_type(type_: object) -> TensorType:
    """Shape and dtype of a type."""
    return shape_of(type_), dtype_of(type_)


def _shape(expr: relay.Expr) -> tuple[int | str, ...]:
    return shape_of(expr.checked_type) or ()


def _sides(padding: object) -> tuple[int, ...]:
    """(top, left, bottom, right) of a padding that names one, two or four sides."""
    sides = integers(padding)
    return sides * (4 // len(sides))


def _pair(values: object) -> tuple[int, ...]:
    found = integers(values)
    return found * (2 // len(found))


def _conv2d(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    layout = str(attrs.kernel_layout)
    if layout == "HWOI" and _shape(call.args[1])[3] != 1:
        layout = "HWCM"  # several filters for each channel: the third extent has no filters
    return {
        "strides": _pair(attrs.strides),
        "padding": _sides(attrs.padding),
        "dilation": _pair(attrs.dilation),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": layout,
        "out_layout": str(attrs.out_layout) or str(attrs.data_layout),
    }


def _pool(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    include = "count_include_pad" in attrs.keys() and bool(attrs.count_include_pad)  # noqa: SIM118
    return {
        "pool_size": integers(attrs.pool_size),
        "strides": integers(attrs.strides),
        "padding": _sides(attrs.padding),
        "dilation": integers(attrs.dilation),
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": include,
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _adaptive(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    is_global = call.op.name == "nn.global_avg_pool2d"
    return {
        "output_size": (1, 1) if is_global else integers(attrs.output_size),
        "layout": str(attrs.layout),
        "out_layout": str(attrs.out_layout),
    }


def _reduction(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    rank = len(_shape(call.args[0]))
    axes = None if attrs.axis is None else tuple(axis % rank for axis in integers(attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(axis for axis in range(rank) if axis not in (axes or ()))
    return {"axis": axes, "keepdims": bool(attrs.keepdims)}


def _variance(call: relay.Call) -> _Attributes:
    if bool(call.attrs.unbiased) or not _is_mean_of(call.args[1], call.args[0]):
        raise _UnknownFormError
    return _reduction(call)


def _is_mean_of(expr: relay.Expr, x: relay.Expr) -> bool:
    is_mean = isinstance(expr, relay.Call) and expr.op == ir.Op.get("mean")
    return is_mean and bool(expr.args[0].same_as(x))


def _axis(call: relay.Call) -> _Attributes:
    axis = call.attrs.axis
    return {"axis": None if axis is None else int(axis)}


def _take(call: relay.Call) -> _Attributes:
    """TVM clips an index below 0 to 0, where others count from the end."""
    indices = call.args[1]
    counts_back = isinstance(indices, relay.Constant) and bool((indices.data.numpy() < 0).any())
    if int(call.attrs.batch_dims) != 0 or counts_back:
        raise _UnknownFormError
    return _axis(call)


def _resize2d(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    return {
        "size": integers(attrs.size),
        "roi": None if attrs.roi is None else tuple(float(edge) for edge in attrs.roi),
        "layout": str(attrs.layout),
        "method": str(attrs.method),
        "coordinate_transformation_mode": str(attrs.coordinate_transformation_mode),
        "rounding_method": str(attrs.rounding_method),
        "cubic_alpha": float(attrs.cubic_alpha),
        "cubic_exclude": int(attrs.cubic_exclude),
        "extrapolation_value": float(attrs.extrapolation_value),
        "out_dtype": str(attrs.out_dtype or ""),
    }


def _batch_norm(call: relay.Call) -> _Attributes:
    attrs = call.attrs
    return {
        "axis": int(attrs.axis),
        "epsilon": float(attrs.epsilon),
        "center": bool(attrs.center),
        "scale": bool(attrs.scale),
        "training": False,
    }


def _pad(call: relay.Call) -> _Attributes:
    value = call.args[1]
    if not isinstance(value, relay.Constant):
        raise _UnknownFormError  # it is not known before the model runs
    return {
        "widths": tuple((int(before), int(after)) for before, after in call.attrs.pad_width),
        "value": float(value.data.numpy().reshape(())),
        "mode": str(call.attrs.pad_mode),
    }


def _transpose(call: relay.Call) -> _Attributes:
    rank, axes = len(_shape(call.args[0])), call.attrs.axes
    back = tuple(reversed(range(rank)))
    return {"axes": back if axes is None else tuple(int(axis) % rank for axis in axes)}


def _layout_transform(call: relay.Call) -> _Attributes:
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        raise _UnknownFormError
    return {"axes": tuple(source.index(letter) for letter in target)}


def _bounds(call: relay.Call) -> _Attributes:
    return {"low": float(call.attrs.a_min), "high": float(call.attrs.a_max)}


_ATTRIBUTES: Mapping[str, Callable[[relay.Call], _Attributes]] = {
    "nn.conv2d": _conv2d,
    **dict.fromkeys(("nn.max_pool2d", "nn.avg_pool2d"), _pool),
    **dict.fromkeys(("nn.adaptive_avg_pool2d", "nn.global_avg_pool2d"), _adaptive),
    **dict.fromkeys(("mean", "sum", "max", "min"), _reduction),
    "variance": _variance,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "concatenate", "stack"), _axis),
    **dict.fromkeys(("nn.prelu", "nn.bias_add"), _axis),
    "take": _take,
    "image.resize2d": _resize2d,
    "nn.batch_norm": _batch_norm,
    "nn.pad": _pad,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "nn.leaky_relu": lambda call: {"alpha": float(call.attrs.alpha)},
    "clip": _bounds,
    "cast": lambda call: {"from_dtype": dtype_of(call.args[0].checked_type)},
}

# Relay's names of operators that the neutral graph calls otherwise.
_NAMES = {
    "transpose": "permute_dims",
    "layout_transform": "permute_dims",
    "cast": "astype",
    "nn.leaky_relu": "nn.leakyrelu",
    "concatenate": "concat",
    "nn.global_avg_pool2d": "nn.adaptive_avg_pool2d",
    "reverse": "flip",
    **dict.fromkeys(("nn.batch_flatten", "squeeze", "expand_dims"), "reshape"),
}
_PRODUCTS = frozenset({"nn.dense", "nn.matmul", "nn.batch_matmul"})
# The neutral graph has those as attributes.
_UNREAD_OPERANDS = {"nn.pad": 1, "variance": 1}
_KERNEL_ORDERS = {"HWIO": (3, 0, 1, 2), "OIHW": (0, 2, 3, 1)}  # to OHWI
REFERENCES = (relay.expr.RefCreate, relay.expr.RefRead, relay.expr.RefWrite)


def translate(function: relay.Function) -> Graph:
    """The graph of a function whose types are known; branches and functions within are opaque."""
    return _Translation(function).run()


def is_called_whole(callee: relay.Expr) -> bool:
    """Whether what a call calls is no value: an operator, a function of the module, a constructor.

    Also a function that stands in the call, whose free variables are values.
    """
    return isinstance(callee, (ir.Op, ir.GlobalVar, relay.adt.Constructor, relay.Function))


def _operands(expr: relay.Expr) -> list[relay.Expr]:
    """What an expression reads; of functions and branches within, their free variables."""
    match expr:
        case relay.Constant():
            return []
        case relay.Call():
            is_whole = is_called_whole(expr.op)
            read = free_variables(expr.op) if isinstance(expr.op, relay.Function) else []
            return [*read, *([] if is_whole else [expr.op]), *expr.args]
        case relay.Tuple():
            return list(expr.fields)
        case relay.TupleGetItem():
            return [expr.tuple_value]
        case relay.If():
            return [expr.cond, *free_variables(branches(expr))]
    return fields(expr) if isinstance(expr, REFERENCES) else free_variables(expr)


def fields(reference: relay.Expr) -> list[relay.Expr]:
    """What an expression on a reference is made of, in the order of its constructor."""
    names = {relay.RefCreate: ("value",), relay.RefRead: ("ref",), relay.RefWrite: ("ref", "value")}
    return [getattr(reference, name) for name in names[type(reference)]]


def branches(expr: relay.If) -> relay.Tuple:
    """Both branches as one expression."""
    return relay.Tuple([expr.true_branch, expr.false_branch])


def free_variables(expr: relay.Expr) -> list[relay.Var]:
    """The variables that an expression takes from outside, each once."""
    return list(relay.analysis.free_vars(expr))


class _Translation:
    """One function under translation; `_items` has what became of each Relay expression."""

    def __init__(self, function: relay.Function) -> None:
        self._function = function
        self._builder = GraphBuilder()
        self._items: dict[relay.Expr, Structure] = {}
        # Bindings are names of values, unless they say in which order references are used.
        self._has_names = not _has_references(function)
        self._bound: dict[relay.Var, relay.Expr] = {}

    def run(self) -> Graph:
        function = self._function
        for param in function.params:
            shape, dtype = tensor_type(param.checked_type)
            index = self._builder.add(Expr(op=INPUT, shape=shape, dtype=dtype, origin=param))
            self._items[param] = self._parts(index, param.checked_type)
        self._visit(function.body)
        return self._builder.graph(self._items[function.body])

    def _visit(self, root: relay.Expr) -> None:
        """Translate `root` and all that it is computed of, each after what it reads."""
        stack = [(root, False)]
        while stack:
            expr, is_ready = stack.pop()
            if expr in self._items:
                continue
            if is_ready:
                self._items[expr] = self._translated(expr)
            else:
                stack.append((expr, True))
                stack += [(each, False) for each in reversed(self._before(expr))]

    def _is_name(self, expr: relay.Expr) -> bool:
        """Whether an expression only names a value; a function may name itself."""
        is_let = isinstance(expr, relay.Let) and not isinstance(expr.value, relay.Function)
        return is_let and self._has_names

    def _before(self, expr: relay.Expr) -> list[relay.Expr]:
        if self._is_name(expr):
            self._bound[expr.var] = expr.value
            return [expr.body]
        return [self._bound[expr]] if isinstance(expr, relay.Var) else _operands(expr)

    def _translated(self, expr: relay.Expr) -> Structure:
        if self._is_name(expr):
            return self._items[expr.body]
        match expr:
            case relay.Constant():
                return self._constant(expr)
            case relay.Var():
                return self._items[self._bound[expr]]
            case relay.Tuple():
                return tuple(self._items[part] for part in expr.fields)
            case relay.TupleGetItem():
                whole = self._items[expr.tuple_value]
                assert isinstance(whole, tuple)
                return whole[expr.index]
            case relay.Call():
                return self._call(expr)
        return self._opaque(expr, type(expr).__name__.lower())

    def _constant(self, constant: relay.Constant) -> int:
        array: Array = constant.data.numpy()
        if array.dtype.kind in "fiub" and str(array.dtype) == constant.data.dtype:
            return self._builder.constant(array, constant)
        shape, dtype = tensor_type(constant.checked_type)
        return self._builder.add(Expr(op=CONSTANT, shape=shape, dtype=dtype, origin=constant))

    def _call(self, call: relay.Call) -> Structure:
        if not isinstance(call.op, ir.Op):
            return self._opaque(call, _callee(call))
        name = str(call.op.name)
        args = tuple(self._leaves(call.args))
        try:
            attrs = _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
        except _UnknownFormError:
            return self._added(call, f"relay.{name}", args, {})
        if name == "nn.dropout":  # nothing at inference, where nobody reads the mask
            return (args[0], args[0])
        if name == "nn.batch_norm":
            type_ = call.checked_type.fields[0]
            return (self._named(call, name, args, attrs, type_, origin=call), args[3], args[4])
        if name in _PRODUCTS:
            return self._named(call, "matmul", self._straightened(call, args), attrs)
        if name == "nn.bias_add" and attrs["axis"] in {-1, len(_shape(call)) - 1}:
            return self._named(call, "add", args, {})
        if name == "nn.conv2d" and self._has_other_weight(call):
            weight = self._reordered(args[1], _KERNEL_ORDERS[str(attrs["kernel_layout"])])
            return self._named(call, name, (args[0], weight), {**attrs, "kernel_layout": "OHWI"})
        if name in _UNREAD_OPERANDS:
            return self._named(call, name, args[: _UNREAD_OPERANDS[name]], attrs)
        return self._added(call, _NAMES.get(name, name), args, attrs)

    def _named(
        self,
        call: relay.Call,
        name: str,
        args: tuple[int, ...],
        attrs: _Attributes,
        type_: object = None,
        origin: object = None,
    ) -> int:
        """An operator with one result, which its name and attributes describe in full."""
        shape, dtype = tensor_type(call.checked_type if type_ is None else type_)
        made = Expr(op=name, args=args, shape=shape, dtype=dtype, attrs=attrs, origin=origin)
        return self._builder.add(made)

    def _added(
        self, origin: relay.Expr, name: str, args: tuple[int, ...], attrs: _Attributes
    ) -> Structure:
        """An operator that can be written again from its author's expression."""
        shape, dtype = tensor_type(origin.checked_type)
        made = Expr(op=name, args=args, shape=shape, dtype=dtype, attrs=attrs, origin=origin)
        return self._parts(self._builder.add(made), origin.checked_type)

    def _straightened(self, call: relay.Call, args: tuple[int, ...]) -> tuple[int, ...]:
        """A matrix product's operands as (M, K) and (K, N), whichever way it reads them."""
        is_dense = call.op.name == "nn.dense"
        transposes = (
            (False, True)
            if is_dense
            else (bool(call.attrs.transpose_a), bool(call.attrs.transpose_b))
        )
        straight = []
        for arg, is_transposed in zip(args, transposes, strict=True):
            rank = len(self._builder[arg].shape or ())
            axes = (*range(rank - 2), rank - 1, rank - 2)
            straight.append(self._builder.permute_dims(arg, axes) if is_transposed else arg)
        return tuple(straight)

    def _has_other_weight(self, call: relay.Call) -> bool:
        """Whether all but the weight's layout is as kernels have it."""
        attrs = call.attrs
        is_nhwc = str(attrs.data_layout) == "NHWC" and str(attrs.out_layout) in {"", "NHWC"}
        return is_nhwc and int(attrs.groups) == 1 and str(attrs.kernel_layout) in _KERNEL_ORDERS

    def _reordered(self, index: int, axes: tuple[int, ...]) -> int:
        array = self._builder[index].array
        if array is None:
            return self._builder.permute_dims(index, axes)
        return self._builder.constant(np.ascontiguousarray(array.transpose(axes)))

    def _opaque(self, expr: relay.Expr, callee: str) -> Structure:
        """An expression that passes through, on the variables that are free in it."""
        args = tuple(self._leaves(_operands(expr)))
        return self._added(expr, OPAQUE, args, {"callee": callee})

    def _leaves(self, exprs: list[relay.Expr]) -> Iterator[int]:
        """The values of expressions, tuples taken apart."""
        for expr in exprs:
            yield from leaves(self._items[expr])

    def _parts(self, index: int, type_: object) -> Structure:
        """A value, or a tuple of the parts that it holds."""
        if not isinstance(type_, ir.TupleType):
            return index
        parts = []
        for position, field in enumerate(type_.fields):
            shape, dtype = tensor_type(field)
            part = Expr(op=PART, args=(index,), shape=shape, dtype=dtype, attrs={"index": position})
            parts.append(self._parts(self._builder.add(part), field))
        return tuple(parts)


def _has_references(function: relay.Function) -> bool:
    found: list[bool] = []
    relay.analysis.post_order_visit(
        function.body, lambda expr: found.append(isinstance(expr, REFERENCES))
    )
    return any(found)


def _callee(call: relay.Call) -> str:
    """The name of the function that a call calls."""
    return str(getattr(call.op, "name_hint", type(call.op).__name__.lower()))
