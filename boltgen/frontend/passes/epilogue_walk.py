"""Grows an epilogue over the elementwise tail of a matrix product or convolution.

IR-neutral. The region is a DAG: the anchor, and elementwise operators each of which reads the
region and otherwise only constants and operands that a kernel can load. It has one result, and
nothing outside it reads its other values; so no operand can depend on the region itself, and
fusing never makes a cycle. Of all such regions the walk takes the largest.

One table, `_RULES`, says which operators there are; no pattern enumerates their combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod

from boltgen.errors import InvalidProblemError
from boltgen.frontend.graph import Expr, Graph
from boltgen.frontend.passes.activations import recognise
from boltgen.frontend.passes.anchor import Anchor
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import BinaryOp, ElementwiseBuilder, ElementwiseGraph, LoadKind
from boltgen.ir.functions import UnaryOp

# A tail longer than this is split. No network is known to have one half as long; the bound keeps
# the walk's cost linear in the model.
_MAX_MEMBERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOperand:
    """The value that a load reads, and whether it has one slice per product of a batch."""

    expr: int
    batched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A region: indices of its operators, anchor first, and the epilogue that they amount to."""

    members: tuple[int, ...]
    output: int
    epilogue: ElementwiseGraph
    operands: tuple[TailOperand, ...]


class _NotFusibleError(Exception):
    """An operator, or one of its operands, has no place in an epilogue."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What a rule sees: the builder, the operator, its operands' epilogue nodes and constants."""

    builder: ElementwiseBuilder
    expr: Expr
    args: tuple[int, ...]
    scalars: tuple[float | None, ...]

    def number(self, name: str) -> float:
        """An attribute that is a number."""
        value = self.expr.attrs[name]
        assert isinstance(value, (int, float))
        return float(value)


_Rule = Callable[[_Call], int]


def _unary(op: UnaryOp) -> _Rule:
    return lambda call: call.builder.unary(op, call.args[0], *map(call.number, op.parameters))


def _binary(op: BinaryOp) -> _Rule:
    return lambda call: call.builder.binary(op, call.args[0], call.args[1])


def _astype(call: _Call) -> int:
    target, source = call.expr.dtype, call.expr.attrs["from_dtype"]
    if target == DType.F32.value:
        return call.args[0]  # arithmetic is in FP32 as it is
    if target not in {dtype.value for dtype in DType}:
        raise _NotFusibleError(f"a cast to {target}")
    return call.args[0] if target == source else call.builder.cast(call.args[0], DType(target))


def _square(call: _Call) -> int:
    return call.builder.binary(BinaryOp.MULTIPLY, call.args[0], call.args[0])


def _power(call: _Call) -> int:
    x, exponent = call.args[0], call.scalars[1]
    if exponent == 2.0:
        return _square(call)
    if exponent == 3.0:
        return call.builder.binary(BinaryOp.MULTIPLY, _square(call), x)
    if exponent == 0.5:
        return call.builder.unary(UnaryOp.SQRT, x)
    raise _NotFusibleError(f"a power with the exponent {exponent}")


def _softplus(call: _Call) -> int:
    if call.number("beta") != 1.0:
        raise _NotFusibleError(f"a softplus with beta={call.number('beta')}")
    return call.builder.unary(UnaryOp.SOFTPLUS, call.args[0])


def _prelu(call: _Call) -> int:
    x, slope = call.args
    rank = len(call.expr.static_shape)
    if call.scalars[1] is not None:
        return call.builder.unary(UnaryOp.LEAKY_RELU, x, call.scalars[1])
    if call.number("axis") not in {-1, rank - 1}:
        raise _NotFusibleError("a PReLU whose slopes are not along the last axis")
    b = call.builder
    negative = b.binary(BinaryOp.MINIMUM, x, b.scalar(0.0))
    return b.binary(
        BinaryOp.ADD, b.unary(UnaryOp.RELU, x), b.binary(BinaryOp.MULTIPLY, slope, negative)
    )


