"""From a Relax function to the neutral graph, with the way back from each expression.

Every binding becomes one expression. What Relax writes as an attribute or as a number among the
arguments becomes an attribute under the neutral name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tvm import ir, relax, tirx

from boltgen.frontend.graph import CONSTANT, INPUT, OPAQUE, Expr, Graph
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


def static_shape(type_: object) -> tuple[int, ...]:
    """The dimensions of a tensor type that are known."""
    return tuple(extent for extent in shape_of(type_) or () if isinstance(extent, int))


def scalar_of(expr: object) -> float | None:
    """The value of a constant of one element, None for anything else."""
    if not isinstance(expr, ir.GenericConst):
        return None
    shape = shape_of(expr.ty)
    if shape is None or not set(shape) <= {1}:
        return None
    return float(expr.value.numpy().reshape(()))


def _number(expr: object) -> float:
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    raise TypeError(f"{expr} is no number")


def conv2d_attributes(call: ir.Call) -> dict[str, object]:
    """A convolution's attributes under the neutral names."""
    attrs = call.attrs
    return {
        "strides": tuple(attrs.strides),
        "padding": tuple(attrs.padding),
        "dilation": tuple(attrs.dilation),
        "groups": attrs.groups,
        "data_layout": attrs.data_layout,
        "kernel_layout": attrs.kernel_layout,
        "out_layout": attrs.out_layout or attrs.data_layout,
    }


def permute_dims_attributes(call: ir.Call) -> dict[str, object]:
    """A permutation's axes; None reverses them."""
    axes = call.attrs.axes
    return {"axes": None if axes is None else tuple(int(axis) for axis in axes)}


def pad_attributes(call: ir.Call) -> dict[str, object]:
    """What a padding puts before and after each dimension."""
    flat = [int(width) for width in call.attrs.pad_width]
    return {
        "widths": tuple(zip(flat[::2], flat[1::2], strict=True)),
        "value": call.attrs.pad_value,
        "mode": call.attrs.pad_mode,
    }


_ATTRIBUTES: Mapping[str, Callable[[ir.Call], dict[str, object]]] = {
    "nn.conv2d": conv2d_attributes,
    "permute_dims": permute_dims_attributes,
    "nn.pad": pad_attributes,
    **dict.fromkeys(
        ("nn.max_pool2d", "nn.avg_pool2d"), lambda call: {"layout": str(call.attrs.layout)}
    ),
    "nn.leakyrelu": lambda call: {"alpha": call.attrs.alpha},
    "nn.prelu": lambda call: {"axis": call.attrs.axis},
    "nn.softplus": lambda call: {"beta": call.attrs.beta},
    "clip": lambda call: {"low": _number(call.args[1]), "high": _number(call.args[2])},
    "astype": lambda call: {"from_dtype": dtype_of(call.args[0].ty)},
}


def operator_name(call: ir.Call) -> str:
    """The neutral name of a call's operator, `OPAQUE` where it is no Relax operator."""
    if isinstance(call.op, ir.Op) and call.op.name.startswith("relax."):
        return str(call.op.name.removeprefix("relax."))
    return OPAQUE


@dataclass(slots=True)
class Translation:
    """A function's graph; `leaves[i]` is the Relax expression of the graph's expression `i`.

    `blocks[i]` is the number of the binding block that it stands in, -1 for parameters and
    constants. Values that cross from one block to another count as escaping.
    """

    exprs: list[Expr] = field(default_factory=list)
    leaves: list[ir.Expr] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    indices: dict[ir.Expr, int] = field(default_factory=dict)
    escaping: set[int] = field(default_factory=set)

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        return Graph(tuple(self.exprs), frozenset(self.escaping))

    def add(self, leaf: ir.Expr, expr: Expr, block: int) -> int:
        """Append `expr`, the value that `leaf` names."""
        self.exprs.append(expr)
        self.leaves.append(leaf)
        self.blocks.append(block)
        self.indices[leaf] = len(self.exprs) - 1
        return len(self.exprs) - 1

    def index(self, leaf: ir.Expr) -> int:
        """The expression of a variable or constant; a constant is added when first seen."""
        if leaf in self.indices:
            return self.indices[leaf]
        shape = shape_of(leaf.ty)
        kind = CONSTANT if isinstance(leaf, ir.GenericConst) else OPAQUE
        expr = Expr(op=kind, shape=shape, dtype=dtype_of(leaf.ty), scalar=scalar_of(leaf))
        return self.add(leaf, expr, -1)


def _is_value(expr: object) -> bool:
    return isinstance(expr, (ir.GenericConst, relax.Var)) and isinstance(expr.ty, relax.TensorType)


def _call_expr(into: Translation, call: ir.Call) -> Expr | None:
    """The expression of a call whose arguments are tensors, numbers and shapes; else None."""
    name = operator_name(call)
    plain = (tirx.IntImm, tirx.FloatImm, relax.ShapeExpr)
    if name == OPAQUE or not all(_is_value(arg) or isinstance(arg, plain) for arg in call.args):
        return None
    try:
        attrs = _ATTRIBUTES[name](call) if name in _ATTRIBUTES else {}
    except TypeError:
        return None
    return Expr(
        op=name,
        args=tuple(into.index(arg) for arg in call.args if _is_value(arg)),
        shape=shape_of(call.ty),
        dtype=dtype_of(call.ty),
        attrs=attrs,
    )


def _add_binding(into: Translation, binding: relax.Binding, block: int) -> None:
    value = binding.value
    if isinstance(value, relax.Var) and isinstance(binding, relax.VarBinding):
        into.indices[binding.var] = into.index(value)  # another name of the same value
        return
    expr = None
    if isinstance(binding, relax.VarBinding) and isinstance(value, ir.Call):
        expr = _call_expr(into, value)
    if expr is None:
        used = [into.index(var) for var in relax.analysis.free_vars(value)]
        if isinstance(value, ir.Tuple):
            into.escaping.update(used)  # to where its parts are used, as a rule the result
        is_call = isinstance(value, ir.Call)
        expr = Expr(
            op=operator_name(value) if is_call else OPAQUE,
            args=tuple(used),
            shape=shape_of(binding.var.ty),
            dtype=dtype_of(binding.var.ty),
        )
    into.escaping.update(arg for arg in expr.args if into.blocks[arg] not in {block, -1})
    into.add(binding.var, expr, block)


def translate(function: relax.Function) -> Translation:
    """The graph of a function's outermost binding blocks; branches within are opaque."""
    into = Translation()
    for param in function.params:
        into.add(
            param, Expr(op=INPUT, shape=shape_of(param.ty), dtype=dtype_of(param.ty)), block=-1
        )
    body = function.body
    blocks = body.blocks if isinstance(body, relax.SeqExpr) else []
    for number, block in enumerate(blocks):
        for binding in block.bindings:
            _add_binding(into, binding, number)
    result = body.body if isinstance(body, relax.SeqExpr) else body
    if isinstance(result, relax.Var):
        into.escaping.add(into.index(result))
    else:
        into.escaping.update(into.index(var) for var in relax.analysis.free_vars(result))
    return into
