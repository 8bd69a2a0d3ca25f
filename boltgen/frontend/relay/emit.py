"""Arrow: the neutral graph to a Relay function, and a region's body to a function of its own.

An operator that no pass has changed is its author's call on the new operands; what passes made is
written by its neutral name and attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import ir, relay

from boltgen.frontend.emission import Writer, elementwise_name, joined, shared_writers
from boltgen.frontend.relay.translate import (
    REFERENCES,
    branches,
    fields,
    free_variables,
    is_called_whole,
)
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
from boltgen.graph.graph import CONSTANT, INPUT, PART, REGION, Expr, Graph, Structure, leaves
from boltgen.passes.outline import CarvedRegion

CODEGEN = "boltgen"
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def emit(
    graph: Graph,
    function: relay.Function,
    regions: Mapping[str, ir.GlobalVar],
    workspaces: Mapping[str, int],
) -> relay.Function:
    """Rewrite `function` from its changed graph; its signature stays.

    `regions` are called by their symbols. One in `workspaces` returns one tensor more, which has as
    many bytes, and means nothing.
    """
    emission = _Emission(graph, regions, workspaces)
    body = emission.structure(graph.results)
    return relay.Function(
        function.params, body, function.ret_type, function.type_params, function.attrs
    )


def emit_region(carved: CarvedRegion, workspace_bytes: int | None) -> relay.Function:
    """A region as a function with the attributes that `relay.build` looks for.

    With a workspace it is one more result: TVM plans its memory with all others.
    """
    emission = _Emission(carved.body, {}, {}, is_region=True)
    body = emission.structure(carved.body.results)
    computed = [carved.body[index] for index in leaves(carved.body.results)]
    types = [relay.TensorType(each.static_shape, each.dtype) for each in computed]
    if workspace_bytes is not None:
        results = body.fields if len(computed) > 1 else [body]
        body = relay.Tuple([*results, relay.zeros((workspace_bytes,), "uint8")])
        types.append(relay.TensorType((workspace_bytes,), "uint8"))
    made = relay.Function(emission.params, body, ir.TupleType(types) if types[1:] else types[0])
    for name, value in (
        ("Primitive", tvm.tir.IntImm("int32", 1)),
        ("Inline", tvm.tir.IntImm("int32", 1)),
        ("Compiler", tvm.runtime.String(CODEGEN)),
        ("global_symbol", tvm.runtime.String(carved.region.symbol)),
    ):
        made = made.with_attr(name, value)
    return made


class _Emission:
    """A function under way; `_values[i]` is the Relay expression of the graph's expression `i`."""

    def __init__(
        self,
        graph: Graph,
        regions: Mapping[str, ir.GlobalVar],
        workspaces: Mapping[str, int],
        *,
        is_region: bool = False,
    ) -> None:
        self._graph = graph
        self._regions = regions
        self._workspaces = workspaces
        self._is_region = is_region
        self.params: list[relay.Var] = []
        self._values: list[relay.Expr] = []
        for expr in graph.exprs:
            self._values.append(self._written(expr))

    def structure(self, structure: Structure) -> relay.Expr:
        """The values of a structure, tuples joined."""
        return joined(structure, self._values, relay.Tuple)

    def _written(self, expr: Expr) -> relay.Expr:
        args = [self._values[arg] for arg in expr.args]
        if expr.op == INPUT:
            return self._parameter(expr)
        if expr.op == CONSTANT:
            return expr.origin if expr.origin is not None else relay.const(expr.array, expr.dtype)
        if expr.op == PART:
            return relay.TupleGetItem(args[0], expr.attrs.of(Indexed).index)
        if expr.op == REGION:
            call = expr.attrs.of(RegionCall)
            made = relay.Call(self._regions[call.symbol], args)
            is_tuple = call.symbol in self._workspaces and not call.further
            return relay.TupleGetItem(made, 0) if is_tuple else made
        if expr.origin is not None:
            return _in_fp32(expr, args) if _reduces_in_fp16(expr) else _again(expr.origin, args)
        if expr.op == "nn.conv2d":
            return self._conv2d(expr)
        if expr.op == "matmul":
            return self._matmul(expr)
        if expr.op == "permute_dims":
            return self._permuted(expr.args[0], expr.attrs.of(Permutation).axes)
        return _WRITERS.get(expr.op, _elementwise)(expr, args)

    def _parameter(self, expr: Expr) -> relay.Var:
        if expr.origin is not None:
            return expr.origin
        type_ = relay.TensorType(expr.static_shape, expr.dtype)
        self.params.append(relay.var(f"p{len(self.params)}", type_annotation=type_))
        return self.params[-1]

    def _permuted(self, index: int, axes: Any) -> relay.Expr:
        """Return an expression with its dimensions in the order `axes`; a constant is permuted at
        once.
        """
        expr = self._graph[index]
        if expr.op == CONSTANT and expr.array is not None:
            return relay.const(np.ascontiguousarray(expr.array.transpose(axes)), expr.dtype)
        return relay.transpose(self._values[index], list(axes))

    def _conv2d(self, expr: Expr) -> relay.Expr:
        """Write a convolution.

        TVM computes NHWC with weights in HWIO, or in HWOI with one filter for each channel. Other
        groups it computes in NCHW.
        """
        attrs = expr.attrs.of(Convolution)
        x, weight = expr.args
        image, kernel = self._values[x], self._values[weight]
        extents = dict(zip(attrs.kernel_layout, self._graph[weight].static_shape, strict=True))
        groups, channels = attrs.groups, self._graph[x].static_shape[-1]
        is_plain = groups == 1 or groups == channels == extents["O"]
        if not self._is_region and (groups == 1 or not is_plain):
            layout = "HWIO" if is_plain else "OIHW"
            order = tuple(attrs.kernel_layout.index(letter) for letter in layout)
            kernel = self._permuted(weight, order)
            attrs = replace(attrs, kernel_layout=layout)
        is_turned = not self._is_region and not is_plain
        if is_turned:
            image = relay.transpose(image, _TO_NCHW)
            attrs = replace(attrs, data_layout="NCHW")
        # TVM accumulates in the output's type.
        summed = expr.dtype if groups == 1 else "float32"
        made = relay.nn.conv2d(
            image,
            kernel,
            **replace(attrs, out_layout="").named(),
            channels=extents["O"],
            kernel_size=[extents["H"], extents["W"]],
            out_dtype=summed,
        )
        if is_turned:
            made = relay.transpose(made, _TO_NHWC)
        return made if summed == expr.dtype else relay.cast(made, expr.dtype)

    def _matmul(self, expr: Expr) -> relay.Expr:
        """Write a matmul; TVM takes B transposed if it is one matrix."""
        a, b = expr.args
        rank, right = len(self._graph[b].shape or ()), self._graph[b]
        columns = (*range(rank - 2), rank - 1, rank - 2)
        is_transposed = right.attrs == Permutation(columns)
        left, right_value = self._values[a], self._values[right.args[0] if is_transposed else b]
        if rank > 2:
            return relay.nn.batch_matmul(left, right_value, expr.dtype, False, is_transposed)
        if is_transposed:
            return relay.nn.dense(left, right_value, out_dtype=expr.dtype)
        return relay.nn.matmul(left, right_value, None, expr.dtype, False, False)


