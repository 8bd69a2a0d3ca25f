"""Models that nobody here wrote, with their trained weights, against ONNX Runtime.

They are those of `benchmarks.found.sources` that are small; kernels are played by the oracle.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from benchmarks.found.judge import run_onnx, try_model
from benchmarks.found.rounding import with_rounded_products
from benchmarks.found.sources import MODELS, TESTED, model_named
from benchmarks.trials.errors import errors_of, judge

# Of the FLOPs of products that have kernels: grouped and 1D convolutions have none yet.
_LEAST_SHARE = 0.9


@pytest.mark.parametrize("name", TESTED)
def test_it_agrees_with_onnx_runtime_and_its_products_are_offloaded(name: str) -> None:
    row = try_model(model_named(name), "relax", limit_s=120)
    assert row["outcome"] == "agrees", row
    assert row["of_own_flops"] >= _LEAST_SHARE, row["left"]


def test_the_table_names_each_model_once() -> None:
    names = [model.name for model in MODELS]
    assert len(set(names)) == len(names) >= 20
    assert len({model.wheel.requirement for model in MODELS}) >= 10


def test_errors_are_relative_to_the_output() -> None:
    wanted = np.array([3.0, 4.0, 0.0, 0.0], np.float32)  # root mean square 2.5
    actual = np.array([3.5, 4.0, 0.0, 0.0], np.float32)
    assert errors_of(actual, wanted) == (0.2, 0.1)


@pytest.mark.parametrize(
    "actual",
    [np.array([1.0, np.nan]), np.array([1.0, np.inf]), np.array([1.0]), np.array([[1.0, 2.0]])],
)
def test_what_is_no_number_or_has_another_shape_is_wrong(actual: np.ndarray) -> None:
    wanted = np.array([1.0, 2.0])
    assert judge([actual], [wanted], [wanted], products=1000)["outcome"] == "wrong"


def test_whole_numbers_are_to_be_the_same() -> None:
    wanted = np.array([5, 1000])
    assert judge([wanted], [wanted], [wanted], products=1)["outcome"] == "agrees"
    assert judge([wanted + 1], [wanted], [wanted], products=1000)["outcome"] == "wrong"


def test_a_model_may_enlarge_what_is_rounded_and_no_more() -> None:
    wanted = np.ones(4)
    assert judge([wanted + 0.03], [wanted], [wanted + 0.01], products=1)["outcome"] == "agrees"
    assert judge([wanted + 0.05], [wanted], [wanted + 0.01], products=1)["outcome"] == "wrong"


def test_a_model_that_overflows_in_fp16_is_allowed_no_more_than_others() -> None:
    wanted, overflown = np.ones(4), np.full(4, np.inf)
    assert judge([wanted + 0.05], [wanted], [overflown], products=1)["outcome"] == "wrong"
    assert judge([overflown], [wanted], [overflown], products=1)["outcome"] == "wrong"


def test_the_rounded_model_rounds_what_products_read_and_write() -> None:
    third = np.float32(1 / 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "product",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1]) for name in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    arrays = {name: np.full((1, 1), third) for name in "ab"}
    (result,) = run_onnx(with_rounded_products(model), arrays)
    half = np.float32(np.float16(third))
    assert result.item() == np.float16(half * half)
    assert result.item() != third * third
