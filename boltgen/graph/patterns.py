"""Patterns of operators as values, and their matches in a graph.

    X = Var("x")
    DOUBLED = op("multiply", X, Number("two", 2.0), alone=True)

A pattern matches an operator and operators that it reads, down to values that the pattern names. It
may match in several ways, where operators commute or patterns are alternatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from boltgen.graph.facts import COMMUTATIVE, Values
from boltgen.graph.graph import CONSTANT, Expr, Extents, Graph, GraphBuilder


@dataclass(frozen=True, slots=True)
class Var:
    """Match any value of which the fact `where` holds.

    Where a pattern has the same name twice, both are the same value.
    """

    name: str
    where: Callable[[Values, int], bool] | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """Match a constant of one element, which is `value` unless that is None."""

    name: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """Match one of the operators `ops` on `args`; in either order where the operator commutes.

    Nothing outside the match reads its result if it is `alone`.
    """

    ops: frozenset[str]
    args: tuple[Pattern, ...]
    name: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Match one of the operators `ops`, if `inner` matches any one of its operands."""

    ops: frozenset[str]
    inner: Pattern


@dataclass(frozen=True, slots=True)
class Through:
    """Match any number of operators `ops`, on their first operands, behind `inner`: most first.

    The fact `where` holds of each. Nothing outside the match reads their results if they are
    `alone`.
    """

    ops: frozenset[str]
    inner: Pattern
    name: str = ""
    alone: bool = False
    where: Callable[[Values, int], bool] | None = None


@dataclass(frozen=True, slots=True)
class Either:
    """Match one of several patterns; the first that matches with the rest counts."""

    patterns: tuple[Pattern, ...]


Pattern: TypeAlias = "Var | Number | Op | Reader | Through | Either"


def op(ops: str | frozenset[str], *args: Pattern, name: str = "", alone: bool = False) -> Op:
    """Return a pattern of one operator, or of one of several."""
    return Op(frozenset({ops}) if isinstance(ops, str) else ops, args, name, alone)


@dataclass(frozen=True, slots=True)
class Bound:
    """The values that a pattern has named so far, and the operators that it has matched."""

    names: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    members: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()

    def named(self, name: str, index: int) -> Bound | None:
        """Return this with one more name; None if another value has it."""
        if not name:
            return self
        if name in self.names:
            return self if self.names[name] == index else None
        return replace(self, names={**self.names, name: index})

    def matched(self, members: tuple[int, ...], *, alone: bool) -> Bound:
        """Return this with further operators."""
        lonely = (*self.alone, *members) if alone else self.alone
        return replace(self, members=(*self.members, *members), alone=lonely)


@dataclass(frozen=True, slots=True)
class Match:
    """The values that a pattern matched, by name: `found["x"]`.

    `values` are the graph, or the one that the driver grows; `source` is the graph that has facts
    of readers, and `origins` the indices there of values that it has.
    """

    values: Values
    source: Graph
    root: int
    bound: Bound
    origins: Mapping[int, int] | None = None

    def __getitem__(self, name: str) -> int:
        return self.bound.names[name]

    def __contains__(self, name: str) -> bool:
        return name in self.bound.names

    @property
    def members(self) -> frozenset[int]:
        """The operators that the pattern matched."""
        return frozenset(self.bound.members)

    def expr(self, name: str = "") -> Expr:
        """Return the operator that makes a value; the root of the match without a name."""
        return self.values[self[name] if name else self.root]

    def number(self, name: str) -> float:
        """Return the number that a constant of one element has."""
        scalar = self.expr(name).scalar
        assert scalar is not None  # or the pattern would not have matched
        return scalar

    def shape(self, name: str = "") -> Extents:
        """Return the shape of a value; () if it has no known rank."""
        return self.expr(name).shape or ()

    def path(self, name: str) -> tuple[int, ...]:
        """Return the operators that a `Through` matched, the last one first."""
        return self.bound.paths[name]

    @property
    def origin(self) -> int:
        """The index in `source` of the root."""
        return self.root if self.origins is None else self.origins[self.root]

    def in_source(self, index: int) -> int | None:
        """Return the index in `source` of a value; None if only the rewritten graph has it."""
        return index if self.origins is None else self.origins.get(index)

    def again(self, builder: GraphBuilder, name: str, x: int) -> int:
        """Write the operators that a `Through` matched once more, on `x`."""
        for index in reversed(self.path(name)):
            expr = self.values[index]
            x = builder.add(replace(expr, args=(x, *expr.args[1:])))
        return x


