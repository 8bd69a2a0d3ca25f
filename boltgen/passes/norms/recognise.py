"""Recognise norms that kernels compute: layer norm, RMS norm and softmax of rows, group norm of
images.

IR-neutral. Like a product, a norm has an elementwise tail; casts and an addition of two tensors
before it are its prologue. A sum that others read too is a further result of the kernel. Rows that
are taken of a matrix, as an embedding's are, the kernel takes itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from boltgen.errors import InvalidProblemError
from boltgen.graph.attributes import Axis, ImageNorm, LayerNorm, Normalised
from boltgen.graph.facts import FLOATS, is_filled, is_only_read_by, is_static_call, only_reader
from boltgen.graph.graph import IMAGE_NORM, Expr, Graph
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import MAX_OPERANDS, BinaryOp, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.extent import Dim
from boltgen.passes.movement.sink_gathers import Taken, taken_rows
from boltgen.passes.norms.image_norms import (
    CHANNELS_LAST,
    image_norm_problem,
)
from boltgen.passes.norms.spelled_norms import Spelled, spelled_norm
from boltgen.passes.regions.anchor import Anchor, NotOffloadableError, with_taken
from boltgen.passes.regions.broadcast_kind import slice_span, span
from boltgen.passes.regions.epilogue_walk import grow
from boltgen.passes.regions.products import Product, Summed
from boltgen.passes.regions.tail import TailOperand
from boltgen.problems.norm.problem import Norm, NormFunction

LAYER_NORM, RMS_NORM, SOFTMAX = "nn.layer_norm", "nn.rms_norm", "nn.softmax"
NORMS = {
    LAYER_NORM: NormFunction.LAYER,
    RMS_NORM: NormFunction.RMS,
    SOFTMAX: NormFunction.SOFTMAX,
}
_WHOLE = frozenset({*NORMS, IMAGE_NORM})
_CAST, _ADD = "astype", "add"


@dataclass(frozen=True, slots=True)
class Norms:
    """The norms that kernels may compute, and why others stay with TVM, by their indices."""

    found: tuple[Product, ...]
    refused: dict[int, str]


def find_norms(graph: Graph, claimed: Collection[int]) -> Norms:
    """Find the norms of a graph; none has an operator in `claimed` or in another norm."""
    taken = set(claimed)
    found: list[Product] = []
    refused: dict[int, str] = {}
    for index, expr in enumerate(graph.exprs):
        if index in taken:
            continue
        spelled = spelled_norm(graph, index)
        if expr.op not in _WHOLE and (spelled is None or not taken.isdisjoint(spelled.members)):
            continue
        try:
            anchor = (
                _match(graph, index) if spelled is None else _match_spelled(graph, index, spelled)
            )
        except (NotOffloadableError, InvalidProblemError) as error:
            refused[index] = str(error)
            continue
        # A value inside the region is no tensor that its graph could load.
        readers = {each for member in anchor.absorbed for each in graph.consumers[member]}
        norm = Product(anchor=anchor, tail=grow(graph, anchor, taken | readers - {index}))
        norm = _with_source(graph, norm, taken)
        # A value that others read too is in memory for them, for example for another norm of the
        # same tensor.
        taken.update({*norm.computed, *(spelled.members if spelled else ())} - {*anchor.absorbed})
        found.append(norm)
    return Norms(tuple(found), refused)


def _match(graph: Graph, index: int) -> Anchor:
    expr = graph[index]
    if expr.op == IMAGE_NORM:
        return _match_images(graph, index)
    if not is_static_call(graph, index):
        raise NotOffloadableError("a shape is not known")
    x, *rows = expr.args
    shape = graph[x].static_shape
    if not shape:
        raise NotOffloadableError("it is of a single number")
    if _axes(graph, index) != (len(shape) - 1,):
        axes = ", ".join(map(str, _axes(graph, index)))
        raise NotOffloadableError(
            f"it is along the axes {axes} of {len(shape)}; kernels norm rows, along the last one"
        )
    columns = shape[-1]
    _check(graph, index, x, rows)
    for at in rows:
        if graph[at].static_shape != (columns,):
            raise NotOffloadableError(
                f"its scale or shift is {graph[at].static_shape}, not ({columns},)"
            )
    epsilon = expr.attrs.of(Normalised).epsilon if rows else 0.0
    problem = _problem(graph[x], expr, NORMS[expr.op], epsilon)
    applied = _applied(graph, index)
    return Anchor(index=index, problem=problem, a=x, operand_b=None, applied=applied)


def _problem(x: Expr, norm: Expr, function: NormFunction, epsilon: float) -> Norm:
    """Return the problem of a norm of the rows of `x`."""
    return Norm(
        rows=prod(x.static_shape[:-1]),
        columns=x.static_shape[-1],
        function=function,
        epsilon=epsilon,
        in_dtype=DType(x.dtype),
        out_dtype=DType(norm.dtype),
    )


def _match_images(graph: Graph, index: int) -> Anchor:
    expr = graph[index]
    if not is_static_call(graph, index):
        raise NotOffloadableError("a shape is not known")
    if expr.attrs.of(ImageNorm).channel_axis != CHANNELS_LAST:
        raise NotOffloadableError("its images are in NCHW; kernels norm groups of NHWC")
    problem = image_norm_problem(graph, expr)
    return Anchor(index=index, problem=problem, a=expr.args[0], operand_b=None)


def _match_spelled(graph: Graph, index: int, spelled: Spelled) -> Anchor:
    x, expr = graph[spelled.x], graph[index]
    if not x.is_static or x.static_shape != expr.static_shape:
        raise NotOffloadableError("a shape is not known")
    _check(graph, index, spelled.x, ())
    problem = _problem(x, expr, spelled.function, spelled.epsilon)
    whole = {*spelled.members, index}
    shared = tuple(each for each in spelled.members if not is_only_read_by(graph, each, whole))
    return Anchor(
        index=index,
        problem=problem,
        a=spelled.x,
        operand_b=None,
        absorbed=shared,
        inner=tuple(each for each in spelled.members if each not in shared),
    )


def _check(graph: Graph, index: int, x: int, rows: Sequence[int]) -> None:
    """Check the length of rows, and all types."""
    columns = graph[x].static_shape[-1]
    if isinstance(columns, Dim):
        raise NotOffloadableError(
            f"its rows have {columns} elements, which is symbolic; a row stays in the registers of "
            "threads that are chosen for its length"
        )
    for at in (x, *rows, index):
        if graph[at].dtype not in FLOATS:
            raise NotOffloadableError(f"a tensor of it is {graph[at].dtype}")


def _axes(graph: Graph, index: int) -> tuple[int, ...]:
    attrs, rank = graph[index].attrs, len(graph[index].static_shape)
    if isinstance(attrs, Axis):
        return (attrs.at(rank),)
    return tuple(sorted(axis % rank for axis in attrs.of(Normalised).axes))


def _applied(graph: Graph, index: int) -> tuple[tuple[BinaryOp, int], ...]:
    """Return the scale and the shift of a norm's operator itself."""
    expr = graph[index]
    ops = (BinaryOp.MULTIPLY, BinaryOp.ADD)
    attrs = expr.attrs
    given = (attrs.scale, attrs.center) if isinstance(attrs, LayerNorm) else (True, True)
    rows = zip(ops, (1.0, 0.0), expr.args[1:], given[: len(expr.args) - 1], strict=False)
    return tuple(
        (op, at)
        for op, neutral, at, is_given in rows
        if is_given and not is_filled(graph[at], neutral)
    )


