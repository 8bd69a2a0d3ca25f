"""Fuse sums and means of a product's rows or columns: its kernel writes them beside D.

    y = relu(conv(x, w))    p = mean(y, height and width)

A kernel of TVM's would read all of y again. The product's own has it in registers, and adds one
number for each row, or each column, to memory. Some kernels round the sum to the type in which the
next product multiplies it, which saves the launch of a cast.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Reduce
from boltgen.graph.facts import is_static_call, readers_through
from boltgen.graph.graph import NORMED, Expr, Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    ElementwiseGraph,
    LoadKind,
    Node,
    Reduction,
    Scalar,
    Store,
)
from boltgen.ir.extent import Dim
from boltgen.passes.regions.products import Product, Rejects
from boltgen.passes.regions.times import compared
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.problem import Problem
from boltgen.problems.results import reduced_axes, store_shape
from boltgen.problems.workload import Layer, Workload

_SUMS = frozenset({"sum", "mean", "image_mean"})
_SQUARES = frozenset({"multiply", "square"})
_F32 = DType.F32.value


@dataclass(frozen=True, slots=True)
class _Reduced:
    """An operator that reduces the result of an epilogue, and its kernel's store for it.

    `inner` lie between the two; each value is multiplied by `scale` before. `columns` and `dtype`
    are the store's.
    """

    output: int
    inner: tuple[int, ...]
    kind: LoadKind
    reduction: Reduction
    scale: float
    columns: int = 0
    dtype: DType = DType.F32


def reducing(
    graph: Graph, product: Product, claimed: Collection[int], rejects: Rejects, costs: GraphCosts
) -> Product:
    """Return `product` with the reductions of its result, if a kernel writes them and `costs` say
    that it is faster than a pass over that result. Reductions for norms in other products are not
    compared.
    """
    longer = with_reductions(graph, product, claimed)
    if longer is None:
        return product
    before, after = (each.layer(graph) for each in (product, longer))
    if rejects(Workload(layers=(after,))) is not None:
        return product
    if (rounded := with_reductions(graph, product, claimed, rounds=True)) is not None:
        narrow = rounded.layer(graph)
        if _rounds(narrow, after, rejects, costs):
            longer, after = rounded, narrow
    if all(_is_of_a_norm(graph, each) for each in longer.further[len(product.further) :]):
        return longer
    problem = before.problem
    read = problem.out_dtype.size_bytes * _elements(problem)
    count = len(longer.further) - len(product.further)
    is_faster, _ = compared(costs, (after,), (before,), costs.move_us(read, count))
    return longer if is_faster else product


def _rounds(layer: Layer, plain: Layer, rejects: Rejects, costs: GraphCosts) -> bool:
    """Return whether a kernel that rounds sums computes `layer`, and is faster than the kernel of
    `plain` and a launch for each cast.
    """
    casts = [each for each in layer.epilogue.reductions if each.dtype is not DType.F32]
    if not casts or rejects(Workload(layers=(layer,))) is not None:
        return False
    numbers = sum(prod(store_shape(layer.problem, each)) for each in casts)
    moved = numbers * (DType.F32.size_bytes + layer.problem.in_dtype.size_bytes)
    return compared(costs, (layer,), (plain,), costs.move_us(moved, len(casts)))[0]


def _is_of_a_norm(graph: Graph, index: int) -> bool:
    """Return whether sums are for norms that products compute."""
    readers = [reader for reader, _ in readers_through(graph, index, {"reshape"})]
    is_read = bool(readers) and index not in graph.escaping
    return is_read and all(graph[reader].op == NORMED for reader in readers)


def with_reductions(
    graph: Graph, product: Product, claimed: Collection[int], *, rounds: bool = False
) -> Product | None:
    """Return `product` with the reductions of its result; None without any, or if a kernel cannot
    write them. It `rounds` sums that only casts to the product's type read.
    """
    if product.exit is not None or not product.anchor.problem.has_b:
        return None
    found = _reductions(graph, product, claimed)
    if rounds:
        found = [_rounded(graph, product, each, claimed) for each in found]
    if not found:
        return None
    try:
        longer = _with(product, found)
        Workload(layers=(longer.layer(graph),))
    except InvalidProblemError:  # more addresses than a launch passes
        return None
    return longer


def _elements(problem: Problem) -> int:
    m, n = problem.matrix
    return problem.batch * m * n


def _reductions(graph: Graph, product: Product, claimed: Collection[int]) -> list[_Reduced]:
    """Return the operators that reduce the epilogue's result, and read nothing else."""
    output = product.tail.output
    if not graph[output].is_static:
        return []
    sources: list[tuple[int, tuple[int, ...]]] = []
    if graph[output].dtype == _F32:
        sources.append((output, ()))
    sources += [
        (reader, (reader,))
        for reader in graph.consumers[output]
        if graph[reader].op == "astype" and graph[reader].dtype == _F32
    ]
    found = []
    for source, casts in sources:
        for reader in dict.fromkeys(graph.consumers[source]):
            found += _sums(graph, product, reader, casts, Reduction.SUM)
            if graph[reader].op in _SQUARES and set(graph[reader].args) == {source}:
                for sum_ in graph.consumers[reader]:
                    inner = (*casts, reader)
                    found += _sums(graph, product, sum_, inner, Reduction.SUM_OF_SQUARES)
    found = [each for each in found if each.output not in claimed]
    return _closed(graph, found, claimed)


