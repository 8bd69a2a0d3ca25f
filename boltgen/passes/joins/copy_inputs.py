"""Join a depthwise convolution's input with its result in the convolution's kernel. For both IRs.

    concat(x, relu(depthwise(x, w) + b))  ->  relu(concat(x, depthwise(x, w)) + [-0, b])

GhostNet makes half of its channels so. A kernel of the convolution reads x anyway, and writes both
halves; the operators after the concatenation are its epilogue. Otherwise a kernel of TVM's reads
both halves and writes them again; times decide. x goes through the convolution's own epilogue, so
that must not change x: -0 is added, and a clamp has clamped x already.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from boltgen.graph.facts import axis_of, is_static_call, only_reader
from boltgen.graph.graph import CONSTANT, Choice, Graph, GraphBuilder, Noted, renamed, rewritten
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import LoadKind
from boltgen.passes.joins.fuse_qkv import known_array
from boltgen.passes.regions.products import Product, Rejects, find_products
from boltgen.problems.graph_costs import GraphCosts, shown_us
from boltgen.problems.problem import can_write_input, writes_input
from boltgen.problems.workload import Layer, Workload

_ADD, _CONCAT = "add", "concat"
# Operators that do nothing to their own results.
_CLAMPS = frozenset({"nn.relu", "clip"})


@dataclass(frozen=True, slots=True)
class _Joined:
    """A concatenation of `x` with the result of a depthwise convolution of x.

    `chain` are the operators between the convolution and the concatenation.
    """

    x: int
    convolution: int
    chain: tuple[int, ...]
    concat: int


def with_copied_inputs(
    graph: Graph, costs: GraphCosts, rejects: Rejects, summed: DType = DType.F32
) -> Noted:
    """Return `graph` with the concatenations that a convolution's kernel writes faster.

    `costs` has the times, and sums are in `summed`.
    """
    products = {each.anchor.index: each for each in find_products(graph, summed)}
    found = [each for product in products.values() if (each := _joined(graph, product)) is not None]
    fitting = [each for each in found if _obstacle(graph, each) is None]
    if not found:
        return Noted(graph, ())
    trial = _written(graph, fitting)
    already = {at for at, each in products.items() if writes_input(each.anchor.problem)}
    ends = sorted(already | {each.concat for each in fitting})
    written = (each for each in find_products(trial, summed) if writes_input(each.anchor.problem))
    made = dict(zip(ends, written, strict=True))
    choices: list[Choice] = []
    chosen: list[_Joined] = []
    for each in found:
        reason = _obstacle(graph, each)
        is_faster = False
        if reason is None:
            layers = (
                products[each.convolution].layer(graph),
                made[each.concat].layer(trial),
            )
            reason, is_faster = _compared(*layers, costs, rejects)
        if is_faster:
            chosen.append(each)
        expr = graph[each.concat]
        choices.append(Choice((expr.op,), expr.shape, is_faster, reason))
    if not chosen:
        return Noted.of(graph, choices)
    # Weights are large: they are not written twice where nothing changes.
    return Noted.of(trial if len(chosen) == len(fitting) else _written(graph, chosen), choices)


def _joined(graph: Graph, product: Product) -> _Joined | None:
    """Return the concatenation that a depthwise convolution's result alone goes to, with its
    input; None without any.
    """
    at = product.anchor.index
    if not can_write_input(product.anchor.problem):
        return None
    chain: list[int] = []
    while (reader := only_reader(graph, at)) is not None:
        expr = graph[reader]
        if not is_static_call(graph, reader):
            return None
        if expr.op == _CONCAT:
            is_last = axis_of(expr) == len(expr.static_shape) - 1
            is_of_both = expr.args == (product.anchor.a, at)
            found = _Joined(product.anchor.a, product.anchor.index, tuple(chain), reader)
            return found if is_last and is_of_both else None
        if expr.static_shape != graph[at].static_shape:
            return None
        chain.append(reader)
        at = reader
    return None


def _obstacle(graph: Graph, joined: _Joined) -> str | None:
    """Return why the operators after the convolution would change x; None if they do not."""
    before = "a concatenation with the input of a convolution stays: "
    clamps = []
    for index in joined.chain:
        expr = graph[index]
        if expr.op in _CLAMPS:
            clamps.append(expr)
        elif expr.op != _ADD or _row(graph, index) is None:
            return f"{before}{expr.op.removeprefix('nn.')} after the convolution changes the input"
    at = joined.x
    for clamp in reversed(clamps):
        expr = graph[at]
        if (expr.op, expr.attrs) != (clamp.op, clamp.attrs):
            name = clamp.op.removeprefix("nn.")
            return f"{before}the input is not known to have gone through the {name} after it"
        at = expr.args[0]
    return None


def _row(graph: Graph, index: int) -> int | None:
    """Return the operand of an addition that is a constant row of its channels; None if none is."""
    channels = graph[index].static_shape[-1]
    for arg in graph[index].args:
        array = graph[arg].array
        if graph[arg].op == CONSTANT and array is not None and array.shape[-1:] == (channels,):
            return arg if array.size == channels else None
    return None


def _compared(
    apart: Layer, together: Layer, costs: GraphCosts, rejects: Rejects
) -> tuple[str, bool]:
    """Compare a convolution and a concatenation after it with one kernel: a reason for people, and
    whether one kernel is faster.
    """
    workload, before = (Workload(layers=(each,)) for each in (together, apart))
    name = f"a convolution's input and result, {together.problem.short},"
    if (obstacle := rejects(workload)) is not None:
        return f"{name} are joined by TVM: {obstacle}", False
    found = costs.kernels_us((workload, before))
    # A kernel of TVM's reads both halves, and what the longer epilogue reads besides, and writes.
    moved = 2 + _tensors(together) - _tensors(apart)
    once, twice = found.times_us
    size = prod(together.problem.d_shape) * together.problem.out_dtype.size_bytes
    twice += costs.move_us(moved * size, launches=1)
    times = f"{shown_us(once)} instead of {shown_us(twice)}, {found.origin}"
    if once < twice:
        return f"{name} are written by one kernel: {times}", True
    return f"{name} are joined by TVM, not by one kernel: {times}", False


def _tensors(layer: Layer) -> int:
    """Return the whole tensors that an epilogue loads."""
    return sum(load.kind is LoadKind.TENSOR for load in layer.epilogue.loads)


def _written(graph: Graph, chosen: list[_Joined]) -> Graph:
    """Return `graph` with each concatenation right after its convolution."""
    at = {each.concat: each for each in chosen}

    def write(index: int, builder: GraphBuilder, names: dict[int, int]) -> None:
        names[index] = _write(graph, at[index], builder, names)

    dropped = {index for each in chosen for index in (each.convolution, *each.chain)}
    return rewritten(graph, at, write, dropped)


def _write(graph: Graph, joined: _Joined, builder: GraphBuilder, names: dict[int, int]) -> int:
    """Write a convolution, its concatenation, and the operators that were between them."""
    shape = graph[joined.concat].static_shape
    own = builder.add(renamed(graph[joined.convolution], names))
    x, dtype, axis = names[joined.x], graph[joined.convolution].dtype, len(shape) - 1
    at = builder.operator(_CONCAT, (x, own), shape, dtype, axis=axis)
    for index in joined.chain:
        expr, row = graph[index], _row(graph, index)
        args = [at]
        if expr.op == _ADD and row is not None:
            bias = known_array(graph, row)
            zeros = np.full_like(bias, -0.0)  # 0 would turn -0 into 0
            args.append(builder.constant(np.concatenate([zeros, bias], axis=-1)))
        at = builder.operator(expr.op, args, shape, expr.dtype, expr.attrs)
    return at
