"""Fuse two matmuls of one tensor whose results are combined: the gate of a SwiGLU or a GeGLU. For
both IRs.

    silu(x Wg + bg) * (x Wu + bu)      two weights, or the halves of one, whose result is split

Their columns are interleaved in one weight, in runs, and a thread of its kernel has both sums of an
element. Otherwise one kernel reads the other's result, or a kernel of TVM's reads both; times
decide. It comes after padding and after norms, whose sums such a kernel can take.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.graph.attributes import Indexed, Slice
from boltgen.graph.facts import is_known_matrix, is_only_read_by, keeps_inner, only_reader
from boltgen.graph.graph import (
    HALF,
    Choice,
    Graph,
    GraphBuilder,
    Noted,
    mapped,
    renamed,
)
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.joins.fuse_qkv import known_array, same_value
from boltgen.passes.legalise.half_columns import add_half
from boltgen.passes.legalise.norm_of_sums import parts_of
from boltgen.passes.regions.products import Product, Rejects, find_products
from boltgen.passes.regions.times import compared
from boltgen.problems.gemm.pair import interleaved, run_of
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.workload import Workload

_VIEW, _CAST, _SLICE, _SPLIT = "reshape", "astype", "strided_slice", "split"


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two matmuls, or one whose result is split: the expressions `ends` become its halves.

    `chain` are the operators between a result that is split and what splits it, each of which both
    halves then have; `splits` is that, if it is an operator of its own.
    """

    products: tuple[Product, ...]
    ends: tuple[int, int]
    chain: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()

    @property
    def place(self) -> int:
        """The index in the graph at which the pair can be computed."""
        return self.chain[-1] if self.chain else self.products[0].anchor.index

    @property
    def replaced(self) -> tuple[int, ...]:
        """The expressions that the pair replaces."""
        anchors = (product.anchor.index for product in self.products)
        return (*anchors, *self.chain, *self.splits, *self.ends)


def join_pairs(
    graph: Graph, costs: GraphCosts, rejects: Rejects, summed: DType = DType.F32
) -> Noted:
    """`graph` with the pairs that are faster as one product, by `costs`. Sums are in `summed`."""
    products = [each for each in find_products(graph, summed) if _is_plain(graph, each)]
    pairs = [*_apart(graph, products), *_split(graph, products)]
    if not pairs:
        return Noted(graph, ())
    trial, places = _written(graph, pairs)
    made = {product.anchor.index: product for product in find_products(trial, summed)}
    choices = [
        _choice(graph, pair, _paired(trial, made.get(place)), costs, rejects)
        for pair, place in zip(pairs, places, strict=True)
    ]
    chosen = [pair for pair, choice in zip(pairs, choices, strict=True) if choice.is_rewritten]
    if not chosen:
        return Noted.of(graph, choices)
    # Weights are large: they are not written twice where nothing changes.
    made_of = trial if len(chosen) == len(pairs) else _written(graph, chosen)[0]
    return Noted.of(made_of, choices)


def _is_plain(graph: Graph, product: Product) -> bool:
    """Return whether it is one product of a constant weight."""
    problem = product.anchor.problem
    is_plain = problem.is_matrix and problem.batch == 1 and packed_weights(problem) is None
    return is_plain and is_known_matrix(graph[product.anchor.b])


def _apart(graph: Graph, products: Sequence[Product]) -> Iterator[_Pair]:
    """Return pairs in which one matmul's epilogue reads the other's result."""
    by_output = {product.tail.output: product for product in products if product.exit is None}
    taken: set[int] = set()
    for product in products:
        for load, operand in product.tail.loaded:
            if load.kind is not LoadKind.TENSOR:
                continue
            other = by_output.get(_source(graph, operand.expr, product))
            if other is None or _kind(graph, other) != _kind(graph, product):
                continue
            first, second = sorted((other, product), key=lambda each: each.anchor.index)
            ends = first.anchor.index, second.anchor.index
            if taken.isdisjoint(ends):
                taken.update(ends)
                yield _Pair((first, second), ends)


def _kind(graph: Graph, product: Product) -> Hashable:
    """Return a key that is equal for two matmuls that can be a pair."""
    anchor, b = product.anchor, graph[product.anchor.b]
    a = same_value(graph, anchor.a)
    return a, anchor.problem.gemm.b_layout, b.shape, b.dtype, graph[anchor.index].dtype


def _source(graph: Graph, index: int, product: Product) -> int:
    """Return the tensor that is, perhaps through a view, an operand of a matmul's epilogue, if only
    the epilogue reads it; else -1.
    """
    readers = set(product.tail.members)
    while is_only_read_by(graph, index, readers):
        if graph[index].op != _VIEW:
            return index
        readers = {index}
        (index,) = graph[index].args
    return -1


def _split(graph: Graph, products: Sequence[Product]) -> Iterator[_Pair]:
    """Return matmuls whose result is split in halves of its columns."""
    for product in products:
        at, chain = product.tail.output, list(product.tail.members[1:])
        while (following := _reader(graph, at)) is not None:
            at = following
            chain.append(at)
        columns = graph[at].static_shape[-1]
        found = _halves(graph, at) if columns % 2 == 0 else None
        if found is not None and _operands_are_known(graph, product):
            splits, ends = found
            yield _Pair((product,), ends, tuple(chain), splits)


def _reader(graph: Graph, index: int) -> int | None:
    """The view or the cast of whole rows that alone reads a value."""
    reader = only_reader(graph, index)
    if reader is None or not graph[reader].is_static:
        return None
    return reader if graph[reader].op == _CAST or keeps_inner(graph, reader) else None


