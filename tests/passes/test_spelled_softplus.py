"""A softplus that a branch spells, and what only looks like one."""

from __future__ import annotations

import numpy as np
import pytest

from boltgen.graph.graph import INPUT, Expr, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.passes.precision.spelled import spelled_softplus
from boltgen.passes.precision.walk import normalise
from tests.passes.differential import drawn, operators
from tests.passes.networks import Net


def _found(
    *,
    beta: float | None = None,
    divisor: float | None = None,
    limit: float = 20.0,
    one: float = 1.0,
    wide: str | None = None,
    is_first: bool = False,
    filled: bool = False,
) -> tuple[int, float] | None:
    """Return what is found of where(beta x > limit, x, log(exp(beta x) + one) / divisor).

    The exponential is cast to `wide`, and its logarithm back; constants may come first.
    """
    b = GraphBuilder()
    x = b.add(Expr(op=INPUT, shape=(2, 3), dtype="float32"))

    def number(value: float, dtype: str = "float32") -> int:
        return b.constant(np.array(value, dtype))

    def both(op: str, left: int, right: int) -> int:
        return b.elementwise(op, *((right, left) if is_first else (left, right)))

    scaled = x if beta is None else both("multiply", x, number(beta))
    power = b.elementwise("exp", scaled)
    if wide is not None:
        power = b.astype(power, wide)
    log = b.elementwise("log", both("add", power, number(one, wide or "float32")))
    if wide is not None:
        log = b.astype(log, "float32")
    if divisor is not None:
        log = b.elementwise("divide", log, number(divisor))
    bound = number(limit)
    if filled:
        bound = b.elementwise("full_like", x, bound)
    above = b.operator("greater", (scaled, bound), (2, 3), "bool")
    graph = b.graph(b.operator("where", (above, x, log), (2, 3), "float32"))
    return spelled_softplus(graph, len(graph) - 1)


@pytest.mark.parametrize("wide", [None, "float32", "float64"])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("beta", [None, 2.0])
def test_it_is_found(wide: str | None, is_first: bool, filled: bool, beta: float | None) -> None:
    found = _found(beta=beta, divisor=beta, wide=wide, is_first=is_first, filled=filled)
    assert found == (0, beta or 1.0)


def test_the_least_limit_is_where_fp32_rounds_to_its_argument() -> None:
    assert np.log1p(np.exp(np.float32(17.0))) == np.float32(17.0)
    assert _found(limit=17.0) == (0, 1.0)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_it_is_written_with_its_factor(beta: float) -> None:
    b = Net()
    x = b.input(2, 3)
    scaled = b.elementwise("multiply", x, b.number(beta))
    total = b.elementwise("add", b.elementwise("exp", scaled), b.number(1.0))
    above = b.operator("greater", (scaled, b.number(20.0)), (2, 3), "bool")
    log = b.elementwise("divide", b.elementwise("log", total), b.number(beta))
    graph = b.graph(b.operator("where", (above, x, log), (2, 3), "float32"))
    made = normalise(graph).graph
    assert "nn.softplus" in operators(made)
    (found,), (wanted,) = (run(each, drawn(graph)) for each in (made, graph))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-9)


@pytest.mark.parametrize(
    "changed",
    [
        {"beta": 2.0, "divisor": 4.0},
        {"beta": 2.0},
        {"beta": -1.0, "divisor": -1.0},
        {"beta": 0.0, "divisor": 0.0},
        {"limit": 2.0},
        {"limit": 16.5},
        {"one": 2.0},
        {"wide": "int32"},
    ],
    ids=str,
)
def test_another_function_is_none(changed: dict[str, float]) -> None:
    assert _found(**changed) is None
