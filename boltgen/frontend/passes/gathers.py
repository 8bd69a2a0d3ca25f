"""Rows that are taken of a tensor by integers, x[rows], where a kernel can take them itself.

IR-neutral. Of what is done to a tensor before a product, taking its rows comes last, so that the
kernel reads the tensor itself: a cast of rows that are taken becomes rows of a cast tensor, and
rows that are taken of rows that are taken come from the tensor at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boltgen.frontend.graph import GROUPED, Expr, Graph, GraphBuilder, mapped, renamed
from boltgen.ir.dtypes import DType, IndexType
from boltgen.ir.extent import UndecidedExtentError

_TAKE, _CAST = "take", "astype"
# Where an integer that is no row takes the nearest one, as kernels do, and where TVM says nothing
# of it. Source: tvm, topi/transform.h, take.
_MODES = frozenset({"clip", "fast"})
_INDICES = frozenset(each.value for each in IndexType)
_FLOATS = frozenset(each.value for each in DType)


def taken_rows(exprs: Sequence[Expr], index: int) -> tuple[int, int] | None:
    """The matrix, and the integers that take its rows, of which the value at `index` is made; None
    where it is made otherwise.
    """
    expr = exprs[index]
    if expr.op != _TAKE or expr.attrs.get("axis") != 0 or expr.attrs.get("mode") not in _MODES:
        return None
    x, rows = expr.args
    if not all(exprs[each].is_static for each in (index, x, rows)):
        return None
    if (len(exprs[x].static_shape), len(exprs[rows].static_shape)) != (2, 1):
        return None
    # A constant of one element is a number, which no kernel is given the address of.
    is_number = any(exprs[each].scalar is not None for each in (x, rows))
    return None if is_number or exprs[rows].dtype not in _INDICES else (x, rows)


def gathered_last(graph: Graph) -> Graph:
    """`graph`, in which products in groups multiply what is taken of a tensor in the end."""
    builder = GraphBuilder()
    names: dict[int, int] = {}
    made: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        written = renamed(expr, names)
        if expr.op == GROUPED:
            a, *rest = written.args
            if a not in made:
                made[a] = _last(builder, a)
            written = replace(written, args=(made[a], *rest))
        names[index] = builder.add(written)
    return builder.graph(mapped(graph.results, names))


def _last(builder: GraphBuilder, a: int) -> int:
    """A value equal to that at `a` whose rows are taken in the end, where it can be."""
    expr = builder[a]
    if expr.op == _CAST:
        (source,) = expr.args
        taken = taken_rows(builder.exprs, source)
        if taken is None or not _is_no_longer(builder, *taken):
            return a
        x = builder.astype(taken[0], expr.dtype)
        moved = replace(builder[source], args=(x, taken[1]), dtype=expr.dtype)
        return _last(builder, builder.add(moved))
    outer = taken_rows(builder.exprs, a)
    inner = None if outer is None else taken_rows(builder.exprs, outer[0])
    if outer is None or inner is None:
        return a
    rows = replace(
        expr,
        args=(inner[1], outer[1]),
        shape=builder.shape(outer[1]),
        dtype=builder.dtype(inner[1]),
    )
    return _last(builder, builder.add(replace(expr, args=(inner[0], builder.add(rows)))))


def _is_no_longer(builder: GraphBuilder, x: int, rows: int) -> bool:
    """Whether a tensor of numbers has no more rows than are taken of it, so that casting all of it
    is no more work.
    """
    if builder.dtype(x) not in _FLOATS:
        return False
    try:
        return builder.shape(x)[0] <= builder.shape(rows)[0]
    except UndecidedExtentError:
        return False
