"""Quantisations of every type, in blocks and around operators; bad ones are refused by name."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.cases.onnx_models import operators, prepared, results
from boltgen.errors import ModelImportError
from boltgen.frontend.relax import import_model

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
node = helper.make_node


def model(
    nodes: list[onnx.NodeProto],
    x: Array,
    constants: dict[str, Array],
    opset: int = 21,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """A model of the input x."""
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", code, x.shape)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def check(made: onnx.ModelProto, x: Array) -> list[str]:
    """Judge the rewritten model by ONNX's reference of the model; return its operators."""
    after = prepared(made).model
    wanted = ReferenceEvaluator(made).run(None, {"x": x})
    for found, want in zip(results(after, {"x": x}), wanted, strict=True):
        assert found.dtype == want.dtype
        if want.dtype.kind in "iu":
            assert np.array_equal(found, want)
        else:
            np.testing.assert_allclose(found, want, rtol=2**-20)
    return operators(after)


X = RNG.standard_normal((6, 8)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("zero", [False, True])
def test_blocks_of_a_computed_tensor(axis: int, block: int, zero: bool) -> None:
    shape = list(X.shape)
    shape[axis] = -(-shape[axis] // block)
    scale = RNG.uniform(0.01, 0.02, shape).astype(np.float32)
    constants = {"s": scale}
    if zero:
        constants["z"] = RNG.integers(-9, 9, shape, np.int8)
    names = ["s", "z"] if zero else ["s"]
    given = {"axis": axis, "block_size": block}
    quantised = node("QuantizeLinear", ["x", *names], ["q"], output_dtype=TensorProto.INT8, **given)
    back = node("DequantizeLinear", ["q", *names], ["y"], **given)
    after = check(model([quantised, back], X, constants, outputs=("y", "q")), X)
    assert "QuantizeLinear" not in after
    assert import_model(model([quantised, back], X, constants)).outputs[0].shape == X.shape


@pytest.mark.parametrize(
    "dtype",
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn", "int4", "uint4"],
)
@pytest.mark.parametrize("is_quantised", [False, True])
def test_constants_of_narrow_types_are_dequantised(dtype: str, is_quantised: bool) -> None:
    whole = np.dtype(getattr(ml_dtypes, dtype))
    floats = RNG.uniform(0, 9, X.shape).astype(np.float32)
    constants = {"w": floats if is_quantised else floats.astype(whole), "s": np.float32(0.25)}
    constants["z"] = np.zeros((), whole)
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["d"]), node("Add", ["x", "d"], ["y"])]
    if is_quantised:
        nodes.insert(0, node("QuantizeLinear", ["w", "s", "z"], ["q"]))
    else:
        constants["q"] = constants.pop("w")
    made = model(nodes, X, constants, 23)
    assert import_model(made).outputs[0].shape == X.shape
    assert set(check(made, X)) <= {"Add", "DequantizeLinear", "Reshape", "Transpose"}


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_computed_numbers_of_narrow_types_are_refused(dtype: str) -> None:
    constants = {"s": np.float32(0.25), "z": np.zeros((), getattr(ml_dtypes, dtype))}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="narrow"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    with pytest.raises(
        ModelImportError,
        match=rf"QuantizeLinear \(node 'narrow': of 'x' to {dtype}\).*only constants may have",
    ):
        import_model(model(nodes, X, constants))


@pytest.mark.parametrize("precision", [0, TensorProto.FLOAT])
def test_floats_of_two_types_meet_in_fp32(precision: int) -> None:
    x = X.astype(np.float16)
    constants = {"s": np.float16(0.25), "z": np.uint8(128)}
    given = {"precision": precision} if precision else {}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **given),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], output_dtype=TensorProto.FLOAT),
    ]
    after = prepared(model(nodes, x, constants, 23)).model
    (found,) = ReferenceEvaluator(after).run(None, {"x": x})  # ONNX Runtime 1.23 has set 21
    nearest = np.clip(np.rint(x.astype(np.float32) / np.float32(0.25)) + 128, 0, 255)
    assert np.array_equal(found, (nearest - 128) * np.float32(0.25))
    assert found.dtype == np.float32


def test_a_precision_below_fp32_is_refused() -> None:
    constants = {"s": np.float32(0.25), "z": np.uint8(128)}
    single = node(
        "QuantizeLinear", ["x", "s", "z"], ["y"], precision=TensorProto.FLOAT16, name="short"
    )
    with pytest.raises(ModelImportError, match=r"node 'short': precision=FLOAT16\). Leave the"):
        import_model(model([single], X, constants, 23))