def _again(origin: relay.Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    """The author's expression on new operands."""
    values = iter(args)
    if isinstance(origin, relay.Call):
        op = origin.op
        if isinstance(op, relay.Function):
            op = _substituted(op, values)
        elif not is_called_whole(op):
            op = next(values)
        operands = [_of_type(arg.checked_type, values) for arg in origin.args]
        # TVM infers the types that an operator depends on; a function's types are given.
        type_args = [] if isinstance(op, ir.Op) else origin.type_args
        made = relay.Call(op, operands, origin.attrs, type_args, origin.span)
        is_norm = isinstance(op, ir.Op) and op.name == "nn.batch_norm"
        return relay.TupleGetItem(made, 0) if is_norm else made
    if isinstance(origin, relay.If):
        condition = next(values)
        return relay.If(condition, *_substituted(branches(origin), values).fields)
    if isinstance(origin, REFERENCES):
        made = [_of_type(field.checked_type, values) for field in fields(origin)]
        return type(origin)(*made)
    return _substituted(origin, values)


def _of_type(type_: object, values: Iterator[relay.Expr]) -> relay.Expr:
    """Return the next value, or join the next values if the type is a tuple."""
    if isinstance(type_, ir.TupleType):
        return relay.Tuple([_of_type(field, values) for field in type_.fields])
    return next(values)


def _substituted(expr: relay.Expr, values: Iterator[relay.Expr]) -> relay.Expr:
    """`expr` with values in the place of the variables that are free in it."""
    names = {var: _of_type(var.checked_type, values) for var in free_variables(expr)}
    # In a bare function, TVM would turn the new values' variables into parameters, so it is
    # wrapped.
    return relay.bind(relay.Tuple([expr]), names).fields[0]


def _reduces_in_fp16(expr: Expr) -> bool:
    return expr.op == "nn.layer_norm" and expr.dtype == "float16"


def _in_fp32(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    """Compute an operator in FP32 that TVM expands in its operands' type."""
    wide = [relay.cast(arg, "float32") for arg in args]
    return relay.cast(_again(expr.origin, wide), expr.dtype)


def _elementwise(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    return relay.Call(ir.Op.get(elementwise_name(expr)), list(args))


def _softplus(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    """Write softplus, which Relay lacks, such that exp cannot overflow."""
    (x,) = args
    tail = relay.exp(relay.negative(relay.abs(x)))
    return relay.nn.relu(x) + relay.log(tail + relay.const(1.0, expr.dtype))


def _pad(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    attrs = expr.attrs.of(Pad)
    return relay.nn.pad(*args, attrs.widths, relay.const(attrs.value, expr.dtype), attrs.mode)


def _sliced(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    attrs = expr.attrs.of(Slice)
    return relay.strided_slice(*args, [attrs.begin], [attrs.end], axes=[attrs.axis])


def _mean_of_image(expr: Expr, args: Sequence[relay.Expr]) -> relay.Expr:
    """Write a mean: TVM fuses casts into means."""
    return relay.mean(*args, axis=[1, 2], keepdims=expr.attrs.of(Reduce).keepdims)


def _along(expr: Expr) -> int | None:
    return expr.attrs.of(Axis).axis


_WRITERS: Mapping[str, Writer] = {
    **shared_writers(relay),
    "astype": lambda expr, args: relay.cast(*args, expr.dtype),
    "nn.softplus": _softplus,
    "image_mean": _mean_of_image,
    "concat": lambda expr, args: relay.concatenate(relay.Tuple(list(args)), _along(expr)),
    "stack": lambda expr, args: relay.stack(relay.Tuple(list(args)), _along(expr)),
    "nn.pad": _pad,
    "strided_slice": _sliced,
}
