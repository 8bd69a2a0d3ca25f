"""Read an image's pixels in pairs where that is faster: `problems.conv2d.pairs` says how."""

from __future__ import annotations

from dataclasses import replace

from boltgen.graph.attributes import Convolution
from boltgen.graph.facts import has_one_reader
from boltgen.graph.graph import CONSTANT, Expr, Graph, GraphBuilder, written_anew
from boltgen.ir.dtypes import DType
from boltgen.passes.regions.products import Product, find_products
from boltgen.problems.conv2d.pairs import Paired, paired
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.workload import Workload


def with_paired_pixels(graph: Graph, costs: GraphCosts, accumulate: DType) -> Graph:
    """Return `graph` with convolutions of pairs of pixels where their kernels are faster."""
    chosen = {
        product.anchor.index: found
        for product in find_products(graph, accumulate)
        if (found := _faster(graph, product, costs)) is not None
    }
    if not chosen:
        return graph

    def write(index: int, expr: Expr, builder: GraphBuilder) -> Expr:
        if index not in chosen:
            return expr
        pairs = chosen[index]
        problem = pairs.problem
        x, weight = expr.args
        array = builder[weight].array
        assert array is not None
        image = builder.reshape(x, problem.a_shape)
        own, (steps, border) = expr.attrs.of(Convolution), (problem.stride, problem.padding)
        attrs = replace(own, strides=steps, padding=border)
        return replace(expr, args=(image, builder.constant(pairs.weight(array))), attrs=attrs)

    return written_anew(graph, write)


def _faster(graph: Graph, product: Product, costs: GraphCosts) -> Paired | None:
    """Return the convolution of pairs if there is one and it is faster."""
    problem = product.problem(graph)
    if Workload.of(
        product.anchor.problem
    ).symbols:  # TVM would move such an image, and not the call
        return None
    found = paired(problem)
    is_ours = graph[product.anchor.b].op == CONSTANT and has_one_reader(graph, product.anchor.a)
    if found is None or not is_ours:
        return None
    own = product.problem(graph)  # its results have the type that the tail makes
    workloads = [
        Workload.of(each, product.tail.epilogue)
        for each in (own, replace(found.problem, out_dtype=own.out_dtype))
    ]
    before_us, after_us = costs.kernels_us(workloads).times_us
    return found if after_us < before_us else None
