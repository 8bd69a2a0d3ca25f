"""Multiply integers instead of the floats that a model dequantises.

    DQ(x, s, z) DQ(w, t) + bias  ->  dequantise(x w + (bias / (s t) - z sum(w)), s t)

A product of a dequantised activation and a dequantised constant becomes a product of int8 or uint8
by int8, with sums of int32. What zero points and a bias of integers add to the sums of a column is
one integer, known at compile time. The sums are exact, so this is the author's product without its
rounding. Where only a ReLU stands between the product and a quantisation, both scales are one:

    quantise(relu(dequantise(sum, s t)), u)  ->  quantise(relu(dequantise(sum, s t / u)), 1)

s t and s t / u are rounded to FP32 each, as ONNX Runtime has them in QLinearMatMul and QLinearConv.
A product that no kernel of integers computes stays as it is: its weights are dequantised. So does a
product that takes longer in integers than in the run's precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boltgen.graph.attributes import Axis
from boltgen.graph.facts import BYTES, NARROWED, only_reader
from boltgen.graph.graph import Array, Expr, Graph, GraphBuilder, renamed, rewritten
from boltgen.ir.dtypes import FLOAT8, DType
from boltgen.ir.elementwise import BinaryOp
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.passes.quantisation.products_of_bytes import (
    KeptError,
    add_sums,
    along,
    channels,
    more_channels,
    of_channels,
    problem_of,
)
from boltgen.passes.quantisation.sink_dequantise import DEQUANTISE, QUANTISE
from boltgen.passes.regions.anchor import CONV2D, MATMUL
from boltgen.passes.weights.dequantised import Dequantised, dequantised
from boltgen.problems.graph_costs import GraphCosts, shown_us
from boltgen.problems.problem import Problem
from boltgen.problems.workload import Workload

# A bias is a whole number of steps if it is so far from one at most, relative to its size: it was
# rounded to FP32, and so was its scale.
_ROUNDED = 2.0**-21


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product that becomes one of integers: `a` is the activation, `b` the constant, of int8.

    The sums and the `offset` of each channel, times `scale`, one number or one for each channel,
    take the place of `root`: the product, or the bias that is added to it. `axis` is the result's
    axis of channels, `more` the channels that an image gets, and `border` the number around it:
    kernels put zeros there, and a zero point of another number is put there before.
    """

    index: int
    root: int
    a: int
    b: Array
    scale: Array
    offset: Array
    axis: int
    more: int
    border: int


def with_integer_products(
    graph: Graph,
    rejects: Callable[[Workload], str | None],
    refuse: Callable[[Expr, str], None],
    slower: Callable[[Problem], str | None] = lambda _: None,
) -> Graph:
    """Return `graph` with products of integers, where no reason `rejects` them.

    `slower` says that a product takes longer in integers than in floats, and how long; it returns
    None if it does not. `refuse` is told why a product of quantised tensors stays one of floats.
    """
    found: dict[int, _Product] = {}
    stepped: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        if expr.op not in {MATMUL, CONV2D} or graph[expr.args[0]].op != DEQUANTISE:
            continue
        if graph[graph[expr.args[0]].args[0]].dtype in FLOAT8:
            continue  # for `narrow_products`
        try:
            product = _matched(graph, index, rejects, slower)
        except KeptError as error:
            refuse(expr, f"its activation is quantised, and it multiplies floats: {error}")
            continue
        product, readers = _requantised(graph, product)
        stepped.update(readers)
        found[product.root] = product
    dropped = {each.index for each in found.values() if each.index != each.root}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        own = renamed(graph[index], names) if index not in found else graph[index]
        if index in found:
            observed = None if index in stepped else own.observed
            names[index] = _written(graph, found[index], observed, builder, names)
        elif own.op == QUANTISE:
            one = builder.constant(np.float32(1.0).reshape(()))
            args = (own.args[0], one, own.args[2])
            names[index] = builder.add(replace(own, args=args, origin=None))
        else:
            names[index] = builder.add(replace(own, observed=None))

    return rewritten(graph, found.keys() | stepped, write, dropped)