def _same_rows(call: _Call) -> int:
    return call.args[0]  # checked in `_Emission`: the last extent stays


_VIEW = "reshape"
_READ_TWICE = frozenset({"nn.softmax", "nn.log_softmax"})

_RULES: dict[str, _Rule] = {
    "add": _binary(BinaryOp.ADD),
    "subtract": _binary(BinaryOp.SUBTRACT),
    "multiply": _binary(BinaryOp.MULTIPLY),
    "divide": _binary(BinaryOp.DIVIDE),
    "maximum": _binary(BinaryOp.MAXIMUM),
    "minimum": _binary(BinaryOp.MINIMUM),
    "power": _power,
    "square": _square,
    **{op.function.operator: _unary(op) for op in UnaryOp if op.function.operator is not None},
    "nn.prelu": _prelu,
    "nn.softplus": _softplus,
    "astype": _astype,
    _VIEW: _same_rows,
}

ELEMENTWISE = frozenset(_RULES)


def span(
    shape: Sequence[int], out: Sequence[int], *, batched: bool
) -> tuple[LoadKind, bool] | None:
    """How an operand of `shape` spans an output of shape `out`, and whether it has one slice per
    product; None where a kernel cannot load it.

    `out` is (..., M, N) of a `batched` product, else (..., N) with M the product of the rest.
    """
    if len(shape) > len(out):
        return None
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    goal = tuple(out)
    if full[-1] == goal[-1] and prod(full[:-1]) == 1:
        return LoadKind.ROW, False
    if full == goal:
        return LoadKind.TENSOR, batched
    inner = 2 if batched else len(goal)
    is_shared = prod(full[:-inner]) == 1 if batched else True
    if is_shared and full[-inner:] == goal[-inner:]:
        return LoadKind.TENSOR, False
    if is_shared and full[-1] == 1 and full[-inner:-1] == goal[-inner:-1]:
        return LoadKind.COLUMN, False
    return None


