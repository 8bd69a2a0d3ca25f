"""How a padding plan changes a graph's operators; each frontend writes them anew. For both IRs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boltgen.frontend.graph import CONSTANT, Graph
from boltgen.frontend.padded_tensors import extents
from boltgen.frontend.padding import Padding
from boltgen.frontend.products import Product
from boltgen.ir.dtypes import Layout
from boltgen.ir.problem import Conv2d


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """How one operator is written anew: by its operands, the elements put behind each dimension.

    `constants` are operands whose values are known, `values` those that an operator pads.
    """

    constants: Mapping[int, tuple[int, ...]]
    values: Mapping[int, tuple[int, ...]]


def edits(graph: Graph, plan: Sequence[Padding]) -> dict[int, Edit]:
    """For each operator of the plan's products that reads something padded, how to write it."""
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
    """The weight's constant, and what is put behind each of its dimensions."""
    anchor = product.anchor
    widths: tuple[int, ...]
    if isinstance(anchor.problem, Conv2d):
        widths = (more_d, 0, 0, more_a)
    elif anchor.problem.b_layout is Layout.ROW:
        widths = (more_a, more_d)
    else:
        widths = (more_d, more_a)
    weight = graph[anchor.b]
    if weight.op == CONSTANT:
        return {anchor.b: widths}
    axes = weight.attrs["axes"]
    assert isinstance(axes, tuple)
    source = [0] * len(widths)
    for axis, width in zip(axes, widths, strict=True):
        source[axis] = width
    return {weight.args[0]: tuple(source)}