def slower_by(
    costs: GraphCosts | None, precision: DType, accumulate: DType
) -> Callable[[Problem], str | None]:
    """Return the function that compares a product of bytes with one of `precision`, by `costs`.

    Both store their results in `precision`. What quantises an activation, or dequantises it, is
    most often a part of the kernel before, and has no time here. Without `costs` nothing is slower.
    """

    def slower(problem: Problem) -> str | None:
        if costs is None:
            return None
        whole: Any = problem
        floats = replace(whole, in_dtype=precision, acc_dtype=accumulate, out_dtype=precision)
        builder = ElementwiseBuilder(whole=problem.in_dtype.is_whole)
        sums = builder.cast(0, DType.F32) if problem.in_dtype.is_whole else 0
        builder.binary(BinaryOp.MULTIPLY, sums, builder.scalar(2.0**-8))
        integers = Workload.of(replace(whole, out_dtype=precision), builder.build())
        found = costs.kernels_us([integers, Workload.of(floats)])
        whole_us, floats_us = found.times_us
        if whole_us <= floats_us:
            return None
        return (
            f"it takes {shown_us(whole_us)} in {problem.in_dtype.value} and {shown_us(floats_us)} "
            f"in {precision.value} ({found.origin})"
        )

    return slower


def _matched(
    graph: Graph,
    index: int,
    rejects: Callable[[Workload], str | None],
    slower: Callable[[Problem], str | None],
) -> _Product:
    """Return the product of integers at `index`, whose activation is dequantised.

    Raises:
        KeptError: no kernel of integers computes it, or none as fast as one of floats.
    """
    expr = graph[index]
    x, scale, zero = graph[expr.args[0]].args
    if graph[x].dtype not in BYTES or expr.dtype not in NARROWED:
        types = f"{graph[x].dtype} to {expr.dtype}"
        raise KeptError(f"kernels multiply int8 and uint8 to float16 and float32, and not {types}")
    if not (expr.is_static and graph[x].is_static and graph[expr.args[1]].is_static):
        raise KeptError("its shapes are dynamic, and kernels of integers have fixed ones")
    known = dequantised(graph, expr.args[1])
    if known is None:
        raise KeptError("its right operand is no constant of whole numbers and scales")
    step, middle = graph[scale].scalar, graph[zero].scalar
    if step is None or middle is None:
        raise KeptError("the activation has a scale or zero point for each channel")
    channel, axis, reduced = channels(graph, expr)
    more = more_channels(graph, expr)
    problem = problem_of(graph, expr, DType(graph[x].dtype), more, int(middle))
    if problem.matrix[1] == 1:
        raise KeptError("it has one column, which takes as long to read as floats")
    if (reason := rejects(Workload.of(problem)) or slower(problem)) is not None:
        raise KeptError(reason)
    numbers = _around_zero(known)
    scales = of_channels(np.broadcast_to(known.scales, numbers.shape), channel)
    if (scales != scales[:, :1]).any():
        raise KeptError("its weight has scales for parts of K, which no kernel of integers takes")
    with np.errstate(over="ignore", under="ignore"):
        combined = np.float32(step) * scales[:, 0].astype(np.float32)
    is_normal = np.isfinite(combined) & (np.abs(combined) >= DType.F32.smallest_normal)
    if not is_normal.all():
        raise KeptError(
            f"the scale of a channel's sums is {combined[~is_normal][0]:g}, which FP32 does not "
            "hold as a normal number"
        )
    sums = of_channels(numbers, channel).sum(axis=1, dtype=np.int64)
    product = _Product(
        index=index,
        root=index,
        a=x,
        b=numbers.astype(np.int8),
        scale=_plain(combined),
        offset=-int(middle) * sums,
        axis=axis,
        more=more,
        border=int(middle),
    )
    return _with_bias(graph, product, reduced)


def _around_zero(known: Dequantised) -> Array:
    """Return the distances of a weight's numbers from their zero points, which int8 holds.

    Raises:
        KeptError: int8 does not hold one.
    """
    # A difference of int64 or uint64 may wrap: their ends are compared as integers of any size.
    both = (known.numbers, known.zeros)
    ends = [int(end) for each in both for end in (each.min(initial=0), each.max(initial=0))]
    if max(map(abs, ends)) < 2**30:
        distances = known.numbers.astype(np.int32) - known.zeros.astype(np.int32)
        if distances.min(initial=0) >= -128 and distances.max(initial=0) <= 127:
            return distances
    raise KeptError("a weight's distance from its zero point needs nine bits or more")


