"""Compute operands of attention in its kernel, from smaller tensors. For both IRs.

    scores + cast(clip(bias + hidden)), bias: (1, H, M, N), hidden: (B, 1, 1, N)

The kernel has each element in a register, so it can load both and add them: (B, H, M, N) is then
neither written nor read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from boltgen.graph.facts import has_one_reader
from boltgen.graph.graph import CONSTANT, CORNER, INPUT, Expr, Graph
from boltgen.ir.dtypes import CONVERTED, DType
from boltgen.ir.extent import greatest

BROADCAST = "broadcast_to"
_INLINED = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "astype"),
        BROADCAST,
    }
)
_FLOATS = {name: DType(name) for name in CONVERTED}


@dataclass(frozen=True, slots=True)
class MadeOf:
    """The elementwise operators that make a tensor, in order, and the tensors that they read."""

    members: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()


def made_of(graph: Graph, index: int) -> MadeOf:
    """Return the sources of the tensor at `index` if loading them saves bytes; else nothing.

    If others read the tensor too it is still written: then the sources must have fewer bytes.
    Otherwise all sources but one must be smaller. A single source that is not smaller must be in
    memory in any case: a kernel that computes it could compute the tensor too.
    """
    members = sorted(_members(graph, index))
    args = dict.fromkeys(arg for member in members for arg in graph[member].args)
    leaves = [arg for arg in args if arg not in members and graph[arg].scalar is None]
    if not leaves:
        return MadeOf()
    whole = graph[index]
    sizes = [_elements(graph[leaf]) for leaf in leaves]
    if not has_one_reader(graph, index):
        bytes_read = sum(map(_bytes, (graph[leaf] for leaf in leaves)))
        is_less = bytes_read < _bytes(whole)
    else:
        is_less = sum(size >= _elements(whole) for size in sizes) <= 1
        is_alone = len(leaves) == 1 and sizes[0] >= _elements(whole)
        is_less = is_less and not (is_alone and not _is_there(graph, leaves[0]))
    return MadeOf(tuple(members), tuple(leaves)) if is_less else MadeOf()


def _members(graph: Graph, index: int) -> set[int]:
    """Return the float operators that end at `index` and whose inner values nothing else reads."""
    found: set[int] = set()
    pending = [index]
    while pending:
        at = pending.pop()
        expr = graph[at]
        args = [graph[arg] for arg in expr.args]
        if at in found or expr.op not in _INLINED or not all(map(_is_float, (expr, *args))):
            continue
        found.add(at)
        pending += (arg for arg in expr.args if has_one_reader(graph, arg))
    return found


def _is_there(graph: Graph, index: int) -> bool:
    """Return whether a tensor is in memory regardless of its reader."""
    is_stored = graph[index].op in {INPUT, CONSTANT, CORNER}
    return is_stored or not has_one_reader(graph, index)


def _is_float(expr: Expr) -> bool:
    return expr.is_static and expr.dtype in _FLOATS


def _elements(expr: Expr) -> int:
    return _count(expr.static_shape)


def _bytes(expr: Expr) -> int:
    return _count(expr.static_shape) * _FLOATS[expr.dtype].size_bytes


def _count(shape: Sequence[int]) -> int:
    return prod(map(greatest, shape))
