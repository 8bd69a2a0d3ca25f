"""Which loads of a graph hide keys, by cases of which each is evaluated too."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from boltgen.errors import InvalidProblemError
from boltgen.ir.dtypes import DType
from boltgen.ir.elementwise import (
    Accumulator,
    BinaryOp,
    ElementwiseGraph,
    Load,
    LoadKind,
)
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.interval import evaluate
from boltgen.ir.key_masks import HIDDEN, key_masks

Built = Callable[[ElementwiseBuilder, int], int]


def _joined(op: BinaryOp) -> Built:
    return lambda graph, mask: graph.binary(op, 0, mask)


def _chain(*steps: Built) -> Built:
    def build(graph: ElementwiseBuilder, mask: int) -> int:
        for step in steps:
            mask = step(graph, mask)
        return mask

    return build


def _unary(op: UnaryOp, *params: float) -> Built:
    return lambda graph, x: graph.unary(op, x, *params)


def _scaled(op: BinaryOp, factor: float, *, first: bool = True) -> Built:
    def build(graph: ElementwiseBuilder, x: int) -> int:
        number = graph.scalar(factor)
        return graph.binary(op, x, number) if first else graph.binary(op, number, x)

    return build


ADDED, LEAST = _joined(BinaryOp.ADD), _joined(BinaryOp.MINIMUM)
# What is done to a row, and whether the result is -inf wherever the row is.
CASES: dict[str, tuple[Built, bool]] = {
    "added": (ADDED, True),
    "least": (LEAST, True),
    "greatest": (_joined(BinaryOp.MAXIMUM), False),
    "subtracted": (_joined(BinaryOp.SUBTRACT), False),
    "multiplied": (_joined(BinaryOp.MULTIPLY), False),
    "scaled": (_chain(ADDED, _scaled(BinaryOp.MULTIPLY, 0.5)), True),
    "scaled by zero": (_chain(ADDED, _scaled(BinaryOp.MULTIPLY, 0.0)), False),
    "turned": (_chain(ADDED, _scaled(BinaryOp.MULTIPLY, -2.0)), False),
    "turned and subtracted": (
        _chain(_unary(UnaryOp.NEGATE), _joined(BinaryOp.SUBTRACT)),
        True,
    ),
    "divided": (_chain(ADDED, _scaled(BinaryOp.DIVIDE, 8.0)), True),
    "divides": (_chain(ADDED, _scaled(BinaryOp.DIVIDE, 8.0, first=False)), False),
    "less a number": (_chain(ADDED, _scaled(BinaryOp.SUBTRACT, 3.0)), True),
    "clipped": (_chain(ADDED, _unary(UnaryOp.CLIP, -65504.0, 65504.0)), False),
    "clipped above": (_chain(ADDED, _unary(UnaryOp.CLIP, -inf, 65504.0)), True),
    "sigmoid": (_chain(ADDED, _unary(UnaryOp.SIGMOID)), False),
    "rounded": (_chain(ADDED, lambda graph, x: graph.cast(x, DType.F16)), True),
    "twice": (_chain(ADDED, lambda graph, x: graph.binary(BinaryOp.ADD, x, x)), True),
    "from itself": (_chain(ADDED, lambda graph, x: graph.binary(BinaryOp.SUBTRACT, x, x)), False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_hides_where_its_minus_infinity_is_that_of_the_result(name: str) -> None:
    build, hides = CASES[name]
    graph = ElementwiseBuilder()
    build(graph, graph.load(LoadKind.ROW))
    built = graph.build()
    assert key_masks(built) == ({0: -inf} if hides else {})
    scores = np.array([[-3e4, -1.0, 0.0, 2.0, 3e4]])
    with np.errstate(all="ignore"):
        found = evaluate(built, scores, [np.full(5, -inf)])[-1]
    assert bool((found == -inf).all()) == hides


def test_only_rows_are_masks_of_keys_and_each_has_its_place() -> None:
    graph = ElementwiseBuilder()
    x = 0
    for kind in (LoadKind.TENSOR, LoadKind.ROW, LoadKind.COLUMN, LoadKind.ROW):
        x = graph.binary(BinaryOp.ADD, x, graph.load(kind))
    assert key_masks(graph.build()) == {1: -inf, 3: -inf}


def test_what_is_known_of_a_mask_is_taken_from_the_load() -> None:
    graph = ElementwiseBuilder()
    mask = graph.load(LoadKind.ROW, hides=True)
    graph.unary(UnaryOp.CLIP, graph.binary(BinaryOp.ADD, 0, mask), -65504.0, 65504.0)
    built = graph.build()
    assert key_masks(built) == {0: HIDDEN}
    assert built.describe() == "clip(add(acc, row0 that hides keys), -65504, 65504)"


@pytest.mark.parametrize("kind", [LoadKind.TENSOR, LoadKind.COLUMN])
def test_a_tensor_or_a_column_that_hides_is_refused(kind: LoadKind) -> None:
    with pytest.raises(InvalidProblemError, match=f"a {kind.value} that hides columns"):
        ElementwiseGraph((Accumulator(), Load(kind, hides=True)))
