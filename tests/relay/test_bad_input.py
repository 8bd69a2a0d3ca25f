"""Modules and parameters that cannot be used: a clear error, or a reason and TVM's own kernel."""

from __future__ import annotations

import numpy as np
import pytest

import boltgen.relay
from boltgen.errors import ModelImportError
from boltgen.passes.run import Passes

import tvm  # isort: skip
from tvm import relay  # isort: skip
from boltgen.frontend.relay import steps  # isort: skip


def dense(
    dtype: str = "float16", rows: object = 32, weight: tuple[int, int] = (48, 64)
) -> tvm.IRModule:
    x = relay.var("x", shape=(rows, 64), dtype=dtype)
    w = relay.var("w", shape=weight, dtype=dtype)
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))


def reason(module: tvm.IRModule) -> str:
    """Why the module's only operator stays with TVM."""
    partitioned = steps.annotate(module, passes=Passes(normalise=False))
    assert not partitioned.regions
    (placed,) = [p for p in partitioned.placements if p.operator in {"matmul", "conv2d"}]
    return placed.reason


def test_without_types() -> None:
    x, w = relay.var("x"), relay.var("w")
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    with pytest.raises(
        ModelImportError, match=r"give (every parameter a shape and a dtype|it one)"
    ):
        boltgen.relay.partition(module)


def test_a_parameter_of_unknown_type() -> None:
    x = relay.var("x")
    module = tvm.IRModule.from_expr(relay.Function([x], x))
    with pytest.raises(ModelImportError, match=r"type of main's parameter 'x' is not known|infer"):
        boltgen.relay.partition(module)


def test_shapes_that_do_not_fit_together() -> None:
    x, y = relay.var("x", shape=(32, 48)), relay.var("y", shape=(32, 47))
    module = tvm.IRModule.from_expr(relay.Function([x, y], relay.add(x, y)))
    with pytest.raises(ModelImportError, match="check that operators' shapes fit together"):
        boltgen.relay.partition(module)


def test_a_product_that_tvm_does_not_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOLTGEN_VERIFY_GRAPHS")  # which is for boltgen's own graphs
    assert reason(dense(weight=(48, 63))) == "its operands' K differ: 64 and 63"


def test_without_main() -> None:
    module = tvm.IRModule({relay.GlobalVar("f"): relay.Function([], relay.const(1.0))})
    with pytest.raises(ModelImportError, match=r"no Relay function 'main'; it has f"):
        boltgen.relay.partition(module)


def test_a_parameter_of_the_wrong_shape() -> None:
    with pytest.raises(
        ModelImportError, match=r"params\['w'\] has shape \(48, 32\), main declares \(48, 64\)"
    ):
        boltgen.relay.partition(dense(), {"w": np.zeros((48, 32), "float16")})


def test_a_parameter_of_the_wrong_dtype() -> None:
    with pytest.raises(
        ModelImportError, match=r"params\['w'\] has dtype float32, main declares float16"
    ):
        boltgen.relay.partition(dense(), {"w": np.zeros((48, 64), "float32")})


def test_a_parameter_that_main_does_not_take() -> None:
    with pytest.raises(ModelImportError, match=r"params has 'v', .* it takes 'x', 'w'"):
        boltgen.relay.partition(dense(), {"v": np.zeros(1, "float16")})


def test_a_weight_that_is_nan() -> None:
    array = np.zeros((48, 64), "float16")
    array[3, 5] = np.nan
    with pytest.raises(ModelImportError, match=r"parameter 'w' contains NaN"):
        boltgen.relay.partition(dense(), {"w": array})


def test_unbound_parameters_are_arguments() -> None:
    partitioned = steps.annotate(dense(), passes=Passes(normalise=False))
    (region,) = partitioned.regions
    assert region.parameter_count == 2
    assert [param.name_hint for param in partitioned.module()["main"].params] == ["x", "w"]


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_an_unsupported_dtype(dtype: str) -> None:
    assert reason(dense(dtype)) == (
        f"an operand is {dtype}; tensor-core kernels take float16 or bfloat16"
    )


def test_integers_of_a_width_that_no_kernel_multiplies() -> None:
    assert reason(dense("int32")) == (
        "its operands are int32 and int32; kernels of integers take int8 or uint8, and weights of "
        "int8"
    )


def test_bf16_stays_with_tvm() -> None:
    expected = "its operands are bfloat16; kernels of Relay's models multiply float16"
    assert reason(dense("bfloat16")) == expected


def test_a_dynamic_dimension() -> None:
    said = reason(dense(rows=relay.Any()))
    assert "dimension 0 of an operand, (?, 64), is the symbolic '?'" in said
    assert "give the model's inputs fixed shapes" in said


def test_a_dynamic_model_is_left_as_it_is() -> None:
    module = boltgen.relay.partition(dense("float32", rows=relay.Any()))
    (function,) = module.functions.values()
    assert (function.body.op.name, function.body.checked_type.dtype) == ("nn.dense", "float32")
    assert [arg.name_hint for arg in function.body.args] == ["x", "w"]


def test_an_unsupported_layout() -> None:
    x = relay.var("x", shape=(1, 2, 8, 8, 8), dtype="float16")
    w = relay.var("w", shape=(1, 2, 3, 3, 8, 16), dtype="float16")
    y = relay.nn.conv2d(
        x, w, kernel_size=(3, 3), channels=16, data_layout="NCHW8c", kernel_layout="OIHW8i16o"
    )
    said = reason(tvm.IRModule.from_expr(relay.Function([x, w], y)))
    assert said.startswith("its layouts are NCHW8c, OIHW8i16o and NCHW8c; kernels take NHWC")


def test_branches_without_products_are_left_alone() -> None:
    x = relay.var("x", shape=(32, 64), dtype="float16")
    c = relay.var("c", shape=(), dtype="bool")
    module = tvm.IRModule.from_expr(relay.Function([x, c], relay.If(c, relay.nn.relu(x), x)))
    partitioned = steps.annotate(module)
    assert not partitioned.regions
    assert [placed.reason for placed in partitioned.placements] == [
        "boltgen does not look into branches and calls"
    ]
    tvm.ir.assert_structural_equal(partitioned.module(), relay.transform.InferType()(module))