def _plain(array: Array) -> Array:
    """Return a number for each channel, or one if all are equal."""
    return array[0].reshape(()) if (array == array[0]).all() else array


def _with_bias(graph: Graph, product: _Product, reduced: int) -> _Product:
    """Return `product` with the bias that is added to it, if that is a whole number of steps.

    Raises:
        KeptError: the offset of the sums, without any bias, may exceed 32 bits.
    """
    largest = 255 * 128 * reduced
    if largest + np.abs(product.offset).max() > DType.I32.largest:
        raise KeptError("its sums and the correction of zero points may exceed int32")
    reader = only_reader(graph, product.index)
    if reader is None or graph[reader].op != "add":
        return product
    (other,) = [arg for arg in graph[reader].args if arg != product.index] or [product.index]
    bias = _bias(graph, other, graph[product.index], product.axis)
    if bias is None or graph[reader].shape != graph[product.index].shape:
        return product
    steps = bias.astype(np.float64) / product.scale
    if not np.isfinite(steps).all():
        return product
    whole = np.rint(steps)
    is_whole = np.abs(steps - whole) <= _ROUNDED * np.maximum(np.abs(whole), 1.0)
    if not (is_whole & (np.abs(whole) <= DType.I32.largest)).all():
        return product
    offset = product.offset + whole.astype(np.int64)
    if largest + np.abs(offset).max() > DType.I32.largest:
        return product
    return replace(product, root=reader, offset=offset)


def _bias(graph: Graph, index: int, product: Expr, axis: int) -> Array | None:
    """Return the elements of a constant that has one for each channel, or one for all."""
    while graph[index].op == "reshape" and graph[index].is_static:
        shape = graph[index].static_shape
        inner = graph[index].args[0]
        if graph[inner].array is not None:
            array = graph[inner].array
            assert array is not None
            return _along(array.reshape(shape), product, axis)
        index = inner
    array = graph[index].array
    return None if array is None else _along(array, product, axis)


def _along(array: Array, product: Expr, axis: int) -> Array | None:
    shape = product.static_shape
    full = (1,) * (len(shape) - array.ndim) + array.shape
    wanted = [1] * len(shape)
    wanted[axis] = shape[axis]
    if array.dtype.kind != "f" or (array.size != 1 and list(full) != wanted):
        return None
    return array.reshape(-1) if array.size > 1 else array.reshape(())


def _requantised(graph: Graph, product: _Product) -> tuple[_Product, list[int]]:
    """Return `product` in the steps of the quantisation that reads it, and what changes with it.

    The root and the ReLUs behind it make steps, which nobody observed; the quantisation's step is
    one.
    """
    chain = [product.root]
    while (reader := only_reader(graph, chain[-1])) is not None and graph[reader].op == "nn.relu":
        chain.append(reader)
    if reader is None or graph[reader].op != QUANTISE or graph[reader].args[0] != chain[-1]:
        return product, []
    step = graph[graph[reader].args[1]].scalar
    if step is None:
        return product, []
    with np.errstate(over="ignore", under="ignore"):
        scale = (product.scale / np.float32(step)).astype(np.float32)
    if not np.isfinite(scale).all() or (scale < DType.F32.smallest_normal).any():
        return product, []
    return replace(product, scale=scale), [*chain, reader]


def _written(
    graph: Graph,
    product: _Product,
    observed: tuple[float, float] | None,
    builder: GraphBuilder,
    names: dict[int, int],
) -> int:
    """Write a product of integers, and return what takes the place of its root."""
    expr, root = graph[product.index], graph[product.root]
    shape = expr.static_shape
    sums = add_sums(builder, expr, names[product.a], product.b, product.more, product.border)
    if product.offset.any():
        whole = along(product.offset.astype(np.int32), shape, product.axis)
        sums = builder.elementwise("add", sums, builder.constant(whole))
    numbers = (builder.constant(product.scale), builder.constant(np.zeros((), np.int8)))
    wide = DType.F32.value
    made = builder.operator(DEQUANTISE, (sums, *numbers), shape, wide, Axis(product.axis))
    builder.exprs[made] = replace(builder[made], observed=observed)
    return builder.in_dtype(made, root.dtype)