def matches(graph: Graph, pattern: Pattern, index: int) -> Iterator[Match]:
    """Yield each way in which a pattern matches the value at `index`."""
    for bound in bindings(graph, pattern, index, Bound()):
        if read_elsewhere(graph, bound, partial(reads, graph)) is None:
            yield Match(graph, graph, index, bound)


def first(graph: Graph, pattern: Pattern, index: int) -> Match | None:
    """Return the first way in which a pattern matches the value at `index`, if one does."""
    return next(matches(graph, pattern, index), None)


def reads(graph: Graph, index: int) -> int:
    """Return how often operators and results read a value."""
    return graph.uses[index] + (index in graph.escaping)


def occurs(pattern: Pattern, operators: Container[str]) -> bool:
    """Return whether a pattern may match in a graph that has these operators only."""
    match pattern:
        case Var():
            return True
        case Number():
            return CONSTANT in operators
        case Either(patterns=patterns):
            return any(occurs(each, operators) for each in patterns)
        case Through(inner=inner):
            return occurs(inner, operators)
        case Reader(ops=ops, inner=inner):
            return any(each in operators for each in ops) and occurs(inner, operators)
        case Op(ops=ops, args=args):
            is_there = any(each in operators for each in ops)
            return is_there and all(occurs(each, operators) for each in args)


def bindings(values: Values, pattern: Pattern, index: int, bound: Bound) -> Iterator[Bound]:
    """Yield each way in which a pattern matches a value, beside what is bound already."""
    match pattern:
        case Var(name=name, where=where):
            found = bound.named(name, index) if where is None or where(values, index) else None
        case Number(name=name, value=value):
            scalar = values[index].scalar
            fits = scalar is not None and (value is None or scalar == value)
            found = bound.named(name, index) if fits else None
        case Either(patterns=patterns):
            for each in patterns:
                yield from bindings(values, each, index, bound)
            return
        case Through():
            yield from _behind(values, pattern, index, bound)
            return
        case Reader() | Op():
            if values[index].op in pattern.ops and not values[index].pinned:
                yield from _operators(values, pattern, index, bound)
            return
    if found is not None:
        yield found


def _operators(values: Values, pattern: Reader | Op, index: int, bound: Bound) -> Iterator[Bound]:
    expr = values[index]
    if isinstance(pattern, Reader):
        own = bound.matched((index,), alone=False)
        for arg in dict.fromkeys(expr.args):
            yield from bindings(values, pattern.inner, arg, own)
        return
    named = bound.named(pattern.name, index)
    if named is None or len(expr.args) != len(pattern.args):
        return
    own = named.matched((index,), alone=pattern.alone)
    yield from _operands(values, pattern.args, expr.args, own)
    if expr.op in COMMUTATIVE and expr.args[0] != expr.args[1]:
        yield from _operands(values, pattern.args, expr.args[::-1], own)


def _operands(
    values: Values, wanted: tuple[Pattern, ...], args: tuple[int, ...], bound: Bound
) -> Iterator[Bound]:
    if not wanted:
        yield bound
        return
    for each in bindings(values, wanted[0], args[0], bound):
        yield from _operands(values, wanted[1:], args[1:], each)


def _behind(values: Values, pattern: Through, index: int, bound: Bound) -> Iterator[Bound]:
    path, where = [index], pattern.where
    while (expr := values[path[-1]]).op in pattern.ops and expr.args and not expr.pinned:
        if where is not None and not where(values, path[-1]):
            break
        path.append(expr.args[0])
    for end in range(len(path) - 1, -1, -1):
        own = bound.matched(tuple(path[:end]), alone=pattern.alone)
        if pattern.name:
            own = replace(own, paths={**own.paths, pattern.name: tuple(path[:end])})
        yield from bindings(values, pattern.inner, path[end], own)


def read_elsewhere(values: Values, bound: Bound, count: Callable[[int], int]) -> str | None:
    """Return the name of an operator that should be alone, but that others read; None if none."""
    inside = Counter(arg for member in set(bound.members) for arg in values[member].args)
    for index in bound.alone:
        if count(index) != inside[index]:
            return values[index].op
    return None
