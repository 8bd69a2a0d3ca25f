"""Which masks of scores are taken apart: what a model knows, and the keys of each sequence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.facts import is_without_inputs
from boltgen.graph.graph import CONSTANT, INPUT, Expr, Graph, GraphBuilder
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.arithmetic import fold_comparisons
from boltgen.passes.masks import split_mask
from tests.passes.differential import checked

with_known_truths = checked(fold_comparisons.with_known_truths, others=True)
with_masks_apart = checked(split_mask.with_masks_apart, others=True)

BATCH, HEADS, ROWS = 2, 3, 8
OPEN = symbolic(Symbol("rows", 2, 64))
LOWEST = float(np.finfo(np.float32).min)
_SHAPE = BATCH, 1, 1, ROWS


class Builder(GraphBuilder):
    """Grows scores of `rows` rows and keys, and their masks."""

    rows: int = ROWS

    def input(self, *shape: int, dtype: str = "float32") -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=dtype))

    def number(self, value: float, dtype: str = "float32") -> int:
        return self.constant(np.array(value, dtype))

    def scores(self) -> int:
        return self.input(BATCH, HEADS, self.rows, self.rows)

    def keys(self) -> int:
        return self.input(BATCH, 1, 1, self.rows, dtype="bool")

    def known(self) -> int:
        """Truths of rows and keys that no input has a part in."""
        places = self.operator("arange", (), (self.rows,), "int64", begin=0, step=1)
        row = self.reshape(places, (1, 1, self.rows, 1))
        args = row, self.reshape(places, (1, 1, 1, self.rows))
        return self.operator("greater_equal", args, (1, 1, self.rows, self.rows), "bool")

    def both(self, op: str, *truths: int) -> int:
        return self.operator(op, truths, (BATCH, 1, self.rows, self.rows), "bool")

    def wide(self, x: int) -> int:
        return self.operator("broadcast_to", (x,), (BATCH, 1, self.rows, self.rows), "bool")

    def where(self, truths: int, shown: int, lowest: float) -> int:
        args = truths, shown, self.number(lowest)
        heads = HEADS if self.shape(shown) else 1
        return self.operator("where", args, (BATCH, heads, self.rows, self.rows), "float32")

    def bias(self) -> int:
        return self.constant(np.ones((1, HEADS, self.rows, self.rows), np.float32))

    def softmax(self, scores: int, axis: int = -1) -> int:
        return self.operator("nn.softmax", (scores,), self.shape(scores), "float32", axis=axis)


def _weights(build: Callable[[Builder], int], rows: int = ROWS) -> Graph:
    """The softmax of scores and of the mask that `build` makes."""
    b = Builder()
    b.rows = rows
    total = b.elementwise("add", b.scores(), build(b))
    return with_masks_apart(b.graph(b.softmax(total)))


def _joined(b: Builder) -> int:
    return b.where(b.both("bitwise_and", b.known(), b.keys()), b.number(0), LOWEST)


def _through(b: Builder) -> int:
    """As PyTorch's attention lowers a float mask."""
    lowered = b.elementwise("clip", _joined(b), low=-32768.0, high=float("inf"))
    return b.astype(b.astype(lowered, "float16"), "float32")


def _of_three(b: Builder) -> int:
    truth = b.constant(np.array(True))
    inner = b.both("logical_and", b.both("logical_and", truth, b.wide(b.known())), b.known())
    return b.where(b.wide(b.both("logical_and", inner, b.wide(b.keys()))), b.number(0), -np.inf)


def _negated(b: Builder) -> int:
    """Hidden where either part hides a key."""
    ahead = b.operator("bitwise_not", (b.known(),), (1, 1, b.rows, b.rows), "bool")
    hidden = b.both("bitwise_or", ahead, b.operator("logical_not", (b.keys(),), _SHAPE, "bool"))
    args = hidden, b.number(LOWEST), b.number(0)
    return b.operator("where", args, (BATCH, 1, b.rows, b.rows), "float32")


def _hidden_by_either(b: Builder) -> int:
    """Seen where it is not so that either part hides a key."""
    ahead = b.operator("logical_not", (b.known(),), (1, 1, b.rows, b.rows), "bool")
    unseen = b.operator("bitwise_not", (b.keys(),), (BATCH, 1, 1, b.rows), "bool")
    return b.where(b.both("logical_not", b.both("logical_or", ahead, unseen)), b.number(0), LOWEST)


def _biased(b: Builder) -> int:
    return b.where(b.keys(), b.bias(), LOWEST)


def _masks(graph: Graph) -> list[int]:
    """What is added to the scores, in its order."""
    assert isinstance(graph.results, int)
    at, found = graph[graph.results].args[0], []
    while graph[at].op == "add":
        at, mask = graph[at].args
        found.append(mask)
    return found[::-1]


@pytest.mark.parametrize("rows", [ROWS, OPEN], ids=["known", "open"])
@pytest.mark.parametrize(
    "build", [_joined, _through, _of_three, _hidden_by_either], ids=lambda f: f.__name__
)
def test_truths_of_places_and_of_keys(build: Callable[[Builder], int], rows: int) -> None:
    graph = _weights(build, rows)
    known, keys = _masks(graph)
    assert is_without_inputs(graph, known)
    assert graph[keys].shape == (BATCH, 1, 1, rows)


