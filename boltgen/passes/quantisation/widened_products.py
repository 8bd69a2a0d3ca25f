"""Multiply the bytes that a model widens for a product of integers.

    (int32(a) - z) (int32(b) - y)  ->  a b' - z sum(b')          b' = b - y, a constant of int8

ONNX's MatMulInteger is written in int32, and ConvInteger in FP64, which has all sums of bytes: the
sums of a kernel of integers are the same. z may be computed, as DynamicQuantizeLinear does; what it
adds to the sums is computed from the sums of B's columns. A scale that multiplies the sums becomes
a row of a dequantisation: kernels load rows, and no computed single number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.graph.attributes import Axis, Convolution
from boltgen.graph.facts import BYTES, only_reader
from boltgen.graph.graph import Array, Expr, Graph, GraphBuilder, rewritten
from boltgen.ir.dtypes import DType
from boltgen.passes.quantisation.products_of_bytes import (
    KeptError,
    add_sums,
    along,
    channels,
    more_channels,
    of_channels,
    problem_of,
)
from boltgen.passes.quantisation.sink_dequantise import DEQUANTISE
from boltgen.passes.regions.anchor import CONV2D, MATMUL
from boltgen.passes.weights.dequantised import constant
from boltgen.problems.workload import Workload

_WIDE = frozenset({"int32", "float64"})
_INT32 = DType.I32.value
_CASTS = frozenset({_INT32, "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product of widened bytes: of the bytes `a` and the constant `b`, of int8.

    Its sums take the place of `root`: the product, or its cast to integers. The zero point is
    `known`, or the value `zero` of one element.
    """

    index: int
    root: int
    a: int
    b: Array
    zero: int | None
    known: int
    sums: Array
    axis: int
    more: int


def with_narrow_products(
    graph: Graph,
    rejects: Callable[[Workload], str | None],
    refuse: Callable[[Expr, str], None],
) -> Graph:
    """Return `graph` with products of bytes in the place of products of widened bytes.

    A product stays where a reason `rejects` it, and `refuse` is told why.
    """
    found: dict[int, _Product] = {}
    for index, expr in enumerate(graph.exprs):
        if expr.op not in {MATMUL, CONV2D} or expr.dtype not in _WIDE:
            continue
        source = _widened(graph, expr.args[0])
        if source is None:
            continue
        try:
            product = _matched(graph, index, *source, rejects)
        except KeptError as error:
            refuse(expr, f"it multiplies widened bytes, and stays with TVM: {error}")
            continue
        found[product.root] = product
    scaled = {reader: each for each in found.values() for reader in _scaling(graph, each)}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        if index in found:
            sums = _written(graph, found[index], builder, names)
            names[index] = builder.in_dtype(sums, graph[index].dtype)
        else:
            names[index] = _in_rows(graph, index, scaled[index], builder, names)

    return rewritten(graph, found.keys() | scaled.keys(), write)


def _widened(graph: Graph, index: int) -> tuple[int, int | None] | None:
    """Return the bytes that an operand widens and what it subtracts of them, or None."""
    expr, zero = graph[index], None
    if expr.op == "subtract":
        index, zero = expr.args
        expr = graph[index]
    if expr.op != "astype" or graph[expr.args[0]].dtype not in BYTES:
        return None
    return expr.args[0], zero


def _matched(
    graph: Graph,
    index: int,
    a: int,
    zero: int | None,
    rejects: Callable[[Workload], str | None],
) -> _Product:
    """Return the product of bytes at `index`.

    Raises:
        KeptError: no kernel of integers computes it.
    """
    expr, root = graph[index], index
    if not (expr.is_static and graph[a].is_static):
        raise KeptError("its shapes are dynamic, and kernels of integers have fixed ones")
    if expr.dtype != _INT32:
        reader = _cast_of(graph, index)
        if reader is None:
            raise KeptError(f"it is of {expr.dtype}, and no cast to integers reads it alone")
        root = reader
    known = 0 if zero is None else _number(graph, zero)
    if known is None and zero is not None:
        if not _is_single(graph[zero]):
            raise KeptError("the activation has several zero points")
        if not _is_whole(graph, zero):
            raise KeptError("its zero point may be no whole number")
    weight = constant(graph, expr.args[1])
    if weight is None:
        raise KeptError("its right operand is no constant")
    if not np.isfinite(weight).all() or (weight != np.rint(weight)).any():
        raise KeptError("a weight is no whole number")
    whole = weight.astype(np.int64)
    if whole.min(initial=0) < -128 or whole.max(initial=0) > 127:
        raise KeptError("a weight's distance from its zero point needs nine bits or more")
    channel, axis, reduced = channels(graph, expr)
    more = more_channels(graph, expr)
    attrs = expr.attrs
    if known is None and isinstance(attrs, Convolution) and any(attrs.padding):
        raise KeptError("its padding is a zero point that the model computes")
    problem = problem_of(graph, expr, DType(graph[a].dtype), more, known or 0)
    if (reason := rejects(Workload.of(problem))) is not None:
        raise KeptError(reason)
    sums = of_channels(whole, channel).sum(axis=1, dtype=np.int64)
    if 255 * (128 * reduced + int(np.abs(sums).max(initial=0))) > DType.I32.largest:
        raise KeptError("its sums and the correction of zero points may exceed int32")
    return _Product(
        index=index,
        root=root,
        a=a,
        b=whole.astype(np.int8),
        zero=zero,
        known=known or 0,
        sums=sums.astype(np.int32),
        axis=axis,
        more=more,
    )


