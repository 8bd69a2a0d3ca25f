"""Patterns against their definition, and rules that keep values, end, and tell why they did not."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import GraphError
from boltgen.graph.facts import COMMUTATIVE, Values
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.graph.patterns import (
    Either,
    Match,
    Number,
    Op,
    Pattern,
    Reader,
    Through,
    Var,
    first,
    matches,
    occurs,
    op,
)
from boltgen.graph.rules import Rule, recording, rewrite

SHAPE = (2,)
UNARY, BINARY = ("negative", "abs"), ("add", "multiply", "subtract", "maximum")
X, Y, A = Var("x"), Var("y"), Number("a")


class Builder(GraphBuilder):
    """Grows operators on vectors of two elements."""

    def input(self) -> int:
        return self.add(Expr(op=INPUT, shape=SHAPE, dtype="float32"))

    def number(self, value: float) -> int:
        return self.constant(np.array(value, np.float32))


def _names(pattern: Pattern) -> set[str]:
    match pattern:
        case Var(name=name) | Number(name=name):
            return {name}
        case Through(inner=inner) | Reader(inner=inner):
            return _names(inner)
        case Either(patterns=patterns) | Op(args=patterns):
            return set().union(*map(_names, patterns))


def _holds(graph: Graph, pattern: Pattern, index: int, given: dict[str, int]) -> bool:
    """Whether a pattern means the value at `index` if its names are values as `given`."""
    expr = graph[index]
    match pattern:
        case Var(name=name):
            return given[name] == index
        case Number(name=name, value=value):
            is_right = expr.scalar is not None and value in {None, expr.scalar}
            return given[name] == index and is_right
        case Through(ops=ops, inner=inner, where=where):
            is_one = expr.op in ops and (where is None or where(graph, index))
            is_behind = is_one and _holds(graph, pattern, expr.args[0], given)
            return is_behind or _holds(graph, inner, index, given)
        case Reader(ops=ops, inner=inner):
            return expr.op in ops and any(_holds(graph, inner, arg, given) for arg in expr.args)
        case Either(patterns=patterns):
            return any(_holds(graph, each, index, given) for each in patterns)
        case Op(ops=ops, args=wanted):
            orders = [expr.args, expr.args[::-1]] if expr.op in COMMUTATIVE else [expr.args]
            return expr.op in ops and any(
                len(args) == len(wanted)
                and all(_holds(graph, *each, given) for each in zip(wanted, args, strict=True))
                for args in orders
            )


@st.composite
def graphs(draw: st.DrawFn, ops: int = 6) -> Graph:
    """Graphs of two inputs, numbers, sums, maxima and products with numbers; all is exact."""
    b = Builder()
    tensors = [b.input(), b.input()]
    numbers = [b.number(value) for value in (0.0, 1.0, 0.5, 2.0)]
    for _ in range(draw(st.integers(1, ops))):
        name = draw(st.sampled_from(("negative", "abs", "multiply", "multiply", *BINARY)))
        # Those of the last values, so that graphs are deep.
        args = [draw(st.sampled_from(tensors[-3:]))]
        if name == "multiply":
            args.append(draw(st.sampled_from(numbers)))
        elif name in BINARY:
            args.append(draw(st.sampled_from([*tensors[-3:], numbers[0]])))
        tensors.append(b.elementwise(name, *(args[::-1] if draw(st.booleans()) else args)))
    results = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=2))
    return b.graph((*results, tensors[-1]))


LEAVES: st.SearchStrategy[Pattern] = st.sampled_from(
    [X, Y, A, Number("one", 1.0), Either((op("negative", X), X))]
)


def _is_inner(values: Values, at: int) -> bool:
    """A fact of an operator: it reads no input."""
    return all(values[arg].op != INPUT for arg in values[at].args)


def _deeper(inner: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    return st.one_of(
        st.builds(op, st.sampled_from(UNARY), inner),
        st.builds(op, st.sampled_from([*BINARY, frozenset(BINARY)]), inner, inner),
        st.builds(lambda each: Through(frozenset(UNARY), each), inner),
        st.builds(lambda each: Through(frozenset(UNARY), each, where=_is_inner), inner),
        st.builds(lambda each: Reader(frozenset((*UNARY, "subtract")), each), inner),
    )


@settings(deadline=None)
@given(graphs(), st.recursive(LEAVES, _deeper, max_leaves=4))
def test_a_pattern_matches_what_its_definition_means(graph: Graph, pattern: Pattern) -> None:
    names = sorted(_names(pattern))
    assignments = [
        dict(zip(names, values, strict=True))
        for values in product(range(len(graph)), repeat=len(names))
    ]
    for index in range(len(graph)):
        found = [dict(each.bound.names) for each in matches(graph, pattern, index)]
        meant = [each for each in assignments if _holds(graph, pattern, index, each)]
        assert {tuple(sorted(each.items())) for each in found} == {
            tuple(sorted(each.items())) for each in meant
        }
        is_found = first(graph, pattern, index) is not None
        assert is_found == bool(meant)
        assert occurs(pattern, graph.operators) or not is_found


def _scaled(found: Match, builder: GraphBuilder) -> int:
    number = builder.constant(np.array(found.number("a") * found.number("b"), np.float32))
    return builder.elementwise("multiply", found["x"], number)


def _factored(found: Match, builder: GraphBuilder) -> int:
    total = builder.elementwise("add", found["x"], found["y"])
    return builder.elementwise("multiply", total, found["a"])


def _broadcasts(found: Match) -> str | None:
    return None if found.shape("x") == found.shape() else "the operand is broadcast"


def _kept(name: str, pattern: Op) -> Rule:
    return Rule(name=name, pattern=pattern, write=lambda found, _: found["x"], unless=_broadcasts)


def _products(name: str) -> Op:
    return op("multiply", Var(name), A, alone=True)


RULES = (
    _kept("add zero", op("add", X, Number("zero", 0.0))),
    _kept("multiply by one", op("multiply", X, Number("one", 1.0))),
    _kept("negate twice", op("negative", op("negative", X))),
    _kept("maximum of one", op("maximum", X, X)),
    Rule(
        name="scale twice",
        pattern=op("multiply", op("multiply", X, A, alone=True), Number("b")),
        write=_scaled,
        unless=_broadcasts,
    ),
    Rule(
        name="factor",
        pattern=op("add", _products("x"), _products("y")),
        write=_factored,
        unless=_broadcasts,
    ),
)


def _inputs(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, SHAPE).astype(np.float32) for _ in range(2)]


def _values(graph: Graph, seed: int) -> list[np.ndarray]:
    names = [index for index, expr in enumerate(graph.exprs) if expr.op == INPUT]
    return run(graph, _inputs(seed)[: len(names)], is_exact=True)


@settings(deadline=None)
@given(graphs(ops=12), st.integers(0, 3), st.permutations(RULES))
def test_rules_keep_values_and_leave_no_match(graph: Graph, seed: int, rules: list[Rule]) -> None:
    made = rewrite(graph, rules)
    for before, after in zip(_values(graph, seed), _values(made, seed), strict=True):
        np.testing.assert_array_equal(before, after)
    assert rewrite(made, rules) is made
    for index, rule in product(range(len(made)), rules):
        assert all(rule.unless(each) for each in matches(made, rule.pattern, index))
    assert all(arg < index for index, expr in enumerate(made.exprs) for arg in expr.args)
    is_same = not any(
        rule.unless(each) is None
        for index, rule in product(range(len(graph)), rules)
        for each in matches(graph, rule.pattern, index)
    )
    assert (made is graph) == is_same


def _chain(steps: int) -> Graph:
    """x * 0.5 * 0.5 * ..., so many times."""
    b = Builder()
    x = b.input()
    for _ in range(steps):
        x = b.elementwise("multiply", x, b.number(0.5))
    return b.graph(x)


def test_a_chain_of_rewrites_takes_one_pass() -> None:
    graph = _chain(100)
    with recording() as log:
        made = rewrite(graph, RULES)
    assert [expr.op for expr in made.exprs] == [INPUT, CONSTANT, "multiply"]
    assert made.exprs[1].scalar == 0.5**100
    assert log.fired == {"scale twice": 99}


def test_a_value_that_others_read_stays_and_the_log_says_so() -> None:
    graph = _chain(2)
    inner = next(arg for arg in graph[len(graph) - 1].args if graph[arg].op == "multiply")
    both = Graph(graph.exprs, frozenset({inner, len(graph) - 1}), (inner, len(graph) - 1))
    with recording() as log:
        assert rewrite(both, RULES) is both
    (near,) = log.near
    assert (near.rule, near.operator) == ("scale twice", graph[len(graph) - 1])
    assert near.reason == "others read the multiply too"
    hidden = Graph(graph.exprs, frozenset({inner, len(graph) - 1}), len(graph) - 1)
    assert rewrite(hidden, RULES) is hidden


def test_both_reads_within_a_match_are_no_others() -> None:
    b = Builder()
    power = b.elementwise("abs", b.input())
    graph = b.graph(b.elementwise("add", power, b.elementwise("negative", power)))
    inner = op("abs", X, name="inner", alone=True)
    pattern = op("add", inner, op("negative", inner))
    found = first(graph, pattern, len(graph) - 1)
    assert found is not None
    assert (found["x"], found["inner"], found.members) == (0, 1, {1, 2, 3})
    more = Graph(graph.exprs, frozenset({1, 3}), (1, 3))
    assert first(more, pattern, 3) is None


def test_a_reason_keeps_a_match_and_is_told() -> None:
    b = Builder()
    zero = b.constant(np.zeros(1, np.float32))
    graph = b.graph(b.elementwise("add", b.number(3.0), zero))
    with recording() as log:
        assert rewrite(graph, RULES) is graph
    assert [(each.rule, each.reason) for each in log.near] == [
        ("add zero", "the operand is broadcast")
    ]


def test_the_range_of_what_is_rewritten_stays_known() -> None:
    graph = _chain(2)
    last = replace(graph.exprs[-1], observed=(-1.0, 3.0))
    made = rewrite(replace(graph, exprs=(*graph.exprs[:-1], last)), RULES)
    assert made.exprs[-1].observed == (-1.0, 3.0)


def test_pinned_operators_are_no_part_of_a_match() -> None:
    graph = _chain(2)
    for index in (2, len(graph) - 1):
        exprs = list(graph.exprs)
        exprs[index] = replace(exprs[index], pinned=True)
        pinned = replace(graph, exprs=tuple(exprs))
        assert rewrite(pinned, RULES) is pinned


def test_what_a_path_went_through_can_be_written_again() -> None:
    b = Builder()
    x = b.elementwise("multiply", b.input(), b.number(2.0))
    graph = b.graph(b.elementwise("abs", b.reshape(b.reshape(x, (1, 2)), (2, 1))))

    def write(found: Match, builder: GraphBuilder) -> int:
        inner = found.again(builder, "views", builder.elementwise("abs", found["x"]))
        return builder.elementwise("multiply", inner, found["a"])

    views = Through(frozenset({"reshape"}), op("multiply", X, A), name="views", alone=True)
    made = rewrite(graph, (Rule(name="abs first", pattern=op("abs", views), write=write),))
    ops = [expr.op for expr in made.exprs]
    assert ops == [INPUT, CONSTANT, "abs", "reshape", "reshape", "multiply"]
    for before, after in zip(_values(graph, 1), _values(made, 1), strict=True):
        np.testing.assert_array_equal(before, after)


SWAP = Rule(
    name="swap",
    pattern=op("add", X, Y),
    write=lambda found, builder: builder.elementwise("add", found["y"], found["x"]),
)
WIDEN = Rule(
    name="widen",
    pattern=op("add", X, Y),
    write=lambda found, builder: builder.astype(found["x"], "float64"),
)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (SWAP, r"rule 'swap' fires without end on add \(2,\)"),
        (WIDEN, r"rule 'widen' made float64 \(2,\) of add, which is float32 \(2,\)"),
    ],
    ids=["endless", "another type"],
)
def test_wrong_rules_are_refused_by_name(rule: Rule, message: str) -> None:
    b = Builder()
    graph = b.graph(b.elementwise("add", b.input(), b.input()))
    with pytest.raises(GraphError, match=message):
        rewrite(graph, (rule,))
