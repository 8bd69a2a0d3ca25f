"""Fold slices and shuffles of channels into the weights of the convolutions that read them. For
both IRs.

    conv(strided_slice(shuffle(x), begin, end), w)  ->  conv(x, w')

w' has the columns of w at the channels of x that they multiply, and zeros at all others: ShuffleNet
shuffles the channels of an image, and convolves half of them. Reading the other half takes less
time than the launch of a slice, unless the image is large; times decide. An infinite channel that
the convolution did not read makes its result NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from boltgen.graph.attributes import Slice
from boltgen.graph.facts import VIEWS, are_static, permutation
from boltgen.graph.graph import CONSTANT, Array, Choice, Graph, GraphBuilder, Noted, rewritten
from boltgen.graph.view import Strided, strided_whole
from boltgen.ir.dtypes import DType
from boltgen.passes.joins.fuse_qkv import known_array
from boltgen.passes.regions.products import Product, find_products
from boltgen.problems.gemm.problem import packed_weights
from boltgen.problems.graph_costs import GraphCosts, shown_us
from boltgen.problems.problem import Problem, has_groups
from boltgen.problems.workload import Workload

_CONVOLUTION = "nn.conv2d"


@dataclass(frozen=True, slots=True)
class _Moved:
    """A value that has the `channels` of `source`, each at most once."""

    source: int
    channels: Array


def with_folded_channels(graph: Graph, costs: GraphCosts, summed: DType = DType.F32) -> Noted:
    """Return `graph` with slices and shuffles of channels in weights where `costs` say that it is
    faster. Products are summed in `summed`.
    """
    readers: dict[int, list[Product]] = defaultdict(list)
    for product in find_products(graph, summed):
        if _takes_zeros(graph, product):
            readers[product.anchor.a].append(product)
    folded: dict[int, tuple[Product, _Moved]] = {}
    choices: list[Choice] = []
    for value, products in readers.items():
        moved = _moved(graph, value)
        # TVM fuses a slice into a concatenation, and copies it for any other reader anyway.
        others = set(graph.consumers[value]) - {each.anchor.index for each in products}
        is_copied = any(graph[each].op != "concat" for each in others)
        if moved is None or is_copied or value in graph.escaping:
            continue
        choice = _choice(graph, value, moved, products, costs)
        choices.append(choice)
        if choice.is_rewritten:
            folded.update({each.anchor.index: (each, moved) for each in products})

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        product, moved = folded[index]
        weight = known_array(graph, product.anchor.b)
        channels = graph[moved.source].static_shape[-1]
        wide = np.zeros((*weight.shape[:-1], channels), weight.dtype)
        wide[..., moved.channels] = weight
        args = (names[moved.source], builder.constant(wide))
        names[index] = builder.add(replace(graph[index], args=args))

    return Noted.of(rewritten(graph, folded, write), choices)


def _takes_zeros(graph: Graph, product: Product) -> bool:
    """Return whether a product is a convolution of one group with a constant weight."""
    anchor = product.anchor
    problem, weight = anchor.problem, graph[anchor.b]
    if graph[anchor.index].op != _CONVOLUTION or has_groups(problem) or problem.in_dtype.is_whole:
        return False
    is_known = weight.op == CONSTANT and weight.array is not None
    return is_known and packed_weights(problem) is None and anchor.a != anchor.b


def _moved(graph: Graph, value: int) -> _Moved | None:
    """Return the channels of another tensor that an image has, by views and slices; else None."""
    chain: list[int] = []
    at = value
    while graph[at].op in VIEWS or isinstance(graph[at].attrs, Slice):
        chain.append(at)
        at = graph[at].args[0]
    if not chain or not are_static(graph, at, *chain):
        return None
    source, shape = graph[at].static_shape, graph[value].static_shape
    place: Strided | None = strided_whole(source)
    taken: dict[int, slice] = {}
    for index in reversed(chain):
        expr = graph[index]
        if isinstance(expr.attrs, Slice):
            if expr.attrs.axis in taken:
                return None
            taken[expr.attrs.axis] = slice(expr.attrs.begin, expr.attrs.end)
            continue
        if taken and expr.op != "permute_dims":
            return None
        if expr.op == "permute_dims":
            order = permutation(expr)
            taken = {order.index(axis): each for axis, each in taken.items()}
            place = place and place.permuted(order)
        else:
            place = place and place.reshaped(expr.static_shape)
    return _of_channels(place, taken, source, shape, at)


def _of_channels(
    place: Strided | None,
    taken: dict[int, slice],
    source: tuple[int, ...],
    shape: tuple[int, ...],
    at: int,
) -> _Moved | None:
    """Return the channels that a view of the tensor `at` has; None if its pixels are others."""
    last = len(source) - 1
    if place is None or len(shape) != len(source) or taken.keys() - {last}:
        return None
    if source[:last] != shape[:last] or place.dims[:last] != strided_whole(source).dims[:last]:
        return None
    channels: Array = np.zeros(1, np.int64)
    for extent, stride in place.dims[last]:
        channels = np.add.outer(channels, np.arange(extent) * stride).reshape(-1)
    if channels.size != source[last]:
        return None
    return _Moved(at, channels[taken.get(last, slice(None))])


def _choice(
    graph: Graph, value: int, moved: _Moved, products: Sequence[Product], costs: GraphCosts
) -> Choice:
    """Choose whether all convolutions of a value read the tensor that has its channels."""
    apart = [Workload.of(each.problem(graph), each.tail.epilogue) for each in products]
    channels = graph[moved.source].static_shape[-1]
    problems: list[Problem] = [
        each.problem(graph).resized(channels, each.problem(graph).d_shape[-1]) for each in products
    ]
    whole = [
        Workload.of(problem, each.tail.epilogue)
        for problem, each in zip(problems, products, strict=True)
    ]
    found = costs.kernels_us((*whole, *apart))
    once, before = sum(found.times_us[: len(whole)]), sum(found.times_us[len(whole) :])
    expr = graph[value]
    size = DType(expr.dtype).size_bytes
    before += costs.move_us(2 * prod(expr.static_shape) * size, launches=1)
    times = f"{shown_us(once)} instead of {shown_us(before)}, {found.origin}"
    name = f"{moved.channels.size} of {channels} channels"
    is_faster = once < before
    verb = "are taken by the weights" if is_faster else "are copied, not taken by the weights"
    reason = f"{name} {verb} of {problems[0].short}: {times}"
    return Choice((expr.op,), expr.shape, is_faster, reason)
