"""Arrow: the neutral graph to a Relax function.

An operator that no pass has changed is its author's call on the new operands; what passes made is
written by its neutral name and attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tvm import ir, relax

from boltgen.frontend.emission import Writer, elementwise_name, joined, shared_writers
from boltgen.frontend.relax.branches import Substitution
from boltgen.frontend.relax.grouped import by_groups
from boltgen.frontend.relax.symbols import Symbols
from boltgen.frontend.relax.translate import free_variables
from boltgen.graph.attributes import (
    Axis,
    Convolution,
    Indexed,
    Pad,
    Permutation,
    Reduce,
    RegionCall,
    Slice,
)
from boltgen.graph.graph import CONSTANT, CORNER, GROUPED, INPUT, PART, REGION, Expr, Graph
from boltgen.ir.dtypes import FLOAT8, DType
from boltgen.passes.legalise.unroll_recurrent import without_recurrent


def emit(
    graph: Graph, name: str, function: relax.Function, workspaces: Mapping[str, int]
) -> relax.Function:
    """Rewrite `function` from its changed graph; its signature stays.

    A region's call passes a workspace of the bytes in `workspaces`, by its symbol, behind its
    results: one more output, which TVM's memory planner gives what no other tensor needs at that
    time.
    """
    graph = without_recurrent(graph)  # also where no pass has run
    builder = relax.BlockBuilder()
    emission = _Emission(builder, Symbols(function), workspaces)
    with builder.function(name, list(function.params)):
        for expr in graph.exprs:
            emission.values.append(emission.write(expr))
        builder.emit_func_output(joined(graph.results, emission.values, ir.Tuple))
    made = builder.get()[name]
    return relax.Function(made.params, made.body, made.ret_ty, function.is_pure, function.attrs)


class _Emission:
    """A function under way; `values[i]` is the Relax expression of the graph's expression `i`."""

    def __init__(
        self, builder: relax.BlockBuilder, symbols: Symbols, workspaces: Mapping[str, int]
    ) -> None:
        self._builder = builder
        self._symbols = symbols
        self._workspaces = workspaces
        self.values: list[ir.Expr] = []

    def write(self, expr: Expr) -> ir.Expr:
        """The value of one expression, bound to a variable where it computes something."""
        args = [self.values[arg] for arg in expr.args]
        if expr.op == INPUT:
            return expr.origin
        if expr.op == CONSTANT:
            return expr.origin if expr.origin is not None else relax.const(expr.array, expr.dtype)
        if expr.op == PART:
            return self._emit(ir.TupleGetItem(args[0], expr.attrs.of(Indexed).index))
        if expr.op == REGION:
            return self._region(expr, args)
        if expr.origin is None or _is_rounded_by_tvm(expr):
            written = replace(expr, shape=tuple(self._symbols.shape(expr.shape or ())))
            return self._emit(_WRITERS.get(expr.op, _elementwise)(written, args))
        return self._again(expr, args)

    def _emit(self, expr: ir.Expr) -> relax.Var:
        return self._builder.emit(expr)

    def _region(self, expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
        attrs = expr.attrs.of(RegionCall)
        symbol = attrs.symbol
        result = relax.TensorType(self._symbols.shape(expr.static_shape), expr.dtype)
        callee = relax.ExternFunc(symbol)
        outputs = [result]
        for shape, dtype in attrs.further:
            outputs.append(relax.TensorType(self._symbols.shape(shape), dtype))
        is_tuple = len(outputs) > 1
        if symbol in self._workspaces:
            outputs.append(relax.TensorType((self._workspaces[symbol],), "uint8"))
        out_ty = outputs if len(outputs) > 1 else result
        made = self._emit(relax.call_dps_packed(callee, ir.Tuple(list(args)), out_ty=out_ty))
        return made if is_tuple or len(outputs) == 1 else self._emit(ir.TupleGetItem(made, 0))

    def _again(self, expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
        """The author's expression on new operands."""
        origin = expr.origin
        if isinstance(origin, relax.MatchCast):
            return self._builder.match_cast(_of_type(origin.value.ty, iter(args)), origin.ty)
        if isinstance(origin, relax.VarBinding):  # a function, which may name itself
            value = self._substituted(origin.value, args)
            binding = relax.VarBinding(origin.var, self._builder.normalize(value))
            self._builder.emit_normalized(binding)
            return origin.var
        if isinstance(origin, relax.Var):  # a tuple as a whole
            return self._rebuilt(origin, iter(args))
        if not isinstance(origin, ir.Call):
            return self._emit(self._substituted(origin, args))
        rest = iter(args)
        op = self._rebuilt(origin.op, rest)
        operands = [self._rebuilt(arg, rest) for arg in origin.args]
        made = self._emit(ir.Call(op, operands, origin.attrs, origin.ty_args))
        is_tuple = expr.op == "nn.batch_norm"
        return self._emit(ir.TupleGetItem(made, 0)) if is_tuple else made

    def _substituted(self, expr: ir.Expr, args: Sequence[ir.Expr]) -> ir.Expr:
        free = free_variables(expr)
        return Substitution(dict(zip(free, args, strict=False))).visit_expr(expr)

    def _rebuilt(self, arg: ir.Expr, values: Iterator[ir.Expr]) -> ir.Expr:
        """An argument of the author's call on new values, which are taken in order."""
        if isinstance(arg, ir.Tuple):
            return ir.Tuple([self._rebuilt(part, values) for part in arg.fields])
        if self._symbols.has(arg):
            return arg
        if isinstance(arg, relax.Var):
            return _of_type(arg.ty, values)
        return next(values) if isinstance(arg, ir.GenericConst) else arg


def _of_type(type_: object, values: Iterator[ir.Expr]) -> ir.Expr:
    if isinstance(type_, relax.TupleType):
        return ir.Tuple([_of_type(field, values) for field in type_.fields])
    return next(values)


def _elementwise(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    return ir.Call(ir.Op.get(f"relax.{elementwise_name(expr)}"), list(args))


def _convolution(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    attrs = expr.attrs.of(Convolution)
    # TVM accumulates in the output's type.
    summed = expr.dtype if attrs.groups == 1 else "float32"
    write = relax.op.nn.conv2d if len(attrs.strides) == 2 else relax.op.nn.conv3d
    made = write(*args, **attrs.named(), out_dtype=summed)
    return made if summed == expr.dtype else relax.op.astype(made, expr.dtype)


def _image_mean(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    """Write a sum and a division: TVM fuses casts into sums, but not into means."""
    h, w = (int(extent) for extent in args[0].ty.shape.values[1:3])
    total = relax.op.sum(*args, [1, 2], keepdims=expr.attrs.of(Reduce).keepdims)
    return relax.op.divide(total, relax.const(float(h * w), expr.dtype))


def _corner(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    """Slice a maximum-size constant along its dynamic dimensions."""
    extents = expr.shape or ()
    axes = [axis for axis, extent in enumerate(extents) if not isinstance(extent, int)]
    ends = [extents[axis] for axis in axes]
    return relax.op.strided_slice(*args, axes, [0] * len(axes), ends, assume_inbound=True)


def _padded(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    attrs = expr.attrs.of(Pad)
    flat = [width for pair in attrs.widths for width in pair]
    return relax.op.nn.pad(*args, flat, attrs.mode, attrs.value)


def _sliced(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    attrs = expr.attrs.of(Slice)
    return relax.op.strided_slice(*args, [attrs.axis], [attrs.begin], [attrs.end])


def _along(expr: Expr, scale: ir.Expr) -> ir.Expr:
    """Return scales of the places of an axis so that they broadcast to the tensor's shape."""
    if not scale.ty.ndim:
        return scale
    rank = len(expr.shape or ())
    behind = rank - 1 - expr.attrs.of(Axis).at(rank)
    return relax.op.reshape(scale, (-1, *(1,) * behind))


def _is_rounded_by_tvm(expr: Expr) -> bool:
    """Whether it quantises to floats of 8 bits: TVM 0.27 rounds to integers before."""
    return expr.op == "quantize" and expr.dtype in FLOAT8


def _quantised(expr: Expr, args: Sequence[ir.Expr]) -> ir.Expr:
    if _is_rounded_by_tvm(expr):
        most = DType(expr.dtype).largest
        steps = relax.op.divide(args[0], _along(expr, args[1]))
        zero = relax.op.astype(_along(expr, args[2]), steps.args[0].ty.dtype.dtype)
        return relax.op.astype(relax.op.clip(relax.op.add(steps, zero), -most, most), expr.dtype)
    if expr.op == "dequantize" and args[0].ty.dtype.dtype in (*FLOAT8, DType.F32.value):
        return relax.op.multiply(relax.op.astype(args[0], expr.dtype), _along(expr, args[1]))
    made = getattr(relax.op, expr.op)
    return made(*args, axis=expr.attrs.of(Axis).axis, out_dtype=expr.dtype)


_WRITERS: Mapping[str, Writer] = {
    **shared_writers(relax.op),
    "astype": lambda expr, args: relax.op.astype(*args, expr.dtype),
    "permute_dims": lambda expr, args: relax.op.permute_dims(
        *args, expr.attrs.of(Permutation).axes
    ),
    "nn.softplus": lambda expr, args: relax.op.nn.softplus(*args),
    **dict.fromkeys(("nn.conv2d", "nn.conv3d"), _convolution),
    **dict.fromkeys(("quantize", "dequantize"), _quantised),
    "matmul": lambda expr, args: relax.op.matmul(*args, out_dtype=expr.dtype),
    "image_mean": _image_mean,
    GROUPED: by_groups,
    CORNER: _corner,
    "concat": lambda expr, args: relax.op.concat(list(args), expr.attrs.of(Axis).axis),
    "stack": lambda expr, args: relax.op.stack(list(args), expr.attrs.of(Axis).axis),
    "nn.pad": _padded,
    "strided_slice": _sliced,
}
