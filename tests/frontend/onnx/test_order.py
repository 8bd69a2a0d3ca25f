"""Models whose nodes are not in the order in which they read each other."""

from __future__ import annotations

import onnx
import pytest

from boltgen.errors import ModelImportError
from tests.frontend.onnx.models import model, node, noise, operators, prepared, results

CHAIN = [
    node("Relu", ["x"], ["a"]),
    node("Exp", ["a"], ["b"]),
    node("Add", ["a", "b"], ["c"]),
    node("Tanh", ["c"], ["y"]),
]


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)])
def test_unsorted_nodes_are_sorted(order: tuple[int, ...]) -> None:
    after = prepared(model([CHAIN[place] for place in order], {"x": (2, 4)}))
    assert operators(after.model) == ["Relu", "Exp", "Add", "Tanh"]
    assert any("order" in note for note in after.notes)
    x = {"x": noise(2, 4)}
    (wanted,), (found,) = results(model(CHAIN, {"x": (2, 4)}), x), results(after.model, x)
    assert (found == wanted).all()


def test_sorted_nodes_stay_in_their_order() -> None:
    after = prepared(model(CHAIN, {"x": (2, 4)}))
    assert not any("order" in note for note in after.notes)


def test_nodes_that_only_a_branch_reads_come_before_it() -> None:
    value = onnx.helper.make_empty_tensor_value_info("same")
    branch = onnx.helper.make_graph(
        [node("Neg", ["late"], ["deep"]), node("Abs", ["deep"], ["same"])][::-1], "g", [], [value]
    )
    nodes = [
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        node("Relu", ["x"], ["late"]),
    ]
    made = model(nodes, {"x": (2, 4)})
    made.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    after = prepared(made).model
    assert operators(after) == ["Relu", "If"]
    inner = after.graph.node[1].attribute[0].g
    assert [each.op_type for each in inner.node] == ["Neg", "Abs"]


def test_nodes_in_a_circle_are_named() -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="second"),
        node("Tanh", ["b"], ["y"]),
    ]
    with pytest.raises(ModelImportError, match=r"circle.*node 'first'|circle.*node 'second'"):
        prepared(model(nodes, {"x": (2, 4)}))
