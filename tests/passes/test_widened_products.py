"""Products of bytes that a model widens: ONNX's MatMulInteger and ConvInteger, exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.harness.oracle_kernels import Model
from boltgen.frontend.relax import import_model
from boltgen.frontend.relax.translate import translate
from boltgen.graph.graph import Graph
from boltgen.graph.numpy_semantics.interpret import run
from boltgen.passes.outline import computes_all
from boltgen.passes.quantisation.widened_products import with_narrow_products

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
node = helper.make_node
MATRIX = RNG.integers(-128, 128, (32, 12)).astype(np.int8)
FILTERS = RNG.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8)


def model(nodes: list[Any], inputs: dict[str, Array], constants: dict[str, Any]) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in inputs.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def passed(made: Any, inputs: dict[str, Array]) -> tuple[Graph, list[str]]:
    """The graph after the pass, with equal values, and the reasons of what stays."""
    graph = translate(import_model(made).module["main"])
    reasons: list[str] = []
    after = with_narrow_products(graph, computes_all, lambda _, reason: reasons.append(reason))
    before, now = (run(each, list(inputs.values())) for each in (graph, after))
    for wanted, found in zip(before, now, strict=True):
        assert np.array_equal(wanted, found)
        assert wanted.dtype == found.dtype
    return after, reasons


def products(graph: Graph) -> list[tuple[str, ...]]:
    """The types of each product: of its operands and its sums."""
    found = [expr for expr in graph.exprs if expr.op in {"matmul", "nn.conv2d"}]
    return [(*(graph[arg].dtype for arg in expr.args), expr.dtype) for expr in found]


def whole(*shape: int, dtype: str = "uint8") -> Array:
    ends = np.iinfo(dtype)
    return RNG.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "zero", "weight", "other"),
    [
        ("uint8", 0, MATRIX, 0),
        ("uint8", 131, MATRIX, 0),
        ("int8", -7, MATRIX, 0),
        ("uint8", 255, np.abs(MATRIX.astype(np.int16)).astype(np.uint8), 100),
    ],
)
def test_a_matmul_of_widened_bytes_is_one_of_bytes(
    dtype: str, zero: int, weight: Array, other: int, computed: bool
) -> None:
    inputs = {"x": whole(24, 32, dtype=dtype)}
    constants: dict[str, Any] = {"w": weight, "v": np.asarray(other).astype(weight.dtype)}
    given = {"z": np.asarray(zero).astype(dtype)}
    (inputs if computed else constants).update(given)
    graph, reasons = passed(
        model([node("MatMulInteger", ["x", "w", "z", "v"], ["y"])], inputs, constants), inputs
    )
    assert not reasons
    assert products(graph) == [(dtype, "int8", "int32")]


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 2, 0, 1]])
@pytest.mark.parametrize("zero", [0, 117])
def test_a_convolution_of_widened_bytes_is_one_of_bytes(pads: list[int], zero: int) -> None:
    inputs = {"x": whole(2, 3, 8, 9)}
    constants = {"w": FILTERS, "z": np.uint8(zero)}
    single = node("ConvInteger", ["x", "w", "z"], ["y"], pads=pads)
    graph, reasons = passed(model([single], inputs, constants), inputs)
    assert not reasons
    assert products(graph) == [("uint8", "int8", "int32")]


WIDE = whole(32, 12)


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "reason"),
    [
        (["MatMulInteger", "x", "w", "", "v"], {"x": whole(24, 32)},
         {"w": WIDE, "v": np.uint8(99)}, "a weight's distance from its zero point needs nine bits"),
        (["MatMulInteger", "x", "w"], {"x": whole(24, 32), "w": whole(32, 12, dtype="int8")}, {},
         "its right operand is no constant"),
        (["MatMulInteger", "x", "w", "z"], {"x": whole(24, 32)},
         {"w": MATRIX, "z": whole(24)}, "the activation has several zero points"),
        (["MatMulInteger", "x", "w"], {"x": whole(1, 70000)},
         {"w": np.full((70000, 2), 127, np.int8)}, "k=70000; sums of so many products of uint8"),
        (["ConvInteger", "x", "w", "z"], {"x": whole(1, 3, 8, 8), "z": np.array(9, np.uint8)},
         {"w": FILTERS}, "its padding is a zero point that the model computes"),
    ],
)  # fmt: skip
def test_a_product_that_stays_has_a_reason(
    nodes: list[str], inputs: dict[str, Array], constants: dict[str, Any], reason: str
) -> None:
    operator, *names = nodes
    given = {"pads": [1, 1, 1, 1]} if operator == "ConvInteger" else {}
    made = model([node(operator, names, ["y"], **given)], inputs, constants)
    graph, (found,) = passed(made, inputs)
    assert reason in found
    assert products(graph)[0][-1] != "int8"
    assert "int8" not in products(graph)[0]


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_matmul_that_is_quantised_as_it_comes_is_one_kernel(per_channel: bool) -> None:
    x = RNG.standard_normal((24, 32)).astype(np.float32)
    scale = RNG.uniform(0.01, 0.02, 12 if per_channel else ()).astype(np.float32)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "t"], ["u"]),
        node("Mul", ["f", "u"], ["m"]),
        node("Add", ["m", "b"], ["a"]),
        node("Relu", ["a"], ["y"]),
    ]
    constants = {"w": MATRIX, "t": scale, "b": np.linspace(-1, 1, 12, dtype=np.float32)}
    made = model(nodes, {"x": x}, constants)
    graph, reasons = passed(made, {"x": x})
    assert not reasons
    compiled = Model(import_model(made).module, normalise=True)
    (region,) = compiled.regions
    assert region.label.endswith("relu")
    (found,) = compiled.run(x)
    (wanted,) = run(graph, [x])
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("zero", "weight"),
    [
        (0.0, MATRIX / 256),
        (127.5, MATRIX.astype(np.float64)),
    ],
)
def test_products_of_fractions_stay(zero: float, weight: Array) -> None:
    """FP64 holds bytes, and numbers that are none."""
    inputs = {"x": whole(4, 32)}
    nodes = [
        node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        node("Sub", ["wide", "z"], ["shifted"]),
        node("MatMul", ["shifted", "w"], ["sums"]),
        node("Cast", ["sums"], ["y"], to=TensorProto.INT32),
    ]
    constants = {"z": np.float64(zero), "w": weight.astype(np.float64)}
    after, _ = passed(model(nodes, inputs, constants), inputs)
    assert products(after) == [("float64", "float64", "float64")]
