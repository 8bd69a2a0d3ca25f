"""Graphs of thousands of operators in a row go through all passes, and compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper

from benchmarks.cases.onnx_models import model, noise
from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import annotate, import_model
from boltgen.graph.recursion import Steps, answer

node = helper.make_node
# More than Python's limit of 1,000 calls. A shallow one, of the same kind, is computed.
DEEP, SHALLOW = 1200, 5
WEIGHT = noise(16, 16, seed=1) / 8
X = noise(16, 16, seed=2)
CONSTANTS = {
    "w": WEIGHT,
    "lowest": np.array(-1e9, np.float32),
    "half": np.array(0.5, np.float32),
    "wide": np.array([4, 64]),
    "square": np.array([16, 16]),
    "begin": np.array([8]),
    "end": np.array([24]),
    "rows": np.array([0]),
}


def chain(step: Callable[[int], list[onnx.NodeProto]], count: int) -> list[onnx.NodeProto]:
    """A product, then `step` so many times, from `v0` to the last."""
    return [node("MatMul", ["x", "w"], ["v0"]), *(each for i in range(count) for each in step(i))]


def doubled(i: int) -> list[onnx.NodeProto]:
    return [
        node("Add", [f"v{i}", f"v{i}"], [f"d{i}"]),
        node("Mul", [f"d{i}", "half"], [f"v{i + 1}"]),
    ]


def residual(i: int) -> list[onnx.NodeProto]:
    return [node("Tanh", [f"v{i}"], [f"r{i}"]), node("Max", [f"r{i}", f"v{i}"], [f"v{i + 1}"])]


def chosen(i: int) -> list[onnx.NodeProto]:
    before = [node("Greater", ["x", "w"], ["c"])] if i == 0 else []
    return [*before, node("Where", ["c", f"v{i}", "x"], [f"v{i + 1}"])]


def moved(i: int) -> list[onnx.NodeProto]:
    return [
        node("Transpose", [f"v{i}"], [f"t{i}"], perm=[1, 0]),
        node("Reshape", [f"t{i}", "wide"], [f"q{i}"]),
        node("Reshape", [f"q{i}", "square"], [f"v{i + 1}"]),
    ]


def joined(i: int) -> list[onnx.NodeProto]:
    return [
        node("Concat", [f"v{i}", "x"], [f"c{i}"], axis=0),
        node("Slice", [f"c{i}", "begin", "end", "rows"], [f"v{i + 1}"]),
    ]


def shared(i: int) -> list[onnx.NodeProto]:
    """Means of one value and what it has become."""
    return [node("Add", [f"v{i}", "v0"], [f"s{i}"]), node("Mul", [f"s{i}", "half"], [f"v{i + 1}"])]


def masked(i: int) -> list[onnx.NodeProto]:
    before = [node("Greater", ["x", "w"], ["c0"])] if i == 0 else []
    truths = [
        node("Not", [f"c{i}"], [f"n{i}"]),
        node("And", [f"n{i}", f"n{i}"], [f"c{i + 1}"]),
        node("Where", [f"c{i + 1}", f"v{i}", "lowest"], [f"v{i + 1}"]),
    ]
    return [*before, *truths]


def made(step: Callable[[int], list[onnx.NodeProto]], count: int) -> Any:
    nodes = chain(step, count)
    last = node("Softmax", [f"v{count}"], ["y"]) if step is masked else None
    nodes.append(last or node("Identity", [f"v{count}"], ["y"]))
    return model(nodes, {"x": (16, 16)}, CONSTANTS)


STEPS = [doubled, residual, chosen, moved, joined, shared, masked]


@pytest.mark.parametrize("step", STEPS, ids=[each.__name__ for each in STEPS])
def test_a_long_chain_is_partitioned(step: Callable[[int], list[onnx.NodeProto]]) -> None:
    partitioned = annotate(import_model(made(step, DEEP)).module)
    assert partitioned.regions
    partitioned.module()


@pytest.mark.parametrize("step", STEPS, ids=[each.__name__ for each in STEPS])
def test_a_chain_computes_the_same(step: Callable[[int], list[onnx.NodeProto]]) -> None:
    whole = made(step, SHALLOW)
    (actual,) = Model(import_model(whole).module).run(X)
    (wanted,) = onnx.reference.ReferenceEvaluator(whole).run(None, {"x": X})
    # A product in FP16 of 16 terms.
    np.testing.assert_allclose(actual, wanted, rtol=0.02, atol=0.02)


def test_a_rule_is_asked_once_about_each_key() -> None:
    asked: list[int] = []

    def leaves_of(number: int) -> Steps[int, int]:
        asked.append(number)
        if number == 0:
            return 1
        first = yield number - 1
        second = yield number - 1
        return first + second

    known: dict[int, int] = {}
    assert answer(leaves_of, 3000, known) == 2**3000
    assert answer(leaves_of, 10, known) == 2**10
    assert len(asked) == 3001
