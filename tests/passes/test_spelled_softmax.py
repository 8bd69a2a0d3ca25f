"""A softmax that operators spell, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.precision.spelled import spelled_softmax

SHAPE = (2, 3, 5)


def _spelled(
    axis: int = -1, summed: int = -1, *, keepdims: bool = True, most: bool = True
) -> tuple[tuple[int, int] | None, int]:
    """What is found of exp(x - max(x)) / sum(exp(x - max(x))), and where x is."""
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=SHAPE, dtype="float32"))

    def reduced(name: str, of: int, axis: int) -> int:
        place = axis % 3
        shape = (*SHAPE[:place], *((1,) if keepdims else ()), *SHAPE[place + 1 :])
        attrs: dict[str, Any] = {"axis": (axis,), "keepdims": keepdims}
        return builder.operator(name, [of], shape, "float32", **attrs)

    at = builder.elementwise("subtract", x, reduced("max", x, axis)) if most else x
    power = builder.elementwise("exp", at)
    made = builder.operator("divide", [power, reduced("sum", power, summed)], SHAPE, "float32")
    graph = builder.graph(made)
    return spelled_softmax(graph, len(graph) - 1), x


@pytest.mark.parametrize(("axis", "summed", "found"), [(-1, 2, 2), (1, 1, 1)])
def test_it_is_found_along_any_axis(axis: int, summed: int, found: int) -> None:
    spelled, x = _spelled(axis, summed)
    assert spelled == (x, found)


def test_it_may_lack_its_maximum() -> None:
    spelled, x = _spelled(most=False)
    assert spelled == (x, 2)


def test_the_maximum_of_another_axis_is_an_operand() -> None:
    # It cancels all the same where it is one number for each sum; here it is not.
    spelled, x = _spelled(axis=1)
    assert spelled is not None
    assert spelled[0] != x


def test_a_sum_that_drops_its_axis_is_none() -> None:
    assert _spelled(axis=0, summed=0, keepdims=False)[0] is None


@pytest.mark.parametrize("axes", [None, (1, 2), ()])
def test_a_sum_along_several_axes_is_none(axes: tuple[int, ...] | None) -> None:
    b = GraphBuilder()
    power = b.elementwise("exp", b.add(Expr(op=INPUT, shape=SHAPE, dtype="float32")))
    shape = tuple(1 if axes is None or at in axes else n for at, n in enumerate(SHAPE))
    total = b.operator("sum", [power], shape, "float32", axis=axes, keepdims=True)
    graph = b.graph(b.elementwise("divide", power, total))
    assert spelled_softmax(graph, len(graph) - 1) is None


def test_a_quotient_that_broadcasts_is_none() -> None:
    b = GraphBuilder()
    power = b.elementwise("exp", b.add(Expr(op=INPUT, shape=(3, 1), dtype="float32")))
    total = b.operator("sum", [power], (3, 1), "float32", axis=(-1,), keepdims=True)
    graph = b.graph(b.operator("divide", [power, total], SHAPE, "float32"))
    assert spelled_softmax(graph, len(graph) - 1) is None


def test_open_rows_are_found() -> None:
    b = GraphBuilder()
    rows = symbolic(Symbol("rows", 1, 9))
    power = b.elementwise("exp", b.add(Expr(op=INPUT, shape=(rows, 5), dtype="float32")))
    total = b.operator("sum", [power], (rows, 1), "float32", axis=(-1,), keepdims=True)
    graph = b.graph(b.elementwise("divide", power, total))
    assert spelled_softmax(graph, len(graph) - 1) == (0, 1)
