"""The text of a graph has all that the graph has, and reads like a program."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.errors import GraphTextError
from boltgen.graph.attributes import KINDS, Attributes, Clip, Opaque, Pad
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder, Structure
from boltgen.graph.text import Constants, parse_graph, print_graph
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.gemm.packed import PackedWeights

N, M = symbolic(Symbol("n", 1, 64)), symbolic(Symbol("m // 2", 2, 8))
OTHER_N = symbolic(Symbol("n", 1, 8))
EXTENTS = st.one_of(
    st.integers(0, 9), st.sampled_from([N, M, N * M * 2, N * N + M + -3, OTHER_N]), st.just("?")
)
NUMBERS = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(allow_nan=False), st.booleans(), st.just(math.nan)
)
VALUES = st.recursive(
    st.one_of(
        NUMBERS,
        st.none(),
        st.text(max_size=8),
        st.just(N * 3),
        st.just(DType.F16),
        st.just(PackedWeights(bits=4, group=32, has_zeros=True)),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
NAMES = st.sampled_from(["add", "nn.relu", "vendor op", "nn.lambda", "x.1", "input", *KINDS])
ARRAYS = st.tuples(
    st.sampled_from(["float16", "float32", "float64", "int64", "uint8", "bool"]),
    st.sampled_from([(), (1,), (2, 2), (8,), (3, 5)]),
    st.integers(0, 2**32 - 1),
).map(lambda made: _array(*made))


def _array(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> Graph:
    builder = GraphBuilder()
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            builder.constant(draw(ARRAYS))
            continue
        count = len(builder.exprs)
        arguments = st.lists(st.integers(0, count - 1), max_size=3) if count else st.just([])
        name = draw(NAMES)
        kind = draw(st.sampled_from(KINDS.get(name, (Attributes,))))
        given: dict[str, Any] = {each.name: draw(VALUES) for each in fields(kind)}
        if kind is Opaque and depth and draw(st.booleans()):
            given["inside"] = draw(graphs(depth=depth - 1))
        shape = draw(st.none() | st.lists(EXTENTS, max_size=3).map(tuple))
        builder.add(
            Expr(
                op=name,
                args=tuple(draw(arguments)),
                shape=shape,
                dtype=draw(st.sampled_from(["", "float16", "bool", "float32 x 4"])),
                attrs=kind(**given),
                observed=draw(st.none() | st.tuples(st.floats(-9, 9), st.floats(-9, 9))),
                pinned=draw(st.booleans()),
                reason=draw(st.text(max_size=8)),
            )
        )
    index = st.integers(0, len(builder.exprs) - 1)
    results: Structure = draw(index | st.lists(index, max_size=3).map(tuple))
    escaping = draw(st.frozensets(index, max_size=2))
    return Graph(tuple(builder.exprs), escaping, results)


def same(left: Graph, right: Graph) -> bool:
    """Whether two graphs are equal in all fields; `==` leaves out arrays and observations."""
    if left != right:
        return False
    for one, other in zip(left.exprs, right.exprs, strict=True):
        if one.observed != other.observed or (one.array is None) != (other.array is None):
            return False
        if one.array is not None:
            assert other.array is not None
            is_equal = one.array.dtype == other.array.dtype and one.array.shape == other.array.shape
            if not is_equal or one.array.tobytes() != other.array.tobytes():
                return False
    return True


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_a_text_has_the_whole_graph(graph: Graph) -> None:
    constants = Constants()
    text = print_graph(graph, constants)
    parsed = parse_graph(text, constants)
    assert same(parsed, graph)
    assert print_graph(parsed) == text


def test_a_text_reads_like_a_program() -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(N, 4), dtype="float32", observed=(-1.5, 2.0)))
    w = builder.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    half = builder.constant(np.array(0.5, np.float32))
    y = builder.operator("matmul", (x, w), (N, 3), "float32")
    z = builder.operator("multiply", (y, half), (N, 3), "float32")
    w_digest = Constants().digest(builder[w].array)  # type: ignore[arg-type]
    assert print_graph(builder.graph((z, y))) == (
        "n = dim('n', 1, 64)\n"
        "def main():\n"
        "    v0: float32[n, 4] = input(_observed=(-1.5, 2.0))\n"
        f"    v1: float32[4, 3] = constant('{w_digest}')\n"
        "    v2: float32[()] = constant(0.5)\n"
        "    v3: float32[n, 3] = matmul(v0, v1)\n"
        "    v4: float32[n, 3] = multiply(v3, v2)\n"
        "    return (v4, v3)\n"
    )


def test_without_the_table_a_long_constant_has_no_array() -> None:
    builder = GraphBuilder()
    graph = builder.graph(builder.constant(np.zeros(9)))
    (parsed,) = parse_graph(print_graph(graph)).exprs
    assert (parsed.op, parsed.shape, parsed.array) == (CONSTANT, (9,), None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def main(:", "line 1"),
        ("x = 1", "neither a dimension nor a function"),
        ("def other():\n    return ()", "no function 'main'"),
        ("def main():\n    v0: f = input()", "returns nothing"),
        ("def main():\n    v1: f = input()\n    return ()", "defines v1 where v0 is next"),
        ("def main():\n    v0: f = add(v0)\n    return v0", "no value of a line above"),
        ("def main():\n    v0: f = add(v7)\n    return v0", "no value of a line above"),
        ("def main():\n    v0: f[n] = input()\n    return v0", "no value that a graph's text"),
        ("def main():\n    v0: f[1.5] = input()\n    return v0", "neither a number nor a name"),
        ("def main():\n    v0: f = clip(low=unknown('T', 'x'))\n    return v0", "no value that"),
        ("def main():\n    v0: int8[2] = constant((1, 2, 3))\n    return v0", "of its type"),
        ("def main():\n    v0: int8[2] = constant('abc')\n    return v0", "not given"),
        ("def main():\n    v0: f = add(k=1)\n    return v0", "has the attributes none, not k"),
        (
            "def main():\n    v0: f = add(k=PackedWeights(bits=3, group=32))\n    return v0",
            "no PackedWeights",
        ),
    ],
)
def test_a_wrong_text_is_refused_by_line(text: str, said: str) -> None:
    with pytest.raises(GraphTextError, match=r"line|function") as caught:
        parse_graph(text, Constants())
    assert said in str(caught.value)


def test_numbers_and_strings_of_numpy_are_written_as_those_of_python() -> None:
    builder = GraphBuilder()
    x = builder.add(Expr(op=INPUT, shape=(2,), dtype="float32"))
    attrs = Pad(((0, 0),), np.float64(-np.inf), np.str_("edge"))
    padded = builder.operator("nn.pad", [x], (2,), "float32", attrs)
    clip = Clip(np.float64(0.5), np.float64(np.inf))
    text = print_graph(graph := builder.graph(builder.elementwise("clip", padded, attrs=clip)))
    assert "nn.pad(v0, widths=((0, 0),), value=-inf, mode='edge')" in text
    assert "clip(v1, low=0.5, high=inf)" in text
    assert parse_graph(text) == graph
