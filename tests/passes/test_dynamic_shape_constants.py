"""What is made of open sizes alone is a corner of a constant, the same numbers at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boltgen.graph.graph import CONSTANT, CORNER, INPUT, REGION, Expr, Graph, GraphBuilder
from boltgen.ir.elementwise import local_softmax
from boltgen.ir.extent import MOST_UNKNOWN, Symbol, symbolic
from boltgen.passes.movement import dynamic_shape_constants
from boltgen.passes.outline import CarvedRegion, Symbols
from boltgen.problems.region import Shared, Sharing
from tests.passes.carved import carve
from tests.passes.differential import checked

corners_where_read = checked(dynamic_shape_constants.corners_where_read)
with_corners = checked(dynamic_shape_constants.with_corners, unit=2.0**-24)

MOST, HEADS, DEPTH = 24, 3, 16
ROWS = symbolic(Symbol("rows", 1, MOST))
KEYS = symbolic(Symbol("keys", 1, MOST + 8))
BATCH = symbolic(Symbol("batch", 1, 4))


class Builder(GraphBuilder):
    """Grows tensors that are made of sizes."""

    def input(self, *shape: int, dtype: str = "float16") -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def number(self, value: float, dtype: str = "int64") -> int:
        return self.constant(np.array(value, dtype))

    def places(self, extent: int) -> int:
        return self.operator("arange", (), (extent,), "int64", begin=0, step=1)

    def distances(self, rows: int, keys: int) -> int:
        row = self.reshape(self.places(rows), (rows, 1))
        return self.elementwise("subtract", self.reshape(self.places(keys), (1, keys)), row)

    def truths(self, name: str, left: int, right: int) -> int:
        return self.operator(name, (left, right), self.shape(left), "bool")

    def bias(self, rows: int, keys: int) -> int:
        """(1, HEADS, rows, keys), a number of each head for each distance."""
        far = self.elementwise("minimum", self.distances(rows, keys), self.number(3))
        near = self.elementwise("maximum", far, self.number(0))
        flat = self.reshape(near, (rows * keys,))
        taken = (rows * keys, HEADS)
        found = self.operator("take", (self.constant(_TABLE), flat), taken, "float16", axis=0)
        apart = self.permute_dims(self.reshape(found, (rows, keys, HEADS)), (2, 0, 1))
        return self.reshape(apart, (1, HEADS, rows, keys))

    def ahead(self, rows: int, keys: int) -> int:
        """(rows, keys), the lowest number where a key is ahead."""
        is_ahead = self.truths("greater", self.distances(rows, keys), self.number(0))
        lowest, zero = (self.number(each, "float16") for each in (-65504, 0))
        return self.operator("where", (is_ahead, lowest, zero), (rows, keys), "float16")

    def attention(self, scores: int, v: int) -> int:
        wide = self.astype(scores, "float32")
        made = self.operator("nn.softmax", (wide,), self.shape(wide), "float32", axis=-1)
        return self.matmul(self.astype(made, "float16"), v, "float16")

    def scores(self, rows: int, keys: int) -> tuple[int, int]:
        q, k, v = (self.input(BATCH, HEADS, each, DEPTH) for each in (rows, keys, keys))
        return self.matmul(q, self.permute_dims(k, (0, 1, 3, 2)), "float16"), v


_TABLE = np.arange(4 * HEADS, dtype=np.float16).reshape(4, HEADS)


def _made(build: Callable[[Builder], Any]) -> Graph:
    b = Builder()
    return with_corners(b.graph(build(b)))


def _operators(graph: Graph) -> list[str]:
    return [expr.op for expr in graph.exprs if expr.op not in {INPUT, CONSTANT}]


def _corner(graph: Graph) -> np.ndarray[Any, Any]:
    """The constant of the one corner that a graph is."""
    assert _operators(graph) == [CORNER]
    assert isinstance(graph.results, int)
    array = graph[graph[graph.results].args[0]].array
    assert array is not None
    return array


def test_the_bias_of_a_relative_position() -> None:
    graph = _made(lambda b: b.bias(ROWS, KEYS))
    distance = np.arange(MOST + 8) - np.arange(MOST)[:, None]
    expected = _TABLE[distance.clip(0, 3)].transpose(2, 0, 1)[None]
    np.testing.assert_array_equal(_corner(graph), expected)
    assert graph[graph.results].shape == (1, HEADS, ROWS, KEYS)  # type: ignore[index]


def test_a_rotary_table() -> None:
    steps = np.array([[1.0, 0.1, 0.01]], np.float32)

    def build(b: Builder) -> int:
        places = b.astype(b.reshape(b.places(ROWS), (ROWS, 1)), "float32")
        angles = b.matmul(places, b.constant(steps), "float32")
        both = b.operator("concat", (angles, angles), (ROWS, 6), "float32", axis=1)
        return b.elementwise("cos", both)

    angles = np.tile(np.arange(MOST, dtype=np.float32)[:, None] @ steps, 2)
    np.testing.assert_array_equal(_corner(_made(build)), np.cos(angles))


def test_casts_of_a_corner_are_of_its_constant() -> None:
    def build(b: Builder) -> int:
        wide = np.where(np.tri(MOST, MOST + 8, dtype=bool), 0, -1e9).astype(np.float32)
        x, attrs = b.corner(wide, (ROWS, KEYS)), {"low": -65504.0, "high": 65504.0}
        return b.astype(b.operator("clip", (x,), (ROWS, KEYS), "float32", **attrs), "float16")

    found = _corner(_made(build))
    assert (found.dtype, found.min(), found.max()) == (np.float16, -65504.0, 0.0)


def test_what_is_the_same_along_an_open_dimension_is_broadcast() -> None:
    def build(b: Builder) -> int:
        shape = BATCH, 1, ROWS, KEYS
        return b.operator("broadcast_to", (b.ahead(ROWS, KEYS),), shape, "float16")

    graph = _made(build)
    assert [(e.op, e.shape) for e in graph.exprs] == [
        ("constant", (1, 1, MOST, MOST + 8)),
        (CORNER, (1, 1, ROWS, KEYS)),
        ("broadcast_to", (BATCH, 1, ROWS, KEYS)),
    ]


@pytest.mark.parametrize("begins", [True, False], ids=["first places", "other places"])
def test_places_that_are_cut_out_of_a_buffer(begins: bool) -> None:
    def build(b: Builder) -> int:
        attrs = {"within": ((1, 0),)} if begins else {}
        buffer = b.constant(np.arange(64).reshape(1, 64))
        places = b.operator("strided_slice", (buffer,), (1, ROWS), "int64", **attrs)
        table = b.constant(np.arange(128, dtype=np.float16).reshape(64, 2))
        return b.operator("take", (table, places), (1, ROWS, 2), "float16", axis=0)

    graph = _made(build)
    if begins:
        expected = np.arange(2 * MOST, dtype=np.float16).reshape(1, MOST, 2)
        np.testing.assert_array_equal(_corner(graph), expected)
    else:
        assert _operators(graph) == ["strided_slice", "take"]


def test_a_buffer_that_is_too_short_is_cut_at_run_time() -> None:
    def build(b: Builder) -> int:
        buffer = b.constant(np.arange(MOST - 1))
        return b.operator("strided_slice", (buffer,), (ROWS,), "int64", within=((0, 0),))

    assert _operators(_made(build)) == ["strided_slice"]


def test_places_from_another_one_on() -> None:
    """What transformers finds the bounds of packed sequences by, where there is one sequence."""

    def build(b: Builder) -> int:
        places = b.reshape(b.places(ROWS), (1, ROWS))
        first = b.constant(np.array([[-1]]))
        longer = b.operator("concat", (first, places), (1, ROWS + 1), "int64", axis=-1)
        cut = (1, ROWS), "int64"
        before = b.operator("strided_slice", (longer,), *cut, within=((1, 0),))
        after = b.operator("strided_slice", (longer,), *cut, within=((1, 1),))
        far = b.elementwise("subtract", after, before)
        steps = b.astype(b.truths("equal", far, b.number(1)), "int64")
        return b.operator("cumsum", (steps,), *cut, axis=1, exclusive=False)

    np.testing.assert_array_equal(_corner(_made(build)), 1 + np.arange(MOST)[None])


@pytest.mark.parametrize("is_last", [True, False])
def test_tensors_side_by_side_along_an_open_dimension(is_last: bool) -> None:
    """What lies behind an open one is elsewhere at each size."""

    def build(b: Builder) -> int:
        parts = b.number(5), b.elementwise("add", b.places(ROWS), b.number(1))
        parts = (b.reshape(parts[0], (1,)), parts[1])
        args = parts if is_last else parts[::-1]
        return b.operator("concat", args, (ROWS + 1,), "int64", axis=0)

    graph = _made(build)
    if is_last:
        np.testing.assert_array_equal(_corner(graph), [5, *range(1, MOST + 1)])
    else:
        assert _operators(graph)[-1] == "concat"


def _greatest(b: Builder, shape: tuple[int, int], x: int, op: str = "max") -> int:
    kept = (shape[0], 1)
    return b.operator(op, (x,), kept, b.dtype(x), axis=(-1,), keepdims=True)


@pytest.mark.parametrize("keys", [ROWS, KEYS], ids=["as many keys", "any number of keys"])
@pytest.mark.parametrize("window", [0, 5], ids=["causal", "window"])
def test_whether_each_row_sees_a_key(keys: int, window: int) -> None:
    """A row has its own key where there are as many; of others it is not known to be there."""

    def build(b: Builder) -> int:
        far = b.distances(ROWS, keys)
        seen = b.truths("less_equal", far, b.number(0))
        if window:
            near = b.truths("greater", far, b.number(-window))
            seen = b.truths("bitwise_and", seen, near)
        return _greatest(b, (ROWS, keys), b.astype(seen, "int8"))

    graph = _made(build)
    if keys == ROWS or not window:
        assert isinstance(graph.results, int)
        assert graph[graph.results].op == "broadcast_to"
        assert graph[graph[graph.results].args[0]].scalar == 1
    else:
        assert _operators(graph) == [CORNER, "max"]


def test_a_greatest_number_of_more_places_is_another() -> None:
    graph = _made(lambda b: _greatest(b, (ROWS, KEYS), b.distances(ROWS, KEYS)))
    assert "max" in _operators(graph)
    least = _made(lambda b: _greatest(b, (ROWS, KEYS), b.distances(ROWS, KEYS), "min"))
    np.testing.assert_array_equal(_corner(least), -np.arange(MOST)[:, None])


def test_kinds_of_places() -> None:
    """BERT's, where all tokens are of the first kind: one row of a table."""

    def build(b: Builder) -> int:
        table, places = b.constant(np.arange(64)[None] // 2), b.reshape(b.places(ROWS), (1, ROWS))
        return b.operator("gather_elements", (table, places), (1, ROWS), "int64", axis=1)

    np.testing.assert_array_equal(_corner(_made(build)), np.arange(MOST)[None] // 2)


def test_places_beyond_a_table_are_no_constant() -> None:
    def build(b: Builder) -> int:
        table = b.constant(np.arange(MOST - 1)[None] // 2)
        places = b.reshape(b.places(ROWS), (1, ROWS))
        return b.operator("gather_elements", (table, places), (1, ROWS), "int64", axis=1)

    assert "gather_elements" in _operators(_made(build))


def test_a_mask_of_many_sequences_is_made_of_one() -> None:
    """Broadcast over them it would not fit a library."""
    many, most = symbolic(Symbol("many", 1, 256)), 512
    rows = symbolic(Symbol("long", 2, most))

    def build(b: Builder) -> int:
        wide = (many, rows)
        places = b.operator("broadcast_to", (b.reshape(b.places(rows), (1, rows)),), wide, "int64")
        row, key = b.reshape(places, (many, rows, 1)), b.reshape(places, (many, 1, rows))
        return b.operator("less_equal", (key, row), (many, rows, rows), "bool")

    graph = _made(build)
    assert [(e.op, e.shape) for e in graph.exprs] == [
        ("constant", (1, most, most)),
        (CORNER, (1, rows, rows)),
        ("broadcast_to", (many, rows, rows)),
    ]
    np.testing.assert_array_equal(graph[0].array, np.tri(most, dtype=bool)[None])


def test_elementwise_operators_read_corners_of_their_own() -> None:
    b = Builder()
    corner = b.corner(np.arange(MOST, dtype=np.float16), (ROWS,))
    added = [b.elementwise("add", b.input(2, ROWS), corner) for _ in range(2)]
    taken = [b.operator("nn.softmax", (corner,), (ROWS,), "float16", axis=axis) for axis in (0, -1)]
    graph = corners_where_read(b.graph((*added, *taken)))
    assert _operators(graph).count(CORNER) == 3, "one for each sum, and one that others share"
    assert [expr.op for expr in graph.exprs].count(CONSTANT) == 1


def test_alike_ones_are_one() -> None:
    graph = _made(lambda b: tuple(b.ahead(ROWS, KEYS) for _ in range(3)))
    assert graph.results == (1, 1, 1)


def _of_values(b: Builder) -> int:
    return b.elementwise("add", b.ahead(ROWS, KEYS), b.input(ROWS, KEYS))


def test_what_is_made_of_values_reads_a_corner() -> None:
    assert _operators(_made(_of_values)) == [CORNER, "add"]


def _sums(b: Builder) -> int:
    """A sum over an open extent is another at each size."""
    wide = b.distances(ROWS, KEYS)
    return b.operator("sum", (wide,), (ROWS, 1), "int64", axis=(1,), keepdims=True)


def _turned(b: Builder) -> int:
    """The last place comes first, which is another one at each size."""
    return b.operator("flip", (b.distances(ROWS, KEYS),), (ROWS, KEYS), "int64", axis=1)


def _behind(b: Builder) -> int:
    """The second of two tensors side by side begins elsewhere at each size."""
    x = b.distances(ROWS, KEYS)
    return b.operator("concat", (x, x), (ROWS, KEYS + KEYS), "int64", axis=1)


def _multiplied(b: Builder) -> int:
    x = b.distances(ROWS, ROWS)
    return b.matmul(x, x, "int64")


def _joined_rows(b: Builder) -> int:
    return b.reshape(b.distances(ROWS, KEYS), (ROWS * KEYS,))


def _unbounded(b: Builder) -> int:
    most = symbolic(Symbol("n", 1, MOST_UNKNOWN))
    return b.distances(most, most)


def _numbers_only(b: Builder) -> int:
    return b.operator("broadcast_to", (b.number(1.0),), (ROWS, KEYS), "int64")


def _places_only(b: Builder) -> int:
    return b.reshape(b.places(ROWS), (1, ROWS))


def _beyond_the_table(b: Builder) -> int:
    places = b.places(ROWS)
    return b.operator("take", (b.constant(_TABLE), places), (ROWS, HEADS), "float16", axis=0)


@pytest.mark.parametrize(
    "build",
    [
        *(_sums, _turned, _behind, _multiplied, _joined_rows),
        *(_unbounded, _numbers_only, _places_only, _beyond_the_table),
    ],
)
def test_what_stays_a_computation(build: Callable[[Builder], int]) -> None:
    b = Builder()
    result = build(b)
    last = b.graph(result).exprs[-1]
    made = with_corners(b.graph(result))
    assert made.exprs[-1].op == last.op != CORNER


def _carved(build: Callable[[Builder], int]) -> tuple[Graph, CarvedRegion]:
    graph, (carved,) = carve(_made(build), Symbols(()))
    return graph, carved


def test_attention_reads_the_constant_itself() -> None:
    def build(b: Builder) -> int:
        scores, v = b.scores(ROWS, KEYS)
        return b.attention(b.elementwise("add", scores, b.bias(ROWS, KEYS)), v)

    graph, carved = _carved(build)
    assert _operators(graph) == [REGION]
    (operand,) = carved.region.layers[0].operands
    assert operand.within == (MOST, MOST + 8)
    assert operand.shared == Shared(by=Sharing.SEQUENCES, heads=HEADS)
    assert [e.shape for e in graph.exprs if e.op == CONSTANT] == [(1, HEADS, MOST, MOST + 8)]


def test_attention_reads_no_causal_corner() -> None:
    def build(b: Builder) -> int:
        scores, v = b.scores(ROWS, ROWS)
        return b.attention(b.elementwise("add", scores, b.ahead(ROWS, ROWS)), v)

    graph, carved = _carved(build)
    assert [expr.op for expr in graph.exprs if expr.op != INPUT] == [REGION]
    _, values = carved.region.workload.layers
    assert values.prologue == local_softmax(0)
    assert carved.region.layers[0].operands == ()


def test_a_corner_of_fewer_sequences_is_cut_out() -> None:
    """The constant has more of them than the batch: its slices are not those of the batch."""

    def build(b: Builder) -> int:
        scores, v = b.scores(ROWS, KEYS)
        array = np.zeros((4, 1, MOST, MOST + 8), np.float16)
        return b.attention(b.elementwise("add", scores, b.corner(array, (BATCH, 1, ROWS, KEYS))), v)

    graph, carved = _carved(build)
    assert _operators(graph) == [CORNER, REGION]
    assert carved.region.layers[0].operands[0].within is None


def _flat(b: Builder) -> int:
    """(rows * keys,), whose one dimension has the elements of two."""
    return b.reshape(b.distances(ROWS, KEYS), (ROWS * KEYS,))


def _upright(b: Builder) -> int:
    return b.reshape(b.distances(ROWS, KEYS), (ROWS * KEYS, 1))


def _op(name: str, shape: tuple[int, ...], *more: int, **attrs: Any) -> Callable[..., int]:
    return lambda b, x, *others: b.operator(name, (x, *others), shape, b.dtype(x), **attrs)


def _near(b: Builder, x: int) -> int:
    """The same numbers between 0 and 2."""
    return b.elementwise("maximum", b.elementwise("minimum", x, b.number(2)), b.number(0))


_LONG = ROWS * KEYS
# Operators on numbers of a dimension that has the elements of two: kept, and numbers to the end.
OF_JOINED: dict[str, Callable[[Builder], int]] = {
    "turned": lambda b: b.permute_dims(_upright(b), (1, 0)),
    "repeated": lambda b: _op("broadcast_to", (2, _LONG))(b, _flat(b)),
    "beside themselves": lambda b: _op("concat", (_LONG, 2), axis=1)(b, _upright(b), _upright(b)),
    "summed up": lambda b: _op("cumsum", (_LONG,), axis=0, exclusive=False)(b, _flat(b)),
    "the most": lambda b: _op("max", (1,), axis=(0,), keepdims=True)(b, _flat(b)),
    "the most of one": lambda b: _op("max", (_LONG, 1), axis=(1,), keepdims=True)(b, _upright(b)),
    "a triangle": lambda b: _op("triu", (_LONG, 1), k=0)(b, _upright(b)),
    "multiplied": lambda b: b.matmul(_upright(b), b.constant(np.array([[2, 3]])), "int64"),
    "multiplied from the left": lambda b: b.matmul(
        b.constant(np.array([[2], [3]])), b.reshape(_upright(b), (1, _LONG)), "int64"
    ),
    "a vector": lambda b: b.operator(
        "matmul", (_upright(b), b.constant(np.array([2]))), (_LONG,), "int64"
    ),
    "gathered": lambda b: b.operator(
        "gather_elements",
        (b.constant(np.arange(3)), _near(b, _flat(b))),
        (_LONG,),
        "int64",
        axis=0,
    ),
    "of a table's columns": lambda b: b.operator(
        "take",
        (b.constant(np.arange(6).reshape(2, 3)), _near(b, _flat(b))),
        (2, _LONG),
        "int64",
        axis=1,
    ),
    "twice": lambda b: b.elementwise("add", _flat(b), _flat(b)),
    "and one": lambda b: b.elementwise("add", _flat(b), b.number(1)),
    "chosen": lambda b: b.operator(
        "where",
        (
            b.operator("greater", (_flat(b), b.number(0)), (_LONG,), "bool"),
            b.number(1),
            b.number(0),
        ),
        (_LONG,),
        "int64",
    ),
}


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("name", OF_JOINED)
def test_operators_on_joined_dimensions_compute_the_same(name: str, *, is_split: bool) -> None:
    b = Builder()
    made = OF_JOINED[name](b)
    if is_split and b.shape(made) in {(_LONG,), (_LONG, 1)}:
        made = b.reshape(made, (ROWS, KEYS))
    # A reader that no size is known of keeps the value a tensor.
    read = b.operator("tile", (made,), b.shape(made), "int64")
    with_corners(b.graph((made, read)))


@pytest.mark.parametrize(
    ("name", "is_table"), [("and one", True), ("chosen", True), ("twice", False)]
)
def test_numbers_of_joined_dimensions_are_a_table_once_split(name: str, *, is_table: bool) -> None:
    b = Builder()
    graph = with_corners(b.graph(b.reshape(OF_JOINED[name](b), (ROWS, KEYS))))
    assert (_operators(graph) == [CORNER]) == is_table


@pytest.mark.parametrize(
    ("places", "is_table"),
    [("within", True), ("below", False), ("beyond", False), ("no integers", False)],
)
def test_only_places_in_a_table_are_gathered(places: str, *, is_table: bool) -> None:
    b = Builder()
    near = _near(b, b.distances(ROWS, KEYS))
    if places == "below":
        near = b.elementwise("subtract", near, b.number(1))
    if places == "beyond":
        near = b.elementwise("add", near, b.number(2))
    if places == "no integers":
        near = b.astype(near, "float32")
    table = b.constant(np.arange(3 * 2, dtype=np.float16).reshape(3, 2))
    made = b.operator("take", (table, near), (ROWS, KEYS, 2), "float16", axis=0)
    exprs = b.graph(made)
    found = dynamic_shape_constants.with_corners(exprs)
    assert (_operators(found) == [CORNER]) == is_table


@pytest.mark.parametrize(("most", "is_table"), [(1024, True), (1 << 13, False)])
def test_a_table_is_no_larger_than_a_library_may_be(most: int, *, is_table: bool) -> None:
    rows, keys = (symbolic(Symbol(name, 1, most)) for name in ("m", "n"))
    b = Builder()
    found = dynamic_shape_constants.with_corners(b.graph(b.distances(rows, keys)))
    assert (CORNER in _operators(found)) == is_table


def test_a_pinned_value_is_no_table() -> None:
    b = Builder()
    graph = b.graph(b.distances(ROWS, KEYS))
    exprs = (*graph.exprs[:-1], replace(graph.exprs[-1], pinned=True))
    found = dynamic_shape_constants.with_corners(replace(graph, exprs=exprs))
    assert found.exprs[-1].op == "subtract"
