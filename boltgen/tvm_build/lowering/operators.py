"""Replace operators that TVM 0.27 does not lower for CUDA by boltgen's kernels or other operators.

TVM computes them by NumPy on the host (`relax.run.nonzero`), wrongly, or not at all. If the shape
of a result depends on data, a first kernel counts the results on the device, the host reads the
count as a shape, and a second kernel writes the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, te, tirx

from boltgen.errors import BoltgenError, ModelImportError
from boltgen.tvm_build.lowering import kernels
from boltgen.tvm_build.lowering.nearest import is_exact, nearest

op = relax.op
_READ_SHAPE = ir.Op.get("relax.tensor_to_shape")


def with_device_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """Return `module` with operators that TVM or boltgen's kernels compute on the device.

    Raises:
        ModelImportError: no kernel computes the form of an operator.
    """
    writer = _Writer(module)
    try:
        for gvar, function in module.functions_items():
            if isinstance(function, relax.Function):
                writer.builder_.update_func(gvar, writer.written_anew(function))
    except Exception:
        if writer.refusal is not None:  # TVM's visitor keeps only the exception's message
            raise writer.refusal from None
        raise
    return writer.builder_.finalize() if writer.written else module


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._shapes: dict[relax.Var, relax.ShapeExpr] = {}
        # The variables that operators read as shapes.
        self._read: set[relax.Var] = set()
        self.written = 0
        self.refusal: BoltgenError | None = None

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> ir.Expr:
        return self._shapes.get(var) or super().visit_dataflow_var_(var)

    def visit_var_(self, var: relax.Var) -> ir.Expr:
        return self._shapes.get(var) or super().visit_var_(var)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite a binding; a tensor that is read as a shape of unknown extents gives symbols."""
        call, type_ = binding.value, binding.var.ty
        is_read = isinstance(call, ir.Call) and call.op == _READ_SHAPE and binding.var in self._read
        if not is_read or type_.ndim < 0:
            super().visit_var_binding_(binding)
            return
        tensor = self.visit_expr(call.args[0])
        self._shapes[binding.var] = relax.ShapeExpr(self.extents(tensor, int(type_.ndim)))
        self.written += 1

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = super().visit_call_(call)
        name = str(call.op.name) if isinstance(call.op, ir.Op) else ""
        if name not in _WRITERS:
            return call
        try:
            made = _WRITERS[name](self, call)
        except BoltgenError as error:
            self.refusal = error
            raise
        self.written += made is not call
        return made

    def written_anew(self, function: relax.Function) -> relax.Function:
        """Return `function` with all calls of these operators replaced by kernels."""

        def see(expr: ir.Expr) -> None:
            if isinstance(expr, ir.Call):
                self._read.update(each for each in expr.args if isinstance(each, relax.Var))

        relax.analysis.post_order_visit(function, see)
        return self.visit_expr(function)

    def emit(self, expr: ir.Expr) -> relax.Var:
        """Return a new variable that is bound to `expr`."""
        return self.builder_.emit(expr)

    def kernel(self, function: tirx.PrimFunc, name: str, args: list[Any], out_ty: Any) -> relax.Var:
        """Emit a call of one of boltgen's kernels; return its results."""
        gvar = self.builder_.add_func(function, name)
        return self.emit(op.call_tir(gvar, ir.Tuple(args), out_ty))

    def extents(self, tensor: ir.Expr, count: int) -> list[tirx.Var]:
        """Return the `count` numbers in a tensor as symbols."""
        shape = self.emit(op.tensor_to_shape(tensor))
        symbols = [tirx.Var("data_extent", "int64") for _ in range(count)]
        self.builder_.match_cast(shape, relax.ShapeType(symbols))
        return symbols

    def flat(self, tensor: ir.Expr) -> relax.Var:
        """Return a tensor, flattened."""
        return self.emit(op.reshape(tensor, [-1]))


def _shape(tensor: ir.Expr, what: str) -> list[Any]:
    if not isinstance(tensor.ty.shape, relax.ShapeExpr):
        raise ModelImportError(
            f"{what} reads a tensor whose shape is not known when the model is compiled. Give its "
            "operand a shape"
        )
    return list(tensor.ty.shape.values)


