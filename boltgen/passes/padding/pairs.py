"""Read an image's pixels in pairs: half as many, of twice the channels.

A kernel reads 16 bytes of a pixel at once. An image's three channels are padded to four, which are
8 bytes. Where the stride along the width is 2, each output reads whole pairs of pixels: the image
stays in memory as it is, and the weights get zeros where the filter begins or ends within a pair.
ResNet's first convolution, 7x7 of 4 channels, becomes one of 7x4 and 8 channels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boltgen.graph.facts import has_one_reader
from boltgen.graph.graph import CONSTANT, Graph, GraphBuilder, mapped, renamed
from boltgen.ir.dtypes import DType
from boltgen.passes.padding.tensors import VECTOR
from boltgen.passes.regions.anchor import CONV2D
from boltgen.passes.regions.products import Product, find_products
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.graph_costs import GraphCosts
from boltgen.problems.workload import Workload

_PAIR = 2


def paired(problem: Conv2d) -> Conv2d | None:
    """Return the convolution of pairs of pixels that computes the same, or None if none does."""
    along = problem.stride[1], problem.dilation[1], problem.w % _PAIR
    if problem.c != VECTOR // _PAIR or along != (_PAIR, 1, 0):
        return None
    top, left, bottom, _ = problem.padding
    taps = -(-(problem.s + left % _PAIR) // _PAIR)
    front = -(-left // _PAIR)
    # At least 0: a stride of 2 leaves out no pair.
    behind = problem.q - 1 + taps - problem.w // _PAIR - front
    return replace(
        problem,
        w=problem.w // _PAIR,
        c=VECTOR,
        s=taps,
        stride=(problem.stride[0], 1),
        padding=(top, front, bottom, behind),
    )


def with_paired_pixels(graph: Graph, costs: GraphCosts, accumulate: DType) -> Graph:
    """Return `graph` with convolutions of pairs of pixels where their kernels are faster."""
    chosen = {
        product.anchor.index: found
        for product in find_products(graph, accumulate)
        if (found := _faster(graph, product, costs)) is not None
    }
    if not chosen:
        return graph
    builder, names = GraphBuilder(), dict[int, int]()
    for index, expr in enumerate(graph.exprs):
        made = renamed(expr, names)
        if index in chosen:
            problem, other = chosen[index]
            x, weight = expr.args
            image = builder.reshape(names[x], (other.n, other.h, other.w, other.c))
            array = graph[weight].array
            assert array is not None
            attrs = {**expr.attrs, "strides": other.stride, "padding": other.padding}
            filters = builder.constant(_paired_weight(array, problem.padding[1], other.s))
            made = replace(made, args=(image, filters), attrs=attrs)
        names[index] = builder.add(made)
    return builder.graph(mapped(graph.results, names))


def _faster(graph: Graph, product: Product, costs: GraphCosts) -> tuple[Conv2d, Conv2d] | None:
    """Return a convolution and the one of pairs, if that is faster."""
    problem = product.anchor.problem
    if not isinstance(problem, Conv2d) or graph[product.anchor.index].op != CONV2D:
        return None
    other = paired(problem)
    is_ours = graph[product.anchor.b].op == CONSTANT and has_one_reader(graph, product.anchor.a)
    if other is None or not is_ours:
        return None
    epilogue = product.tail.epilogue
    workloads = [Workload.of(each, epilogue) for each in (problem, other)]
    before_us, after_us = costs.kernels_us(workloads).times_us
    return (problem, other) if after_us < before_us else None


def _paired_weight(weight: np.ndarray, left: int, taps: int) -> np.ndarray:
    """Filters (K, R, S, C) as (K, R, taps, 2 C)."""
    filters, rows, columns, channels = weight.shape
    before = left % _PAIR
    widths = [(0, 0), (0, 0), (before, _PAIR * taps - columns - before), (0, 0)]
    return np.pad(weight, widths).reshape(filters, rows, taps, _PAIR * channels)