def _halves(graph: Graph, index: int) -> tuple[tuple[int, ...], tuple[int, int]] | None:
    """Return the operators that split a tensor, and the halves of its columns, if nothing else
    reads it.
    """
    *rows, columns = graph[index].static_shape
    readers, splits = graph.consumers[index], tuple[int, ...]()
    if len(readers) == 1 and graph[readers[0]].op == _SPLIT:
        splits, readers = readers, graph.consumers[readers[0]]
    halves: dict[int, int] = {}
    for reader in readers:
        expr, attrs = graph[reader], graph[reader].attrs
        if expr.shape != (*rows, columns // 2) or expr.op == HALF:
            continue
        if isinstance(attrs, Indexed | Slice):
            halves[attrs.index if isinstance(attrs, Indexed) else attrs.begin] = reader
    last = 1 if splits else columns // 2
    is_whole = len(readers) == len(halves) == 2 and not graph.escaping & {index, *splits}
    return (splits, (halves[0], halves[last])) if is_whole and halves.keys() == {0, last} else None


def _operands_are_known(graph: Graph, product: Product) -> bool:
    """Return whether its epilogue loads only constant rows: each half has its own."""
    return all(
        load.kind is LoadKind.COLUMN
        or (load.kind is LoadKind.ROW and graph[operand.expr].array is not None)
        for load, operand in product.tail.loaded
    )


def _paired(trial: Graph, product: Product | None) -> Workload | None:
    """Return the workload of a pair, or None if its epilogue lacks one of the halves."""
    if product is None or not product.tail.epilogue.is_paired:
        return None
    return Workload(layers=(product.layer(trial),))


def _choice(
    graph: Graph, pair: _Pair, together: Workload | None, costs: GraphCosts, rejects: Rejects
) -> Choice:
    """Choose whether a pair is one kernel: only if a kernel computes it in less time."""
    anchor = graph[pair.products[0].anchor.index]

    def chosen(reason: str, *, is_rewritten: bool = False) -> Choice:
        return Choice((anchor.op,), anchor.shape, is_rewritten, reason)

    apart = "two products of one tensor and their gate are no single kernel"
    if together is None:
        return chosen(f"{apart}: no epilogue reads both")
    if (obstacle := rejects(together)) is not None:
        return chosen(f"{apart}: {obstacle}")
    is_faster, times = _times(graph, pair, together, costs)
    if not is_faster:
        return chosen(f"{apart}, {together.short}: {times}")
    return chosen(
        f"two products of one tensor are one kernel, with their gate, {together.short}: {times}",
        is_rewritten=True,
    )


def _times(graph: Graph, pair: _Pair, together: Workload, costs: GraphCosts) -> tuple[bool, str]:
    """Return whether a pair is faster as one kernel, and the times of both in words."""
    apart, move_us = [each.layer(graph) for each in pair.products], 0.0
    if len(apart) == 1:
        # A kernel of TVM's reads what the product has written, and writes half as much.
        ends = (apart[0].problem, together.first.problem)
        moved = sum(prod(each.d_shape) * each.out_dtype.size_bytes for each in ends)
        move_us = costs.move_us(moved, launches=1)
    return compared(costs, together.layers, apart, move_us)


def _written(graph: Graph, pairs: Sequence[_Pair]) -> tuple[Graph, list[int]]:
    """Return `graph` with each pair as one matmul, and the places of the pairs."""
    at = {pair.place: pair for pair in pairs}
    replaced = {index for pair in pairs for index in pair.replaced}
    builder = GraphBuilder()
    names: dict[int, int] = {}
    made: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        if index in at:
            made[index] = _write(graph, at[index], builder, names)
        elif index not in replaced:
            names[index] = builder.add(renamed(expr, names))
    pruned, places = builder.placed(mapped(graph.results, names))
    return pruned, [places[made[pair.place]] for pair in pairs]


def _write(graph: Graph, pair: _Pair, builder: GraphBuilder, names: dict[int, int]) -> int:
    """Write the matmul of a pair, which is returned, and its halves, the `ends`."""
    first, *_ = pair.products
    expr = graph[first.anchor.index]
    is_column = first.anchor.problem.gemm.b_layout is Layout.COLUMN
    axis = 0 if is_column else 1
    weights = [known_array(graph, product.anchor.b) for product in pair.products]
    gate, up = weights if len(weights) == 2 else np.split(weights[0], 2, axis)
    joined = interleaved(gate, up, run_of(gate.shape[axis]), axis)
    weight = builder.right_operand(joined, is_column=is_column)
    whole = builder.matmul(names[first.anchor.a], weight, expr.dtype, expr.reason)
    for index, end in enumerate(pair.ends):
        halves = {first.anchor.index: add_half(builder, whole, index)}
        for member in pair.chain:
            halves[member] = _halved(graph, member, ChainMap(halves, names), index, builder)
        value, shape = halves[(first.anchor.index, *pair.chain)[-1]], graph[end].static_shape
        names[end] = builder.in_shape(value, shape)
    return whole


def _halved(
    graph: Graph, member: int, names: Mapping[int, int], index: int, builder: GraphBuilder
) -> int:
    """Write an operator for the columns of one matmul, the only ones that `names` has."""
    expr = graph[member]
    *rows, columns = expr.static_shape
    args = []
    for arg, parts in zip(expr.args, parts_of(graph, expr), strict=True):
        array = graph[arg].array
        if parts == 1 and array is not None and array.shape[-1:] == (columns,):
            args.append(builder.constant(np.split(array, 2, axis=-1)[index]))
        else:
            args.append(names[arg])
    return builder.operator(expr.op, args, (*rows, columns // 2), expr.dtype, expr.attrs)