def _with_source(graph: Graph, norm: Product, taken: Collection[int]) -> Product:
    """`norm` from before the casts, and the additions, that make its A."""
    casts, source = _widened(graph, norm.anchor.a, taken)
    summed = _summed(graph, norm, casts, source, taken)
    if summed is not None:
        return summed
    gathered = _gathered(graph, norm, casts, source, taken)
    if gathered is not None:
        return gathered
    if not casts or any(operand.expr in casts for operand in norm.tail.operands):
        return norm
    anchor = _reading(norm.anchor, source, graph[source].dtype)
    absorbed = tuple(sorted({*casts, *anchor.absorbed}))
    return replace(norm, anchor=replace(anchor, absorbed=absorbed))


def _widened(graph: Graph, at: int, taken: Collection[int]) -> tuple[list[int], int]:
    """Return the casts to wider types before `at`, last first, and the first one's operand."""
    casts: list[int] = []
    while graph[at].op == _CAST and at not in taken:
        (source,) = graph[at].args
        before, after = graph[source].dtype, graph[at].dtype
        is_wider = after in {DType.F32.value, before}
        if before not in FLOATS or not is_wider or not graph[source].is_static:
            break
        casts.append(at)
        at = source
    return casts, at


def _reading(anchor: Anchor, a: int, dtype: str) -> Anchor:
    problem: Any = anchor.problem
    return replace(anchor, a=a, problem=replace(problem, in_dtype=DType(dtype)))


def _summed(
    graph: Graph, norm: Product, casts: list[int], total: int, claimed: Collection[int]
) -> Product | None:
    """Return `norm` with its A, the sum `total`, computed in its kernel, or None.

    If a term has rows that are taken of a matrix, the kernel takes them.
    """
    found = _sum(graph, total, claimed)
    if found is None:
        return None
    if len({found.slice_rows, norm.anchor.problem.slice_rows, norm.tail.slice_rows} - {0}) > 1:
        return None
    anchor, taken = _reading(norm.anchor, found.a, graph[found.a].dtype), None
    if found.a not in {other for other, _ in found.others}:
        taken = _taken(graph, found.a, claimed)
    if taken is not None:
        anchor = with_taken(graph, anchor, taken)
    made = _with_made_a(graph, norm, anchor, (*found.members, *reversed(casts)), found.others)
    if made is None:
        return None
    return replace(
        made, tail=replace(norm.tail, slice_rows=found.slice_rows or norm.tail.slice_rows)
    )