def _rounded(graph: Graph, product: Product, found: _Reduced, claimed: Collection[int]) -> _Reduced:
    """Return a sum of columns in the type of the cast that alone reads it; others as they are."""
    readers, dtype = graph.consumers[found.output], product.anchor.problem.in_dtype
    if found.kind is not LoadKind.ROW or found.reduction is not Reduction.SUM or len(readers) != 1:
        return found
    (reader,) = readers
    is_cast = graph[reader].op == "astype" and graph[reader].dtype == dtype.value
    if (
        not is_cast
        or not graph[reader].is_static
        or reader in claimed
        or found.output in graph.escaping
    ):
        return found
    return replace(found, output=reader, inner=(*found.inner, found.output), dtype=dtype)


def _closed(graph: Graph, found: list[_Reduced], claimed: Collection[int]) -> list[_Reduced]:
    """Return the reductions whose inner values nothing else reads."""
    while True:
        outputs = {each.output for each in found}
        inner = {index for each in found for index in each.inner}
        leaking = {
            index
            for index in inner
            if index in graph.escaping
            or index in claimed
            or not (outputs | inner).issuperset(graph.consumers[index])
        }
        kept = [each for each in found if leaking.isdisjoint(each.inner)]
        if len(kept) == len(found):
            return kept
        found = kept


def _sums(
    graph: Graph, product: Product, index: int, inner: tuple[int, ...], reduction: Reduction
) -> list[_Reduced]:
    """Return the operator at `index` as a reduction; or as reductions of parts of rows if it splits
    them.
    """
    expr = graph[index]
    if not is_static_call(graph, index):
        return []
    if expr.op != "reshape":
        return _of(graph, product, index, inner, reduction)
    before, shape = graph[expr.args[0]].static_shape, expr.static_shape
    if (*shape[:-2], prod(shape[-2:])) != before:
        return []
    return [
        _Reduced(reader, (*inner, index), LoadKind.COLUMN, reduction, 1.0, shape[-1])
        for reader in graph.consumers[index]
        if graph[reader].op == "sum"
        and graph[reader].dtype == _F32
        and not graph[reader].attrs.of(Reduce).keepdims
        and _axes(graph[reader], len(shape)) == (len(shape) - 1,)
    ]


def _of(
    graph: Graph, product: Product, index: int, inner: tuple[int, ...], reduction: Reduction
) -> list[_Reduced]:
    """Return the operator at `index` as a reduction, if it reduces whole rows or columns."""
    expr = graph[index]
    if expr.op not in _SUMS or expr.dtype != _F32 or len(expr.args) != 1:
        return []
    shape = graph[expr.args[0]].static_shape
    kind = _kind(product.anchor.problem, shape, expr)
    if kind is None or any(isinstance(shape[axis], Dim) for axis in _axes(expr, len(shape))):
        return []  # the number of elements per sum is unknown when the kernel is made
    if expr.op == "sum":
        return [_Reduced(index, inner, kind, reduction, 1.0)]
    if reduction is not Reduction.SUM:
        return []  # a mean of squares would be scaled behind the square
    count = prod(shape[axis] for axis in _axes(expr, len(shape)))
    return [_Reduced(index, inner, kind, reduction, 1.0 / count)]


def _axes(expr: Expr, rank: int) -> tuple[int, ...]:
    return tuple(sorted(expr.attrs.of(Reduce).axes(rank)))


def _kind(problem: Problem, shape: tuple[int, ...], expr: Expr) -> LoadKind | None:
    """Return whether the operator makes a number of each row of the product, or of each column."""
    axes, last = _axes(expr, len(shape)), len(shape) - 1
    if axes == (last,):
        return LoadKind.COLUMN
    if shape == problem.d_shape:
        same = axes == reduced_axes(problem, Store(0, LoadKind.ROW))
    else:
        same = problem.is_matrix and problem.batch == 1 and axes == tuple(range(last))
    return LoadKind.ROW if same else None


def _with(product: Product, found: list[_Reduced]) -> Product:
    """Return `product` with a kernel that also writes the reductions `found`.

    Raises:
        InvalidProblemError: an epilogue cannot have so much.
    """
    tail = product.tail
    nodes: list[Node] = list(tail.epilogue.nodes)
    stores = list(tail.epilogue.results)
    result = stores[0].x
    for each in found:
        x = result
        if each.scale != 1.0:
            nodes += [Scalar(each.scale), Binary(BinaryOp.MULTIPLY, result, len(nodes))]
            x = len(nodes) - 1
        stores.append(Store(x, each.kind, each.dtype, each.reduction, each.columns))
    members = {*tail.members, *(index for each in found for index in (*each.inner, each.output))}
    return replace(
        product,
        tail=replace(
            tail,
            members=tuple(sorted(members)),
            epilogue=ElementwiseGraph(tuple(nodes), tuple(stores)),
            further=(*tail.further, *(each.output for each in found)),
        ),
    )
