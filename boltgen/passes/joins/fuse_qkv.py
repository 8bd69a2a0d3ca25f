"""QKV fusion: matmuls of the same tensor become one, their columns side by side. For both IRs.

    q = x Wq + bq    k = x Wk + bk    v = x Wv + bv
    qkv = x [Wq Wk Wv] + [bq bk bv]    q, k, v = columns of qkv

One launch reads x once, and has the columns to fill a GPU that a short sequence leaves idle. Only
results that TVM passes over in any case, or attention reads by strides, are joined: they are cut
out in the same pass over memory. TVM's own CombineParallelMatmul joins by shapes alone; here times
decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from boltgen.graph.facts import readers_through
from boltgen.graph.graph import CONSTANT, Array, Choice, Graph, GraphBuilder, Noted, rewritten
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import Accumulator, Binary, BinaryOp, ElementwiseGraph, Load, LoadKind
from boltgen.passes.joins.fuse_head_operators import on_heads
from boltgen.passes.regions.products import Product, find_products
from boltgen.passes.regions.times import compared
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.workload import Layer, Workload

_VIEW = "reshape"
_WHOLE_ROWS = "its readers take whole rows, so that slicing would be a pass over memory"
_MOVES = frozenset({"strided_slice", "permute_dims"})


def join_siblings(graph: Graph, costs: GraphCosts, summed: DType = DType.F32) -> Noted:
    """`graph` with products of one tensor joined where `costs` say that it is faster.

    Products are summed in `summed`.
    """
    groups: dict[Hashable, list[Product]] = {}
    alone: list[tuple[Product, str]] = []
    products = find_products(graph, summed)
    for product in products:
        obstacle = _obstacle(graph, product)
        if obstacle is None:
            layout = product.problem(graph).gemm.b_layout
            key = same_value(graph, product.anchor.a), layout, _dtypes(graph, product)
            groups.setdefault(key, []).append(product)
        else:
            alone.append((product, obstacle))
    joined: dict[int, list[Product]] = {}
    choices = []
    for group in groups.values():
        if len(group) > 1:
            choices.append(choice := _choice(graph, group, costs))
            if choice.is_rewritten:
                joined[group[0].anchor.index] = group
    readers = Counter(same_value(graph, product.anchor.a) for product in products)
    for product, obstacle in alone:
        if readers[same_value(graph, product.anchor.a)] > 1:
            reason = f"it is joined with no other product of its tensor: {obstacle}"
            choices.append(_chosen(graph, [product], reason, is_rewritten=False))
    return Noted.of(_written(graph, joined), choices)


def same_value(graph: Graph, index: int) -> Hashable:
    """Return a key that is equal for equal values: PyTorch reshapes and casts a tensor for each
    layer.
    """
    steps: list[Hashable] = []
    while (expr := graph[index]).op in {"reshape", "astype"}:
        steps.append((expr.op, expr.shape, expr.dtype))
        index = expr.args[0]
    return index, tuple(steps)


def _obstacle(graph: Graph, product: Product) -> str | None:
    """Return why it is no plain product of a constant weight, perhaps with bias, then sliced."""
    problem, tail = product.anchor.problem, product.tail
    if not problem.is_matrix or problem.batch > 1 or product.exit is not None:
        return "it is a convolution, a batch of products, or writes an image"
    known = [product.anchor.b, *(operand.expr for operand in tail.operands)]
    if any(graph[each].op != CONSTANT or graph[each].array is None for each in known):
        return "its weight or an operand of its epilogue is not constant"
    if packed_weights(problem) is not None or known_array(graph, product.anchor.b).ndim != 2:
        return "its weight is packed, or no matrix"
    if problem.in_dtype.is_whole:
        if _steps(graph, product) is None:
            return "its epilogue is more than numbers of columns"
        return None if _is_cut_out(graph, tail.output) else _WHOLE_ROWS
    is_plain = tail.epilogue.is_identity or _is_bias(tail.epilogue)
    is_whole = len(tail.members) == 1 + len(tail.operands)  # and no cast in between
    if not is_plain or not is_whole:
        return "its epilogue is more than a bias"
    if not _is_cut_out(graph, tail.output):
        return _WHOLE_ROWS
    return None


def _is_bias(epilogue: ElementwiseGraph) -> bool:
    match epilogue.nodes:
        case (Accumulator(), Load(kind=LoadKind.ROW), Binary(op=BinaryOp.ADD)):
            return not epilogue.stores
        case _:
            return False


def _steps(graph: Graph, product: Product) -> tuple[int, ...] | None:
    """Return the operators behind a product of integers, if each computes with the value before it
    and with constants: a number, or one for each column.
    """
    first, *steps = product.tail.members
    columns, value = product.anchor.problem.gemm.n, first
    for step in steps:
        others = [graph[arg].array for arg in graph[step].args if arg != value]
        is_next = len(others) == len(graph[step].args) - 1
        are_rows = (each is not None and _is_row(each, columns) for each in others)
        if not is_next or not all(are_rows):
            return None
        value = step
    return tuple(steps) if first == product.anchor.index else None


def _is_row(array: Array, columns: int) -> bool:
    """Return whether an operand is a number, or has one for each column and no other dimension."""
    return array.size == 1 or (array.size == columns and array.shape[-1] == columns)


def _is_cut_out(graph: Graph, index: int) -> bool:
    """Return whether TVM reads and rewrites a value in any case, so that it can slice it from a
    wider one: to transpose it, or as a rotary embedding slices it.
    """
    exits = list(readers_through(graph, index, {_VIEW}))
    if index in graph.escaping or not any(graph[reader].op in _MOVES for reader, _ in exits):
        return False
    heads = {value for reader, value in exits if graph[reader].op not in _MOVES}
    return all(on_heads(graph, value) is not None for value in heads)


def _dtypes(graph: Graph, product: Product) -> tuple[Hashable, ...]:
    """Return the types of the weight and of the result; a bias has the result's. A product of
    integers has the operators behind it, too.
    """
    if product.anchor.problem.in_dtype.is_whole:
        found, value = list[Hashable](), product.anchor.index
        for step in _steps(graph, product) or ():
            expr = graph[step]
            found.append((expr.op, expr.dtype, expr.attrs, expr.args.index(value)))
            value = step
        return tuple(found)
    biases = {graph[operand.expr].dtype for operand in product.tail.operands}
    return (graph[product.anchor.b].dtype, *sorted(biases | {graph[product.tail.output].dtype}))


def _choice(graph: Graph, products: Sequence[Product], costs: GraphCosts) -> Choice:
    """Choose whether to join products, by the times of both."""
    layers = [product.layer(graph) for product in products]
    columns = sum(layer.problem.gemm.n for layer in layers)
    widest = max(layers, key=lambda layer: len(layer.epilogue.loads))
    joined = Layer(problem=replace(widest.problem.gemm, n=columns), epilogue=widest.epilogue)
    is_faster, times = compared(costs, (joined,), layers)
    verb = "are one" if is_faster else "stay apart: they would be one"
    short = Workload(layers=(joined,)).short
    reason = f"{len(products)} products of one tensor {verb}, {short}: {times}"
    return _chosen(graph, products, reason, is_rewritten=is_faster)


def _chosen(
    graph: Graph, products: Sequence[Product], reason: str, *, is_rewritten: bool
) -> Choice:
    anchor = graph[products[0].anchor.index]
    return Choice((anchor.op,), anchor.shape, is_rewritten, reason)


def _written(graph: Graph, chosen: dict[int, list[Product]]) -> Graph:
    """`graph` with the products of each list joined where the first of them is."""
    members = {m for group in chosen.values() for each in group for m in each.tail.members}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        _join(graph, chosen[index], builder, names)

    return rewritten(graph, chosen, write, members)


def _join(
    graph: Graph, products: Sequence[Product], builder: GraphBuilder, names: dict[int, int]
) -> None:
    """Write one matmul, and name the columns of each result."""
    first = products[0].anchor
    is_column = first.problem.gemm.b_layout is Layout.COLUMN
    weights = [known_array(graph, product.anchor.b) for product in products]
    joined = np.concatenate(weights, axis=0 if is_column else 1)
    weight = builder.right_operand(joined, is_column=is_column)
    reason, dtype = graph[first.index].reason, graph[first.index].dtype
    whole = builder.matmul(names[first.a], weight, dtype, reason)
    columns = [product.anchor.problem.gemm.n for product in products]
    if first.problem.in_dtype.is_whole:
        whole = _with_steps(graph, products, builder, whole)
    elif any(product.tail.operands for product in products):
        biases = [
            known_array(graph, product.tail.operands[0].expr).reshape(-1)
            if product.tail.operands
            else np.zeros(count)
            for product, count in zip(products, columns, strict=True)
        ]
        bias = np.concatenate(biases).astype(DType(dtype).numpy)
        whole = builder.elementwise("add", whole, builder.constant(bias))
    axis = len(builder.shape(whole)) - 1
    for product, count, end in zip(products, columns, accumulate(columns), strict=True):
        names[product.tail.output] = builder.slice(whole, axis, end - count, end)


def _with_steps(
    graph: Graph, products: Sequence[Product], builder: GraphBuilder, whole: int
) -> int:
    """Write the operators behind products of integers, their numbers of columns side by side."""
    columns = [product.anchor.problem.gemm.n for product in products]
    values = [product.anchor.index for product in products]
    for steps in zip(*(_steps(graph, product) or () for product in products), strict=True):
        expr, args = graph[steps[0]], list[int]()
        for operands in zip(*(graph[step].args for step in steps), strict=True):
            if operands[0] == values[0]:
                args.append(whole)
                continue
            arrays = [known_array(graph, each).reshape(-1) for each in operands]
            if all(each.size == 1 and each == arrays[0] for each in arrays):
                args.append(builder.constant(arrays[0].reshape(())))
                continue
            rows = map(np.broadcast_to, arrays, columns)
            args.append(builder.constant(np.concatenate(list(rows))))
        shape = (*expr.static_shape[:-1], sum(columns))
        whole = builder.operator(expr.op, tuple(args), shape, expr.dtype, expr.attrs)
        values = list(steps)
    return whole


def known_array(graph: Graph, index: int) -> Array:
    """The elements of a constant."""
    array = graph[index].array
    assert array is not None  # or it would not have been joined
    return array