@pytest.mark.parametrize("number", [0.0, -3.0, 5.0])
def test_a_tensor_is_quantised_by_its_ends(number: float) -> None:
    x = np.full((3, 4), number, np.float32)
    single = node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    after = prepared(model([single], x, {}, outputs=("y", "s", "z"))).model
    whole, scale, zero = results(after, {"x": x})
    assert float(scale) == (abs(np.float32(number)) / np.float32(255) if number else 1.0)
    assert int(zero) == (255 if number < 0 else 0)
    assert np.array_equal(whole, np.full((3, 4), 255 if number > 0 else 0, np.uint8))


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ((), (), np.float32),
        ((6,), (5,), np.float32),
        ((), (5,), np.float16),
        ((2, 6, 1), (2, 1, 5), np.float32),
    ],
)
def test_a_quantised_product_has_scales_for_rows_and_columns(
    left: tuple[int, ...], right: tuple[int, ...], dtype: Any
) -> None:
    a = RNG.integers(0, 255, (2, 6, 8), np.uint8)
    constants = {
        "as": RNG.uniform(0.01, 0.02, left).astype(dtype),
        "az": np.full(left, 120, np.uint8),
        "b": RNG.integers(-127, 127, (2, 8, 5), np.int8),
        "bs": RNG.uniform(0.01, 0.02, right).astype(dtype),
        "bz": np.zeros(right, np.int8),
        "ys": np.asarray(0.0313, dtype),
        "yz": np.uint8(99),
    }
    single = node("QLinearMatMul", ["x", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    made = model([single], a, constants)
    (found,) = results(prepared(made).model, {"x": a})
    floats: dict[str, Array] = {key: each.astype(np.float64) for key, each in constants.items()}
    scale, zero = (floats[key].reshape(-1, 1) if len(left) == 1 else floats[key] for key in
                   ("as", "az"))  # fmt: skip
    product = ((a - zero) * scale) @ ((floats["b"] - floats["bz"]) * floats["bs"])
    wanted = np.clip(np.rint(product / floats["ys"]) + 99, 0, 255)
    assert np.array_equal(found, wanted)
    assert import_model(made).outputs[0].shape == (2, 6, 5)


QUANTISE, DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
BYTES = np.zeros((6, 8), np.uint8)
ONES = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("operator", "scale", "zero", "given", "message"),
    [
        (QUANTISE, np.float32(0), np.uint8(0), {}, r"its scale is 0, which is not positive\)"),
        (QUANTISE, np.float32(-2), np.uint8(0), {}, "its scale is -2, which is not positive"),
        (DEQUANTISE, np.float32(np.inf), np.uint8(0), {}, "its scale is inf, which is not finite"),
        (QUANTISE, np.float32(np.nan), np.uint8(0), {}, "its scale is nan, which is not finite"),
        (DEQUANTISE, np.float32([1] * 7 + [0]), np.zeros(8, np.uint8), {"axis": 1},
         r"its scale\[7\] is 0, which is not positive"),
        (QUANTISE, ONES[:7], np.zeros(7, np.uint8), {"axis": 1},
         r"it has 7 scales along axis 1, which has 8 places\). Give one, or 8"),
        (DEQUANTISE, ONES, np.zeros(3, np.uint8), {"axis": 1},
         r"it has 3 zero points along axis 1, which has 8 places\). Give one, or 8"),
        (QUANTISE, ONES, np.zeros(8, np.uint8), {"axis": 2},
         r"its axis 2 does not exist: the tensor has 2 axes\). Name an axis from -2 to 1"),
        (DEQUANTISE, np.float32(1), np.int8(0), {},
         r"it is uint8, and its zero point int8\). Give the zero point as uint8"),
        (QUANTISE, np.float32(1), np.int8(0), {"output_dtype": TensorProto.UINT8},
         "it is uint8, and its zero point int8"),
        (QUANTISE, np.ones((6, 3), np.float32), np.zeros((6, 3), np.uint8),
         {"axis": 1, "block_size": 4},
         r"it has scales of shape \(6, 3\), and blocks of 4 along axis 1\). Give scales of shape "
         r"\(6, 2\)"),
        (DEQUANTISE, np.ones((6, 2), np.float32), np.zeros((6, 2), np.uint8),
         {"axis": 2, "block_size": 4}, "its axis 2 does not exist: the tensor has 2 axes"),
    ],
)  # fmt: skip
def test_a_quantisation_that_means_nothing_is_named(
    operator: str, scale: Array, zero: Array, given: dict[str, int], message: str
) -> None:
    x = X if operator == QUANTISE else BYTES
    single = node(operator, ["x", "s", "z"], ["y"], name="bad", **given)
    with pytest.raises(ModelImportError, match=rf"{operator} \(node 'bad': of 'x': {message}"):
        import_model(model([single], x, {"s": scale, "z": zero}, 23))


def test_a_constant_with_scales_of_a_wrong_length_is_named() -> None:
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], name="weight", axis=0),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    constants = {"w": np.ones((8, 4), np.int8), "s": ONES[:5]}
    with pytest.raises(
        ModelImportError, match=r"node 'weight': of 'w': it has 5 scales along axis 0, which has 8"
    ):
        import_model(model(nodes, X, constants))


def test_two_scales_of_a_quantised_result_are_refused() -> None:
    a = RNG.integers(0, 255, (6, 8), np.uint8)
    constants = {
        "s": np.float32(0.5), "z": np.uint8(0), "b": np.ones((8, 5), np.uint8),
        "ys": np.ones(6, np.float32), "yz": np.zeros(6, np.uint8),
    }  # fmt: skip
    names = ["x", "s", "z", "b", "s", "z", "ys", "yz"]
    made = model([node("QLinearMatMul", names, ["y"], name="rows")], a, constants)
    with pytest.raises(
        ModelImportError, match=r"node 'rows': of 'y': it has 6 scales of the result\). Give"
    ):
        import_model(made)
