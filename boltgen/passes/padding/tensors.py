"""Find tensors that kernels could write with more channels than the model says. For both IRs.

All readers of a padded tensor must accept its channels: products, whose weights are zero there,
also where it is their residual; and operators of TVM's that treat each channel for itself, for
products again. Padded channels hold one known number, the epilogue of zeros; it must be finite,
since zero times infinity is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boltgen.graph.attributes import Layouts
from boltgen.graph.graph import CONSTANT, Graph
from boltgen.ir.dtypes import VECTOR_BYTES, DType
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.regions.products import Product
from boltgen.problems import reference
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.problem import Problem

# Elements of a vector: whole ones of integers, and of all others of 16 bits, as FP32 becomes.
_VECTOR = 8
# Operators in tails that say a shape of their own.
_SHAPED = frozenset({"reshape", "permute_dims", "broadcast_to"})
# Operators of TVM's that make of each channel one channel, and of finite numbers finite ones.
_POOLS = frozenset({"nn.max_pool2d", "nn.avg_pool2d"})
_ELEMENTWISE = frozenset({"nn.relu", "astype"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedTensor:
    """A tensor that `product` could write padded to `channels`.

    `views` are the tensor and TVM's views of it, all of which then have these channels.
    """

    product: Product
    channels: int
    views: tuple[int, ...]


def up(extent: int, dtype: DType) -> int:
    """Round up to the next multiple of a vector of a tensor's elements."""
    vector = VECTOR_BYTES if dtype.size_bytes == 1 else _VECTOR
    return math.ceil(extent / vector) * vector


def stored(graph: Graph, product: Product) -> DType:
    """Return the type of a product's result."""
    return DType(graph[product.tail.output].dtype)


def extents(problem: Problem) -> tuple[int, int]:
    """Return the channels of A and of D."""
    return problem.a_shape[-1], problem.d_shape[-1]


def padded_tensors(graph: Graph, products: Sequence[Product]) -> dict[int, PaddedTensor]:
    """Return the tensors that could be padded together, by the index of the kernel's result.

    Either all or none of a set of `tied` tensors can be padded.
    """
    found: dict[int, PaddedTensor] = {}
    members = {member for product in products for member in product.members}
    for product in products:
        filters = extents(product.anchor.problem)[1]
        channels = up(filters, stored(graph, product))
        if channels > filters and _is_row_wise(graph, product):
            output = product.tail.output
            views = _views(graph, output, members)
            found[output] = PaddedTensor(product=product, channels=channels, views=views)
    while True:
        values: dict[int, float] = {}
        kept: dict[int, PaddedTensor] = {}
        for output, tensor in sorted(found.items()):
            if not _readers_agree(graph, tensor, products, found):
                continue
            value = _pad_value(graph, tensor.product, values)
            if value is not None and math.isfinite(value):
                values[output] = value
                kept[output] = tensor
        if kept.keys() == found.keys():
            return found
        found = kept


def tied(product: Product, tensors: Mapping[int, PaddedTensor]) -> frozenset[int]:
    """Return the anchor's result and its residuals, as far as they are among `tensors`."""
    return frozenset(
        index
        for index in (product.tail.output, *_tensor_operands(product))
        if index in tensors and product.tail.output in tensors
    )


def _views(graph: Graph, output: int, members: set[int]) -> tuple[int, ...]:
    views = [output]
    for view in views:  # grows on the way
        for reader in graph.consumers[view]:
            if reader not in members and reader not in views and _keeps_channels(graph, reader):
                views.append(reader)
    return tuple(views)


def _keeps_channels(graph: Graph, index: int) -> bool:
    expr = graph[index]
    if expr.op in _POOLS:
        return expr.attrs.of(Layouts).layout == "NHWC" and expr.is_static
    return expr.op in _ELEMENTWISE and expr.is_static


def _is_row_wise(graph: Graph, product: Product) -> bool:
    """Return whether the epilogue treats every row alike, and names no shape."""
    tail = product.tail
    if any(graph[member].op in _SHAPED for member in tail.members):
        return False
    for load, operand in tail.loaded:
        if load.kind is LoadKind.COLUMN or load.kind.is_of_slices:
            return False
        if load.kind is LoadKind.ROW and graph[operand.expr].op != CONSTANT:
            return False
    return True


def _readers_agree(
    graph: Graph,
    tensor: PaddedTensor,
    products: Sequence[Product],
    tensors: Mapping[int, PaddedTensor],
) -> bool:
    """Return whether all readers of D, and all sources of D, can have its padded channels."""
    output = tensor.product.tail.output
    filters = extents(tensor.product.anchor.problem)[1]
    if any(view in graph.escaping for view in tensor.views):
        return False
    readers = {reader for view in tensor.views for reader in graph.consumers[view]}
    readers -= set(tensor.views)
    for reader in products:
        if reader.anchor.a in tensor.views:
            readers.discard(reader.anchor.index)
        if output in _tensor_operands(reader):
            if reader.tail.output not in tensors:
                return False
            if extents(reader.anchor.problem)[1] != filters:
                return False
            readers -= set(reader.tail.members)
    if readers:
        return False
    return all(
        operand in tensors and extents(tensors[operand].product.anchor.problem)[1] == filters
        for operand in _tensor_operands(tensor.product)
    )


def _tensor_operands(product: Product) -> list[int]:
    tail = product.tail
    return [operand.expr for load, operand in tail.loaded if load.kind is LoadKind.TENSOR]


def _pad_value(graph: Graph, product: Product, values: Mapping[int, float]) -> float | None:
    """Return the value of D's padded channels: the epilogue of zeros and residuals' padding; None
    if unknown.
    """
    problem, epilogue = product.anchor.problem, product.tail.epilogue
    operands: list[reference.AnyArray] = []
    for load, operand in product.tail.loaded:
        dtype = load.dtype.numpy
        if load.kind is LoadKind.TENSOR:
            if operand.expr not in values:
                return None
            operands.append(np.full((1, 1), values[operand.expr], dtype))
        else:
            operands.append(np.zeros(1, dtype))
    types: dict[str, Any] = {"in_dtype": problem.in_dtype, "acc_dtype": problem.acc_dtype}
    one = Gemm(m=1, n=1, k=1, out_dtype=stored(graph, product), **types)
    a, b = (np.zeros((1, 1), each.numpy) for each in (one.in_dtype, one.in_dtype.weight))
    with np.errstate(all="ignore"):
        made = reference.run(one, epilogue, a, b, operands)
        return float(made.astype(one.out_dtype.numpy).reshape(()))
