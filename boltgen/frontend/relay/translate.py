"""From a Relay function to the neutral graph, with the way back from each expression.

Relay has several operators for what the graph calls a matrix product. Where one reads an operand
transposed, or a convolution has its weight in another layout than kernels read, the graph has an
expression of its own for the transpose: a `Transposed`, which no Relay expression stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import ir, relay, tir

from boltgen.frontend.graph import CONSTANT, INPUT, OPAQUE, Expr, Graph
from boltgen.frontend.imported import TensorType
from boltgen.frontend.relay.versions import integers

_KERNEL_ORDERS = {"HWIO": (3, 0, 1, 2), "OIHW": (0, 2, 3, 1)}  # to OHWI


@dataclass(frozen=True, slots=True, eq=False)
class Transposed:
    """The value of expression `source` with its dimensions in the order `axes`."""

    source: int
    axes: tuple[int, ...]


Leaf: TypeAlias = "relay.Expr | Transposed"


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


def static_shape(type_: object) -> tuple[int, ...]:
    """The dimensions of a tensor type that are known."""
    return tuple(extent for extent in shape_of(type_) or () if isinstance(extent, int))


def scalar_of(expr: object) -> float | None:
    """The value of a constant of one element, None for anything else."""
    if not isinstance(expr, relay.Constant):
        return None
    array = expr.data.numpy()
    return float(array.reshape(())) if array.size == 1 else None


def four_sided(padding: object) -> tuple[int, ...]:
    """(top, left, bottom, right) of a padding that names one, two or four sides."""
    sides = integers(padding)
    return sides * (4 // len(sides))


def conv2d_attributes(call: relay.Call) -> dict[str, object]:
    """A convolution's attributes under the neutral names."""
    attrs = call.attrs
    return {
        "strides": integers(attrs.strides) * (2 // len(integers(attrs.strides))),
        "padding": four_sided(attrs.padding),
        "dilation": integers(attrs.dilation) * (2 // len(integers(attrs.dilation))),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": str(attrs.kernel_layout),
        "out_layout": str(attrs.out_layout) or str(attrs.data_layout),
    }


def transpose_axes(call: relay.Call) -> tuple[int, ...]:
    """The axes of a transpose, none of them negative."""
    shape = shape_of(call.args[0].checked_type) or ()
    axes = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(len(shape))))
    return tuple(int(axis) % len(shape) for axis in axes)


def pad_attributes(call: relay.Call) -> dict[str, object]:
    """What a padding puts before and after each dimension; its value, None where not known."""
    widths = tuple((int(before), int(after)) for before, after in call.attrs.pad_width)
    value = scalar_of(call.args[1])
    return {"widths": widths, "value": value, "mode": str(call.attrs.pad_mode)}


_ATTRIBUTES: Mapping[str, Callable[[relay.Call], dict[str, object]]] = {
    "nn.conv2d": conv2d_attributes,
    "permute_dims": lambda call: {"axes": transpose_axes(call)},
    "nn.pad": pad_attributes,
    **dict.fromkeys(
        ("nn.max_pool2d", "nn.avg_pool2d"), lambda call: {"layout": str(call.attrs.layout)}
    ),
    "nn.leakyrelu": lambda call: {"alpha": float(call.attrs.alpha)},
    "nn.prelu": lambda call: {"axis": int(call.attrs.axis)},
    "clip": lambda call: {"low": float(call.attrs.a_min), "high": float(call.attrs.a_max)},
    "astype": lambda call: {"from_dtype": dtype_of(call.args[0].checked_type)},
}

# Relay's names of operators that the neutral graph calls otherwise.
NAMES = {
    "transpose": "permute_dims",
    "cast": "astype",
    "nn.leaky_relu": "nn.leakyrelu",
    "concatenate": "concat",
    "nn.batch_flatten": "reshape",
    "squeeze": "reshape",
    "expand_dims": "reshape",
}
_PRODUCTS = frozenset({"nn.dense", "nn.matmul", "nn.batch_matmul"})


def operator_name(expr: object) -> str:
    """The neutral name of a call's operator, `OPAQUE` where it is no Relay operator."""
    if isinstance(expr, relay.Call) and isinstance(expr.op, ir.Op):
        name = str(expr.op.name)
        if name == "nn.bias_add" and _adds_to_last_axis(expr):
            return "add"
        return NAMES.get(name, name)
    return OPAQUE


def _adds_to_last_axis(call: relay.Call) -> bool:
    rank = len(shape_of(call.checked_type) or ())
    return int(call.attrs.axis) in {-1, rank - 1}


def is_product(expr: object) -> bool:
    """Whether an expression is one of Relay's matrix products."""
    if not isinstance(expr, relay.Call) or not isinstance(expr.op, ir.Op):
        return False
    return str(expr.op.name) in _PRODUCTS


def transposes(call: relay.Call) -> tuple[bool, bool]:
    """Whether a matrix product reads A, and B, transposed."""
    if call.op.name == "nn.dense":
        return False, True
    return bool(call.attrs.transpose_a), bool(call.attrs.transpose_b)


