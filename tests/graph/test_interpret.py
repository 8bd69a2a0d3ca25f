"""The interpreter: values, types and sizes of graphs, and errors that name what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boltgen.errors import InterpretError
from boltgen.graph.attribute_kinds import attributes_of
from boltgen.graph.attributes import Axis, RegionCall
from boltgen.graph.graph import GROUPED, INPUT, OPAQUE, PART, REGION, Expr, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.graph.numpy_semantics.operation import Operation
from boltgen.graph.numpy_semantics.operators import OPERATORS, compute
from boltgen.ir.dtypes import DType
from boltgen.ir.extent import Symbol, symbolic

ROWS = Symbol("rows", 1, 64)
OPEN = symbolic(ROWS)


def _input(b: GraphBuilder, *shape: int, dtype: str = "float32") -> int:
    return b.add(Expr(op=INPUT, shape=shape, dtype=dtype))


def _computed(name: str, shape: tuple[int, ...], dtype: str, *arrays: Any, **attrs: object) -> Any:
    known = attributes_of(name, attrs)
    operation = Operation(name=name, attrs=known, shape=shape, dtype=dtype)
    return compute(operation, [np.asarray(array) for array in arrays])


def test_results_are_in_the_order_of_the_graph() -> None:
    b = GraphBuilder()
    x, y = _input(b, 2), _input(b, 2)
    total, product = b.elementwise("add", x, y), b.elementwise("multiply", x, y)
    graph = b.graph((product, (x, total)))
    found = run(graph, [np.array([2, 3], np.float32), np.array([4, 5], np.float32)])
    np.testing.assert_array_equal(found, [[8, 15], [2, 3], [6, 8]])


def test_every_tensor_can_be_observed() -> None:
    b = GraphBuilder()
    x = _input(b, 2)
    graph = b.graph(b.elementwise("negative", b.elementwise("square", x)))
    seen: dict[int, list[float]] = {}
    run(graph, [np.array([1, 2], np.float32)], observe=lambda i, v: seen.update({i: v.tolist()}))
    assert seen == {0: [1, 2], 1: [1, 4], 2: [-1, -4]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_stored_and_never_summed_in(dtype: str) -> None:
    """2048 ones added to one half are 2048.5; FP16 sums stay at 2048, and BF16 sums at 256."""
    narrow = DType(dtype).numpy
    ones = np.append(np.full(2048, 1.0), 0.5).astype(narrow)
    total = _computed("sum", (), "float32", ones, axis=None, keepdims=False)
    assert (total, total.dtype) == (2048.5, np.float32)
    product = _computed("matmul", (1, 1), "float32", ones[None], np.ones((2049, 1), narrow))
    assert product == 2048.5
    stored = _computed("sum", (), dtype, ones, axis=None, keepdims=False)
    assert (stored, stored.dtype) == (2048, narrow)


def test_an_exact_run_rounds_nothing() -> None:
    b = GraphBuilder()
    narrow = b.astype(_input(b, 1), "float16")
    graph = b.graph(b.elementwise("add", narrow, b.constant(np.array(2.0**-20, np.float16))))
    x = np.array([1.0], np.float32)
    assert run(graph, [x])[0].tolist() == [1.0]
    (exact,) = run(graph, [x], is_exact=True)
    assert (exact.tolist(), exact.dtype) == ([1.0 + 2.0**-20], np.float64)


def test_an_exact_run_keeps_casts_to_integers() -> None:
    b = GraphBuilder()
    graph = b.graph(b.astype(b.astype(_input(b, 2), "int64"), "float32"))
    assert run(graph, [np.array([1.5, -1.5])], is_exact=True)[0].tolist() == [1, -1]


def test_symbols_have_the_sizes_of_the_inputs() -> None:
    b = GraphBuilder()
    x = _input(b, OPEN, 2)
    rows = b.operator("arange", (), (OPEN,), "int64", begin=3, step=2)
    graph = b.graph((b.reshape(x, (OPEN * 2,)), rows))
    flat, numbers = run(graph, [np.zeros((5, 2), np.float32)])
    assert (flat.shape, numbers.tolist()) == ((10,), [3, 5, 7, 9, 11])


def test_symbols_of_no_input_are_given() -> None:
    b = GraphBuilder()
    table = np.arange(12.0).reshape(4, 3)
    graph = b.graph(b.corner(table, (OPEN, 3)))
    assert run(graph, [], sizes={ROWS: 2})[0].tolist() == table[:2].tolist()
    with pytest.raises(InterpretError, match="whose size is not given"):
        run(graph, [])


def test_a_tensor_is_split_by_the_extents_of_its_parts() -> None:
    b = GraphBuilder()
    whole = b.add(Expr(op="split", args=(_input(b, 2, 6),), attrs=Axis(-1)))
    shapes = (2, 1), (2, 3), (2, 2)
    parts = [b.operator(PART, (whole,), s, "float32", index=i) for i, s in enumerate(shapes)]
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    found = run(b.graph(tuple(parts)), [x])
    assert [each.tolist() for each in found] == [
        x[:, :1].tolist(),
        x[:, 1:4].tolist(),
        x[:, 4:].tolist(),
    ]
    with pytest.raises(InterpretError, match="reads one of the first parts"):
        run(b.graph(parts[2]), [x])


def test_a_region_is_its_body() -> None:
    body = GraphBuilder()
    x = _input(body, 2)
    more = body.graph((body.elementwise("negative", x), body.elementwise("square", x)))
    b = GraphBuilder()
    attrs = RegionCall("f", (((2,), "float32"),))
    call = b.operator(REGION, (_input(b, 2),), (2,), "float32", attrs)
    parts = tuple(b.operator(PART, (call,), (2,), "float32", index=i) for i in range(2))
    x_ = np.array([2, 3], np.float32)
    assert [each.tolist() for each in run(b.graph(parts), [x_], regions={"f": more})] == [
        [-2, -3],
        [4, 9],
    ]
    with pytest.raises(InterpretError, match="calls the region 'f', without a body"):
        run(b.graph(parts), [x_])


def test_rows_of_no_group_are_zero() -> None:
    a, b = np.ones((4, 2), np.float16), np.arange(8, dtype=np.float16).reshape(2, 2, 2)
    found = _computed(GROUPED, (4, 2), "float16", a, b, np.array([1, 3]))
    assert found.tolist() == [[2, 4], [10, 12], [10, 12], [0, 0]]


def test_integers_are_divided_towards_zero() -> None:
    found = _computed("divide", (2,), "int64", [-7, 7], [2, 2])
    assert found.tolist() == [-3, 3]


@pytest.mark.parametrize(
    ("mode", "wanted"), [("clip", [0, 0, 2, 2]), ("wrap", [0, 2, 2, 0]), ("fast", None)]
)
def test_indices_beyond_a_tensor_go_by_the_mode(mode: str, wanted: list[int] | None) -> None:
    given = np.arange(3), np.array([0, -1, 2, 3])
    if wanted is None:
        with pytest.raises(InterpretError, match=r"take on .* out of bounds"):
            _computed("take", (4,), "int64", *given, axis=0, mode=mode)
    else:
        assert _computed("take", (4,), "int64", *given, axis=0, mode=mode).tolist() == wanted


def test_slices_have_three_forms() -> None:
    x = np.arange(24.0).reshape(4, 6)
    one = _computed("strided_slice", (4, 2), "float64", x, axis=1, begin=1, end=3)
    np.testing.assert_array_equal(one, x[:, 1:3])
    every = _computed("strided_slice", (2, 6), "float64", x, every=(0, 1, 2))
    np.testing.assert_array_equal(every, x[1::2])
    within = _computed("strided_slice", (2, 3), "float64", x, within=((0, 1), (1, 2)))
    np.testing.assert_array_equal(within, x[1:3, 2:5])


def _unknown(b: GraphBuilder) -> int:
    return b.operator("nn.mystery", (_input(b, 2),), (2,), "float32")


def _of_another_shape(b: GraphBuilder) -> int:
    return b.operator("negative", (_input(b, 2),), (3,), "float32")


def _of_another_kind(b: GraphBuilder) -> int:
    return b.operator("negative", (_input(b, 2),), (2,), "int32")


def _without_attributes(b: GraphBuilder) -> int:
    return b.add(Expr(op="triu", args=(_input(b, 2),), shape=(2,), dtype="float32"))


def _of_another_axis(b: GraphBuilder) -> int:
    return b.operator("sum", (_input(b, 2),), (), "float32", axis=(1,), keepdims=False)


def _of_no_shape(b: GraphBuilder) -> int:
    return b.operator("reshape", (_input(b, 2),), (4,), "float32")


def _opaque(b: GraphBuilder) -> int:
    return b.operator(OPAQUE, (_input(b, 2),), (2,), "float32", callee="somebody")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (_unknown, "no operator 'nn.mystery'"),
        (_of_another_shape, r"negative makes float32 \(2,\), and its graph says float32 \(3,\)"),
        (_of_another_kind, "negative makes float32"),
        (_without_attributes, r"triu on .* is no Diagonal"),
        (_of_another_axis, r"sum on .* an axis of \(1,\) is beyond the 1"),
        (_of_no_shape, r"reshape on \(float32 \(2,\)\)"),
        (_opaque, "calls 'somebody', which has no NumPy form"),
    ],
)
def test_what_cannot_be_computed_is_named(build: Any, message: str) -> None:
    b = GraphBuilder()
    graph = b.graph(build(b))
    with pytest.raises(InterpretError, match=message):
        run(graph, [np.zeros(2, np.float32)])


def test_inputs_are_what_the_graph_takes() -> None:
    b = GraphBuilder()
    graph = b.graph(b.elementwise("negative", _input(b, 2)))
    with pytest.raises(InterpretError, match=r"is \(3,\), and its graph says \(2,\)"):
        run(graph, [np.zeros(3, np.float32)])
    with pytest.raises(InterpretError, match="is int64, and its graph says float32"):
        run(graph, [np.zeros(2, np.int64)])
    with pytest.raises(InterpretError, match="has 1 inputs, and 0 are given"):
        run(graph, [])


def test_a_constant_of_unknown_elements_is_named() -> None:
    b = GraphBuilder()
    graph = b.graph(b.add(Expr(op="constant", shape=(2,), dtype="float32")))
    with pytest.raises(InterpretError, match="elements of the constant 0 are not known"):
        run(graph, [])


def test_all_functions_of_kernels_are_known() -> None:
    """A new row of `ir.functions` with an operator is interpreted without a change here."""
    assert {"nn.gelu", "nn.silu", "nn.leakyrelu", "erf", "sigmoid"} <= OPERATORS
