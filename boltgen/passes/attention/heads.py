"""Attention's operators that only cut heads out of rows, and put them side by side. For both IRs.

    (B, S, 3 H D) -> strided_slice -> reshape (B, S, H, D) -> permute_dims (B, H, S, D)

Its kernel reads and writes heads where they lie, so a chain of such operators is strides. What is
no such view, or one that vectors do not fit, stays with TVM.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from itertools import dropwhile
from math import prod
from typing import Any

from boltgen.graph.facts import is_static_call, keeps_inner, only_reader, swaps_matrices
from boltgen.graph.graph import Graph
from boltgen.graph.view import Steps, Strided, strided_whole
from boltgen.ir.dtypes import Layout
from boltgen.ir.extent import Dim, has_dynamic
from boltgen.passes.regions.products import Product
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.region import HeadView

_SLICE, _VIEW, _PERMUTATION = "strided_slice", "reshape", "permute_dims"
_BROADCAST = "broadcast_to"

Pair = tuple[Product, Product]


@dataclass(frozen=True, slots=True)
class _Source:
    """TVM's tensor that has an operand's heads, and the operators that cut them out.

    Without a view it has them as the kernel takes them. So many as `group` share a matrix. Those
    `by_keys` are the transposed ones of the product's operand.
    """

    view: HeadView | None
    tensor: int
    members: tuple[int, ...]
    group: int = 1
    by_keys: bool = False

    @property
    def heads(self) -> int:
        """Return the rows of a sequence where a view says so, else 1."""
        return self.view.heads * self.group if self.view else 1


def with_views(graph: Graph, pair: Pair, hidden: Set[int]) -> Pair:
    """Attention that reads Q, K and V, and writes its result, where TVM has their heads.

    No tensor is `hidden`: those stay inside of other kernels.
    """
    before, after = pair
    q, k, v, d = _found(graph, pair, hidden)
    given = (before.anchor.a, q), (before.anchor.b, k), (after.anchor.b, v)
    read = {source.tensor if source else dense for dense, source in given}
    read |= {operand.expr for product in pair for operand in product.tail.operands}
    if any(read.intersection(source.members) for _, source in given if source):
        return pair  # a region does not compute what it is given
    if k is not None and k.by_keys:
        scores: Any = before.anchor.problem
        by_keys = replace(scores, b_layout=Layout.COLUMN)
        before = replace(before, anchor=replace(before.anchor, problem=by_keys))
    return _reading(_reading(before, a=q), b=k), _writing(_reading(after, b=v), d)


def shared_heads(pair: Pair) -> set[int]:
    """The heads of a sequence, as operands say that not all products have a slice of."""
    operands = (operand for product in pair for operand in product.tail.operands)
    return {operand.shared.heads for operand in operands if operand.shared is not None}


def _found(graph: Graph, pair: Pair, hidden: Set[int]) -> tuple[_Source | None, ...]:
    """Return where Q, K, V and the result are, with one number of heads, or None without a view."""
    before, after = pair
    # Matrix products both, since attention is found among no others.
    scores: Any = before.anchor.problem
    output: Any = after.anchor.problem
    q = k = v = d = None
    if scores.batch != output.batch or not (scores.b_batched or output.b_batched):
        return q, k, v, d  # what shares K and V is one product of more rows, and has no heads
    if before.entry is None and scores.a_batched:
        q = _source(graph, before.anchor.a, hidden, scores, scores.alignment_a)
        q = q if q and q.group == 1 else None  # no kernel repeats queries
    if scores.b_batched:
        # Keys are rows of TVM's tensor, so their vectors are of Q's columns.
        is_row, alignment = scores.b_layout is Layout.ROW, scores.alignment_a
        k = _source(graph, before.anchor.b, hidden, scores, alignment, is_swapped=is_row)
    if output.b_batched and output.b_layout is Layout.ROW:
        v = _source(graph, after.anchor.b, hidden, output, output.alignment_b)
    if after.exit is None:
        d = _target(graph, after.tail.output, output)
    sources = [each for each in (q, k, v, d) if each]
    # Masks that heads share leave no choice, and where nothing else knows heads, groups are all.
    counts = shared_heads(pair) or {each.heads for each in sources}
    if not counts or max(counts) == 1:
        counts = {max((each.group for each in sources), default=1)}
    # The most heads, unless with fewer of them each operand is a view.
    for heads in (*sorted(counts), max(counts)):
        made = tuple(each and _with_heads(each, heads, scores.batch) for each in (q, k, v, d))
        if made.count(None) == 4 - len(sources):
            break
    return made


def _with_heads(source: _Source, heads: int, batch: int) -> _Source | None:
    """A source of so many heads to a sequence; None where it has others.

    Heads of one sequence may be those of several, which lie side by side in each row.
    """
    view = source.view
    if view is None:
        return source if heads % source.group == 0 else None
    if source.heads == heads:
        return source
    own, row = heads // source.group, heads // source.group * view.stride
    inner = next(
        (view.inner[at:] for at in range(1, len(view.inner)) if prod(view.inner[at:]) == row), None
    )
    is_one = not isinstance(batch, Dim) and batch == source.heads and not view.rows_first
    if inner is None or not is_one or heads % source.group or batch % heads or view.offset >= row:
        return None
    if view.row != batch // heads * row:
        return None
    return replace(source, view=replace(view, heads=own, inner=inner, rows_first=True))


def _reading(product: Product, a: _Source | None = None, b: _Source | None = None) -> Product:
    """`product` with its A or B read from there."""
    anchor = product.anchor
    for source in filter(None, (a, b)):
        absorbed = tuple(dict.fromkeys((*source.members, *anchor.absorbed)))
        anchor = replace(anchor, absorbed=absorbed)
    if a is not None:
        product = replace(product, a_view=a.view)
        anchor = replace(anchor, a=a.tensor)
    if b is not None:
        product = replace(product, b_view=b.view, b_group=b.group)
        anchor = replace(anchor, operand_b=b.tensor)
    return replace(product, anchor=anchor)


def _writing(product: Product, d: _Source | None) -> Product:
    if d is None:
        return product
    members = (*product.tail.members, *d.members)
    tail = replace(product.tail, members=members, output=d.tensor)
    return replace(product, tail=tail, d_view=d.view)


def _source(
    graph: Graph,
    at: int,
    hidden: Set[int],
    problem: Gemm,
    alignment: int,
    *,
    is_swapped: bool = False,
) -> _Source | None:
    """The tensor farthest from `at` of which that is a view.

    Matrices of keys are `is_swapped` where the keys are columns of the tensor at `at`.
    """
    joins, at = _joins(graph, at)
    is_turned = False
    if is_swapped and swaps_matrices(graph[at]):
        before, inner = _joins(graph, graph[at].args[0])
        if _repeats(graph, inner) > 1:  # what is repeated has the keys as rows
            joins, at = (*before, at, *joins), inner
            is_swapped, is_turned = False, True
    group = _repeats(graph, at)
    if group > 1:
        before, tensor = _joins(graph, graph[at].args[0])
        joins, at = (*before, at, *joins), tensor
    chain: list[int] = []
    # Repeated matrices are read from where they are once, whatever comes before.
    found = None
    if group > 1 and at not in hidden:
        found = _Source(None, at, joins, group, is_turned)
    tensor = at
    while graph[tensor].op in {_SLICE, _VIEW, _PERMUTATION} and graph[tensor].is_static:
        chain.insert(0, tensor)
        tensor = graph[tensor].args[0]
        if not graph[tensor].is_static:
            break
        if tensor in hidden or all(graph[each].op == _VIEW for each in chain):
            continue
        base = graph[tensor].static_shape
        strided: Strided | None = strided_whole(base)
        for each in chain:
            strided = strided.after(graph[each]) if strided is not None else None
        if strided is None:
            continue
        if is_swapped:
            strided = strided.permuted((*range(len(strided.dims) - 2), -1, -2))
        view = _heads(strided, base, problem.batch, alignment, group)
        if view is not None:
            found = _Source(view, tensor, (*chain, *joins), group, is_turned or is_swapped)
    return found


def _target(graph: Graph, output: int, problem: Gemm) -> _Source | None:
    """The nearest tensor after `output`, transposed, of which that is a view."""
    members: list[int] = []
    at = output
    while (reader := only_reader(graph, at)) is not None:
        at = reader
        if graph[at].op not in {_VIEW, _PERMUTATION} or not graph[at].is_static:
            return None
        members.append(at)
        if graph[at].op != _PERMUTATION:
            continue
        target = graph[at].static_shape
        strided: Strided | None = strided_whole(target)
        moving = dropwhile(lambda each: keeps_inner(graph, each, 2), members)
        for each in reversed(list(moving)):
            before = graph[graph[each].args[0]].static_shape
            strided = strided.before(graph[each], before) if strided is not None else None
        if strided is None:
            return None
        view = _heads(strided, target, problem.batch, problem.alignment_d)
        return _Source(view, at, tuple(members)) if view is not None else None
    return None


def _joins(graph: Graph, at: int) -> tuple[tuple[int, ...], int]:
    """Return the operators up to `at` that only count the matrices of a batch in other dimensions,
    and the value that the first reads. Matrices of one dimension may lie where no one stride leads.
    """
    joins: list[int] = []
    while keeps_inner(graph, at, 2):
        joins.insert(0, at)
        at = graph[at].args[0]
    return tuple(joins), at


def _repeats(graph: Graph, at: int) -> int:
    """Return how often each matrix of a batch is repeated in place: grouped-query attention.

    (B, groups, S, D) -> reshape (B, groups, 1, S, D) -> broadcast_to (B, groups, n, S, D)
    """
    expr = graph[at]
    if expr.op != _BROADCAST or not is_static_call(graph, at):
        return 1
    before, after = graph[expr.args[0]].static_shape, expr.static_shape
    is_last = len(before) == len(after) > 3 and before[-3] == 1
    others = (*before[:-3], *before[-2:]) == (*after[:-3], *after[-2:])
    times = after[-3]
    return times if is_last and others and not isinstance(times, Dim) else 1


def _heads(
    x: Strided, base: tuple[int, ...], batch: int, alignment: int, group: int = 1
) -> HeadView | None:
    """The matrices of `x`, its last two dimensions, as heads in the rows of `base`.

    Each is that of `group` products of the `batch`.
    """
    of_rows, of_columns = x.dims[-2:]
    if len(of_rows) != 1 or len(of_columns) != 1 or of_columns[0][1] != 1:
        return None
    (rows,) = of_rows
    batches = x.steps(0, -2)
    row = rows[1]
    sequence = rows[0] * row
    rows_first = _is_inside(batches, row, base)
    if prod(extent for extent, _ in batches) * group != batch:
        return None
    sequences = (1, sequence)
    if rows_first or (batches and batches[0][1] == sequence):
        sequences, batches = batches[0], batches[1:]
    if rows_first:
        row = sequences[1]
    heads, head = batches[0] if batches else (1, 0)
    if len(batches) > 1 or has_dynamic((heads, head, row, x.offset)):
        return None
    if any(each % alignment for each in (head, row, x.offset)):
        return None
    outer = (rows[0], sequences[0]) if rows_first else (sequences[0], rows[0])
    inner = _inner(base, outer, row)
    if inner is None:
        return None
    return HeadView(heads=heads, inner=inner, offset=x.offset, stride=head, rows_first=rows_first)


def _is_inside(leading: Steps, row: int, base: tuple[int, ...]) -> bool:
    """Return whether each row of a matrix has the rows of all sequences side by side: (S, B, H D).

    Where extents are open a region's call could not tell the two apart.
    """
    if len(leading) != 2 or has_dynamic(base):
        return False
    (sequences, apart), (_, head) = leading
    return sequences > 1 and apart > head and sequences * apart == row


def _inner(base: tuple[int, ...], outer: tuple[int, int], row: int) -> tuple[int, ...] | None:
    """Return the dimensions of a row of `base`; `outer` has the sequences and the rows before them.

    Where they are symbolic the region's call reads them off the tensor, one by one.
    """
    for place in range(1, len(base)):
        if prod(base[place:]) == row:
            is_known = not has_dynamic(base)
            is_whole = prod(base[:place]) == prod(outer)
            return base[place:] if base[:place] == outer or (is_known and is_whole) else None
    return None
