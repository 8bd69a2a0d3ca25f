"""Each rewriting against ONNX Runtime, before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from benchmarks.cases.onnx_models import (
    assert_same,
    model,
    node,
    noise,
    operators,
    prepared,
    results,
)
from benchmarks.harness.oracle_kernels import Model
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.relax import import_model

IMAGE = {"x": (2, 4, 9, 7)}
FILTERS = noise(6, 4, 3, 3, seed=1)


def check(made: onnx.ModelProto, *shape: int, **inputs: np.ndarray[Any, Any]) -> list[str]:
    """Check that a model computes the same when it is prepared; its operators then."""
    after = prepared(made).model
    assert_same(made, after, {"x": noise(*shape), **inputs})
    return operators(after)


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool"])
def test_padding_by_rule(rule: str, operator: str) -> None:
    inputs = ["x", "w"] if operator == "Conv" else ["x"]
    single = node(operator, inputs, ["y"], auto_pad=rule, kernel_shape=[3, 3], strides=[2, 3])
    constants = {"w": FILTERS} if operator == "Conv" else {}
    made = model([single], IMAGE, constants)
    assert check(made, 2, 4, 9, 7) == [operator]
    names = {each.name for each in prepared(made).model.graph.node[0].attribute}
    assert "pads" in names
    assert "auto_pad" not in names


@pytest.mark.parametrize("attributes", [{"output_shape": [20, 15]}, {"auto_pad": "SAME_UPPER"}])
def test_transposed_convolutions(attributes: dict[str, Any]) -> None:
    single = node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], **attributes)
    check(model([single], IMAGE, {"w": noise(4, 6, 3, 3)}), 2, 4, 9, 7)


@pytest.mark.parametrize(
    ("attributes", "cut"),
    [
        ({"dilations": [3, 2], "output_padding": [2, 1]}, [0, 0]),
        ({"dilations": [3, 2], "output_padding": [2, 1], "pads": [1, 0, 1, 0]}, [1, 0]),
        ({"dilations": [3, 2], "output_padding": [2, 1], "pads": [0, 3, 0, 3]}, [0, 3]),
        ({"dilations": [2, 3], "output_padding": [1, 2], "strides": [2, 2]}, [0, 0]),
    ],
)
def test_output_padding_of_a_stride_and_more(attributes: dict[str, Any], cut: list[int]) -> None:
    # ONNX Runtime 1.23 reads outside of its buffers here: PyTorch has the values.
    single = node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    x, weight, bias = noise(2, 4, 9, 7), noise(4, 6, 3, 3), noise(6)
    made = model([single], IMAGE, {"w": weight, "b": bias})
    wanted = torch.nn.functional.conv_transpose2d(
        *map(torch.from_numpy, (x, weight, bias)),
        stride=attributes.get("strides", 1),
        padding=cut,
        output_padding=attributes["output_padding"],
        dilation=attributes["dilations"],
    ).numpy()
    (after,) = results(prepared(made).model, {"x": x})
    (actual,) = Model(import_model(made).module).run(x)
    for found in (after, actual):
        # Sums of at most 36 terms, in another order.
        np.testing.assert_allclose(found, wanted, rtol=2**-16, atol=2**-16)


def test_zeros_before_a_convolution_are_its_padding() -> None:
    nodes = [
        node("Pad", ["x", "pads"], ["p"], mode="constant"),
        node("Conv", ["p", "w"], ["y"], pads=[0, 1, 0, 1]),
    ]
    pads = np.array([0, 0, 1, 2, 0, 0, 3, 0])
    assert check(model(nodes, IMAGE, {"w": FILTERS, "pads": pads}), 2, 4, 9, 7) == ["Conv"]
    nodes[0] = node("Pad", ["x", "pads"], ["p"], mode="reflect")
    after = check(model(nodes, IMAGE, {"w": FILTERS, "pads": pads}), 2, 4, 9, 7)
    assert after == ["Pad", "Conv"]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalisation(axis: int, p: int) -> None:
    made = model([node("LpNormalization", ["x"], ["y"], axis=axis, p=p)], {"x": (3, 5)})
    check(made, 3, 5)


def test_a_vector_of_zeros_has_no_direction() -> None:
    made = model([node("LpNormalization", ["x"], ["y"], axis=-1)], {"x": (1, 4)})
    after = prepared(made).model
    assert_same(made, after, {"x": np.zeros((1, 4), np.float32)})


@pytest.mark.parametrize("opset", [7, 9, 13, 17])
def test_a_relu_to_six_is_part_of_a_kernel(opset: int) -> None:
    bounds = {"low": np.float32(0), "high": np.float32(6)}
    clip = node("Clip", ["c", "low", "high"], ["r"])
    if opset < 11:
        clip, bounds = node("Clip", ["c"], ["r"], min=0.0, max=6.0), {}
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        clip,
        node("Conv", ["r", "v"], ["y"]),
    ]
    made = model(nodes, {"x": (1, 8, 6, 6)}, {"w": noise(8, 8, 3, 3), **bounds}, opset=opset)
    made.graph.initializer.append(onnx.numpy_helper.from_array(noise(8, 8, 1, 1), "v"))
    regions = Model(import_model(made).module, normalise=True).regions
    assert [region.symbol.split("_", 2)[2] for region in regions] == ["conv2d", "conv2d"]
    assert "minimum" in regions[0].label


def test_clips_that_bind_nothing() -> None:
    constants = {"low": np.float32(-np.inf), "high": np.float32(np.inf), "zero": np.float32(0)}
    made = model([node("Clip", ["x", "low", "high"], ["y"])], {"x": (2, 4)}, constants)
    assert operators(prepared(made).model) == ["Identity"]
    made = model([node("Clip", ["x", "zero"], ["y"])], {"x": (2, 4)}, constants)
    assert check(made, 2, 4) == ["Relu"]


LEGACY = {
    "slice": (9, node("Slice", ["x"], ["y"], starts=[1, 0], ends=[-1, 3], axes=[2, 3])),
    "pad": (9, node("Pad", ["x"], ["y"], pads=[0, 0, 1, 1, 0, 0, 2, 0], value=1.5)),
    "squeeze": (11, node("Unsqueeze", ["x"], ["y"], axes=[0, 2])),
    "sum": (11, node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)),
    "sum all": (11, node("ReduceSum", ["x"], ["y"])),
    "softmax": (11, node("Softmax", ["x"], ["y"], axis=1)),
    "softmax last": (9, node("Softmax", ["x"], ["y"], axis=3)),
    "log": (7, node("LogSoftmax", ["x"], ["y"], axis=2)),
    "up": (7, node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])),
    "linear": (7, node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0], mode="linear")),
    "dropout": (9, node("Dropout", ["x"], ["y"], ratio=0.5)),
    "clip": (7, node("Clip", ["x"], ["y"], min=-0.5, max=0.25)),
    "mean": (11, node("ReduceMean", ["x"], ["y"], axes=[2, 3])),
}


@pytest.mark.parametrize("name", LEGACY)
def test_forms_of_old_operator_sets(name: str) -> None:
    opset, single = LEGACY[name]
    check(model([single], IMAGE, opset=opset), 2, 4, 9, 7)
    prepared_model = prepared(model([single], IMAGE, opset=opset)).model
    assert prepared_model.opset_import[0].version == 13


def test_split_topk_and_resize_of_old_operator_sets() -> None:
    split = node("Split", ["x"], ["y", "z"], split=[1, 3], axis=1)
    check(model([split], IMAGE, outputs=["y", "z"], opset=11), 2, 4, 9, 7)
    top = node("TopK", ["x"], ["y", "z"], k=3, axis=1)
    check(model([top], IMAGE, outputs=["y", "z"], opset=9), 2, 4, 9, 7)
    resize = node("Resize", ["x", "scales"], ["y"], mode="nearest")
    scales = {"scales": np.array([1, 1, 2, 3], np.float32)}
    check(model([resize], IMAGE, scales, opset=10), 2, 4, 9, 7)


def test_a_batch_norm_with_the_outputs_of_training() -> None:
    constants = {name: np.abs(noise(4, seed=i)) for i, name in enumerate("smbv")}
    old = node("BatchNormalization", ["x", *"sbmv"], ["y", "m1", "v1", "m2", "v2"])
    after = prepared(model([old], IMAGE, constants, opset=9)).model
    assert operators(after) == ["BatchNormalization"]
    assert list(after.graph.node[0].output) == ["y"]
    new = node("BatchNormalization", ["x", *"sbmv"], ["y", "m1", "v1"], training_mode=1)
    made = model([new], IMAGE, constants, outputs=["y", "m1", "v1"])
    assert "BatchNormalization" not in check(made, 2, 4, 9, 7)


def test_the_statistics_of_a_layer_norm() -> None:
    constants = {"s": noise(7), "b": noise(7, seed=1)}
    made = node("LayerNormalization", ["x", "s", "b"], ["y", "m", "d"], axis=-1)
    after = check(model([made], IMAGE, constants), 2, 4, 9, 7)
    assert after == ["LayerNormalization"]
    check(model([made], IMAGE, constants, outputs=["y", "m", "d"]), 2, 4, 9, 7)


def test_sums_and_means_are_additions() -> None:
    made = model(
        [node("Sum", ["x", "w", "v"], ["y"])], {"x": (2, 4)}, {"w": noise(4), "v": noise(1)}
    )
    assert check(made, 2, 4) == ["Add", "Add"]
    made = model(
        [node("Mean", ["x", "w", "v"], ["y"])], {"x": (2, 4)}, {"w": noise(4), "v": noise(1)}
    )
    assert check(made, 2, 4) == ["Add", "Add", "Div"]


def test_powers_of_mixed_types() -> None:
    made = model([node("Pow", ["x", "two"], ["y"])], {"x": (2, 4)}, {"two": np.int64(2)})
    check(made, 2, 4)


@pytest.mark.parametrize("sign", ["negative", "positive"])
def test_one_sign_of_infinity(sign: str) -> None:
    made = model([node("IsInf", ["x"], ["y"], **{f"detect_{sign}": 0})], {"x": (1, 4)}, opset=17)
    after = prepared(made).model
    x = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    assert_same_booleans(made, after, x)


def assert_same_booleans(
    made: onnx.ModelProto, after: onnx.ModelProto, x: np.ndarray[Any, Any]
) -> None:
    from benchmarks.cases.onnx_models import results

    np.testing.assert_array_equal(results(made, {"x": x})[0], results(after, {"x": x})[0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    made = model(
        [
            node("Cast", ["x"], ["i"], to=TensorProto.INT64),
            node("OneHot", ["i", "depth", "values"], ["y"], axis=axis),
        ],
        {"x": (2, 3)},
        {"depth": np.int64(5), "values": np.array([-1, 2], np.float32)},
    )
    after = prepared(made).model
    assert "OneHot" not in operators(after)
    assert_same(made, after, {"x": np.array([[0, 4, -1], [-5, 5, 2]], np.float32)})


@pytest.mark.parametrize(
    ("equation", "shape"),
    [
        ("bhid,bhjd->bhij", (2, 3, 5, 4)),
        ("bij,bjk->bik", (2, 4, 3)),
        ("bij,jk->bki", (4, 3)),
        ("bij,ikj->bk", (3, 6, 4)),
        ("bhid,dc->bhic", (4, 7)),
    ],
)
def test_contractions(equation: str, shape: tuple[int, ...]) -> None:
    first = {"bhid": (2, 3, 6, 4), "bij": (2, 3, 4)}[equation.split(",", maxsplit=1)[0]]
    single = node("Einsum", ["x", "w"], ["y"], equation=equation)
    assert "MatMul" in check(model([single], {"x": first}, {"w": noise(*shape, seed=1)}), *first)


CONTRACTIONS = [
    ("ij,kj", [(3, 4), (5, 4)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("kj,ij", [(3, 4), (5, 4)]),
    ("...i,ij->...j", [(2, 3, 4), (4, 5)]),
    ("...i,ij", [(2, 3, 4), (4, 5)]),
    ("...i,ijk->...jk", [(2, 3, 4), (4, 5, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(6, 2, 3, 4), (1, 2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (6, 2, 4, 5)]),
    ("...ij,jk->ik...", [(2, 3, 4), (4, 5)]),
    ("i...,ij->j...", [(4, 3, 2), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 6, 4), (2, 3, 5, 4)]),
    ("bhqk,bhkd->bqhd", [(2, 3, 6, 5), (2, 3, 5, 4)]),
    ("bqhd,bkhd->bhqk", [(2, 6, 3, 4), (2, 5, 3, 4)]),
    ("b q d, d h e -> b q h e", [(2, 6, 8), (8, 2, 4)]),
    ("ij,j->i", [(3, 4), (4,)]),
    ("ij,kj->i", [(3, 4), (5, 4)]),
    ("ij,jk->", [(3, 4), (4, 5)]),
    ("j,jk", [(4,), (4, 5)]),
    ("i,i->", [(4,), (4,)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("Ab,bC", [(3, 4), (4, 5)]),
    ("aB,Bc->ca", [(3, 4), (4, 5)]),
    ("ab,bc,cd->ad", [(3, 4), (4, 5), (5, 2)]),
    ("nchw,kc->nkhw", [(2, 4, 3, 3), (5, 4)]),
    ("bij,bjk,bkl->bil", [(2, 3, 4), (2, 4, 5), (2, 5, 3)]),
]


@pytest.mark.parametrize(("equation", "shapes"), CONTRACTIONS)
@pytest.mark.parametrize("opened", [False, True], ids=["known", "open"])
def test_spellings_of_products(equation: str, shapes: list[tuple[int, ...]], opened: bool) -> None:
    names = [f"x{place}" for place in range(len(shapes))]
    given = dict(zip(names, shapes, strict=True))
    declared = {
        name: tuple(
            f"{name}_{axis}" if opened and not axis else each for axis, each in enumerate(s)
        )
        for name, s in given.items()
    }
    if opened and "b" in equation[0]:
        declared = {name: ("b", *shape[1:]) for name, shape in given.items()}
    made = model([node("Einsum", names, ["y"], equation=equation)], declared)
    after = prepared(made).model
    assert opened or "MatMul" in operators(after)
    assert "MatMul" in operators(after) or "Einsum" in operators(after)
    inputs = {name: noise(*shape, seed=place) for place, (name, shape) in enumerate(given.items())}
    # ONNX Runtime ends the process where two ellipses are not as long.
    (actual,) = ReferenceEvaluator(after).run(None, inputs)
    wanted = np.einsum(equation.replace(" ", ""), *inputs.values())
    np.testing.assert_allclose(actual, wanted, rtol=2**-16, atol=2**-16)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(3, 3)]),
        ("ij->ji", [(3, 4)]),
        ("ii,ij->ij", [(3, 3), (3, 3)]),
        ("i,j->ij", [(3,), (4,)]),
    ],
)
def test_contractions_that_are_no_product_stay(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    names = [f"x{place}" for place in range(len(shapes))]
    made = model(
        [node("Einsum", names, ["y"], equation=equation)], dict(zip(names, shapes, strict=True))
    )
    assert operators(prepared(made).model) == ["Einsum"]


def test_quantised_products() -> None:
    quantised = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("QLinearMatMul", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["p"]),
        node("DequantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(120),
        "w": np.arange(96, dtype=np.uint8).reshape(8, 12),
        "ws": np.float32(0.01), "wz": np.uint8(40), "ys": np.float32(0.05), "yz": np.uint8(100),
    }  # fmt: skip
    made = model(quantised, {"x": (3, 8)}, constants)
    assert "QLinearMatMul" not in operators(prepared(made).model)
    check(made, 3, 8)


def test_a_function_of_the_model_is_written_out() -> None:
    made = model([node("Twice", ["x"], ["y"], domain="mine")], {"x": (2, 4)})
    made.opset_import.add(domain="mine", version=1)
    made.functions.append(
        helper.make_function(
            "mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
            [helper.make_opsetid("", 17)],
        )
    )  # fmt: skip
    after = prepared(made)
    assert operators(after.model) == ["Add"]
    assert "functions" in after.notes[0]


@pytest.mark.parametrize("operator", ["HardSwish", "Mish", "Gelu", "Swish"])
def test_what_onnx_defines_by_others(operator: str) -> None:
    opset = 20 if operator != "Swish" else 24
    made = model([node(operator, ["x"], ["y"])], {"x": (2, 4)}, opset=opset)
    assert import_model(made).outputs[0].shape == (2, 4)


def test_every_rewriting_has_a_reason() -> None:
    for rules in RULES.values():
        for rule in rules:
            assert rule.apply.__doc__
            assert rule.why or "refuse" in rule.apply.__doc__.lower()


def test_a_refusal_names_the_frontend_that_takes_the_operator() -> None:
    made = model(
        [node("ReverseSequence", ["x", "lens"], ["y"], name="turn")],
        {"x": (4, 2)},
        {"lens": np.array([4, 2])},
    )
    with pytest.raises(ModelImportError, match=r"ReverseSequence \(node 'turn'\).*frontend relay"):
        import_model(made)


def test_operators_of_other_domains_are_not_taken_for_standard_ones() -> None:
    made = model([node("Relu", ["x"], ["y"], domain="com.acme", name="own")], {"x": (4, 2)})
    with pytest.raises(ModelImportError, match=r"Relu \(node 'own', domain 'com.acme'\)"):
        import_model(made)
    gelu = model([node("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": (4, 2)})
    assert import_model(gelu).outputs[0].shape == (4, 2)


@pytest.mark.parametrize("place", [0, 2, -1, -3])
def test_an_element_at_a_known_place_is_a_slice(place: int) -> None:
    single = node("Gather", ["x", "i"], ["y"], axis=1)
    made = model([single], {"x": (2, 3, 5)}, {"i": np.array(place)})
    assert check(made, 2, 3, 5) == ["Slice", "Squeeze"]
    made = model([single], {"x": (2, 3, 5)}, {"i": np.array([place])})
    assert check(made, 2, 3, 5) == ["Slice"]


def test_several_elements_and_places_that_are_not_known_stay() -> None:
    single = node("Gather", ["x", "i"], ["y"], axis=1)
    made = model([single], {"x": (2, 3, 5)}, {"i": np.array([0, 2])})
    assert check(made, 2, 3, 5) == ["Gather"]
    outside = model([single], {"x": (2, 3, 5)}, {"i": np.array(3)})
    assert operators(prepared(outside).model) == ["Gather"]


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 9, 8), {"kernel_shape": [3, 3]}),
        ((2, 3, 9, 8), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}),
        ((2, 3, 9, 8), {"kernel_shape": [2, 2], "dilations": [2, 3], "ceil_mode": 1}),
        ((2, 3, 9, 8), {"kernel_shape": [3, 3], "storage_order": 1, "strides": [2, 3]}),
        ((2, 3, 9, 8), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((2, 3, 9), {"kernel_shape": [3], "ceil_mode": 1, "strides": [2]}),
        ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 2]}),
    ],
)
def test_places_of_a_pools_greatest_numbers(
    shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    single = node("MaxPool", ["x"], ["y", "z"], **attributes)
    made = model([single], {"x": shape}, outputs=["y", "z"])
    assert "MaxPool" not in check(made, *shape)
    only = model([single], {"x": shape}, outputs=["z"])
    (wanted,) = results(only, {"x": noise(*shape)})
    (actual,) = Model(import_model(only).module).run(noise(*shape))
    np.testing.assert_array_equal(actual, wanted, strict=True)


def test_places_in_a_tensor_of_unknown_size_are_refused() -> None:
    single = node("MaxPool", ["x"], ["y", "z"], name="pool", kernel_shape=[3, 3])
    made = model([single], {"x": ("batch", 3, 9, 8)}, outputs=["y", "z"])
    with pytest.raises(ModelImportError, match="MaxPool \\(node 'pool': with the places"):
        prepared(made)


@pytest.mark.parametrize(
    ("names", "attributes"),
    [
        (["x", "w"], {"group": 2}),
        (["x", "w", "xz"], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        (["x", "w", "xz", "wz"], {"auto_pad": "SAME_UPPER"}),
    ],
)
def test_a_convolution_of_integers(names: list[str], attributes: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (2, 4, 7, 6)).astype(np.uint8)
    filters = random.integers(-128, 128, (8, 2 if "group" in attributes else 4, 3, 3))
    known = {"w": filters.astype(np.int8), "xz": np.uint8(100), "wz": np.int8(3)}
    constants = {name: known[name] for name in names if name in known}
    single = node("ConvInteger", names, ["y"], **attributes)
    made = model([single], {"x": x.shape}, constants, dtype=TensorProto.UINT8)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    (actual,) = Model(import_model(made).module).run(x)
    np.testing.assert_array_equal(actual, wanted, strict=True)


def test_a_product_of_integers() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (4, 16)).astype(np.uint8)
    constants = {
        "w": random.integers(-128, 128, (16, 8)).astype(np.int8),
        "xz": np.uint8(100),
        "wz": random.integers(-5, 5, 8).astype(np.int8),
    }
    single = node("MatMulInteger", ["x", *constants], ["y"])
    made = model([single], {"x": x.shape}, constants, dtype=TensorProto.UINT8)
    (actual,) = Model(import_model(made).module).run(x)
    np.testing.assert_array_equal(actual, results(made, {"x": x})[0], strict=True)


@pytest.mark.parametrize(
    ("scale", "saturate", "message"),
    [
        (0.1, 0, "of 'x' to float8_e4m3fn.*with one constant scale.*saturate=1"),
        (0.0, 1, "of 'x': its scale is 0, which is not positive"),
        (np.nan, 1, "of 'x': its scale is nan, which is not finite"),
    ],
)
def test_floats_of_eight_bits_that_no_kernel_multiplies_are_refused(
    scale: float, saturate: int, message: str
) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="narrow", saturate=saturate),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    made = model(nodes, {"x": (4, 8)}, {"s": np.float32(scale)}, opset=19)
    made.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    with pytest.raises(ModelImportError, match=rf"QuantizeLinear .node 'narrow': {message}"):
        prepared(made)


@pytest.mark.parametrize(
    ("scale", "axis", "message"),
    [
        (np.float32(0.0), 1, "of 'x': its scale is 0, which is not positive.*Calibrate the tensor"),
        (np.float32(-0.5), 1, "of 'x': its scale is -0.5, which is not positive"),
        (np.float32(np.nan), 1, "of 'x': its scale is nan, which is not finite"),
        (np.float32(np.inf), 1, "of 'x': its scale is inf, which is not finite"),
        (np.ones(5, np.float32), 1, "of 'x': it has 5 scales along axis 1, which has 8 places"),
        (np.ones(8, np.float32), 3, "of 'x': its axis 3 does not exist: the tensor has 2 axes"),
    ],
)
def test_a_quantisation_that_means_nothing_is_refused(scale: Any, axis: int, message: str) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="narrow", axis=axis),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    constants = {"s": scale, "z": np.zeros(scale.shape, np.int8)}
    with pytest.raises(ModelImportError, match=rf"QuantizeLinear .node 'narrow': {message}"):
        prepared(model(nodes, {"x": (4, 8)}, constants, opset=17))


def test_extents_that_are_taken_of_a_shape_stay_extents() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "order"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    made = model(nodes, {"x": ("batch", 3, 4)}, {"order": np.array([2, 0, 1])})
    assert_same(made, prepared(made).model, {"x": noise(5, 3, 4)})
    assert import_model(made).outputs[0].shape == (4, "batch", 3)


def test_filters_with_scales_for_blocks_are_dequantised() -> None:
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=8),
        node("Conv", ["x", "d"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-127, 128, (8, 16, 3, 3)).astype(np.int8),
        "s": (2.0 ** -rng.integers(4, 8, (8, 2, 3, 3))).astype(np.float32),
    }
    made = model(nodes, {"x": (1, 16, 8, 8)}, constants, opset=21)
    assert_same(made, prepared(made).model, {"x": noise(1, 16, 8, 8)})