def _with_made_a(
    graph: Graph,
    norm: Product,
    anchor: Anchor,
    members: tuple[int, ...],
    others: Sequence[tuple[int, LoadKind]] = (),
) -> Product | None:
    """Return `norm` on `anchor`, whose A its kernel makes as `members` do; None if it cannot.

    The `others` are added to what is loaded. If others than the norm read the result of the first
    member too, it is a further result of the kernel.
    """
    first, inner = members[0], {*members, *norm.anchor.inner, *norm.tail.members}
    if norm.anchor.absorbed:  # casts that others read
        return None
    if any(operand.expr in inner for operand in norm.tail.operands):
        return None
    if any(not is_only_read_by(graph, each, inner) for each in members if each != first):
        return None
    builder, added = ElementwiseBuilder(), 0
    for other, kind in others:
        load = builder.load(kind, DType(graph[other].dtype))
        added = builder.binary(BinaryOp.ADD, added, load)
    further: tuple[int, ...] = ()
    if not is_only_read_by(graph, first, inner):
        # The region, at the place of its last operator, stands before all others that read it.
        if any(each not in inner and each <= norm.tail.output for each in graph.consumers[first]):
            return None
        further = (first,)
        builder.store(added)
        builder.store(added, dtype=DType(graph[first].dtype))
    passed = (*others, *further, *norm.operands, *norm.further)  # besides A and D
    if len(passed) > MAX_OPERANDS:
        return None
    summed = Summed(
        members=members,
        prologue=builder.build(),
        operands=tuple(TailOperand(expr=other, batched=False) for other, _ in others),
        further=further,
    )
    return replace(norm, anchor=anchor, summed=summed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """The additions of a sum, last first, the tensor `a` that is as large, and the `others`, each
    with how it spans the sum; slices are of so many rows if one has a row for each position.
    """

    members: tuple[int, ...]
    a: int
    others: tuple[tuple[int, LoadKind], ...]
    slice_rows: int


def _sum(graph: Graph, total: int, claimed: Collection[int]) -> _Sum | None:
    """Return the terms of the sum `total`; None if it is no sum, or if no kernel broadcasts a term
    so.

    Embeddings are sums of three: words and types are taken of tables, and positions are alike in
    all sequences.
    """
    if not _is_sum(graph, total, claimed):
        return None
    members: tuple[int, ...] = (total,)
    terms = list(graph[total].args)
    for term in terms:
        is_own = only_reader(graph, term) == total
        tables = [t for t in graph[term].args if _taken(graph, t, claimed) is not None]
        if is_own and tables and _is_sum(graph, term, claimed):
            terms.remove(term)
            members, terms = (total, term), [*graph[term].args, *terms]
            break
    out = graph[total].static_shape
    whole = [each for each in terms if graph[each].static_shape == out]
    if not whole:
        return None
    a = next((each for each in whole if _taken(graph, each, claimed) is not None), whole[0])
    terms.remove(a)
    kinds: list[LoadKind] = []
    rows: set[int] = set()
    for each in terms:
        shape = graph[each].static_shape
        of_slices = slice_span(shape, out)
        if span(shape, out, batched=False) == (LoadKind.TENSOR, False):
            kinds.append(LoadKind.TENSOR)
        elif of_slices is not None and of_slices[0] is LoadKind.POSITION_ROW:
            kinds.append(LoadKind.POSITION_ROW)
            rows.add(of_slices[1])
        else:
            return None
    if len(rows) > 1:
        return None
    return _Sum(
        members=members,
        a=a,
        others=tuple(zip(terms, kinds, strict=True)),
        slice_rows=max(rows, default=0),
    )


def _is_sum(graph: Graph, index: int, claimed: Collection[int]) -> bool:
    """Return whether it is a sum of two tensors of numbers, in no other kernel's region."""
    expr = graph[index]
    if expr.op != _ADD or index in claimed or len(expr.args) != 2:
        return False
    return all(graph[arg].is_static and graph[arg].dtype in FLOATS for arg in expr.args)


def _gathered(
    graph: Graph, norm: Product, casts: list[int], source: int, claimed: Collection[int]
) -> Product | None:
    """Return `norm` of gathered rows of a matrix, perhaps cast; None if A is made otherwise.

    If others read the rows too, they are a further result of the kernel.
    """
    taken = _taken(graph, source, claimed)
    if taken is None:
        return None
    anchor = with_taken(graph, _reading(norm.anchor, source, graph[source].dtype), taken)
    return _with_made_a(graph, norm, anchor, (source, *reversed(casts)))


def _taken(graph: Graph, index: int, claimed: Collection[int]) -> Taken | None:
    """Match a gather of a matrix's rows of numbers; None without a match, or if another kernel's
    region has one of its operators.
    """
    taken = taken_rows(graph, index)
    if taken is None or graph[taken.x].dtype not in FLOATS:
        return None
    return taken if set(taken.members).isdisjoint(claimed) else None
