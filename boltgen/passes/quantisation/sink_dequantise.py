"""Move dequantisations behind operators that only move or compare elements.

    view(dequantise(q)) -> dequantise(view(q))        a maximum of pixels too: scales are positive
    concat(dequantise(q), ...) -> dequantise(concat(q, ...))      with one scale and zero point
    quantise(dequantise(q)) -> q                      with one scale, zero point and type
    int8 around -128 -> uint8 around 0                and uint8 around 128 -> int8 around 0

So the operators move bytes, and integers stay integers. Zero points of 0 need no correction in a
product, and the zeros around an image are zeros. Source of the first two: NVIDIA, TensorRT
documentation, "Working with quantized types", where Q and DQ move over operators that commute.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boltgen.errors import ModelImportError
from boltgen.graph.attributes import Axis
from boltgen.graph.facts import VIEWS
from boltgen.graph.graph import CONSTANT, Array, Expr, Graph, GraphBuilder, written_anew
from boltgen.ir.dtypes import FLOAT8
from boltgen.ir.quantisation import axis_fault, scale_fault, zero_point_fault
from boltgen.passes.weights.dequantised import constant

QUANTISE, DEQUANTISE = "quantize", "dequantize"
# Operators of one operand that commute with a scale for the whole tensor.
COMMUTING = VIEWS | {"nn.max_pool2d"}
_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
# The other type with the same numbers, by type and zero point: both shifts are of 128.
_OTHERS = {("int8", -128.0): "uint8", ("uint8", 128.0): "int8"}


def with_late_dequantisations(graph: Graph) -> Graph:
    """Return `graph` with dequantisations where integers end, and zero points of 0 if possible.

    Raises:
        ModelImportError: a scale, a zero point or an axis means nothing.
    """
    for index in (*graph.operators.get(QUANTISE, ()), *graph.operators.get(DEQUANTISE, ())):
        _check(graph, graph[index])
    if DEQUANTISE not in graph.operators:
        return graph
    return _around_zero(written_anew(graph, _moved))


def _check(graph: Graph, expr: Expr) -> None:
    """Check the constants of a quantisation.

    Raises:
        ModelImportError: a scale is not positive and finite, a zero point is not of the integers'
            type, or the axis does not exist or has other extents.
    """
    x, scale, zero = (graph[arg] for arg in expr.args)
    whole = expr.dtype if expr.op == QUANTISE else x.dtype
    scales, zeros = _elements(scale), _elements(zero)
    faults: list[tuple[str, str] | None] = []
    fault = None if scales is None else scale_fault(scales)
    # An author may give a weight any scale.
    if fault is not None and constant(graph, expr.args[0]) is None:
        faults.append(fault)
    if zeros is not None and whole in _INTEGERS:
        faults.append(zero_point_fault(zeros, whole))
    counts = {"scales": scales, "zero points": zeros}
    several = {name: a.size for name, a in counts.items() if a is not None and a.size > 1}
    if several and expr.shape is not None:
        axis, rank = expr.attrs.of(Axis).axis or 0, len(expr.shape)
        extent = expr.shape[axis] if -rank <= axis < rank else None
        faults.append(axis_fault(axis, rank, several, extent if isinstance(extent, int) else None))
    for what, remedy in filter(None, faults):
        raise ModelImportError(f"{expr.op} of {x.op} {x.shape} to {expr.dtype}: {what}; {remedy}")


def _elements(expr: Expr) -> Array | None:
    """Return a constant's elements, or None."""
    return np.asarray(expr.scalar) if expr.array is None and expr.scalar is not None else expr.array


def _moved(_: int, expr: Expr, builder: GraphBuilder) -> Expr | int:
    """Return what takes the place of an operator behind a dequantisation; else the operator."""
    if not expr.args or builder[expr.args[0]].op != DEQUANTISE:
        return expr
    x, scale, zero = builder[expr.args[0]].args
    step = builder[scale].scalar
    if step is None or not step > 0.0 or builder[zero].scalar is None:
        return expr
    if expr.op == QUANTISE:
        is_same = [builder[at].scalar for at in expr.args[1:]] == [
            builder[at].scalar for at in (scale, zero)
        ]
        return x if is_same and expr.dtype == builder[x].dtype else expr
    if expr.op == "concat":
        integers = _alike(expr, builder)
    elif expr.op == "nn.max_pool2d" and builder[x].dtype in FLOAT8:
        integers = None  # nothing compares floats of 8 bits
    elif expr.op in COMMUTING and builder[x].op != CONSTANT:
        integers = (x,)
    else:
        integers = None
    if integers is None:
        return expr
    origin = expr.origin if expr.op != "concat" else None  # the author's call reads a tuple
    moved = replace(expr, args=integers, dtype=builder[x].dtype, observed=None, origin=origin)
    made = builder.add(moved)
    attrs = Axis(0)
    return builder.operator(DEQUANTISE, (made, scale, zero), expr.shape or (), expr.dtype, attrs)


def _alike(expr: Expr, builder: GraphBuilder) -> tuple[int, ...] | None:
    """Return the integers that a concatenation's operands dequantise by equal numbers, or None."""
    parts = [builder[arg] for arg in expr.args]
    if any(part.op != DEQUANTISE for part in parts):
        return None
    numbers = {
        (builder[x].dtype, builder[scale].scalar, builder[zero].scalar)
        for x, scale, zero in (part.args for part in parts)
    }
    return tuple(part.args[0] for part in parts) if len(numbers) == 1 else None


def _around_zero(graph: Graph) -> Graph:
    """Return `graph` with the type of each quantisation whose zero point is 0 in it."""
    found: dict[int, str] = {}
    for index in graph.operators.get(QUANTISE, ()):
        expr = graph[index]
        wanted = _OTHERS.get((expr.dtype, graph[expr.args[2]].scalar or 0.0))
        members = _readers(graph, index) if wanted else None
        if wanted and members is not None:
            found.update(dict.fromkeys(members, wanted))
    if not found:
        return graph

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr:
        dtype = found.get(index)
        if dtype is not None and expr.op in {QUANTISE, DEQUANTISE}:
            zero = builder.constant(np.zeros((), dtype))
            expr = replace(expr, args=(*expr.args[:2], zero), origin=None)
        if dtype is not None and expr.op != DEQUANTISE:
            expr = replace(expr, dtype=dtype)
        return expr

    return written_anew(graph, write)


def _readers(graph: Graph, index: int) -> list[int] | None:
    """Return a quantisation, the views of its result and their dequantisations; None if others
    read the integers.
    """
    found, pending = [index], [index]
    while pending:
        at = pending.pop()
        if at in graph.escaping or not graph.consumers[at]:
            return None
        for reader in graph.consumers[at]:
            expr = graph[reader]
            is_number = expr.op == DEQUANTISE and expr.args[0] == at
            if is_number and graph[expr.args[2]].scalar == graph[graph[index].args[2]].scalar:
                found.append(reader)
            elif expr.op in COMMUTING:
                found.append(reader)
                pending.append(reader)
            else:
                return None
    return found
