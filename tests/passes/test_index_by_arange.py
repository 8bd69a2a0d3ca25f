"""What takes all elements of a tensor in their order, and which tensors have places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from boltgen.graph.facts import counts
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.movement import index_by_arange
from tests.passes.differential import checked

indexed_by_all_places = checked(index_by_arange.indexed_by_all_places, others=True)

BATCH, KEYS = symbolic(Symbol("batch", 1, 4)), symbolic(Symbol("keys", 2, 64))


class Builder(GraphBuilder):
    """Grows places and what they index."""

    def mask(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype="int64"))

    def places(self, extent: int, *shape: int, begin: int = 0, step: int = 1) -> int:
        attrs = {"begin": begin, "step": step}
        return self.reshape(self.operator("arange", (), (extent,), "int64", **attrs), shape)

    def indexed(self, mask: int, places: tuple[int, ...], *shape: int) -> int:
        return self.operator("index_tensor", (mask, *places), shape, "int64")


def _made(build: Callable[[Builder], int]) -> Graph:
    b = Builder()
    return indexed_by_all_places(b.graph(build(b)))


@pytest.mark.parametrize(("batch", "keys"), [(3, 8), (BATCH, KEYS)], ids=["known", "open"])
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "keys"])
def test_a_mask_that_is_taken_whole_is_reshaped(batch: int, keys: int, *, rows: bool) -> None:
    wide = (batch, 1, keys, 1) if rows else (batch, 1, 1, keys)

    def build(b: Builder) -> int:
        own = (1, 1, keys, 1) if rows else (1, 1, 1, keys)
        places = b.places(batch, batch, 1, 1, 1), b.places(keys, *own)
        return b.indexed(b.mask(batch, keys), places, *wide)

    graph = _made(build)
    assert isinstance(graph.results, int)
    result = graph[graph.results]
    assert (result.op, result.shape, graph[result.args[0]].op) == ("reshape", wide, INPUT)


CASES: dict[str, Callable[[Builder], int]] = {
    # It is valid only where both are equal: an error must stay one.
    "others' places": lambda b: b.indexed(
        b.mask(BATCH, KEYS), (b.places(KEYS, KEYS, 1), b.places(BATCH, 1, BATCH)), KEYS, BATCH
    ),
    "each twice": lambda b: b.indexed(
        b.mask(3, 8), (b.places(3, 1, 3, 1), b.places(8, 1, 1, 8)), 2, 3, 8
    ),
    "fewer": lambda b: b.indexed(b.mask(3, 8), (b.places(3, 3, 1), b.places(7, 1, 7)), 3, 7),
    "turned": lambda b: b.indexed(b.mask(3, 8), (b.places(3, 1, 3), b.places(8, 8, 1)), 8, 3),
    "other rows": lambda b: b.indexed(
        b.mask(3, 8), (b.places(3, 3, 1, begin=1), b.places(8, 1, 8)), 3, 8
    ),
    "every other": lambda b: b.indexed(
        b.mask(3, 8), (b.places(3, 3, 1), b.places(8, 1, 8, step=2)), 3, 8
    ),
    "some": lambda b: b.indexed(b.mask(3, 8), (b.places(3, 3, 1), b.places(4, 1, 4)), 3, 4),
    "transposed": lambda b: b.indexed(b.mask(3, 8), (b.places(3, 1, 3), b.places(8, 8, 1)), 8, 3),
    "a diagonal": lambda b: b.indexed(b.mask(8, 8), (b.places(8, 8), b.places(8, 8)), 8),
    "rows alone, of more columns": lambda b: b.indexed(b.mask(3, 8), (b.mask(3),), 3, 8),
}


@pytest.mark.parametrize("name", CASES)
def test_other_indices_stay(name: str) -> None:
    graph = _made(CASES[name])
    assert isinstance(graph.results, int)
    assert graph[graph.results].op == "index_tensor"


def test_places_of_fewer_dimensions_are_the_last_ones() -> None:
    graph = _made(lambda b: b.indexed(b.mask(3, 8), (b.places(3, 3, 1), b.places(8, 8)), 3, 8))
    assert isinstance(graph.results, int)
    assert graph[graph.results].op == "reshape"


def test_the_first_dimension_alone() -> None:
    graph = _made(lambda b: b.indexed(b.mask(3, 8), (b.places(3, 3),), 3, 8))
    assert isinstance(graph.results, int)
    assert graph[graph.results].op == "reshape"


def test_which_tensors_have_places() -> None:
    b = Builder()
    known = b.constant(np.arange(6).reshape(2, 3))
    shifted, truths = b.constant(np.arange(6) + 1), b.constant(np.arange(2).astype(bool))
    zero, one = b.constant(np.array(0)), b.constant(np.array(1))
    cases = {
        known: True,
        b.astype(known, "float32"): True,
        b.elementwise("add", known, zero): True,
        b.elementwise("add", zero, known): True,
        b.elementwise("add", known, one): False,
        b.elementwise("multiply", known, one): False,
        shifted: False,
        truths: False,
        b.astype(b.places(2, 2), "bool"): False,
        b.mask(3): False,
    }
    graph = b.graph(tuple(cases))
    assert {index: counts(graph, index) for index in cases} == cases