def _tensor(shape: list[Any], dtype: str) -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def _nonzero(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Return the coordinates (rank, m) of nonzero elements, in order."""
    (x,) = call.args
    shape = _shape(x, "NonZero")
    dtype = str(x.ty.dtype)
    set_ = x if dtype == "bool" else writer.emit(op.not_equal(x, relax.const(0, dtype)))
    flags = writer.flat(set_)
    ones = writer.emit(op.astype(flags, "int64"))
    sums = writer.emit(op.cumsum(ones, 0))
    total = writer.emit(op.sum(ones, [0], keepdims=True))
    (m,) = writer.extents(total, 1)
    args = [flags, sums]
    places = writer.kernel(kernels.places(), "places", args, _tensor([m], "int64"))

    def coordinates(places: te.Tensor) -> te.Tensor:
        def at(axis: Any, place: Any) -> Any:
            found, below = tirx.const(0, "int64"), tirx.const(1, "int64")
            for dim in reversed(range(len(shape))):
                value = tirx.indexmod(tirx.indexdiv(places[place], below), shape[dim])
                found, below = tirx.Select(axis == dim, value, found), below * shape[dim]
            return found

        return te.compute((max(len(shape), 1), m), at, name="coordinates")

    return writer.builder_.call_te(coordinates, places)


def _unique(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Return the distinct elements, or slices along an axis, and their positions if asked."""
    x, *given = call.args
    is_sorted, has_index, has_inverse, has_counts = (int(each.value) for each in given[:4])
    axis = int(given[4].value) if len(given) > 4 else None
    shape, dtype = _shape(x, "Unique"), str(x.ty.dtype)
    if axis is None:
        rest: list[Any] = []
        rows = writer.emit(op.reshape(x, [-1, 1]))
    else:
        axis %= len(shape)
        rest = [each for place, each in enumerate(shape) if place != axis]
        order = [axis, *(place for place in range(len(shape)) if place != axis)]
        front = writer.emit(op.permute_dims(x, order))
        width = int(np.prod([int(each) for each in rest], dtype=np.int64))
        rows = writer.emit(op.reshape(front, [shape[axis], width]))
    n, d = rows.ty.shape.values
    column = _tensor([n], "int64")
    found = writer.kernel(kernels.firsts(dtype), "firsts", [rows], [column, column])
    first, count = (writer.emit(ir.TupleGetItem(found, place)) for place in range(2))
    rank_of = kernels.ranks(dtype, is_sorted=bool(is_sorted))
    rank = writer.kernel(rank_of, "ranks", [rows, first], column)
    own = writer.emit(op.arange(0, n, 1, "int64"))
    is_first = writer.emit(op.astype(writer.emit(op.equal(first, own)), "int64"))
    (m,) = writer.extents(writer.emit(op.sum(is_first, [0], keepdims=True)), 1)
    each = _tensor([m], "int64")
    types = [_tensor([m, d], dtype), each, each]
    made = writer.kernel(kernels.distinct(dtype), "distinct", [rows, first, rank, count], types)
    values, index, counts = (writer.emit(ir.TupleGetItem(made, place)) for place in range(3))
    if axis is None:
        values = writer.emit(op.reshape(values, [m]))
    else:
        values = writer.emit(op.reshape(values, [m, *rest]))
        back = [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]
        values = writer.emit(op.permute_dims(values, back))
    asked = ((has_index, index), (has_inverse, rank), (has_counts, counts))
    more = [each for is_asked, each in asked if is_asked]
    return ir.Tuple([values, *more]) if more else values


def _number(expr: ir.Expr, what: str) -> float:
    if not isinstance(expr, ir.GenericConst):
        raise ModelImportError(
            f"NonMaxSuppression computes its {what}. Make {what} a constant of the model"
        )
    return float(expr.value.numpy().reshape(-1)[0])


def _suppressed(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Return the boxes that survive non-maximum suppression: (m, 3), and m as a tensor (1,)."""
    boxes, scores, *limits = call.args
    if str(call.attrs.output_format) != "onnx":
        raise ModelImportError(
            f"all_class_non_max_suppression has the output format {call.attrs.output_format}. "
            "Use the output format onnx"
        )
    most, overlap, least = map(_number, limits, ("most boxes", "overlap", "least score"))
    batches, classes, n = _shape(scores, "NonMaxSuppression")
    order = writer.emit(op.argsort(scores, -1, descending=True, dtype="int64"))
    kernel = kernels.suppression(
        str(boxes.ty.dtype), str(scores.ty.dtype), int(most), overlap, least
    )
    of_boxes, of_classes = [batches, classes, n], [batches, classes]
    types = [_tensor(of_boxes, "int64"), _tensor(of_classes, "int64"), _tensor(of_boxes, "int8")]
    made = writer.kernel(kernel, "suppression", [boxes, scores, order], types)
    kept, count = (writer.emit(ir.TupleGetItem(made, place)) for place in range(2))
    counts = writer.flat(count)
    ends = writer.emit(op.reshape(writer.emit(op.cumsum(counts, 0)), of_classes))
    total = writer.emit(op.sum(counts, [0], keepdims=True))
    (m,) = writer.extents(total, 1)
    args = [kept, count, ends]
    found = writer.kernel(kernels.selected(), "selected", args, _tensor([m, 3], "int64"))
    return ir.Tuple([found, total])


def _split(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Split a tensor if some parts are empty; TVM splits only at distinct positions."""
    (x,) = call.args
    places, axis = call.attrs.indices_or_sections, int(call.attrs.axis)
    if isinstance(places, (int, tirx.IntImm)) or len({int(at) for at in places}) == len(places):
        return call
    ends = [*map(int, places), _shape(x, "Split")[axis]]
    begins = [0, *ends[:-1]]
    pairs = zip(begins, ends, strict=True)
    return ir.Tuple([writer.emit(op.strided_slice(x, [axis], [b], [e])) for b, e in pairs])


def _remainder(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Compute an FP16 or BF16 remainder in FP32, where it is exact; CUDA has no other."""
    dtype = str(call.ty.dtype)
    if dtype not in {"float16", "bfloat16"}:
        return call
    wide = [writer.emit(op.astype(each, "float32")) for each in call.args]
    return op.astype(writer.emit(ir.Call(call.op, wide)), dtype)


def _total(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Compute a sum or a product; without elements it is a constant."""
    del writer
    (x,) = call.args
    extents = [x.ty.shape, call.ty.shape]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in extents):
        return call
    before, after = ([str(each) for each in shape.values] for shape in extents)
    if "0" not in before or "0" in after:
        return call
    number = 0 if call.op.name == "relax.sum" else 1
    return relax.const(np.full([int(each) for each in after], number, str(call.ty.dtype)))


def _median(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Return the middle element along an axis and its position; NaN if there is a NaN.

    Of two middle elements it is the lesser. TVM's own median sorts by a function on the host.
    """
    (x,) = call.args
    axes, keepdims = call.attrs.axis, bool(call.attrs.keepdims)
    is_whole = axes is None or len(axes) == 0
    rank = len(_shape(x, "Median"))
    if is_whole:
        x = writer.flat(x)
    axis = 0 if is_whole else int(axes[0]) % rank
    extent = _shape(x, "Median")[axis]
    order = writer.emit(op.argsort(x, axis, dtype="int64"))
    middle = tirx.indexdiv(extent - 1, 2)
    place = writer.emit(op.strided_slice(order, [axis], [middle], [middle + 1]))
    if str(x.ty.dtype).startswith(("float", "bfloat")):
        # NaN is sorted last, and is the median if it occurs.
        last = writer.emit(op.strided_slice(order, [axis], [extent - 1], [extent]))
        greatest = writer.emit(op.gather_elements(x, last, axis))
        is_nan = writer.emit(op.not_equal(greatest, greatest))
        place = writer.emit(op.where(is_nan, last, place))
    value = writer.emit(op.gather_elements(x, place, axis))
    if is_whole:
        return op.reshape(value, [1] * rank if keepdims else [])
    if not keepdims:
        value, place = (writer.emit(op.squeeze(each, [axis])) for each in (value, place))
    return ir.Tuple([value, place])


def _resized(writer: _Writer, call: ir.Call) -> ir.Expr:
    """Resize to the nearest element, by positions that are computed here."""
    (x, size), attrs = call.args, call.attrs
    shape = x.ty.shape.values if isinstance(x.ty.shape, relax.ShapeExpr) else []
    extents = [*shape, *(size.values if isinstance(size, relax.ShapeExpr) else [None])]
    layout = str(attrs.layout)
    is_known = all(isinstance(each, (int, tirx.IntImm)) for each in extents)
    if str(attrs.method) != "nearest_neighbor" or layout not in {"NCHW", "NHWC"} or not is_known:
        return call
    axes = (layout.index("H"), layout.index("W"))
    pairs = [(int(shape[axis]), int(to)) for axis, to in zip(axes, size.values, strict=True)]
    how = str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
    places = [nearest(*how, *pair) for pair in pairs]
    if None in places or all(is_exact(*pair) for pair in pairs):
        return call
    rows, columns = (relax.const(np.array(each, np.int32)) for each in places)

    def read(x: te.Tensor, rows: te.Tensor, columns: te.Tensor) -> te.Tensor:
        def at(*index: Any) -> Any:
            place = list(index)
            place[axes[0]], place[axes[1]] = rows[index[axes[0]]], columns[index[axes[1]]]
            return x(*place)

        return te.compute([int(each) for each in call.ty.shape.values], at, name="resized")

    return writer.builder_.call_te(read, x, rows, columns)


_WRITERS: Mapping[str, Callable[[_Writer, ir.Call], ir.Expr]] = {
    "relax.nonzero": _nonzero,
    "relax.unique": _unique,
    "relax.vision.all_class_non_max_suppression": _suppressed,
    "relax.median": _median,
    "relax.image.resize2d": _resized,
    "relax.sum": _total,
    "relax.prod": _total,
    "relax.split": _split,
    "relax.mod": _remainder,
    "relax.floor_mod": _remainder,
}