@dataclass(slots=True)
class _Emission:
    """An epilogue under construction, and where each value of the graph is in it."""

    graph: Graph
    anchor: Anchor
    builder: ElementwiseBuilder = field(default_factory=ElementwiseBuilder)
    nodes: dict[int, int] = field(default_factory=dict)
    loads: dict[tuple[int, LoadKind, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes[self.anchor.index] = 0

    def emit(self, index: int) -> None:
        """Append the operator at `index`, at least one of whose operands is in the region."""
        expr = self.graph[index]
        inside = [arg for arg in expr.args if arg in self.nodes]
        self._check_shapes(expr, inside)
        args = tuple(self._operand(arg, expr) for arg in expr.args)
        scalars = tuple(self.graph[arg].scalar for arg in expr.args)
        self.nodes[index] = _RULES[expr.op](_Call(self.builder, expr, args, scalars))

    def _check_shapes(self, expr: Expr, inside: Sequence[int]) -> None:
        for arg in inside:
            before = self.graph[arg].static_shape
            if expr.op == _VIEW:
                kept = 2 if self.anchor.problem.batch > 1 else 1
                if before[-kept:] != expr.static_shape[-kept:]:
                    raise _NotFusibleError("a reshape that splits rows")
            elif before != expr.static_shape:
                raise _NotFusibleError("its result is broadcast")

    def _operand(self, arg: int, consumer: Expr) -> int:
        if arg in self.nodes:
            return self.nodes[arg]
        operand = self.graph[arg]
        if operand.scalar is not None:
            return self.builder.scalar(operand.scalar)
        if operand.dtype not in {dtype.value for dtype in DType}:
            raise _NotFusibleError(f"an operand of dtype {operand.dtype}")
        batched = self.anchor.problem.batch > 1
        found = span(operand.static_shape, consumer.static_shape, batched=batched)
        if found is None:
            raise _NotFusibleError("an operand whose broadcast no kernel loads")
        key = (arg, *found)
        if key not in self.loads:
            self.loads[key] = self.builder.load(found[0], DType(operand.dtype))
        return self.loads[key]

    def finish(self, output: int) -> tuple[ElementwiseGraph, tuple[TailOperand, ...]]:
        """The epilogue, simplified, and its operands in the order of its loads."""
        # Every load is read by the operator that it was made for, so recognition keeps them all.
        out_dtype, precision = DType(self.graph[output].dtype), self.anchor.problem.in_dtype
        epilogue = recognise(self.builder.build(), out_dtype, precision)
        operands = tuple(TailOperand(expr=arg, batched=flag) for arg, _, flag in self.loads)
        assert len(epilogue.loads) == len(operands)
        return epilogue, operands


def grow(graph: Graph, anchor: Anchor, claimed: Collection[int] = frozenset()) -> Tail:
    """The largest region that starts at `anchor` and has no operator that is in `claimed`."""
    fusible = _fusible(graph, anchor, claimed)
    best = _close(graph, anchor, fusible, anchor.index)
    assert best is not None
    stored = {anchor.problem.in_dtype.value, DType.F32.value}
    for output in fusible[1:]:
        if graph[output].dtype not in stored or not _ends_well(graph, output):
            continue
        best = _close(graph, anchor, fusible, output) or best
    return best


def _fusible(graph: Graph, anchor: Anchor, claimed: Collection[int]) -> list[int]:
    """The anchor, and every operator that elementwise operators connect to it, in order."""
    emission = _Emission(graph, anchor)
    found = [anchor.index]
    pending = set(_readers(graph, anchor.index))
    while pending and len(found) < _MAX_MEMBERS:
        index = min(pending)  # all its operands within the region are smaller, so already there
        pending.remove(index)
        if index in claimed or graph[index].op not in ELEMENTWISE or not graph[index].is_static:
            continue
        if not all(graph[arg].is_static for arg in graph[index].args):
            continue
        try:
            emission.emit(index)
        except _NotFusibleError:
            continue
        found.append(index)
        pending.update(_readers(graph, index))
    return found


def _readers(graph: Graph, index: int) -> tuple[int, ...]:
    """Those that read a value, where it may be inside a region.

    A value that something else reads too can only be the region's result.
    """
    readers = graph.consumers[index]
    is_inner = index not in graph.escaping and all(graph[r].op in ELEMENTWISE for r in readers)
    return readers if is_inner else ()


def _ends_well(graph: Graph, output: int) -> bool:
    """Whether a region may end here: not on a view, nor on a cast that only makes it write more."""
    expr = graph[output]
    if expr.op == _VIEW:
        return False
    if expr.op != "astype" or expr.dtype != DType.F32.value or output in graph.escaping:
        return True
    # TVM fuses a cast into most of what follows it, but not into these.
    consumers = graph.consumers[output]
    return all(graph[consumer].op in _READ_TWICE for consumer in consumers)


def _close(graph: Graph, anchor: Anchor, fusible: Sequence[int], output: int) -> Tail | None:
    """The region with the result `output`; None where a value leaks or loads are too many."""
    allowed = set(fusible)
    members = {output}
    pending = [output]
    while pending:
        index = pending.pop()
        if index == anchor.index:
            continue  # what the anchor reads is an operand, never part of the region
        fresh = allowed.intersection(graph[index].args) - members
        members |= fresh
        pending.extend(fresh)
    if anchor.index not in members:
        return None
    for member in members - {output}:
        if member in graph.escaping or not members.issuperset(graph.consumers[member]):
            return None
    emission = _Emission(graph, anchor)
    ordered = tuple(sorted(members))
    try:
        for member in ordered[1:]:
            emission.emit(member)
        epilogue, operands = emission.finish(output)
    except (_NotFusibleError, InvalidProblemError):
        return None
    return Tail(members=ordered, output=output, epilogue=epilogue, operands=operands)
