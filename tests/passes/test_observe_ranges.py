"""A watched graph returns the least and the greatest element of each of its tensors."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.graph import CONSTANT, Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.ir.dtypes import DType
from boltgen.passes.precision.observe_ranges import Range, ranges, watch
from tests.passes.differential import AnyArray, drawn
from tests.passes.networks import IMAGE, ROWS, STEPS, Net, Step, network


def _found(graph: Graph, *runs: list[AnyArray]) -> list[Range]:
    watched = watch(graph)
    return ranges(graph, watched, [run(watched.graph, inputs) for inputs in runs])


@settings(max_examples=40, deadline=None)
@given(STEPS, st.sampled_from([IMAGE, ROWS]))
def test_ranges_are_of_the_values_that_are_computed(
    steps: list[Step], shape: tuple[int, ...]
) -> None:
    graph = network(steps, shape)
    values: dict[int, AnyArray] = {}
    run(graph, drawn(graph), observe=values.__setitem__)
    found = _found(graph, drawn(graph))
    for each in found:
        own = values[each.index]
        assert (each.low, each.high, each.shape) == (own.min(), own.max(), own.shape)
        assert each.operator == graph[each.index].op.removeprefix("nn.")
    left = set(graph.live) - {each.index for each in found}
    moves = {"reshape", "permute_dims", "broadcast_to", CONSTANT}
    assert {graph[index].op for index in left if graph[index].dtype == "float32"} <= moves


def test_ranges_are_over_all_runs() -> None:
    b = Net()
    graph = b.graph(b.elementwise("nn.relu", b.input(2)))
    runs = [[np.array(each, np.float32)] for each in ([-3, 1], [2, 5])]
    x, relu = _found(graph, *runs)
    assert (x.operator, x.low, x.high) == ("input", -3, 5)
    assert (relu.operator, relu.low, relu.high) == ("relu", 0, 5)


def test_not_a_number_of_any_run_is_kept() -> None:
    b = Net()
    graph = b.graph(b.elementwise("nn.relu", b.input(2)))
    runs = [[np.array(each, np.float32)] for each in ([1, 2], [np.nan, 3], [4, 5])]
    for found in _found(graph, *runs):
        assert np.isnan([found.low, found.high]).all()
        assert found.is_beyond(DType.F16)


def test_integers_and_empty_tensors_have_no_range() -> None:
    b = Net()
    whole = b.elementwise("add", b.input(2, dtype="int64"), b.input(2, dtype="int64"))
    x = b.input(0, 3)
    number = b.input()
    assert watch(b.graph((whole, b.elementwise("nn.relu", x), number))).indices == (number,)


def _range(low: float, high: float) -> Range:
    return Range(index=0, operator="relu", shape=(2,), low=low, high=high)


def test_what_a_type_holds() -> None:
    assert not _range(-65504.0, 65504.0).is_beyond(DType.F16)
    assert _range(-65536.0, 0.0).is_beyond(DType.F16)
    assert not _range(-65536.0, 0.0).is_beyond(DType.BF16)
    assert _range(0.0, 2.0**-15).is_beyond(DType.F16)
    assert not _range(0.0, 2.0**-14).is_beyond(DType.F16)
    assert not _range(0.0, 0.0).is_beyond(DType.F16)
    assert _range(float("nan"), float("nan")).is_beyond(DType.F16)
