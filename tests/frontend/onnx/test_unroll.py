"""Loops whose number of iterations is known, against ONNX Runtime; all others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cases.onnx_models import assert_same, model, node, noise, operators, prepared
from boltgen.errors import ModelImportError


def body(
    nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], **constants: Any
) -> onnx.GraphProto:
    """The body of a loop: i and j are counters, c and d conditions, and the others FP32."""
    types = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "d": TensorProto.BOOL}
    types |= {"j": TensorProto.INT64, "c2": TensorProto.BOOL, "d2": TensorProto.BOOL}

    def value(name: str) -> onnx.ValueInfoProto:
        if name in types:
            return helper.make_tensor_value_info(name, types[name], [])
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    return helper.make_graph(
        nodes, "body", [value(name) for name in inputs], [value(name) for name in outputs], kept
    )


def check(made: onnx.ModelProto, *shape: int) -> list[str]:
    after = prepared(made).model
    assert_same(made, after, {"x": noise(*shape)})
    assert not {"Loop", "Scan"} & set(operators(after))
    return operators(after)


def looped(inner: onnx.GraphProto, outputs: list[str], **constants: Any) -> onnx.ModelProto:
    """A Loop of one state, x, with the trip count n."""
    return model(
        [node("Loop", ["n", "", "x"], ["y", *outputs], body=inner, name="loop")],
        {"x": (2, 3)},
        constants,
        outputs=["y", *outputs],
    )


SAME = node("Identity", ["c"], ["d"])


def test_a_loop_with_a_constant_count() -> None:
    nodes = [
        SAME,
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["s", "f"], ["a"]),
        node("Tanh", ["a"], ["t"]),
    ]
    inner = body(nodes, ["i", "c", "s"], ["d", "t", "a"])
    made = looped(inner, ["z"], n=np.array(4))
    assert operators(prepared(made).model).count("Tanh") == 4
    check(made, 2, 3)
    notes = prepared(made).notes
    assert "Loop was rewritten in 1 place: its iterations were written out." in notes


def test_a_loop_without_iterations_returns_its_state() -> None:
    inner = body([SAME, node("Tanh", ["s"], ["t"])], ["i", "c", "s"], ["d", "t"])
    assert check(looped(inner, [], n=np.array(0)), 2, 3) == ["Identity"]


def test_a_loop_whose_condition_counts() -> None:
    nodes = [
        node("Less", ["i", "last"], ["d"]),
        node("Mul", ["s", "half"], ["t"]),
    ]
    inner = body(nodes, ["i", "c", "s"], ["d", "t"], last=np.int64(2), half=np.float32(0.5))
    made = looped(inner, [], n=np.array(100))
    assert check(made, 2, 3) == ["Mul", "Mul", "Mul", "Identity"]
    made.graph.node[0].input[0] = ""
    assert check(made, 2, 3) == ["Mul", "Mul", "Mul", "Identity"]


def test_a_loop_reads_values_around_it() -> None:
    inner = body([SAME, node("MatMul", ["s", "w"], ["t"])], ["i", "c", "s"], ["d", "t"])
    assert check(looped(inner, [], n=np.array(3), w=noise(3, 3)), 2, 3) == [
        "MatMul",
        "MatMul",
        "MatMul",
        "Identity",
    ]


def test_a_loop_in_a_loop() -> None:
    double = node("Add", ["r", "r"], ["q"])
    # The inner loop runs as often as the outer one has run.
    within = body([node("Identity", ["c2"], ["d2"]), double], ["j", "c2", "r"], ["d2", "q"])
    nodes = [SAME, node("Loop", ["i", "", "s"], ["t"], body=within)]
    inner = body(nodes, ["i", "c", "s"], ["d", "t"])
    assert check(looped(inner, [], n=np.array(4)), 2, 3).count("Add") == 0 + 1 + 2 + 3


def scanned(inputs: dict[str, tuple[int | str, ...]], **attributes: Any) -> onnx.ModelProto:
    """A sum of all elements so far, with a second state that counts them, times what is scanned."""
    nodes = [
        node("Add", ["s", "e"], ["t"]),
        node("Add", ["k", "one"], ["l"]),
        node("Mul", ["t", "l"], ["o"]),
        node("Sub", ["e", "t"], ["p"]),
    ]
    inner = body(nodes, ["s", "k", "e"], ["t", "l", "o", "p"], one=np.float32(1))
    return model(
        [
            node(
                "Scan", ["zero", "none", "x"], ["y", "n", "a", "b"],
                body=inner, num_scan_inputs=1, name="scan", **attributes,
            )
        ],
        inputs,
        {"zero": np.zeros(3, np.float32), "none": np.float32(0)},
        outputs=["y", "n", "a", "b"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((4, 3), {}),
        ((3, 4), {"scan_input_axes": [1]}),
        ((3, 4), {"scan_input_axes": [-1], "scan_output_axes": [1, 0]}),
        ((4, 3), {"scan_input_directions": [1], "scan_output_directions": [0, 1]}),
        ((4, 3), {"scan_output_axes": [-1, -2], "scan_output_directions": [1, 0]}),
    ],
)
def test_a_scan(shape: tuple[int, int], attributes: dict[str, Any]) -> None:
    check(scanned({"x": shape}, **attributes), *shape)


def refused(made: onnx.ModelProto) -> str:
    with pytest.raises(ModelImportError) as caught:
        prepared(made)
    return str(caught.value)


def test_loops_that_depend_on_data_are_refused() -> None:
    inner = body([SAME, node("Tanh", ["s"], ["t"])], ["i", "c", "s"], ["d", "t"])
    made = looped(inner, [])
    made.graph.node.insert(0, node("Cast", ["first"], ["n"], to=TensorProto.INT64))
    made.graph.node.insert(0, node("ReduceMax", ["x"], ["first"], keepdims=0))
    said = refused(made)
    assert "Loop (node 'loop': its number of iterations depends on data)" in said
    nodes = [
        node("ReduceMax", ["s"], ["m"], keepdims=0),
        node("Less", ["m", "high"], ["d"]),
        node("Add", ["s", "s"], ["t"]),
    ]
    inner = body(nodes, ["i", "c", "s"], ["d", "t"], high=np.float32(9))
    said = refused(looped(inner, [], n=np.array(10)))
    assert "Loop (node 'loop': its condition depends on data)" in said


def test_loops_that_are_too_long_are_refused() -> None:
    inner = body([SAME, node("Tanh", ["s"], ["t"])], ["i", "c", "s"], ["d", "t"])
    said = refused(looped(inner, [], n=np.array(2000)))
    assert "1025 iterations of 2 operators" in said
    assert "at most 1024" in said
    assert "it scans n elements" in refused(scanned({"x": ("n", 3)}))
