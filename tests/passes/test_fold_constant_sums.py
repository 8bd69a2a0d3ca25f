"""Which constants that are added one after another become one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.arithmetic import fold_constant_sums
from tests.passes.differential import checked

with_sums_of_constants = checked(fold_constant_sums.with_sums_of_constants, others=True)

ROWS, COLUMNS = 6, 4


class Builder(GraphBuilder):
    """Grows sums with constants."""

    def input(self, dtype: str = "float16") -> int:
        return self.add(Expr(op=INPUT, shape=(2, ROWS, COLUMNS), dtype=dtype))

    def ones(self, *shape: int, dtype: str = "float16") -> int:
        return self.constant(np.ones(shape, dtype))

    def plus(self, *terms: int) -> int:
        total, *others = terms
        for other in others:
            total = self.elementwise("add", total, other)
        return total


def _sums(build: Callable[[Builder], int]) -> tuple[Graph, int]:
    """A graph, and how many of its sums an input has a part in."""
    b = Builder()
    graph = with_sums_of_constants(b.graph(build(b)))
    inputs: set[int] = set()
    for index, expr in enumerate(graph.exprs):
        if expr.op == INPUT or any(arg in inputs for arg in expr.args):
            inputs.add(index)
    return graph, sum(graph[index].op == "add" for index in inputs)


@pytest.mark.parametrize("is_first", [True, False])
def test_constants_are_added_to_each_other(*, is_first: bool) -> None:
    def build(b: Builder) -> int:
        kinds, places = b.ones(COLUMNS), b.ones(1, ROWS, COLUMNS)
        inner = (kinds, b.input()) if is_first else (b.input(), kinds)
        return b.plus(b.plus(*inner), places)

    graph, count = _sums(build)
    assert count == 1
    assert isinstance(graph.results, int)
    total = next(graph[arg] for arg in graph[graph.results].args if graph[arg].op != INPUT)
    assert (total.op, total.shape) == ("add", (1, ROWS, COLUMNS))
    assert all(graph[arg].op == CONSTANT for arg in total.args)


def test_what_is_made_of_constants_is_one() -> None:
    def build(b: Builder) -> int:
        places = b.operator(
            "take",
            (b.ones(9, COLUMNS), b.ones(ROWS, dtype="int64")),
            (ROWS, COLUMNS),
            "float16",
            axis=0,
        )
        places = b.operator("reshape", (places,), (1, ROWS, COLUMNS), "float16")
        return b.plus(b.input(), b.ones(COLUMNS), places)

    assert _sums(build)[1] == 1


CASES: dict[str, Callable[[Builder], int]] = {
    "a number of a function": lambda b: b.plus(b.input(), b.ones(COLUMNS), b.ones()),
    "no constant": lambda b: b.plus(b.input(), b.input(), b.ones(COLUMNS)),
    "larger together": lambda b: b.plus(b.input(), b.ones(ROWS, 1), b.ones(1, COLUMNS)),
    "counts": lambda b: b.plus(
        b.input("int64"), b.ones(COLUMNS, dtype="int64"), b.ones(COLUMNS, dtype="int64")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_other_sums_stay(name: str) -> None:
    assert _sums(CASES[name])[1] == 2


def test_a_sum_that_others_read_stays() -> None:
    b = Builder()
    inner = b.plus(b.input(), b.ones(COLUMNS))
    graph = b.graph((b.plus(inner, b.ones(COLUMNS)), inner))
    assert with_sums_of_constants(graph).exprs == graph.exprs
