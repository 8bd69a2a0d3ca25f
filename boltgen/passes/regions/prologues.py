"""Fuse elementwise operators before a product into its kernel, as a prologue. For both IRs.

    (x * gate) W, x: (B, M, K), gate: (B, 1, K)        relu(x * scale + shift) W

A kernel of TVM's would read x and write what is multiplied. The product's own does it to each
element of A on the way to its tensor cores. Times decide: such a kernel has two stages, and tiles
along N compute the graph anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from boltgen.errors import InvalidProblemError
from boltgen.graph.facts import has_one_reader, is_only_read_by, is_static_call
from boltgen.graph.graph import CONSTANT, HALF, INPUT, NORMED, Graph
from boltgen.ir.extent import typical
from boltgen.passes.regions.epilogue_rules import ELEMENTWISE
from boltgen.passes.regions.epilogue_walk import made_before
from boltgen.passes.regions.products import Product, Rejects, Summed
from boltgen.passes.regions.times import compared
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.workload import Workload

_COMPUTED = ELEMENTWISE - {HALF, NORMED}


def with_prologue(
    graph: Graph, product: Product, claimed: Collection[int], rejects: Rejects, costs: GraphCosts
) -> Product:
    """Return `product` with its A computed in its kernel, if a kernel can and `costs` say that it
    is faster than a pass over A before.
    """
    longer = _longer(graph, product, claimed)
    if longer is None:
        return product
    try:
        before, after = (each.layer(graph) for each in (product, longer))
        workload = Workload(layers=(after,))
    except InvalidProblemError:  # more operands than a launch passes
        return product
    if rejects(workload) is not None:
        return product
    problem = product.anchor.problem
    moved = 2 * _elements(problem.a_shape) * problem.in_dtype.size_bytes
    is_faster, _ = compared(costs, (after,), (before,), costs.move_us(moved, 1))
    return longer if is_faster else product


def _longer(graph: Graph, product: Product, claimed: Collection[int]) -> Product | None:
    anchor, tail = product.anchor, product.tail
    is_plain = anchor.problem.has_b and anchor.problem.batch == 1
    if not is_plain or product.entry is not None or product.summed is not None:
        return None
    if anchor.taken is not None or anchor.ends is not None or anchor.b == anchor.a:
        return None
    members, leaves = _before(graph, anchor.index, anchor.a, claimed)
    whole = [leaf for leaf in leaves if _is_whole(graph, leaf, anchor.a)]
    wanted = anchor.problem.in_dtype.value
    sources = [leaf for leaf in whole if graph[leaf].dtype == wanted]
    if not members or not sources or not all(_is_there(graph, leaf, claimed) for leaf in whole):
        return None
    made = made_before(graph, anchor, sources[0], members)
    if made is None or made.epilogue.is_identity:
        return None
    rows = {each.slice_rows for each in (made, tail) if each.slice_rows}
    if len(rows) > 1:
        return None
    return replace(
        product,
        anchor=replace(anchor, a=sources[0]),
        tail=replace(
            tail,
            inlined=(*made.inlined, *tail.inlined),
            slice_rows=max(rows, default=0),
        ),
        summed=Summed(
            members=tuple(sorted(members)), prologue=made.epilogue, operands=made.operands
        ),
    )


def _before(
    graph: Graph, anchor: int, a: int, claimed: Collection[int]
) -> tuple[set[int], tuple[int, ...]]:
    """Return the elementwise operators that make A, for nothing else, and their operands."""
    members: set[int] = set()
    leaves: list[int] = []
    pending = {a}
    while pending:
        at = max(pending)  # all that reads it is behind, so it was here before
        pending.remove(at)
        expr = graph[at]
        if (
            is_only_read_by(graph, at, members | {anchor})
            and expr.op in _COMPUTED
            and at not in claimed
            and is_static_call(graph, at)
            and _is_whole(graph, at, a)
        ):
            members.add(at)
            pending.update(arg for arg in expr.args if graph[arg].scalar is None)
        else:
            leaves.append(at)
    return members, tuple(leaves)


def _is_whole(graph: Graph, index: int, a: int) -> bool:
    """Return whether a tensor has as many elements as A, in rows as long."""
    expr, whole = graph[index], graph[a]
    if not expr.is_static or not expr.static_shape:
        return False
    is_row = expr.static_shape[-1] == whole.static_shape[-1]
    return is_row and prod(expr.static_shape) == prod(whole.static_shape)


def _is_there(graph: Graph, index: int, claimed: Collection[int]) -> bool:
    """Return whether a tensor is in memory regardless of its reader: else TVM would make it and A
    at once.
    """
    is_stored = graph[index].op in {INPUT, CONSTANT} or index in claimed
    return is_stored or not has_one_reader(graph, index)


def _elements(shape: tuple[int, ...]) -> int:
    """Return the elements of a tensor; a symbolic size counts in the middle of its range."""
    return prod(map(typical, shape))
