"""Sink gathers of rows by integers, x[rows], to operators whose kernels can gather.

IR-neutral. The gather becomes the last operator before a matmul, so that the kernel reads the
tensor itself: a cast of gathered rows becomes a gather from a cast tensor, and a gather from
gathered rows becomes one gather from the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from boltgen.graph.attributes import Take
from boltgen.graph.facts import FLOATS, INDICES, has_one_reader
from boltgen.graph.graph import GROUPED, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.extent import UndecidedExtentError

_TAKE, _CAST, _VIEW = "take", "astype", "reshape"
# Modes in which an integer out of range gathers the nearest row, as kernels do, and in which TVM
# leaves it undefined. Source: tvm, topi/transform.h, take.
_MODES = frozenset({"clip", "fast"})
# Norms whose kernels take the rows of their operand.
ROW_NORMS = frozenset({"nn.layer_norm", "nn.rms_norm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A matrix `x`, the integers `rows` that gather its rows, and the operators of the gather: the
    last one first. `take` is the one that is no view and no cast.
    """

    x: int
    rows: int
    take: int
    members: tuple[int, ...]


def taken_rows(exprs: Sequence[Expr], index: int) -> Taken | None:
    """Match a gather of a matrix's rows that gives the value at `index`; None without a match.

    It may be reshaped with its rows kept, and so may the integers, which may be cast too.
    """
    members = [index]
    while _keeps_rows(exprs, members[-1]):
        members.append(exprs[members[-1]].args[0])
    take = members[-1]
    expr = exprs[take]
    attrs = expr.attrs
    if not isinstance(attrs, Take) or attrs.axis != 0 or attrs.mode not in _MODES:
        return None
    x, rows = expr.args
    if not all(exprs[each].is_static for each in (take, x, rows)):
        return None
    if len(exprs[x].static_shape) != 2 or exprs[rows].dtype not in INDICES:
        return None
    while _is_same_rows(exprs, rows, attrs.mode):
        members.append(rows)
        (rows,) = exprs[rows].args
    # A constant of one element is a number, which no kernel is given the address of.
    if any(exprs[each].scalar is not None for each in (x, rows)) or not exprs[rows].static_shape:
        return None
    return Taken(x=x, rows=rows, take=take, members=tuple(members))


def _keeps_rows(exprs: Sequence[Expr], index: int) -> bool:
    """Return whether a value is another one, reshaped, with the same columns."""
    expr = exprs[index]
    if expr.op != _VIEW or not expr.is_static or not exprs[expr.args[0]].is_static:
        return False
    before, after = exprs[expr.args[0]].static_shape, expr.static_shape
    return bool(before) and bool(after) and before[-1] == after[-1]


def _is_same_rows(exprs: Sequence[Expr], index: int, mode: str) -> bool:
    """Return whether a view or a cast of integers gathers the same rows as these.

    A cast to fewer bits changes only numbers beyond the rows, for which "fast" promises nothing.
    """
    expr = exprs[index]
    if expr.op not in {_VIEW, _CAST} or not exprs[expr.args[0]].is_static:
        return False
    before = exprs[expr.args[0]].dtype
    is_wider = expr.dtype in {before, IndexType.INT64.value}
    return before in INDICES and (is_wider or mode == "fast")


def gathered_last(graph: Graph) -> Graph:
    """Return `graph` with the gather last before grouped matmuls, and with norms that gather from
    narrow tensors.
    """
    builder = GraphBuilder()
    names: dict[int, int] = {}
    made: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        written = renamed(expr, names)
        narrow = _narrowed_before(graph, index, builder, names)
        if narrow is not None:
            names[index] = narrow
            continue
        if expr.op == GROUPED:
            a, *rest = written.args
            if a not in made:
                made[a] = _last(builder, a)
            written = replace(written, args=(made[a], *rest))
        names[index] = builder.add(written)
    return builder.graph(mapped(graph.results, names))


def _narrowed_before(
    graph: Graph, index: int, builder: GraphBuilder, names: Mapping[int, int]
) -> int | None:
    """Write the cast at `index` before the `take` whose rows it casts.

    Returns None if `index` is no cast, or casts no rows that only a norm reads.
    """
    expr = graph[index]
    is_for_norm = any(graph[each].op in ROW_NORMS for each in graph.consumers[index])
    if expr.op != _CAST or not is_for_norm or not expr.is_static:
        return None
    (at,) = expr.args
    # A norm's kernel widens what it takes itself.
    if expr.dtype == DType.F32.value or graph[at].dtype != DType.F32.value:
        return None
    while graph[at].op == _VIEW and _keeps_rows(graph.exprs, at) and has_one_reader(graph, at):
        (at,) = graph[at].args
    if not has_one_reader(graph, at) or at not in names:
        return None
    taken = _taken_at_once(builder, names[at])
    if taken is None or not _is_no_longer(builder, *taken):
        return None
    narrow = builder.astype(taken[0], expr.dtype)
    rows = replace(builder[names[at]], args=(narrow, taken[1]), dtype=expr.dtype)
    return builder.reshape(builder.add(rows), expr.static_shape)


def _last(builder: GraphBuilder, a: int) -> int:
    """Return a value equal to that at `a` whose gather comes last, if possible."""
    while True:
        expr = builder[a]
        if expr.op == _CAST:
            (source,) = expr.args
            taken = _taken_at_once(builder, source)
            if taken is None or not _is_no_longer(builder, *taken):
                return a
            x = builder.astype(taken[0], expr.dtype)
            a = builder.add(replace(builder[source], args=(x, taken[1]), dtype=expr.dtype))
            continue
        outer = _taken_at_once(builder, a)
        inner = None if outer is None else _taken_at_once(builder, outer[0])
        if outer is None or inner is None:
            return a
        rows = replace(
            expr,
            args=(inner[1], outer[1]),
            shape=builder.shape(outer[1]),
            dtype=builder.dtype(inner[1]),
        )
        a = builder.add(replace(expr, args=(inner[0], builder.add(rows))))


def _taken_at_once(builder: GraphBuilder, index: int) -> tuple[int, int] | None:
    """Return the operands of an operator that gathers a matrix's rows in the order of one
    dimension.
    """
    expr = builder[index]
    if expr.op != _TAKE or taken_rows(builder.exprs, index) is None:
        return None
    x, rows = expr.args
    return (x, rows) if len(builder.shape(rows)) == 1 else None


def _is_no_longer(builder: GraphBuilder, x: int, rows: int) -> bool:
    """Return whether a tensor has no more rows than are gathered from it, so that casting all of it
    is no more work.
    """
    if builder.dtype(x) not in FLOATS:
        return False
    try:
        return builder.shape(x)[0] <= builder.shape(rows)[0]
    except UndecidedExtentError:
        return False
