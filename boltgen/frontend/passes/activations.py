"""Recognises activations that a model spells out: `x * sigmoid(x)` is SiLU.

IR-neutral. A rewrite happens only where both sides are the same function. Constants may differ by
what rounding them to FP16 does, since that is how they arrive in an FP16 model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    Node,
    Scalar,
    Unary,
    operands,
)
from boltgen.ir.functions import SELU_ALPHA, SELU_SCALE, UnaryOp

# Half a unit in the last place of FP16's 11-bit significand.
_TOLERANCE = 2.0**-11
# No activation has more factors; the bound keeps squares of squares from being counted out.
_MOST_FACTORS = 8


def recognise(epilogue: ElementwiseGraph, out_dtype: DType) -> ElementwiseGraph:
    """The same function in fewer nodes; loads stay, in their order.

    A final cast to `out_dtype` goes: storing does it.
    """
    rewriter = _Rewriter([])
    renamed: list[int] = []
    for node in epilogue.nodes:
        renamed.append(rewriter.append(_renumber(node, renamed)))
    output = renamed[epilogue.result]
    while isinstance(last := rewriter.nodes[output], Cast) and last.dtype is out_dtype:
        output = last.x
    return _reachable(rewriter.nodes, output)


def _renumber(node: Node, names: list[int] | dict[int, int]) -> Node:
    match node:
        case Unary(op=op, x=x, params=params):
            return Unary(op, names[x], params)
        case Binary(op=bop, lhs=lhs, rhs=rhs):
            return Binary(bop, names[lhs], names[rhs])
        case Cast(x=x, dtype=dtype):
            return Cast(names[x], dtype)
        case _:
            return node


def _reachable(nodes: list[Node], output: int) -> ElementwiseGraph:
    keep = {0, output}
    for index in range(output, -1, -1):
        if index in keep:
            keep.update(operands(nodes[index]))
    names = {old: new for new, old in enumerate(sorted(keep))}
    return ElementwiseGraph(tuple(_renumber(nodes[old], names) for old in sorted(keep)))


def _close_to(value: float, goal: float) -> bool:
    return math.isclose(value, goal, rel_tol=_TOLERANCE)


@dataclass(slots=True)
class _Rewriter:
    """Nodes so far, each in its simplest form; equal nodes are one node, loads excepted."""

    nodes: list[Node]
    products: dict[int, tuple[float, list[int]]] = field(default_factory=dict)

    def append(self, node: Node) -> int:
        """Add `node`, or what it simplifies to; returns where the value is."""
        if not isinstance(node, Load) and node in self.nodes:
            return self.nodes.index(node)
        self.nodes.append(node)
        index = len(self.nodes) - 1
        simpler = next(self._simpler(index), None)
        if simpler is None:
            return index
        self.nodes.pop()
        self.products.pop(index, None)
        return self.append(simpler)

    # Views of a value, for the rules below.

    def _scalar(self, index: int) -> float | None:
        node = self.nodes[index]
        return node.value if isinstance(node, Scalar) else None

    def _affine(self, index: int) -> tuple[float, int, float]:
        """(a, x, b) such that the value is a * x + b, x as far down as possible."""
        match self.nodes[index]:
            case Unary(op=UnaryOp.NEGATE, x=x):
                a, base, b = self._affine(x)
                return -a, base, -b
            case Binary(op=op, lhs=lhs, rhs=rhs):
                left, right = self._scalar(lhs), self._scalar(rhs)
                if left is not None and right is None:
                    a, base, b = self._affine(rhs)
                    match op:
                        case BinaryOp.ADD:
                            return a, base, left + b
                        case BinaryOp.SUBTRACT:
                            return -a, base, left - b
                        case BinaryOp.MULTIPLY:
                            return left * a, base, left * b
                elif right is not None and left is None:
                    a, base, b = self._affine(lhs)
                    match op:
                        case BinaryOp.ADD:
                            return a, base, b + right
                        case BinaryOp.SUBTRACT:
                            return a, base, b - right
                        case BinaryOp.MULTIPLY:
                            return a * right, base, b * right
                        case BinaryOp.DIVIDE if right:
                            return a / right, base, b / right
        return 1.0, index, 0.0

    def _product(self, index: int) -> tuple[float, list[int]]:
        """(c, factors), sorted, such that the value is c times the factors' product."""
        if index not in self.products:
            self.products[index] = self._factored(index)
        return self.products[index]

    def _factored(self, index: int) -> tuple[float, list[int]]:
        match self.nodes[index]:
            case Scalar(value=value):
                return value, []
            case Unary(op=UnaryOp.NEGATE, x=x):
                c, factors = self._product(x)
                return -c, factors
            case Binary(op=BinaryOp.MULTIPLY, lhs=lhs, rhs=rhs):
                left, right = self._product(lhs), self._product(rhs)
                if len(left[1]) + len(right[1]) > _MOST_FACTORS:
                    return 1.0, [index]
                return left[0] * right[0], sorted(left[1] + right[1])
            case Binary(op=BinaryOp.DIVIDE, lhs=lhs, rhs=rhs) if self._scalar(rhs):
                c, factors = self._product(lhs)
                return c / (self._scalar(rhs) or 1.0), factors
        return 1.0, [index]

    def _is_multiple(self, index: int, c: float, x: int) -> bool:
        """Whether the value is c * x."""
        have, want = self._product(index), self._product(x)
        return have[1] == want[1] and _close_to(have[0], c * want[0])

    # Rules. Each yields a simpler node for the value at `index`.

    def _simpler(self, index: int) -> Iterator[Node]:
        match self.nodes[index]:
            case Binary(op=BinaryOp.MAXIMUM | BinaryOp.MINIMUM):
                yield from self._limits(index)
            case Unary(op=UnaryOp.CLIP):
                yield from self._clips(index)
            case Unary(op=UnaryOp.LOG, x=x):
                a, base, b = self._affine(x)
                inner = self.nodes[base]
                if (a, b) == (1.0, 1.0) and isinstance(inner, Unary) and inner.op is UnaryOp.EXP:
                    yield Unary(UnaryOp.SOFTPLUS, inner.x)
            case Binary(op=BinaryOp.ADD, lhs=lhs, rhs=rhs):
                for one, other in ((lhs, rhs), (rhs, lhs)):
                    yield from self._guarded_softplus(one, other)
                    yield from self._exponential_linear(one, other, 1.0)
            case Binary(op=BinaryOp.SUBTRACT, lhs=lhs, rhs=rhs):
                yield from self._exponential_linear(lhs, rhs, -1.0)
            case Binary(op=BinaryOp.DIVIDE, lhs=lhs, rhs=rhs) if self._scalar(lhs) == 1.0:
                a, base, b = self._affine(rhs)
                inner = self.nodes[base]
                if (a, b) == (1.0, 1.0) and isinstance(inner, Unary) and inner.op is UnaryOp.EXP:
                    yield from self._sigmoid(inner.x)
            case Binary(op=BinaryOp.MULTIPLY | BinaryOp.DIVIDE):
                yield from self._gated(index)
                yield from self._scaled_clip(index)
                yield from self._scaled_elu(index)

    def _guarded_softplus(self, positive: int, rest: int) -> Iterator[Node]:
        """relu(x) + softplus(-|x|), whose exponential cannot overflow."""
        match self.nodes[positive], self.nodes[rest]:
            case Unary(op=UnaryOp.RELU, x=x), Unary(op=UnaryOp.SOFTPLUS, x=folded):
                match self.nodes[folded]:
                    case Unary(op=UnaryOp.NEGATE, x=size):
                        if self.nodes[size] == Unary(UnaryOp.ABS, x):
                            yield Unary(UnaryOp.SOFTPLUS, x)

    def _exponential_linear(self, positive: int, rest: int, sign: float) -> Iterator[Node]:
        """relu(x) - alpha * relu(1 - exp(x)), of whose two terms one is always 0."""
        c, factors = self._product(rest)
        match self.nodes[positive], [self.nodes[factor] for factor in factors]:
            case Unary(op=UnaryOp.RELU, x=x), [Unary(op=UnaryOp.RELU, x=below)]:
                a, base, b = self._affine(below)
                if (a, b) == (-1.0, 1.0) and self.nodes[base] == Unary(UnaryOp.EXP, x):
                    yield Unary(UnaryOp.ELU, x, (-sign * c,))

    def _scaled_elu(self, index: int) -> Iterator[Node]:
        scale, factors = self._product(index)
        match [self.nodes[factor] for factor in factors]:
            case [Unary(op=UnaryOp.ELU, x=x, params=(alpha,))]:
                if _close_to(scale, SELU_SCALE) and _close_to(alpha, SELU_ALPHA):
                    yield Unary(UnaryOp.SELU, x)

    def _sigmoid(self, exponent: int) -> Iterator[Node]:
        match self.nodes[exponent]:
            case Unary(op=UnaryOp.NEGATE, x=x):
                yield Unary(UnaryOp.SIGMOID, x)
            case Binary(op=BinaryOp.MULTIPLY, lhs=lhs, rhs=rhs):
                for x, c in ((lhs, self._scalar(rhs)), (rhs, self._scalar(lhs))):
                    if c == -1.0:
                        yield Unary(UnaryOp.SIGMOID, x)

    def _limits(self, index: int) -> Iterator[Node]:
        node = self.nodes[index]
        assert isinstance(node, Binary)
        is_max = node.op is BinaryOp.MAXIMUM
        for x, other in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            limit = self._scalar(other)
            if limit is not None and self._scalar(x) is None:
                bounds = (limit, math.inf) if is_max else (-math.inf, limit)
                yield Unary(UnaryOp.CLIP, x, bounds)
            product, factors = self._product(other)
            if is_max and 0.0 < product < 1.0 and (1.0, factors) == self._product(x):
                yield Unary(UnaryOp.LEAKY_RELU, x, (product,))

    def _clips(self, index: int) -> Iterator[Node]:
        node = self.nodes[index]
        assert isinstance(node, Unary)
        low, high = node.params
        inner = self.nodes[node.x]
        for op in UnaryOp:
            if op.function.clip_bounds == (low, high):
                yield Unary(op, node.x)
        if isinstance(inner, Unary):
            bounds = _clip_bounds(inner)
            if bounds is not None and max(low, bounds[0]) <= min(high, bounds[1]):
                yield Unary(UnaryOp.CLIP, inner.x, (max(low, bounds[0]), min(high, bounds[1])))
        if (low, high) == (0.0, 1.0):
            a, x, b = self._affine(node.x)
            if x != node.x:
                yield Unary(UnaryOp.HARDSIGMOID, x, (a, b))

    def _hard_sigmoid(self, index: int) -> tuple[float, int, float, float] | None:
        """(c, x, alpha, beta) such that the value is c * clip(alpha * x + beta, 0, 1)."""
        node = self.nodes[index]
        if not isinstance(node, Unary):
            return None
        if node.op is UnaryOp.HARDSIGMOID:
            return 1.0, node.x, node.params[0], node.params[1]
        low, high = _clip_bounds(node) or (0.0, math.inf)
        a, base, b = self._affine(node.x)
        if low != 0.0 or not 0.0 < high < math.inf or base == node.x:
            return None
        return high, base, a / high, b / high

    def _scaled_clip(self, index: int) -> Iterator[Node]:
        c, factors = self._product(index)
        if len(factors) == 1 and (found := self._hard_sigmoid(factors[0])):
            high, x, alpha, beta = found
            if _close_to(c * high, 1.0):
                yield Unary(UnaryOp.HARDSIGMOID, x, (alpha, beta))

    def _gated(self, index: int) -> Iterator[Node]:
        """c * x * gate(x), where the product has the gate as one of its factors."""
        c, factors = self._product(index)
        for gate in dict.fromkeys(factors):
            rest = list(factors)
            rest.remove(gate)
            for op, x, scale in self._gates(gate):
                cx, x_factors = self._product(x)
                if rest == x_factors and cx and _close_to(c / cx * scale, 1.0):
                    yield Unary(op, x)

    def _gates(self, index: int) -> Iterator[tuple[UnaryOp, int, float]]:
        """(op, x, s) such that op(x) is x times the value over s."""
        if (found := self._hard_sigmoid(index)) is not None:
            high, x, alpha, beta = found
            if _close_to(alpha, 1 / 6) and _close_to(beta, 0.5):
                yield UnaryOp.HARDSWISH, x, high
        match self.nodes[index]:
            case Unary(op=UnaryOp.SIGMOID, x=scaled):
                for x in (scaled, *self._below(scaled)):
                    for op in UnaryOp:
                        c = op.function.sigmoid_scale
                        if c is not None and self._is_multiple(scaled, c, x):
                            yield op, x, 1.0
            case Unary(op=UnaryOp.TANH, x=x):
                inner = self.nodes[x]
                if isinstance(inner, Unary) and inner.op is UnaryOp.SOFTPLUS:
                    yield UnaryOp.MISH, inner.x, 1.0
            case Binary():
                a, base, b = self._affine(index)
                if a and _close_to(a, b):
                    yield from ((op, x, 2.0 * a) for op, x in self._gelu(self.nodes[base]))

    def _gelu(self, node: Node) -> Iterator[tuple[UnaryOp, int]]:
        """(op, x) such that op(x) is x times (1 + the node's value) over 2."""
        match node:
            case Unary(op=UnaryOp.ERF, x=inner):
                for x in self._below(inner):
                    if self._is_multiple(inner, math.sqrt(0.5), x):
                        yield UnaryOp.GELU_ERF, x
            case Unary(op=UnaryOp.TANH, x=inner):
                for x in self._below(inner):
                    if self._is_gelu_cubic(inner, x):
                        yield UnaryOp.GELU_TANH, x

    def _below(self, index: int) -> Iterator[int]:
        """Values that the one at `index` is computed from, nearest first."""
        pending = [index]
        seen = set()
        while pending:
            at = pending.pop(0)
            for x in operands(self.nodes[at]):
                if x not in seen and self._scalar(x) is None:
                    seen.add(x)
                    pending.append(x)
                    yield x

    def _is_gelu_cubic(self, index: int, x: int) -> bool:
        """Whether the value is sqrt(2/pi) * (x + 0.044715 x^3), as a polynomial in x."""
        found = self._polynomial(index, x, {})
        if found is None:
            return False
        want = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}
        powers = {power: c for power, c in found.items() if c}
        # The product of two constants, each rounded to FP16, is off by twice as much.
        return powers.keys() == want.keys() and all(
            math.isclose(powers[power], c, rel_tol=2 * _TOLERANCE) for power, c in want.items()
        )

    def _polynomial(
        self, index: int, x: int, known: dict[int, dict[int, float] | None]
    ) -> dict[int, float] | None:
        """Coefficients by power of x, or None where the value is no polynomial of degree <= 3.

        `known` has those of values that were looked at before.
        """
        if index == x:
            return {1: 1.0}
        if index not in known:
            known[index] = None
            match self.nodes[index]:
                case Scalar(value=value):
                    known[index] = {0: value}
                case Binary(op=op, lhs=lhs, rhs=rhs):
                    left = self._polynomial(lhs, x, known)
                    right = self._polynomial(rhs, x, known)
                    if left is not None and right is not None:
                        known[index] = _combine(op, left, right)
        return known[index]


def _clip_bounds(node: Unary) -> tuple[float, float] | None:
    """Between what `node` clips its argument; None where it does something else."""
    if node.op is UnaryOp.CLIP:
        return node.params[0], node.params[1]
    return node.op.function.clip_bounds


def _combine(
    op: BinaryOp, left: dict[int, float], right: dict[int, float]
) -> dict[int, float] | None:
    result: dict[int, float] = {}
    match op:
        case BinaryOp.ADD | BinaryOp.SUBTRACT:
            sign = 1.0 if op is BinaryOp.ADD else -1.0
            for power in left.keys() | right.keys():
                result[power] = left.get(power, 0.0) + sign * right.get(power, 0.0)
        case BinaryOp.MULTIPLY:
            for p, c in left.items():
                for q, d in right.items():
                    result[p + q] = result.get(p + q, 0.0) + c * d
        case BinaryOp.DIVIDE if set(right) == {0} and right[0]:
            result = {power: c / right[0] for power, c in left.items()}
        case _:
            return None
    return result if max(result) <= 3 else None