@dataclass(slots=True)
class Translation:
    """A function's graph; `leaves[i]` is what expression `i` of the graph stands for."""

    exprs: list[Expr] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)  # Relay expressions, or `Transposed`
    indices: dict[Any, int] = field(default_factory=dict)
    escaping: set[int] = field(default_factory=set)

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        return Graph(tuple(self.exprs), frozenset(self.escaping))

    def add(self, leaf: Leaf, expr: Expr) -> int:
        """Append `expr`, the value of `leaf`."""
        self.exprs.append(expr)
        self.leaves.append(leaf)
        self.indices[leaf] = len(self.exprs) - 1
        return len(self.exprs) - 1

    def transposed(self, source: int, axes: tuple[int, ...]) -> int:
        """Append the transpose of an expression."""
        before = self.exprs[source]
        shape = None if before.shape is None else tuple(before.shape[axis] for axis in axes)
        expr = Expr(
            op="permute_dims",
            args=(source,),
            shape=shape,
            dtype=before.dtype,
            attrs={"axes": axes},
        )
        return self.add(Transposed(source, axes), expr)


def _swapped(expr: Expr) -> tuple[int, ...]:
    rank = len(expr.shape or ())
    return (*range(rank - 2), rank - 1, rank - 2)


def _call_args(into: Translation, call: relay.Call, name: str) -> tuple[str, tuple[int, ...]]:
    """The operator's neutral name, and its operands, transposed where it reads them so."""
    args = [into.indices[arg] for arg in call.args]
    if is_product(call):
        for position, is_transposed in enumerate(transposes(call)):
            if is_transposed:
                source = args[position]
                args[position] = into.transposed(source, _swapped(into.exprs[source]))
        return "matmul", tuple(args)
    if name == "nn.conv2d":
        order = _KERNEL_ORDERS.get(str(call.attrs.kernel_layout))
        if order is not None and str(call.attrs.data_layout) == "NHWC":
            args[1] = into.transposed(args[1], order)
    return name, tuple(args)


def _add_call(into: Translation, call: relay.Call) -> None:
    name = operator_name(call)
    if name == OPAQUE or not all(arg in into.indices for arg in call.args):
        _add_opaque(into, call, call.args)
        return
    attrs = dict(_ATTRIBUTES[name](call)) if name in _ATTRIBUTES else {}
    name, args = _call_args(into, call, name)
    if name == "nn.conv2d" and isinstance(into.leaves[args[1]], Transposed):
        attrs["kernel_layout"] = "OHWI"
    type_ = call.checked_type
    into.add(
        call, Expr(op=name, args=args, shape=shape_of(type_), dtype=dtype_of(type_), attrs=attrs)
    )


def _add_opaque(into: Translation, expr: relay.Expr, parts: object) -> None:
    args = tuple(into.indices[part] for part in parts if part in into.indices)  # type: ignore[attr-defined]
    type_ = expr.checked_type
    into.add(
        expr,
        Expr(op=operator_name(expr), args=args, shape=shape_of(type_), dtype=dtype_of(type_)),
    )


def is_dataflow(function: relay.Function) -> bool:
    """Whether a function's body is a plain graph: no branches, bindings or functions within."""
    plain = (relay.Call, relay.Var, relay.Constant, relay.Tuple, relay.TupleGetItem)
    found: list[bool] = []
    relay.analysis.post_order_visit(
        function.body,
        lambda expr: found.append(isinstance(expr, (*plain, ir.Op, ir.GlobalVar))),
    )
    return all(found)


def expressions(function: relay.Function) -> list[relay.Expr]:
    """The expressions of a function's body, each after what it reads; operators left out."""
    exprs: list[relay.Expr] = []
    relay.analysis.post_order_visit(function.body, exprs.append)
    return [expr for expr in exprs if not isinstance(expr, (ir.Op, ir.GlobalVar))]


def translate(function: relay.Function) -> Translation:
    """The graph of a function that `is_dataflow`, whose types are known."""
    into = Translation()
    for param in function.params:
        type_ = param.checked_type
        into.add(param, Expr(op=INPUT, shape=shape_of(type_), dtype=dtype_of(type_)))
    for expr in expressions(function):
        if expr in into.indices:
            continue
        if isinstance(expr, relay.Call):
            _add_call(into, expr)
        elif isinstance(expr, relay.Tuple):
            _add_opaque(into, expr, expr.fields)
            into.escaping.update(into.exprs[-1].args)
        elif isinstance(expr, relay.TupleGetItem):
            _add_opaque(into, expr, [expr.tuple_value])
        else:
            type_ = expr.checked_type
            kind = CONSTANT if isinstance(expr, relay.Constant) else OPAQUE
            into.add(
                expr,
                Expr(op=kind, shape=shape_of(type_), dtype=dtype_of(type_), scalar=scalar_of(expr)),
            )
    into.escaping.add(into.indices[function.body])
    return into
