"""CSE for views, casts, masks and differences: equal ones are computed once. For both IRs.

PyTorch's programs reshape and cast a tensor, and make a mask, anew for each layer that reads it.
Once a tensor has one reader, the kernel that makes it can store it in the reader's form. A norm is
recognised only if it squares and scales one and the same difference. A reshape of a reshape becomes
one reshape: TVM would make a kernel for each.
"""

from __future__ import annotations

from collections.abc import Hashable

from boltgen.graph.facts import AND, COMPARISONS, NOT, OR
from boltgen.graph.graph import Expr, Graph, GraphBuilder, written_anew
from boltgen.graph.patterns import Match, Through, Var, op
from boltgen.graph.rules import Rule, rewrite

# Operators that make masks, and a norm's difference from its mean. Other arithmetic stays repeated:
# two norms of a tensor are two kernels.
_COMPUTED = frozenset({"where", "clip", "max", "min", "subtract"}) | COMPARISONS | AND | OR | NOT
_KNOWN = _COMPUTED | {"astype", "permute_dims", "reshape", "broadcast_to"}


def without_repeated(graph: Graph) -> Graph:
    """Return `graph` with each of these operators computed once for equal operands."""
    known: dict[Hashable, list[int]] = {}

    def write(_: int, expr: Expr, builder: GraphBuilder) -> Expr | int:
        number = expr.array.tobytes() if expr.array is not None and expr.array.size == 1 else None
        if expr.pinned or (expr.op not in _KNOWN and number is None):
            return expr
        alike = known.setdefault((expr.op, expr.args, expr.dtype, number), [])
        found = next((each for each in alike if _is_equal(builder[each], expr)), None)
        if found is None:
            found = builder.add(expr)
            alike.append(found)
        return found

    return written_anew(graph, write)


def with_single_reshapes(graph: Graph) -> Graph:
    """Return `graph` without reshapes of reshapes, and without reshapes that keep the shape."""
    return rewrite(graph, (joined("reshape"),))


def _needed(found: Match) -> str | None:
    if not all(found.values[member].is_static for member in found.members):
        return "a shape is unknown"
    is_needed = len(found.members) == 1 and found.shape("x") != found.shape()
    return "" if is_needed else None


def joined(view: str) -> Rule:
    """Return a rule that replaces views of views by the last one: `reshape` or `broadcast_to`."""
    return Rule(
        name=f"join {view}",
        pattern=op(view, Through(frozenset({view}), Var("x"))),
        write=lambda found, builder: (
            found["x"]
            if found.shape("x") == found.shape()
            else builder.operator(view, (found["x"],), found.shape(), found.expr().dtype)
        ),
        unless=_needed,
        needs_shapes=False,
    )


def _is_equal(left: Expr, right: Expr) -> bool:
    """Return whether two operators compute the same. A reshape also needs the same known result
    shape.
    """
    if left.shape is None or left.shape != right.shape:
        return False
    return left.op in {"reshape", "broadcast_to"} or left.attrs == right.attrs
