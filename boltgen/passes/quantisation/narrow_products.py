"""Multiply the floats of 8 bits of a model that dequantises them.

    DQ(x, s) DQ(w, t)  ->  dequantise(x w, s t)

Both are of one type, and x has one scale. The weight is a constant with one scale, or one for each
column. Products of 8-bit floats are scaled after they are summed, so the sums differ from the
author's by the rounding of the instruction alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Axis, Permutation
from boltgen.graph.graph import Array, Expr, Graph, GraphBuilder, rewritten
from boltgen.ir.dtypes import FLOAT8, DType, Layout
from boltgen.passes.quantisation.products_of_bytes import KeptError
from boltgen.passes.quantisation.sink_dequantise import DEQUANTISE
from boltgen.passes.regions.anchor import CONV2D, MATMUL
from boltgen.passes.weights.dequantised import constant
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of 8-bit floats: `a` is the activation, `b` (K, N) the constant."""

    a: int
    b: Array
    scale: Array


def with_products_of_float8(
    graph: Graph,
    rejects: Callable[[Workload], str | None],
    refuse: Callable[[Expr, str], None],
    slower: Callable[[Problem], str | None] = lambda _: None,
) -> Graph:
    """Return `graph` with products of 8-bit floats, where no reason `rejects` them.

    `with_integer_products` explains the arguments.
    """
    found: dict[int, _Product] = {}
    for index, expr in enumerate(graph.exprs):
        if expr.op not in {MATMUL, CONV2D} or not _is_narrow(graph, expr.args[0]):
            continue
        try:
            found[index] = _matched(graph, expr, rejects, slower)
        except KeptError as error:
            refuse(expr, f"its activation is quantised, and it multiplies wider floats: {error}")

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        expr, product = graph[index], found[index]
        wide, last = DType.F32.value, Axis(len(expr.static_shape) - 1)
        sums = builder.matmul(names[product.a], builder.constant(product.b), wide)
        zero = builder.constant(np.zeros((), np.int8))
        args = (sums, builder.constant(product.scale), zero)
        made = builder.operator(DEQUANTISE, args, expr.static_shape, wide, last)
        names[index] = builder.in_dtype(made, expr.dtype)

    return rewritten(graph, found, write)


def _is_narrow(graph: Graph, index: int) -> bool:
    return graph[index].op == DEQUANTISE and graph[graph[index].args[0]].dtype in FLOAT8


def _matched(
    graph: Graph,
    expr: Expr,
    rejects: Callable[[Workload], str | None],
    slower: Callable[[Problem], str | None],
) -> _Product:
    """Return the product of 8-bit floats of an operator whose activation is dequantised.

    Raises:
        KeptError: no kernel computes it, or none as fast as one of wider floats.
    """
    if expr.op != MATMUL:
        raise KeptError("no kernel convolves images of 8-bit floats")
    x, scale, zero = graph[expr.args[0]].args
    step, dtype = graph[scale].scalar, graph[x].dtype
    if step is None or graph[zero].scalar != 0.0:
        raise KeptError("the activation has several scales, or a zero point")
    if not (expr.is_static and graph[x].is_static):
        raise KeptError("its shapes are dynamic, and kernels of 8-bit floats have fixed ones")
    numbers, scales = _weight(graph, expr.args[1])
    if numbers.dtype.name != dtype:
        raise KeptError(f"it multiplies {dtype} by {numbers.dtype.name}; kernels take one type")
    (k, n), rows = numbers.shape, prod(expr.static_shape[:-1])
    try:
        problem = Gemm(
            m=rows, n=n, k=k, b_layout=Layout.COLUMN, in_dtype=DType(dtype), out_dtype=DType.F32
        )
    except InvalidProblemError as error:
        raise KeptError(str(error)) from None
    if (reason := rejects(Workload.of(problem)) or slower(problem)) is not None:
        raise KeptError(reason)
    with np.errstate(over="ignore", under="ignore"):
        combined = np.float32(step) * scales.astype(np.float32)
    is_normal = np.isfinite(combined) & (np.abs(combined) >= DType.F32.smallest_normal)
    if not is_normal.all():
        raise KeptError(f"FP32 does not hold the scale {combined[~is_normal][0]:g} of its sums")
    return _Product(x, numbers, combined)


def _weight(graph: Graph, index: int) -> tuple[Array, Array]:
    """Return the numbers (K, N) of a weight, and its scale, or one for each column.

    Raises:
        KeptError: it is no dequantised constant of 8-bit floats with such scales.
    """
    expr, is_turned = graph[index], False
    if expr.op == "permute_dims" and expr.attrs.of(Permutation).axes == (1, 0):
        expr, is_turned = graph[expr.args[0]], True
    if expr.op != DEQUANTISE:
        raise KeptError("its right operand is no dequantised constant")
    numbers, scales, zeros = (constant(graph, arg) for arg in expr.args)
    if numbers is None or scales is None or zeros is None or numbers.dtype.name not in FLOAT8:
        raise KeptError("its right operand is no constant of 8-bit floats")
    if numbers.ndim != 2 or zeros.astype(np.float32).any():
        raise KeptError("its weight is no matrix, or has zero points")
    columns = 0 if is_turned else 1
    if scales.size > 1 and expr.attrs.of(Axis).at(2) != columns:
        raise KeptError("its weight has scales for rows of K, which no kernel takes")
    plain = scales.reshape(-1) if scales.size > 1 else scales.reshape(())
    return (numbers.T if is_turned else numbers), plain
