"""Read rows of slices in place, with simple operators on them in the kernel. For both IRs.

    c W + b: (B, 6 N) -> its columns N to 2 N -> (B, 1, N) -> 1 + scale

A diffusion model makes the numbers of all its images in one product, and cuts it in parts. A kernel
reads its part of each row from there, and adds the one: without a launch for each part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from boltgen.graph.facts import FLOATS, has_one_reader
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph
from boltgen.graph.view import strided_whole
from boltgen.ir.extent import Dim
from boltgen.passes.regions.epilogue_rules import VIEW
from boltgen.problems.region import RowView

_SLICE = "strided_slice"
_SIMPLE = frozenset({"add", "subtract", "multiply", "divide", "astype"})


@dataclass(frozen=True, slots=True)
class SliceRows:
    """The tensor to load, the place of the load's rows in its rows if they are a part, and the
    operators that make the operand from them, in order.
    """

    source: int
    view: RowView | None = None
    members: tuple[int, ...] = ()


def slice_rows(graph: Graph, index: int) -> SliceRows:
    """Return the tensor and the operators by which a kernel reads the rows of slices at `index`.

    Only the last of the operators may have other readers: their tensors are written in any case.
    """
    found = SliceRows(index)
    members: list[int] = []
    at = index
    while has_one_reader(graph, at):
        expr = graph[at]
        view = _view(graph, expr)
        if view is None and not _is_simple(graph, expr):
            break
        members.insert(0, at)
        at = next(arg for arg in expr.args if graph[arg].scalar is None)
        if view is not None or expr.op != VIEW:
            found = SliceRows(at, view, tuple(members))
        if view is not None:
            break
    # The kernel that computes the source computes its readers as well, in its epilogue.
    is_read = found.view is not None or graph[found.source].op in {INPUT, CONSTANT}
    return found if is_read else SliceRows(index)


def _is_simple(graph: Graph, expr: Expr) -> bool:
    """Return whether it only computes with one tensor's numbers and constants, or adds or drops
    dimensions of one.
    """
    tensors = [graph[arg] for arg in expr.args if graph[arg].scalar is None]
    if len(tensors) != 1 or not expr.is_static or not tensors[0].is_static:
        return False
    if not {expr.dtype, tensors[0].dtype} <= FLOATS:
        return False
    if expr.op == VIEW:
        return _longer_than_one(expr) == _longer_than_one(tensors[0])
    return expr.op in _SIMPLE and expr.static_shape == tensors[0].static_shape


def _longer_than_one(expr: Expr) -> list[int]:
    """Return the extents that may differ from 1."""
    return [each for each in expr.static_shape if isinstance(each, Dim) or each != 1]


def _view(graph: Graph, expr: Expr) -> RowView | None:
    """Return the place of a slice's numbers in longer rows; None if they are no run of each row.

    A part begins at a multiple of its length, so it is as aligned as it is long.
    """
    if expr.op != _SLICE or not expr.is_static or not graph[expr.args[0]].is_static:
        return None
    whole, shape = graph[expr.args[0]].static_shape, expr.static_shape
    part = strided_whole(whole).after(expr)
    if part is None or shape[0] != whole[0]:
        return None
    # The rows of all of it; a single row has no stride.
    rows = part.steps(0, -1) or ((1, prod(whole)),)
    (count, row), length = rows[0], shape[-1]
    is_run = len(rows) == 1 and count * row == prod(whole)
    if not is_run or any(each % length for each in (part.offset, row)):
        return None
    return RowView(offset=part.offset, columns=row)
