"""Compute operators on the heads of Q and of K at once, if both lie side by side in one matmul's
result.

    q, k = columns of x [Wq Wk Wv];  rotary(q), rotary(k)
    ->  both = rotary(columns of q and k);  heads of both

A rotary embedding turns all heads of a position alike, so one kernel of TVM's turns the heads of Q
and K, and attention reads the heads of each by strides. For both IRs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, combinations
from math import prod

import numpy as np

from boltgen.graph.attributes import Slice
from boltgen.graph.facts import (
    MOVES,
    axis_of,
    is_only_read_by,
    is_static_call,
    only_reader,
    readers_through,
)
from boltgen.graph.graph import (
    CONSTANT,
    INPUT,
    OPAQUE,
    Choice,
    Expr,
    Graph,
    GraphBuilder,
    Noted,
    renamed,
    rewritten,
)
from boltgen.graph.recursion import Steps, answer
from boltgen.passes.regions.anchor import MATMUL

_SLICE, _VIEW, _JOIN = "strided_slice", "reshape", "concat"
# Operators that compute each head of its own, where they join and cut columns alone.
_OF_HEADS = frozenset({"add", "subtract", "multiply", "negative", "astype", _JOIN, _SLICE})
# Two of these are not the same for what they have in common.
_UNLIKE = frozenset({INPUT, CONSTANT, OPAQUE})


@dataclass(frozen=True, slots=True)
class _Heads:
    """Heads that are sliced from a matmul's result, (..., heads, columns), and the operators on
    them.

    `view` makes heads of the slice `cut`. Only the operators `members` read the heads, and others
    read only the result of the last one, `output`.
    """

    cut: int
    view: int
    members: frozenset[int]
    output: int


def with_joint_heads(graph: Graph) -> Noted:
    """Return `graph` with equal operators on neighbouring heads computed at once: a rule decides,
    and no times.
    """
    found = [heads for index in range(len(graph)) if (heads := _heads(graph, index)) is not None]
    alone = {each.output: each for each in found}
    groups: dict[int, tuple[_Heads, ...]] = {}
    choices: list[Choice] = []
    for first, second in combinations(sorted(found, key=lambda each: _span(graph, each)[0]), 2):
        if not (first.output in alone and second.output in alone):
            continue
        if graph[first.cut].args != graph[second.cut].args:
            continue  # no pass would join them
        obstacle = _obstacle(graph, first, second)
        choices.append(_choice(graph, first, second, obstacle))
        if obstacle is None:
            del alone[first.output], alone[second.output]
            groups[min(first.output, second.output)] = first, second
    groups |= {output: (each,) for output, each in alone.items()}
    return Noted.of(_written(graph, groups), choices)


def _heads(graph: Graph, index: int) -> _Heads | None:
    """Return the heads that a reshape makes of a slice, if one value is computed from them."""
    view = graph[index]
    if view.op != _VIEW or not view.is_static or len(view.static_shape) < 3:
        return None
    at = _source(graph, index)
    cut = graph[at]
    if cut.op != _SLICE or not is_static_call(graph, at) or not isinstance(cut.attrs, Slice):
        return None
    heads, columns = view.static_shape[-2:]
    if prod(cut.static_shape[_axis(cut) :]) != heads * columns:
        return None
    found = on_heads(graph, index)
    if found is None:
        return None
    members, output = found
    exits = readers_through(graph, output, MOVES)
    if output in graph.escaping or not all(_is_product(graph, *each) for each in exits):
        return None
    return _Heads(at, index, members, output)


def _source(graph: Graph, index: int) -> int:
    """Return the value that is reshaped, once or several times, only for `index`."""
    while True:
        (source,) = graph[index].args
        if only_reader(graph, source) is None:
            return index
        if graph[source].op != _VIEW:
            return source
        index = source


def on_heads(graph: Graph, view: int) -> tuple[frozenset[int], int] | None:
    """Return the operators that compute one value of each head of `view`, (..., heads, columns),
    and of values that all heads share, as a rotary embedding does, and the last of them.

    Return None if others read the heads, or several of the results.
    """
    if not graph[view].is_static or len(graph[view].static_shape) < 3:
        return None
    found = {view}
    for index in range(view + 1, len(graph)):
        expr = graph[index]
        if expr.op in _OF_HEADS and any(arg in found for arg in expr.args):
            others = [arg for arg in expr.args if arg not in found]
            if _is_of_each(graph, index, view) and all(_is_shared(graph, arg) for arg in others):
                found.add(index)
    members = frozenset(found - {view})
    outputs = [each for each in members if not is_only_read_by(graph, each, members)]
    is_whole = len(outputs) == 1 and is_only_read_by(graph, view, members)
    return (members, outputs[0]) if is_whole else None


def _is_of_each(graph: Graph, index: int, view: int) -> bool:
    expr, heads = graph[index], graph[view].static_shape
    if not expr.is_static or expr.static_shape[:-1] != heads[:-1]:
        return False
    if expr.op in {_JOIN, _SLICE}:
        return axis_of(expr) == len(heads) - 1
    return True


def _is_shared(graph: Graph, index: int) -> bool:
    """Return whether a value has one row for all heads."""
    expr = graph[index]
    return expr.is_static and (len(expr.static_shape) < 2 or expr.static_shape[-2] == 1)


def _is_product(graph: Graph, reader: int, value: int) -> bool:
    """Return whether a batched matmul reads a value, or a join with others, as with a cache."""
    expr = graph[reader]
    is_batched = expr.op == MATMUL and len(graph[value].shape or ()) > 2
    return is_batched or expr.op == _JOIN


def _choice(graph: Graph, first: _Heads, second: _Heads, obstacle: str | None) -> Choice:
    members = sorted(first.members | second.members)
    operators = tuple(dict.fromkeys(graph[each].op for each in members))
    both = " and ".join(str(graph[each.view].static_shape[-2]) for each in (first, second))
    how = "at once" if obstacle is None else f"apart: {obstacle}"
    reason = f"the operators on {both} heads of one matmul are computed {how}"
    return Choice(operators, graph[first.output].shape, obstacle is None, reason)


def _obstacle(graph: Graph, first: _Heads, second: _Heads) -> str | None:
    """Return why two groups of heads of one tensor are not computed at once.

    The same must be computed from both, and they must lie side by side.
    """
    one, two = (graph[each.view].static_shape for each in (first, second))
    if not _are_neighbours(graph, first, second):
        return "they do not lie side by side"
    if (one[:-2], one[-1]) != (two[:-2], two[-1]):
        return f"their heads have {one[-1]} and {two[-1]} columns, or other positions"
    are_alike = len(first.members) == len(second.members) and answer(
        partial(_same, graph, first, second), (first.output, second.output)
    )
    return None if are_alike else "the operators or their other operands differ"


def _are_neighbours(graph: Graph, first: _Heads, second: _Heads) -> bool:
    is_one_axis = _axis(graph[first.cut]) == _axis(graph[second.cut])
    return is_one_axis and _span(graph, first)[1] == _span(graph, second)[0]


def _span(graph: Graph, heads: _Heads) -> tuple[int, int]:
    attrs = graph[heads.cut].attrs.of(Slice)
    return attrs.begin, attrs.end


def _axis(cut: Expr) -> int:
    return cut.attrs.of(Slice).axis % len(cut.static_shape)


def _same(
    graph: Graph, first: _Heads, second: _Heads, pair: tuple[int, int]
) -> Steps[tuple[int, int], bool]:
    """Return whether one value of a pair depends on the first heads as the other does on the
    second.
    """
    one, two = pair
    if one == first.view or two == second.view:
        return (one, two) == (first.view, second.view)
    is_of_heads = one in first.members, two in second.members
    left, right = graph[one], graph[two]
    if not all(is_of_heads):
        if any(is_of_heads) or left.shape != right.shape:
            return False
        if one == two or _are_equal(left, right):
            return True
    if left.op in _UNLIKE or left.pinned or right.pinned or len(left.args) != len(right.args):
        return False
    if (left.op, left.dtype, left.attrs) != (right.op, right.dtype, right.attrs):
        return False
    for each in zip(left.args, right.args, strict=True):
        if not (yield each):
            return False
    return True


def _are_equal(left: Expr, right: Expr) -> bool:
    if left.array is None or right.array is None or left.dtype != right.dtype:
        return False
    return np.array_equal(left.array, right.array)


def _written(graph: Graph, groups: Mapping[int, Sequence[_Heads]]) -> Graph:
    both = [each for group in groups.values() for each in group]
    members = {member for each in both for member in (*each.members, each.view)}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        _write(graph, groups[index], builder, names)

    return rewritten(graph, groups, write, members)


def _write(
    graph: Graph, group: Sequence[_Heads], builder: GraphBuilder, names: dict[int, int]
) -> None:
    """Write the operators on a group of heads, and name the results of each."""
    # The operands of the others may not be written yet.
    first = min(group, key=lambda each: each.output)
    counts = [graph[each.view].static_shape[-2] for each in group]
    own = {first.view: _write_view(graph, group, builder, names)}
    for member in sorted(first.members):
        expr = graph[member]
        made = replace(renamed(expr, names | own), shape=_of_all(expr, sum(counts)), origin=None)
        own[member] = builder.add(made)
    whole = own[first.output]
    if len(group) == 1:
        names[first.output] = whole
        return
    for each, end in zip(group, accumulate(counts), strict=True):
        expr = graph[each.output]
        axis, heads = len(expr.static_shape) - 2, expr.static_shape[-2]
        names[each.output] = builder.slice(whole, axis, end - heads, end)


def _write_view(
    graph: Graph, group: Sequence[_Heads], builder: GraphBuilder, names: Mapping[int, int]
) -> int:
    """Slice the heads of a group from all heads of the matmul, if it has others too.

    With a dynamic size TVM fuses a slice into the following operator, but not through a reshape.
    """
    cut, view = graph[group[0].cut], graph[group[0].view]
    source, axis = names[cut.args[0]], _axis(cut)
    begin, end = _span(graph, group[0])[0], _span(graph, group[-1])[1]
    heads = sum(graph[each.view].static_shape[-2] for each in group)
    columns, inner = view.static_shape[-1], prod(cut.static_shape[axis + 1 :])
    every, before = prod(builder.shape(source)[axis:]), begin * inner
    if every % columns or before % columns:
        return builder.reshape(builder.slice(source, axis, begin, end), _of_all(view, heads))
    whole = builder.reshape(source, _of_all(view, every // columns))
    first = before // columns
    return builder.slice(whole, len(view.static_shape) - 2, first, first + heads)


def _of_all(expr: Expr, heads: int) -> tuple[int, ...]:
    return (*expr.static_shape[:-2], heads, expr.static_shape[-1])
