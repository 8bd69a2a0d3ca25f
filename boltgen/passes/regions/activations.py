"""Recognise activations that a model spells out: `x * sigmoid(x)` is SiLU.

IR-neutral. A rewrite happens only where both sides are the same function. Constants may differ by
what rounding them to FP16 or BF16 does, since that is how they arrive in such a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    ElementwiseGraph,
    Load,
    Node,
    Scalar,
    Store,
    Unary,
    operands,
)
from boltgen.ir.elementwise_nodes import whole_nodes
from boltgen.ir.functions import SELU_ALPHA, SELU_SCALE, UnaryOp

# No activation has more, in what a kernel makes of one product; the bounds keep squares of squares
# from being written out.
_MOST_FACTORS = 8
_MOST_TERMS = 64

# A sum of products of other values: coefficients by the sorted factors of each term.
_Polynomial: TypeAlias = "dict[tuple[int, ...], float]"


def recognise(
    epilogue: ElementwiseGraph, out_dtype: DType, precision: DType = DType.F16
) -> ElementwiseGraph:
    """Return the same function in fewer nodes; loads stay, in their order.

    A final cast to the type of a result goes, of D to `out_dtype`: storing does it. Constants were
    rounded to `precision`.

    Raises:
        InvalidProblemError: see `ElementwiseGraph.typed_results`.
    """
    rounded = DType.F32 if precision.is_whole else precision
    rewriter = _Rewriter([], tolerance=rounded.unit_roundoff)
    renamed: list[int] = []
    for node in epilogue.nodes:
        renamed.append(rewriter.append(renumbered(node, renamed)))
    results = []
    for store in epilogue.typed_results:
        x, stored = renamed[store.x], store.dtype or out_dtype
        while isinstance(last := rewriter.nodes[x], Cast) and last.dtype is stored:
            if whole_nodes(rewriter.nodes)[last.x]:
                break  # it makes a number of FP32
            x = last.x
        results.append(replace(store, x=x))
    return _reachable(rewriter.nodes, results)


def renumbered(node: Node, names: list[int] | dict[int, int]) -> Node:
    """Return `node` on the nodes that `names` has for its operands."""
    match node:
        case Unary(x=x) | Cast(x=x):
            return replace(node, x=names[x])
        case Binary(lhs=lhs, rhs=rhs):
            return replace(node, lhs=names[lhs], rhs=names[rhs])
        case _:
            return node


def _reachable(nodes: list[Node], results: list[Store]) -> ElementwiseGraph:
    keep = {0, *(store.x for store in results)}
    for index in range(max(keep), -1, -1):
        if index in keep:
            keep.update(operands(nodes[index]))
    names = {old: new for new, old in enumerate(sorted(keep))}
    return ElementwiseGraph(
        tuple(renumbered(nodes[old], names) for old in sorted(keep)),
        tuple(replace(store, x=names[store.x]) for store in results),
    )


@dataclass(slots=True)
class _Rewriter:
    """Nodes so far, each in its simplest form; equal nodes are one node, loads excepted.

    `tolerance` is the relative error of a constant.
    """

    nodes: list[Node]
    tolerance: float
    polynomials: dict[int, _Polynomial] = field(default_factory=dict)

    def append(self, node: Node) -> int:
        """Add `node`, or its simpler form; return where the value is."""
        if not isinstance(node, Load) and node in self.nodes:
            return self.nodes.index(node)
        self.nodes.append(node)
        index = len(self.nodes) - 1
        simpler = next(self._simpler(index), None)
        if simpler is None:
            return index
        self.nodes.pop()
        self.polynomials.pop(index, None)
        return self.append(simpler)

    def _close_to(self, value: float, goal: float) -> bool:
        return math.isclose(value, goal, rel_tol=self.tolerance)

    def _are_close(self, terms: _Polynomial, goal: _Polynomial, *, roundings: int = 1) -> bool:
        """Return whether coefficients differ by at most so many roundings."""
        tolerance = roundings * self.tolerance
        return terms.keys() == goal.keys() and all(
            math.isclose(terms[factors], c, rel_tol=tolerance) for factors, c in goal.items()
        )

    def _ratio(self, terms: _Polynomial, of: _Polynomial) -> float | None:
        """Return c if `terms` are c times the terms of another polynomial."""
        factors = next(iter(of), None)
        if factors is None or factors not in terms:
            return None
        c = terms[factors] / of[factors]
        return c if self._are_close(terms, _scaled(of, c)) else None

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
                for x, c, sign in ((lhs, self._scalar(rhs), 1.0), (rhs, self._scalar(lhs), -1.0)):
                    if c is None or self._scalar(x) is not None:
                        continue
                    a, base, b = self._affine(x)
                    match op:
                        case BinaryOp.ADD:
                            return a, base, b + c
                        case BinaryOp.SUBTRACT:
                            return sign * a, base, sign * (b - c)
                        case BinaryOp.MULTIPLY:
                            return a * c, base, b * c
                        case BinaryOp.DIVIDE if sign > 0.0 and c:
                            return a / c, base, b / c
        return 1.0, index, 0.0

    def _polynomial(self, index: int) -> _Polynomial:
        if index not in self.polynomials:
            made = self._written_out(index)
            fits = made is not None and len(made) <= _MOST_TERMS
            fits = fits and max(map(len, made or ()), default=0) <= _MOST_FACTORS
            self.polynomials[index] = made if made is not None and fits else {(index,): 1.0}
        return self.polynomials[index]

    def _written_out(self, index: int) -> _Polynomial | None:
        match self.nodes[index]:
            case Scalar(value=value):
                return {(): value} if value else {}
            case Unary(op=UnaryOp.NEGATE, x=x):
                return _scaled(self._polynomial(x), -1.0)
            case Binary(op=op, lhs=lhs, rhs=rhs):
                left, right, c = self._polynomial(lhs), self._polynomial(rhs), self._scalar(rhs)
                match op:
                    case BinaryOp.ADD:
                        return _sum(left, right)
                    case BinaryOp.SUBTRACT:
                        return _sum(left, _scaled(right, -1.0))
                    case BinaryOp.MULTIPLY:
                        return _product(left, right)
                    case BinaryOp.DIVIDE if c:
                        return _scaled(left, 1.0 / c)
        return None

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
        """Match relu(x) - alpha * relu(1 - exp(x)); one of its two terms is always 0."""
        c, factors = self._monomial(rest)
        match self.nodes[positive], [self.nodes[factor] for factor in factors]:
            case Unary(op=UnaryOp.RELU, x=x), [Unary(op=UnaryOp.RELU, x=below)]:
                a, base, b = self._affine(below)
                if (a, b) == (-1.0, 1.0) and self.nodes[base] == Unary(UnaryOp.EXP, x):
                    yield Unary(UnaryOp.ELU, x, (-sign * c,))

    def _scaled_elu(self, index: int) -> Iterator[Node]:
        scale, factors = self._monomial(index)
        match [self.nodes[factor] for factor in factors]:
            case [Unary(op=UnaryOp.ELU, x=x, params=(alpha,))]:
                if self._close_to(scale, SELU_SCALE) and self._close_to(alpha, SELU_ALPHA):
                    yield Unary(UnaryOp.SELU, x)

    def _monomial(self, index: int) -> tuple[float, tuple[int, ...]]:
        """Return (c, factors) such that the value is c times their product; a sum is its own
        factor.
        """
        terms = [*self._polynomial(index).items()]
        if len(terms) != 1:
            return 1.0, (index,)
        ((factors, c),) = terms
        return c, factors

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
            slope = self._ratio(self._polynomial(other), self._polynomial(x))
            if is_max and limit is None and slope is not None and 0.0 < slope < 1.0:
                yield Unary(UnaryOp.LEAKY_RELU, x, (slope,))

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
        match [*self._polynomial(index).items()]:
            case [((factor,), c)] if found := self._hard_sigmoid(factor):
                high, x, alpha, beta = found
                if self._close_to(c * high, 1.0):
                    yield Unary(UnaryOp.HARDSIGMOID, x, (alpha, beta))

    def _gated(self, index: int) -> Iterator[Node]:
        """c * x * gate(x), where terms have the gate as one of their factors."""
        whole = self._polynomial(index)
        for gate in dict.fromkeys(factor for factors in whole for factor in factors):
            rest = {factors: c for factors, c in whole.items() if gate not in factors}
            gated: _Polynomial = {}
            for factors in whole.keys() - rest.keys():
                place = factors.index(gate)
                gated[factors[:place] + factors[place + 1 :]] = whole[factors]
            for op, x, scale, one in self._gates(gate):
                terms = self._polynomial(x)
                wanted = _scaled(terms, scale)
                if self._are_close(gated, wanted) and self._are_close(rest, _scaled(wanted, one)):
                    yield Unary(op, x)

    def _gates(self, index: int) -> Iterator[tuple[UnaryOp, int, float, float]]:
        """(op, x, scale, one) such that op(x) is scale * x * (the value + one)."""
        if (found := self._hard_sigmoid(index)) is not None:
            high, x, alpha, beta = found
            if self._close_to(alpha, 1 / 6) and self._close_to(beta, 0.5):
                yield UnaryOp.HARDSWISH, x, 1 / high, 0.0
        match self.nodes[index]:
            case Unary(op=UnaryOp.SIGMOID, x=scaled):
                yield from ((op, x, 1.0, 0.0) for op, x in self._sigmoid_gates(scaled))
            case Unary(op=UnaryOp.ERF, x=inner):
                for x in self._below(inner):
                    wanted = _scaled(self._polynomial(x), math.sqrt(0.5))
                    if self._are_close(self._polynomial(inner), wanted):
                        yield UnaryOp.GELU_ERF, x, 0.5, 1.0
            case Unary(op=UnaryOp.TANH, x=inner):
                below = self.nodes[inner]
                if isinstance(below, Unary) and below.op is UnaryOp.SOFTPLUS:
                    yield UnaryOp.MISH, below.x, 1.0, 0.0
                for x in self._below(inner):
                    terms = self._polynomial(x)
                    cube = _scaled(_product(terms, _product(terms, terms)), 0.044715)
                    wanted = _scaled(_sum(terms, cube), math.sqrt(2 / math.pi))
                    # The product of two constants, each rounded, is off by twice as much.
                    if self._are_close(self._polynomial(inner), wanted, roundings=2):
                        yield UnaryOp.GELU_TANH, x, 0.5, 1.0

    def _sigmoid_gates(self, scaled: int) -> Iterator[tuple[UnaryOp, int]]:
        """(op, x) such that op(x) is x times the sigmoid of the value at `scaled`."""
        for x in (scaled, *self._below(scaled)):
            for op in UnaryOp:
                c = op.function.sigmoid_scale
                if c is not None and self._are_close(
                    self._polynomial(scaled), _scaled(self._polynomial(x), c)
                ):
                    yield op, x

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


def _sum(left: _Polynomial, right: _Polynomial) -> _Polynomial:
    made = {key: left.get(key, 0.0) + right.get(key, 0.0) for key in left | right}
    return {factors: c for factors, c in made.items() if c}


def _clip_bounds(node: Unary) -> tuple[float, float] | None:
    """Return the bounds between which `node` clips its argument; None if it is no clip."""
    if node.op is UnaryOp.CLIP:
        return node.params[0], node.params[1]
    return node.op.function.clip_bounds


def _product(left: _Polynomial, right: _Polynomial) -> _Polynomial:
    made: _Polynomial = {}
    for p, c in left.items():
        for q, d in right.items():
            factors = tuple(sorted(p + q))
            made[factors] = made.get(factors, 0.0) + c * d
    return {factors: c for factors, c in made.items() if c}


def _scaled(terms: _Polynomial, c: float) -> _Polynomial:
    return {factors: c * each for factors, each in terms.items()} if c else {}
