"""Which tensors of a model have more channels than it says, so that kernels read whole vectors.

IR-neutral; a pure function of a graph and of times. A kernel reads 16 bytes at once where the
channels of A and of D are multiples of 8. Weights are padded with zeros when the model is built,
which costs nothing at run time. A tensor between products is then written with the padded channels
by the one before, and read so by those after: also across residuals. What lies in them is one
known number, which the consumers' zero weights make zero, as long as it is finite. An A that no
kernel of ours writes is padded by a move in the call, where that is predicted to pay. Source: Xing
et al., Bolt, MLSys 2022, section 3.2.3, which pads every A by a pass of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from boltgen.frontend.graph import CONSTANT, Graph
from boltgen.frontend.products import Product, find_products
from boltgen.ir import reference
from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.epilogue import LoadKind
from boltgen.ir.padding import PaddingCosts
from boltgen.ir.problem import Conv2d, Gemm, Problem

# The attribute of an annotated module that has the plan in words, a line for each product.
PADDING = "boltgen_padding"

_VECTOR = 8
# An image's three channels: half a vector is enough, where a vector is all channels of a pixel.
_HALF_VECTOR = 4
# Operators in tails that say a shape of their own.
_SHAPED = frozenset({"reshape", "permute_dims", "broadcast_to"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """One product with the channels that its A and its D really have.

    `moves` tells whether A is padded in the call, `bytes` what the padding costs at run time.
    """

    product: Product
    channels: int
    filters: int
    moves: bool
    bytes: int

    def describe(self, graph: Graph) -> str:
        """For people."""
        channels, filters = _extents(self.product.anchor.problem)
        name = graph[self.product.anchor.index].op.removeprefix("nn.")
        said = []
        if self.channels != channels:
            how = "moved in the call" if self.moves else "written so by the kernel before"
            said.append(f"reads {channels} channels as {self.channels}, {how}")
        if self.filters != filters:
            said.append(f"writes {filters} channels as {self.filters}")
        return f"{name}: {'; '.join(said)}; {self.bytes} bytes more"


def plan_padding(graph: Graph, costs: PaddingCosts) -> tuple[Padding, ...]:
    """The products of a graph that are padded, in its order."""
    products = [product for product in find_products(graph) if _has_constant_weight(graph, product)]
    written = _written_padded(graph, products, costs)
    plan = []
    for product in products:
        channels, filters = _extents(product.anchor.problem)
        wide_d = written.get(product.tail.output, filters)
        wide_a = written.get(product.anchor.a, 0)
        moves = not wide_a
        if moves:
            wide_a = _moved(graph, product, wide_d, costs)
        if (wide_a, wide_d) == (channels, filters):
            continue
        plan.append(
            Padding(
                product=product,
                channels=wide_a,
                filters=wide_d,
                moves=moves and wide_a != channels,
                bytes=_bytes_more(graph, product, wide_a, wide_d, moves=moves),
            )
        )
    return tuple(plan)


def _up(extent: int) -> int:
    return math.ceil(extent / _VECTOR) * _VECTOR


def _extents(problem: Problem) -> tuple[int, int]:
    """Channels of A and of D."""
    return (problem.c, problem.k) if isinstance(problem, Conv2d) else (problem.k, problem.n)


def _resized(problem: Problem, channels: int, filters: int) -> Problem:
    if isinstance(problem, Conv2d):
        return replace(problem, c=channels, k=filters)
    return replace(problem, k=channels, n=filters)


def _has_constant_weight(graph: Graph, product: Product) -> bool:
    """Whether all but A is known when the model is built."""
    if not isinstance(product.anchor.problem, (Conv2d, Gemm)):
        return False
    weight = graph[product.anchor.b]
    if weight.op == "permute_dims" and weight.args:
        weight = graph[weight.args[0]]
    return weight.op == CONSTANT and product.anchor.a != product.anchor.b


def _written_padded(
    graph: Graph, products: Sequence[Product], costs: PaddingCosts
) -> dict[int, int]:
    """Tensors that our kernels write padded, with their channels."""
    by_output = {
        product.tail.output: product
        for product in products
        if _extents(product.anchor.problem)[1] % _VECTOR and _is_row_wise(graph, product)
    }
    while True:
        values: dict[int, float] = {}
        kept = {}
        for output, product in sorted(by_output.items()):
            if not _readers_agree(graph, product, products, by_output):
                continue
            value = _pad_value(product, values)
            if value is not None and math.isfinite(value):
                values[output] = value
                kept[output] = product
        if kept.keys() == by_output.keys():
            break
        by_output = kept
    if not by_output:
        return {}
    widths = {out: _up(_extents(p.anchor.problem)[1]) for out, p in by_output.items()}
    before = sum(_time(product, {}, costs) for product in products)
    after = sum(_time(product, widths, costs) for product in products)
    return widths if after <= before else {}


def _time(product: Product, widths: Mapping[int, int], costs: PaddingCosts) -> float:
    channels, filters = _extents(product.anchor.problem)
    channels = widths.get(product.anchor.a, channels)
    filters = widths.get(product.tail.output, filters)
    return costs.kernel_us(
        _resized(product.anchor.problem, channels, filters), product.tail.epilogue
    )


def _is_row_wise(graph: Graph, product: Product) -> bool:
    """Whether the tail does the same to every row, and names no shape."""
    tail = product.tail
    if any(graph[member].op in _SHAPED for member in tail.members):
        return False
    for load, operand in zip(tail.epilogue.loads, tail.operands, strict=True):
        if load.kind is LoadKind.COLUMN:
            return False
        if load.kind is LoadKind.ROW and graph[operand.expr].op != CONSTANT:
            return False
    return True


def _readers_agree(
    graph: Graph,
    product: Product,
    products: Sequence[Product],
    by_output: Mapping[int, Product],
) -> bool:
    """Whether all that reads D, and all that D is made of, can have its padded channels."""
    output, filters = product.tail.output, _extents(product.anchor.problem)[1]
    if output in graph.escaping:
        return False
    readers = set(graph.consumers[output])
    for reader in products:
        if reader.anchor.a == output:
            readers.discard(reader.anchor.index)
        is_residual = any(operand.expr == output for operand in reader.tail.operands)
        if is_residual:
            if reader.tail.output not in by_output:
                return False
            if _extents(reader.anchor.problem)[1] != filters:
                return False
            readers -= set(reader.tail.members)
    if readers:
        return False
    tensors = _tensor_operands(product)
    return all(
        tensor in by_output and _extents(by_output[tensor].anchor.problem)[1] == filters
        for tensor in tensors
    )


def _tensor_operands(product: Product) -> list[int]:
    tail = product.tail
    return [
        operand.expr
        for load, operand in zip(tail.epilogue.loads, tail.operands, strict=True)
        if load.kind is LoadKind.TENSOR
    ]


def _pad_value(product: Product, values: Mapping[int, float]) -> float | None:
    """What lies in D's padded channels: the epilogue of zeros, residuals aside; None if unknown."""
    epilogue = product.tail.epilogue
    operands: list[reference.AnyArray] = []
    for load, operand in zip(epilogue.loads, product.tail.operands, strict=True):
        dtype = load.dtype.value
        if load.kind is LoadKind.TENSOR:
            if operand.expr not in values:
                return None
            operands.append(np.full((1, 1), values[operand.expr], dtype))
        else:
            operands.append(np.zeros(1, dtype))
    zero = np.zeros((1, 1), np.float16)
    with np.errstate(all="ignore"):
        made = reference.run(Gemm(m=1, n=1, k=1), epilogue, zero, zero, operands)
        return float(made.astype(DType.F16.value).reshape(()))


