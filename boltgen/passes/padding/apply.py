"""Apply a padding plan to a graph: to weights, rows, and their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from boltgen.graph.facts import permutation
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, mapped
from boltgen.passes.padding.plan import Padding
from boltgen.passes.padding.tensors import extents
from boltgen.passes.regions.anchor import CONV2D, CONV3D, MATMUL
from boltgen.passes.regions.products import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The new form of an operator, by its operands: the elements to append to each dimension.

    `constants` are operands whose values are known, `values` the operands that an operator pads.
    """

    constants: Mapping[int, tuple[int, ...]]
    values: Mapping[int, tuple[int, ...]]


def padded(graph: Graph, plan: Sequence[Padding]) -> Graph:
    """Return `graph` with the tensors of `plan` padded; its results keep their shapes."""
    changed = edits(graph, plan)
    if not changed:
        return graph
    builder = GraphBuilder()
    names: dict[int, int] = {}
    for index, expr in enumerate(graph.exprs):
        edit = changed.get(index)
        args = tuple(
            names[arg] if edit is None else _operand(graph, builder, names, arg, edit)
            for arg in expr.args
        )
        names[index] = builder.add(_resized(graph, expr, args, builder))
    return builder.graph(mapped(graph.results, names))


def _operand(
    graph: Graph, builder: GraphBuilder, names: Mapping[int, int], arg: int, edit: Edit
) -> int:
    if arg in edit.constants:
        array = graph[arg].array
        assert array is not None
        return builder.constant(np.pad(array, [(0, width) for width in edit.constants[arg]]))
    if arg in edit.values:
        widths = [(0, width) for width in edit.values[arg]]
        return builder.pad(names[arg], widths, 0.0, "constant")
    return names[arg]


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


def edits(graph: Graph, plan: Sequence[Padding]) -> dict[int, Edit]:
    """Return the new form of each operator of the plan's anchors that reads a padded tensor."""
    made: dict[int, Edit] = {}
    for padding in filter(lambda each: each.is_padded, plan):
        anchor = padding.product.anchor
        channels, filters = extents(anchor.problem)
        more_a, more_d = padding.channels - channels, padding.filters - filters
        weights = _weight_widths(graph, padding.product, more_a, more_d)
        values = {}
        if padding.moves:
            values[anchor.a] = (*(0,) * (len(graph[anchor.a].static_shape) - 1), more_a)
        made[anchor.index] = Edit(constants=weights, values=values)
        for member in anchor.absorbed:
            made[member] = Edit(constants=weights, values={})
        for member in padding.product.tail.members:
            rows = {
                arg: (*(0,) * (len(graph[arg].static_shape) - 1), more_d)
                for arg in graph[member].args
                if member != anchor.index
                and more_d
                and graph[arg].op == CONSTANT
                and graph[arg].static_shape[-1:] == (filters,)
                and graph[arg].scalar is None
            }
            if rows:
                made[member] = Edit(constants=rows, values={})
    return made


def _weight_widths(
    graph: Graph, product: Product, more_a: int, more_d: int
) -> dict[int, tuple[int, ...]]:
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
