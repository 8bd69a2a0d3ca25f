"""Apply a padding plan to a graph: to weights, rows, and their readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from boltgen.graph.facts import permutation
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, written_anew
from boltgen.passes.padding.plan import Padding
from boltgen.passes.padding.tensors import extents
from boltgen.passes.regions.anchor import CONV2D, CONV3D, MATMUL
from boltgen.passes.regions.products import Product

# The elements to append to each dimension of operands.
_Widths: TypeAlias = "dict[int, tuple[int, ...]]"


def padded(graph: Graph, plan: Sequence[Padding]) -> Graph:
    """Return `graph` with the tensors of `plan` padded; its results keep their shapes."""
    changed = _changed(graph, plan)
    if not changed:
        return graph

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr:
        widths, own = changed.get(index, {}), graph[index]
        pairs = zip(own.args, expr.args, strict=True)
        args = (_longer(builder, at, widths[arg]) if arg in widths else at for arg, at in pairs)
        return _resized(graph, own, tuple(args), builder)

    return written_anew(graph, write)


def _longer(builder: GraphBuilder, x: int, widths: tuple[int, ...]) -> int:
    """Append zeros to a constant, or to a tensor by an operator."""
    array, pairs = builder[x].array, [(0, width) for width in widths]
    if array is None:
        return builder.pad(x, pairs, 0.0, "constant")
    return builder.constant(np.pad(array, pairs))


def _resized(graph: Graph, expr: Expr, args: tuple[int, ...], builder: GraphBuilder) -> Expr:
    """Return `expr` on `args`, with its last dimension as wide as theirs.

    What reads nothing padded keeps its shape: its layout may be any.
    """
    made = replace(expr, args=args)
    is_same = [graph[arg].shape for arg in expr.args] == [builder[arg].shape for arg in args]
    if is_same:
        return made
    before = expr.static_shape
    if expr.op in {CONV2D, CONV3D}:
        return replace(made, shape=(*before[:-1], builder.shape(args[1])[0]))
    if expr.op == MATMUL:  # whose A may have as many columns as its result, and more now
        return replace(made, shape=(*before[:-1], builder.shape(args[1])[-1]))
    if expr.op == "permute_dims":
        shape = builder.shape(args[0])
        return replace(made, shape=tuple(shape[axis] for axis in permutation(expr)))
    both = zip(expr.args, args, strict=True)
    wide = next(new for old, new in both if graph[old].shape != builder[new].shape)
    return replace(made, shape=(*before[:-1], builder.shape(wide)[-1]))


def _changed(graph: Graph, plan: Sequence[Padding]) -> dict[int, _Widths]:
    """Return what is appended to operands of each operator of the plan's anchors."""
    made: dict[int, _Widths] = {}
    for padding in filter(lambda each: each.is_padded, plan):
        anchor = padding.product.anchor
        channels, filters = extents(anchor.problem)
        more_a, more_d = padding.channels - channels, padding.filters - filters
        weights = _weight_widths(graph, padding.product, more_a, more_d)
        made |= dict.fromkeys(anchor.absorbed, weights)
        moved = {anchor.a: _along_rows(graph, anchor.a, more_a)} if padding.moves else {}
        made[anchor.index] = weights | moved
        for member in padding.product.tail.members:
            rows = {
                arg: _along_rows(graph, arg, more_d)
                for arg in graph[member].args
                if member != anchor.index
                and more_d
                and graph[arg].op == CONSTANT
                and graph[arg].static_shape[-1:] == (filters,)
                and graph[arg].scalar is None
            }
            if rows:
                made[member] = rows
    return made


def _along_rows(graph: Graph, index: int, more: int) -> tuple[int, ...]:
    return (*(0,) * (len(graph[index].static_shape) - 1), more)


def _weight_widths(graph: Graph, product: Product, more_a: int, more_d: int) -> _Widths:
    """Return the weight's constant, and the elements to append to each of its dimensions."""
    anchor = product.anchor
    widths = anchor.problem.padding_of_b(more_a, more_d)
    weight = graph[anchor.b]
    if weight.op == CONSTANT:
        return {anchor.b: widths}
    source = [0] * len(widths)
    for axis, width in zip(permutation(weight), widths, strict=True):
        source[axis] = width
    return {weight.args[0]: tuple(source)}
