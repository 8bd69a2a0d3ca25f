"""Sink gathers of rows by integers, x[rows], to operators whose kernels can gather.

IR-neutral. The gather becomes the last operator before a matmul, so that the kernel reads the
tensor itself: a cast of gathered rows becomes a gather from a cast tensor, and a gather from
gathered rows becomes one gather from the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from boltgen.graph.attributes import Take
from boltgen.graph.facts import FLOATS, INDICES, Values, keeps_inner, recursive_fact
from boltgen.graph.graph import GROUPED, Graph, GraphBuilder
from boltgen.graph.patterns import Match, Through, Var, op
from boltgen.graph.recursion import Steps
from boltgen.graph.rules import Rule, rewrite
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


def taken_rows(values: Values, index: int) -> Taken | None:
    """Match a gather of a matrix's rows that gives the value at `index`; None without a match.

    It may be reshaped with its rows kept, and so may the integers, which may be cast too.
    """
    members = [index]
    while keeps_inner(values, members[-1]):
        members.append(values[members[-1]].args[0])
    take = members[-1]
    expr = values[take]
    attrs = expr.attrs
    if not isinstance(attrs, Take) or attrs.axis != 0 or attrs.mode not in _MODES:
        return None
    x, rows = expr.args
    if not all(values[each].is_static for each in (take, x, rows)):
        return None
    if len(values[x].static_shape) != 2 or values[rows].dtype not in INDICES:
        return None
    while _is_same_rows(values, rows, attrs.mode):
        members.append(rows)
        (rows,) = values[rows].args
    # A constant of one element is a number, which no kernel is given the address of.
    if any(values[each].scalar is not None for each in (x, rows)) or not values[rows].static_shape:
        return None
    return Taken(x=x, rows=rows, take=take, members=tuple(members))


def _is_same_rows(values: Values, index: int, mode: str) -> bool:
    """Return whether a view or a cast of integers gathers the same rows as these.

    A cast to fewer bits changes only numbers beyond the rows, for which "fast" promises nothing.
    """
    expr = values[index]
    if expr.op not in {_VIEW, _CAST} or not values[expr.args[0]].is_static:
        return False
    before = values[expr.args[0]].dtype
    is_wider = expr.dtype in {before, IndexType.INT64.value}
    return before in INDICES and (is_wider or mode == "fast")


def gathered_last(graph: Graph) -> Graph:
    """Return `graph` with the gather last before grouped matmuls, and with norms that gather from
    narrow tensors.
    """
    return rewrite(graph, _RULES)


@recursive_fact
def _is_multiplied(graph: Graph, index: int) -> Steps[int, bool]:
    """Return whether a grouped matmul multiplies a value, after casts and gathers at most."""
    for reader in graph.consumers[index]:
        expr = graph[reader]
        is_between = expr.op in {_CAST, _TAKE} and expr.args[0] == index
        if (expr.op == GROUPED and expr.args[0] == index) or (is_between and (yield reader)):
            return True
    return False


def _is_for_product(found: Match) -> bool:
    return _is_multiplied(found.source, found.origin)


def _is_for_norm(found: Match) -> bool:
    """Return whether a norm reads rows that a cast narrows: its kernel widens rows itself."""
    is_narrowed = found.expr("take").dtype == DType.F32.value != found.expr().dtype
    readers = found.source.consumers[found.origin]
    return is_narrowed and any(found.source[reader].op in ROW_NORMS for reader in readers)


def _stays(found: Match) -> str | None:
    """Return why a gather stays before a cast: casting all of the tensor must be no more work."""
    values, x, rows = found.values, found.expr("x"), found.expr("rows")
    if not _is_by_vector(values, found["take"]):
        return "it gathers something else than rows of a matrix by a vector"
    views = (at for at in found.members if values[at].op == _VIEW)
    if not all(keeps_inner(values, at) for at in views):
        return "a view splits the rows"
    if x.dtype not in FLOATS:
        return f"the rows are {x.dtype}"
    try:
        is_no_longer = x.static_shape[0] <= rows.static_shape[0]
    except UndecidedExtentError:
        is_no_longer = False
    return None if is_no_longer else "the tensor may have more rows than it gathers"


def _is_by_vector(values: Values, index: int) -> bool:
    is_of_rows = taken_rows(values, index) is not None
    return is_of_rows and len(values[values[index].args[1]].static_shape) == 1


def _cast_first(found: Match, builder: GraphBuilder) -> int:
    cast = found.expr()
    x = builder.astype(found["x"], cast.dtype)
    made = replace(found.expr("take"), args=(x, found["rows"]), dtype=cast.dtype)
    return builder.in_shape(builder.add(made), cast.static_shape)


def _gathered_once(found: Match, builder: GraphBuilder) -> int:
    shape, dtype = builder.shape(found["rows"]), builder.dtype(found["inner"])
    own = replace(found.expr(), args=(found["inner"], found["rows"]), shape=shape, dtype=dtype)
    return builder.add(replace(found.expr(), args=(found["x"], builder.add(own))))


_GATHER = op(_TAKE, Var("x"), Var("rows"), name="take")
_ALONE = replace(_GATHER, alone=True)
_RULES = (
    Rule(
        name="cast before the gather for a matmul",
        pattern=op(_CAST, _GATHER),
        write=_cast_first,
        unless=lambda found: _stays(found) if _is_for_product(found) else "",
    ),
    Rule(
        name="cast before the gather for a norm",
        pattern=op(_CAST, Through(frozenset({_VIEW}), _ALONE, alone=True)),
        write=_cast_first,
        unless=lambda found: _stays(found) if _is_for_norm(found) else "",
    ),
    Rule(
        name="gather rows of gathered rows at once",
        pattern=op(_TAKE, op(_TAKE, Var("x"), Var("inner")), Var("rows")),
        write=_gathered_once,
        unless=lambda found: (
            None
            if _is_for_product(found)
            and all(_is_by_vector(found.values, each) for each in found.members)
            else ""
        ),
    ),
)