def _moved(graph: Graph, product: Product, filters: int, costs: PaddingCosts) -> int:
    """The channels that A is padded to by a move: those of the fastest call."""
    channels = _extents(product.anchor.problem)[0]
    if channels % _VECTOR == 0 or len(graph.consumers[product.anchor.a]) != 1:
        return channels
    choices = [channels, _up(channels)]
    if channels < _HALF_VECTOR and isinstance(product.anchor.problem, Conv2d):
        choices.append(_HALF_VECTOR)

    def call_us(padded: int) -> float:
        problem = _resized(product.anchor.problem, padded, filters)
        kernel = costs.kernel_us(problem, product.tail.epilogue)
        launches = int(product.entry is None)
        if padded == channels and launches:
            return kernel
        return kernel + costs.move_us(_move_bytes(graph, product, padded), launches)

    return min(choices, key=lambda padded: (call_us(padded), padded))


def _move_bytes(graph: Graph, product: Product, padded: int) -> int:
    """What a move reads of the tensor as TVM has it, and writes for the kernel."""
    source = graph[product.input]
    rows = graph[product.anchor.a].elements // _extents(product.anchor.problem)[0]
    element = DType(source.dtype).size_bytes
    return source.elements * element + rows * padded * DType.F16.size_bytes


def _bytes_more(graph: Graph, product: Product, channels: int, filters: int, *, moves: bool) -> int:
    """Bytes that the call moves beyond those of the model's own channels."""
    had, made = _extents(product.anchor.problem)
    a_rows = graph[product.anchor.a].elements // had
    d_rows = graph[product.tail.output].elements // made
    f16 = DType.F16.size_bytes
    more = (a_rows * (channels - had) + d_rows * (filters - made)) * f16
    if not moves or channels == had:
        return more
    if product.entry is not None:  # A is moved anyway
        return more + a_rows * (channels - had) * f16
    return more + _move_bytes(graph, product, channels)


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
    for padding in plan:
        anchor = padding.product.anchor
        channels, filters = _extents(anchor.problem)
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