def _cast_of(graph: Graph, index: int) -> int | None:
    """Return the operator that casts a float product to integers, or None.

    The importer may put a 0 before it, in the place of what is not finite.

    Sums of bytes are finite; TVM's importer casts them to int64, and the rest modulo 2^32.
    """
    readers, last = set(graph.consumers[index]), index
    chosen = [reader for reader in readers if graph[reader].op == "where"]
    if len(readers) == 2 and chosen and graph[chosen[0]].args[2] == index:
        (guard,) = readers - set(chosen)
        negated = only_reader(graph, guard) if graph[guard].op == "isfinite" else None
        if negated is None or graph[negated].op != "logical_not":
            return None
        last = chosen[0]
        if graph[last].args[0] != negated:
            return None
    reader = only_reader(graph, last)
    if reader is None or graph[reader].op != "astype" or graph[reader].dtype not in _CASTS:
        return None
    return reader


def _is_single(expr: Expr) -> bool:
    return expr.shape is not None and expr.is_static and prod(expr.static_shape) == 1


def _number(graph: Graph, index: int) -> int | None:
    """Return the only number of a constant of whole numbers, or None."""
    array = constant(graph, index)
    if array is None or array.size == 0 or (array != array.reshape(-1)[0]).any():
        return None
    number = float(array.reshape(-1)[0])
    return int(number) if number.is_integer() else None


def _is_whole(graph: Graph, index: int) -> bool:
    """Return whether a computed value is an integer, or was one before a cast."""
    expr = graph[index]
    while expr.op in {"astype", "reshape"} and not expr.dtype.startswith(("int", "uint")):
        expr = graph[expr.args[0]]
    return expr.dtype.startswith(("int", "uint"))


def _scaling(graph: Graph, product: _Product) -> list[int]:
    """Return the operator that multiplies a product's sums, as floats, by a scale."""
    cast = only_reader(graph, product.root)
    if cast is None or graph[cast].op != "astype" or graph[cast].dtype != DType.F32.value:
        return []
    reader = only_reader(graph, cast)
    if reader is None or graph[reader].op != "multiply" or graph[reader].shape != graph[cast].shape:
        return []
    (other,) = [arg for arg in graph[reader].args if arg != cast] or [cast]
    shape = graph[product.index].static_shape
    is_row = product.axis == len(shape) - 1 and graph[other].is_static
    is_row = is_row and graph[other].static_shape[-1:] == shape[-1:]
    is_row = is_row and prod(graph[other].static_shape) == shape[-1]
    return [reader] if _is_single(graph[other]) or is_row else []


def _in_rows(
    graph: Graph, index: int, product: _Product, builder: GraphBuilder, names: dict[int, int]
) -> int:
    """Write a multiplication of sums by a scale as a dequantisation by a scale for each channel."""
    expr, shape = graph[index], graph[product.index].static_shape
    (cast,) = (arg for arg in expr.args if graph[arg].args == (product.root,))
    (other,) = (arg for arg in expr.args if arg != cast)
    factor, number = 1.0, other
    if graph[other].op == "multiply" and _is_single(graph[other]):
        for left, right in (graph[other].args, graph[other].args[::-1]):
            if (known := graph[right].scalar) is not None:
                factor, number = known, left
    scale = names[number]
    if _is_single(graph[other]):
        ones = builder.constant(np.full(shape[product.axis], factor, np.float32))
        scale = builder.elementwise("multiply", builder.reshape(scale, (1,)), ones)
    else:
        scale = builder.in_shape(scale, (shape[product.axis],))
    args = (names[product.root], scale, builder.constant(np.zeros((), np.int8)))
    return builder.operator(DEQUANTISE, args, expr.static_shape, expr.dtype, Axis(product.axis))


def _written(graph: Graph, product: _Product, builder: GraphBuilder, names: dict[int, int]) -> int:
    """Write a product of bytes, and return its corrected sums."""
    expr = graph[product.index]
    shape = expr.static_shape
    is_known = product.zero is None or _number(graph, product.zero) is not None
    sums = add_sums(builder, expr, names[product.a], product.b, product.more, product.known)
    if is_known:
        offset = -product.known * product.sums
        if not offset.any():
            return sums
        return builder.elementwise(
            "add", sums, builder.constant(along(offset, shape, product.axis))
        )
    assert product.zero is not None
    zero = names[product.zero]
    if builder[zero].dtype != _INT32:
        zero = builder.astype(zero, _INT32)
    factors = along(-product.sums, shape, product.axis)
    one = builder.reshape(zero, (1,) * factors.ndim)
    added = builder.elementwise("multiply", builder.constant(factors), one)
    return builder.elementwise("add", sums, added)