def test_a_bias_and_keys() -> None:
    graph = _weights(_biased)
    shapes = [graph[mask].shape for mask in _masks(graph)]
    assert shapes == [(1, HEADS, ROWS, ROWS), (BATCH, 1, 1, ROWS)]


@pytest.mark.parametrize(
    "build", [_joined, _through, _of_three, _negated, _hidden_by_either, _biased]
)
def test_weights_of_what_is_seen_are_the_same(build: Callable[[Builder], int]) -> None:
    b = Builder()
    before = b.graph(b.softmax(b.elementwise("add", b.scores(), build(b))))
    after = split_mask.with_masks_apart(before)
    scores = np.random.default_rng(0).standard_normal((BATCH, HEADS, ROWS, ROWS))
    keys = (np.arange(ROWS) < [[5], [ROWS]]).reshape(BATCH, 1, 1, ROWS)
    given = [scores.astype(np.float32), keys]
    np.testing.assert_array_equal(*(run(graph, given)[0] for graph in (before, after)))


def test_scores_that_are_chosen_are_so_twice() -> None:
    b = Builder()
    truths = b.both("bitwise_and", b.known(), b.keys())
    args = truths, b.scores(), b.number(LOWEST)
    chosen = b.operator("where", args, (BATCH, HEADS, ROWS, ROWS), "float32")
    graph = with_masks_apart(b.graph(b.softmax(chosen)))
    assert isinstance(graph.results, int)
    outer = graph[graph[graph.results].args[0]]
    inner = graph[outer.args[1]]
    assert (outer.op, graph[outer.args[0]].shape) == ("where", _SHAPE)
    assert (inner.op, is_without_inputs(graph, inner.args[0])) == ("where", True)
    assert graph[inner.args[1]].op == INPUT


def _of_a_softmax(axis: int) -> int:
    b = Builder()
    total = b.elementwise("add", b.scores(), _joined(b))
    graph = with_masks_apart(b.graph(b.softmax(total, axis)))
    return len(_masks(graph))


def test_a_softmax_of_rows_alone_hides() -> None:
    assert (_of_a_softmax(-1), _of_a_softmax(2)) == (2, 1)


def test_what_else_reads_scores_sees_one_mask() -> None:
    b = Builder()
    total = b.elementwise("add", b.scores(), _joined(b))
    graph = b.graph((b.softmax(total), total))
    assert with_masks_apart(graph).exprs == graph.exprs


def _raised(b: Builder) -> int:
    return b.elementwise("clip", _joined(b), low=-100.0, high=65504.0)


CASES: dict[str, Callable[[Builder], int]] = {
    "keys alone": lambda b: b.where(b.wide(b.keys()), b.number(0), LOWEST),
    "known alone": lambda b: b.where(b.wide(b.known()), b.number(0), LOWEST),
    "rows of an input": lambda b: b.where(
        b.both("logical_and", b.known(), b.input(BATCH, 1, ROWS, ROWS, dtype="bool")),
        b.number(0),
        LOWEST,
    ),
    "either": lambda b: b.where(b.both("logical_or", b.known(), b.keys()), b.number(0), LOWEST),
    "a bias of an input": lambda b: b.where(b.keys(), b.scores(), LOWEST),
    "a number that hides nothing": lambda b: b.where(
        b.both("logical_and", b.known(), b.keys()), b.number(0), -10.0
    ),
    "raised": _raised,
}


@pytest.mark.parametrize("name", CASES)
def test_other_masks_stay(name: str) -> None:
    assert len(_masks(_weights(CASES[name]))) == 1


def _asked(build: Callable[[Builder], int], bound: float = -np.inf, op: str = "greater") -> str:
    """What becomes of the question whether a mask is above a number."""
    b = Builder()
    mask = build(b)
    truths = b.operator(op, (mask, b.number(bound)), b.shape(mask), "bool")
    graph = with_known_truths(b.graph(truths))
    assert isinstance(graph.results, int)
    return graph[graph.results].op


def test_what_is_known_to_be_above_infinity() -> None:
    assert _asked(_biased) == "broadcast_to"
    b = Builder()
    bias = np.ones((1, HEADS, 64, 64), np.float32)
    rows = b.corner(bias, (1, HEADS, OPEN, OPEN))
    corner = b.operator("greater", (rows, b.number(-np.inf)), b.shape(rows), "bool")
    graph = with_known_truths(b.graph(corner))
    assert [e.op for e in graph.exprs if e.op not in {INPUT, CONSTANT}][-1] == "broadcast_to"


def test_casts_that_keep_a_number_above_infinity() -> None:
    assert _asked(lambda b: b.astype(b.astype(b.bias(), "float32"), "float32")) == "broadcast_to"
    assert _asked(lambda b: b.astype(b.bias(), "float16")) == "greater"
    wide = np.full((1, 2), -1e300)
    assert _asked(lambda b: b.astype(b.constant(wide), "float32")) == "greater"


def test_what_is_not_known_to_be_above_infinity() -> None:
    assert _asked(lambda b: b.scores()) == "greater"
    assert _asked(lambda b: b.where(b.keys(), b.bias(), -np.inf)) == "greater"
    assert _asked(lambda b: b.constant(np.array([[[np.nan, 1.0]]], np.float32))) == "greater"
    assert _asked(_biased, bound=-1.0) == "greater"
    assert _asked(_biased, op="less") == "less"
