"""Models whose nodes are not in the order in which they read each other."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.cases.onnx_models import model, node, noise, operators, prepared, results
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import order

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


def nested(depth: int) -> onnx.NodeProto:
    """Branches within branches, each of which reads what the outermost graph makes last."""
    value = onnx.helper.make_empty_tensor_value_info(f"v{depth}")
    inner = node("Neg", ["late"], [f"v{depth}"]) if depth == 0 else nested(depth - 1)
    if depth:
        inner.output[0] = f"v{depth}"
    branch = onnx.helper.make_graph([inner], "g", [], [value])
    return node("If", ["c"], [f"o{depth}"], then_branch=branch, else_branch=branch)


def test_what_the_innermost_branch_reads_comes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    of = order._reads

    def counted(each: onnx.NodeProto, inner: list[set[str]]) -> set[str]:
        read.append(each.op_type)
        return of(each, inner)

    monkeypatch.setattr(order, "_reads", counted)
    made = model([nested(8), node("Relu", ["x"], ["late"])], {"x": (2, 4)}, outputs=["o8"])
    made.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    assert order.sort_nodes(made.graph)
    assert operators(made) == ["Relu", "If"]
    assert len(read) == 2**10  # each node once: 2 branches of 2 branches, eight times, and Relu


def test_graphs_that_are_nested_too_deeply_are_refused() -> None:
    deep = node("Relu", ["x"], ["y"])
    for _ in range(17):
        value = onnx.helper.make_empty_tensor_value_info("y")
        branch = onnx.helper.make_graph([deep], "g", [], [value])
        deep = node("If", ["c"], ["y"], then_branch=branch)
    made = model([deep], {"x": (2, 4)})
    with pytest.raises(ModelImportError, match="nested more than 16 deep"):
        prepared(made)
